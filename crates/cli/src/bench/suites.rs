//! The suites.

use super::{Row, case};
use crate::exit::Failure;
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::{
    Alarmed, Clock, CompletionLine, DurNs, Executor, MemoryDescriptor, MonoNs, Reactor, Ready,
    Slot, yield_now,
};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const BOUND: DurNs = DurNs::from_ms(1);

/// Waking a task and polling it, yielding, spawning.
pub(super) fn executor() -> Result<Vec<Row>, Failure> {
    Ok(vec![
        case("executor", "wake_poll_1", 100_000, || wake_poll(1, 100_000))?,
        case("executor", "wake_poll_1000", 100_000, || wake_poll(1_000, 100))?,
        case("executor", "yield", 100_000, || {
            in_executor([async {
                for _ in 0..100_000 {
                    yield_now().await;
                }
            }])
        })?,
        case("executor", "spawn", 10_000, || {
            in_executor((0..10_000).map(|_| std::future::ready(())))
        })?,
    ])
}

/// Runs the futures to their end: how long that took, spawning included.
fn in_executor<F: Future<Output = ()>>(
    futures: impl IntoIterator<Item = F>,
) -> gpu_async_reactor::Result<Duration> {
    let reactor = Reactor::new(StdClock::new());
    let mut executor = Executor::new();
    let begin = Instant::now();
    for future in futures {
        executor.spawn(future);
    }
    executor.run(&reactor, &mut StdIdle::new(StdClock::new(), None), BOUND)?;
    Ok(begin.elapsed())
}

/// One more task wakes `tasks` others, each through the waker it left behind, `rounds` times.
fn wake_poll(tasks: usize, rounds: usize) -> gpu_async_reactor::Result<Duration> {
    let wakers: RefCell<Vec<Option<Waker>>> = RefCell::new(vec![None; tasks]);
    let over = Cell::new(false);
    let spent = Cell::new(Duration::ZERO);
    let reactor = Reactor::new(StdClock::new());
    let mut executor = Executor::<Pin<Box<dyn Future<Output = ()> + '_>>>::new();
    for task in 0..tasks {
        let (wakers, over) = (&wakers, &over);
        executor.spawn(Box::pin(poll_fn(move |cx| {
            if over.get() {
                return Poll::Ready(());
            }
            let seat = &mut wakers.borrow_mut()[task];
            match seat {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => *seat = Some(cx.waker().clone()),
            }
            Poll::Pending
        })));
    }
    let (wakers, over) = (&wakers, &over);
    let told = &spent;
    executor.spawn(Box::pin(async move {
        let wake_all = || wakers.borrow().iter().flatten().for_each(Waker::wake_by_ref);
        yield_now().await;
        let begin = Instant::now();
        for _ in 0..rounds {
            wake_all();
            yield_now().await;
        }
        told.set(begin.elapsed());
        over.set(true);
        wake_all();
    }));
    executor.run(&reactor, &mut StdIdle::new(StdClock::new(), None), BOUND)?;
    drop(executor);
    Ok(spent.get())
}

/// A pass over waiters on as many slots as they need, sixteen to a slot.
pub(super) fn reactor() -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for waiters in [1usize, 10, 100, 1_000, 10_000] {
        let lines: Vec<_> = (0..waiters.div_ceil(128)).map(|_| CompletionLine::new()).collect();
        let work = |i: usize| {
            let line = &lines[i / 128];
            MemoryDescriptor::new(line, Slot::ALL[i / 16 % 8], 1 << 40)
        };
        let reactor = Reactor::new(StdClock::new());
        let mut cx = Context::from_waker(Waker::noop());
        let mut registered: Vec<Pin<Box<Ready<'_, '_, _>>>> =
            (0..waiters).map(|i| Box::pin(reactor.ready(work(i), None))).collect();
        for ready in &mut registered {
            let _ = ready.as_mut().poll(&mut cx);
        }
        rows.push(case("reactor", format!("pass_quiet_{waiters}"), 100, || {
            let begin = Instant::now();
            for _ in 0..100 {
                black_box(reactor.fire());
            }
            Ok(begin.elapsed())
        })?);
        // One more waiter, on a word that is then written.
        let number = Cell::new(0);
        rows.push(case("reactor", format!("pass_written_{waiters}"), 100, || {
            let mut spent = Duration::ZERO;
            for _ in 0..100 {
                number.set(number.get() + 1);
                let line = &lines[0];
                let slot = Slot::ALL[0];
                let work = MemoryDescriptor::new(line, slot, number.get());
                let mut ready = std::pin::pin!(reactor.ready(work, None));
                let _ = ready.as_mut().poll(&mut cx);
                line.store(slot, number.get());
                let begin = Instant::now();
                black_box(reactor.fire());
                spent += begin.elapsed();
            }
            Ok(spent)
        })?);
    }
    Ok(rows)
}

/// A thousand alarms at a time, at times that come in no order.
pub(super) fn timers() -> Result<Vec<Row>, Failure> {
    const ALARMS: u64 = 1_000;
    let clock = Settable(Cell::new(1));
    let reactor = Reactor::new(&clock);
    // An odd multiplier visits the times in a scattered order.
    let at = |i: u64| MonoNs(1_000_000 + i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 1_000_000);
    let mut cx = Context::from_waker(Waker::noop());
    let fresh = || -> Vec<Pin<Box<Alarmed<'_, '_, _>>>> {
        (0..ALARMS).map(|i| Box::pin(reactor.alarm(at(i)))).collect()
    };
    let mut arm = |alarms: &mut Vec<Pin<Box<Alarmed<'_, '_, &Settable>>>>| {
        let begin = Instant::now();
        for alarm in alarms {
            let _ = alarm.as_mut().poll(&mut cx);
        }
        begin.elapsed()
    };
    Ok(vec![
        case("timers", "insert", ALARMS, || Ok(arm(&mut fresh())))?,
        case("timers", "cancel", ALARMS, || {
            let mut alarms = fresh();
            arm(&mut alarms);
            let begin = Instant::now();
            drop(alarms);
            Ok(begin.elapsed())
        })?,
        case("timers", "expire", ALARMS, || {
            clock.0.set(1);
            let mut alarms = fresh();
            arm(&mut alarms);
            clock.0.set(u64::MAX);
            let begin = Instant::now();
            black_box(reactor.fire());
            let spent = begin.elapsed();
            clock.0.set(1);
            Ok(spent)
        })?,
    ])
}

/// A clock that reads what it is told.
struct Settable(Cell<u64>);

impl Clock for Settable {
    fn monotonic_ns(&self) -> MonoNs {
        MonoNs(self.0.get())
    }
}
