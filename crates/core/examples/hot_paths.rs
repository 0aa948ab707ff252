//! Runs one hot path so many times: `hot_paths NAME TIMES`. `cargo xtask gates` counts the
//! instructions of two runs of different lengths, whose difference is the path's alone.

use gpu_async_reactor_core::*;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A path: its name, and how to take it so many times.
type Path = (&'static str, fn(u64));

const PATHS: &[Path] = &[
    ("wake_poll_1", |times| wake_poll(1, times)),
    ("wake_poll_1000", |times| wake_poll(1_000, times)),
    ("yield_dyn", yield_dyn),
    ("spawn_finish", spawn_finish),
    ("quiet_pass_64_slots", |times| quiet_pass(8, false, times)),
    ("quiet_pass_belled", |times| quiet_pass(1_250, true, times)),
    ("whole_wait", whole_wait),
    ("timer_insert_cancel", timer_insert_cancel),
    ("timer_expire", timer_expire),
    ("predict_hazard", predict_hazard),
    ("predict_min", predict_min),
];

fn main() {
    let mut args = std::env::args().skip(1);
    let (name, times) = (args.next(), args.next().and_then(|text| text.parse().ok()));
    match (PATHS.iter().find(|(path, _)| Some(*path) == name.as_deref()), times) {
        (Some((_, run)), Some(times)) => run(times),
        _ => PATHS.iter().for_each(|(path, _)| println!("{path}")),
    }
}

/// Wakes itself so many times, then ends.
struct SelfWake(u64);

impl Future for SelfWake {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

fn host() -> (ManualClock, Reactor<'static, ManualClock>, ManualIdle) {
    let clock = ManualClock::new();
    (clock.handle(), Reactor::new(clock.handle()), ManualIdle::new(clock))
}

fn wake_poll(tasks: u64, times: u64) {
    let (_, reactor, mut idle) = host();
    let mut executor = Executor::new();
    (0..tasks).for_each(|_| drop(executor.spawn(SelfWake(times / tasks))));
    executor.run(&reactor, &mut idle, DurNs(1)).expect("no stall");
}

fn yield_dyn(times: u64) {
    let (_, reactor, mut idle) = host();
    let mut executor = DynExecutor::new();
    for _ in 0..64 {
        drop(executor.spawn_dyn(async move {
            for _ in 0..times / 64 {
                yield_now().await;
            }
        }));
    }
    executor.run(&reactor, &mut idle, DurNs(1)).expect("no stall");
}

fn spawn_finish(times: u64) {
    let (_, reactor, mut idle) = host();
    let mut executor = Executor::new();
    for _ in 0..times / 1_000 {
        (0..1_000).for_each(|_| drop(executor.spawn(std::future::ready(()))));
        executor.run(&reactor, &mut idle, DurNs(1)).expect("no stall");
    }
}

fn lines(count: usize) -> Vec<CompletionLine> {
    (0..count).map(|_| CompletionLine::new()).collect()
}

/// Registers `tasks` waits that nothing completes, spread over every slot.
fn wait_on<'r, 'l>(
    reactor: &'r Reactor<'l, ManualClock>,
    lines: &'l [CompletionLine],
    tasks: usize,
) -> Vec<Ready<'r, 'l, ManualClock>> {
    let mut cx = Context::from_waker(Waker::noop());
    (0..tasks)
        .map(|task| {
            let (line, slot) = (&lines[task / 8 % lines.len()], Slot::ALL[task % 8]);
            let mut wait =
                reactor.ready(MemoryDescriptor::new(line, slot, 1_000_000_000 + task as u64), None);
            assert!(Pin::new(&mut wait).poll(&mut cx).is_pending());
            wait
        })
        .collect()
}

fn quiet_pass(count: usize, belled: bool, times: u64) {
    let lines = lines(count);
    let reactor = Reactor::new(ManualClock::new());
    if belled {
        for (at, line) in lines.iter().enumerate() {
            reactor.bind(line, Slot::ALL[at % 7]).expect("a device's slot");
        }
    }
    let waits = wait_on(&reactor, &lines, 10_000);
    reactor.fire();
    (0..times).for_each(|_| assert!(!reactor.fire()));
    drop(waits);
}

/// Counts its wakes; on one thread, for a waker that costs next to nothing.
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Register, store, pass, poll, resolve; 10,000 others wait on 64 slots, each slot's in the order
/// they registered in.
fn whole_wait(times: u64) {
    let lines = lines(8);
    let reactor = Reactor::new(ManualClock::new());
    let count = Arc::new(Count(AtomicU64::new(0)));
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let wait = |n: u64| {
        let (line, slot) = (&lines[n as usize % 8], Slot::ALL[n as usize / 8 % 8]);
        reactor.ready(MemoryDescriptor::new(line, slot, n), None)
    };
    let mut waits: VecDeque<_> = (1..=10_000).map(wait).collect();
    waits.iter_mut().for_each(|wait| assert!(Pin::new(wait).poll(&mut cx).is_pending()));
    for n in 1..=times {
        waits.push_back(wait(n + 10_000));
        assert!(waits.back_mut().is_some_and(|last| Pin::new(last).poll(&mut cx).is_pending()));
        lines[n as usize % 8].store(Slot::ALL[n as usize / 8 % 8], n);
        assert!(reactor.fire());
        let first = waits.pop_front();
        assert!(first.is_some_and(|mut first| Pin::new(&mut first).poll(&mut cx).is_ready()));
    }
    assert_eq!(count.0.load(Ordering::Relaxed), times);
}

/// A deadline some way off, by a fixed rule.
fn deadline(n: u64) -> MonoNs {
    MonoNs(1_000_000 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 1_000_000_000)
}

fn timer_insert_cancel(times: u64) {
    let reactor = Reactor::new(ManualClock::new());
    let mut cx = Context::from_waker(Waker::noop());
    let mut timers: Vec<_> =
        (0..10_000).map(|n| Some(Box::pin(reactor.alarm(deadline(n))))).collect();
    timers
        .iter_mut()
        .flatten()
        .for_each(|timer| assert!(timer.as_mut().poll(&mut cx).is_pending()));
    for n in 0..times {
        let mut timer = pin!(reactor.alarm(deadline(n + 10_000)));
        assert!(timer.as_mut().poll(&mut cx).is_pending());
    }
}

fn timer_expire(times: u64) {
    let clock = ManualClock::new();
    let reactor = Reactor::new(clock.handle());
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..times / 1_000 {
        let now = clock.monotonic_ns().0;
        let mut timers: Vec<_> = (0..1_000)
            .map(|n| Box::pin(reactor.alarm(MonoNs(now + 1 + n * 7_919 % 1_000))))
            .collect();
        timers.iter_mut().for_each(|timer| assert!(timer.as_mut().poll(&mut cx).is_pending()));
        for _ in 0..1_000 {
            clock.advance(DurNs(1));
            assert!(reactor.fire());
        }
    }
}

/// A wait's length, by a fixed rule: near 5 or 45 ms.
fn length(n: u64) -> u64 {
    let drawn = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    5_000_000 + drawn % 2 * 40_000_000 + drawn / 2 % 60_000
}

/// Begins, decides once, and hears how it ended: in a watch, and every fourth time in a sleep.
fn predict_hazard(times: u64) {
    let mut schedule = HazardSchedule::new(Costs { lag: 5, cpu: 1 });
    for n in 0..times {
        let length = length(n);
        schedule.begin(0);
        std::hint::black_box(schedule.step(0));
        schedule.overslept(60_000 + length % 16_384);
        schedule.ended(match n % 4 {
            3 => Ending::Between(length - 40_000, length + 40_000),
            _ => Ending::At(length),
        });
    }
}

fn predict_min(times: u64) {
    let plan =
        DeadlinePlan { margin_ns: 50_000, min_sleep_ns: 1, max_sleep_ns: 1 << 30, window: 8 };
    let mut point = PointEstimate::new();
    for n in 0..times {
        std::hint::black_box(point.sleep_ns(&plan));
        point.observe(&plan, Outcome::Exact { residual_ns: length(n) });
    }
}
