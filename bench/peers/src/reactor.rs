//! Suite `reactor`: what a pass over many waits costs, and a whole wait, beside a plain scan of a
//! vector of descriptors. Suite `scale`: the same waits on one reactor and on two.

use crate::measure::{Bench, line, pin, pin_first, subject};
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::{CompletionLine, LINE_WORDS, MemoryDescriptor, Reactor, Ready, Slot};
use std::collections::VecDeque;
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// What a fair user would write: descriptors in a vector, looked at one by one, taken out by
/// swapping with the last.
#[derive(Default)]
struct LinearScan<'l> {
    waits: Vec<(MemoryDescriptor<'l>, Waker)>,
}

impl<'l> LinearScan<'l> {
    fn register(&mut self, work: MemoryDescriptor<'l>, waker: &Waker) {
        self.waits.push((work, waker.clone()));
    }

    fn fire(&mut self) -> bool {
        let before = self.waits.len();
        let mut at = 0;
        while at < self.waits.len() {
            if self.waits[at].0.is_complete() {
                self.waits.swap_remove(at).1.wake();
            } else {
                at += 1;
            }
        }
        self.waits.len() < before
    }
}

fn lines(slots: usize) -> Vec<CompletionLine> {
    (0..slots.div_ceil(LINE_WORDS)).map(|_| CompletionLine::new()).collect()
}

/// Numbers so far ahead that nothing stored here reaches them.
const FAR: u64 = 1 << 40;

fn place(lines: &[CompletionLine], slots: usize, n: u64) -> (&CompletionLine, Slot) {
    let slot = n as usize % slots;
    (&lines[slot / LINE_WORDS], Slot::ALL[slot % LINE_WORDS])
}

type Wait<'r, 'l> = Ready<'r, 'l, StdClock>;

fn register<'r, 'l>(
    reactor: &'r Reactor<'l, StdClock>,
    work: MemoryDescriptor<'l>,
    cx: &mut Context<'_>,
) -> Wait<'r, 'l> {
    let mut wait = reactor.ready(work, None);
    assert!(Pin::new(&mut wait).poll(cx).is_pending());
    wait
}

/// Passes that find nothing: none stored, or with `written` each time a word that reaches nobody's
/// target.
fn pass(bench: &Bench, case: &str, tasks: usize, slots: usize, belled: bool, written: bool) {
    if !bench.wants(case) {
        return;
    }
    let lines = lines(slots);
    let reactor = Reactor::new(StdClock::new());
    if belled {
        for (at, line) in lines.iter().enumerate() {
            reactor.bind(line, Slot::ALL[at % 7]).expect("a device's slot");
        }
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = Vec::new();
    let mut scan = LinearScan::default();
    for task in 0..tasks as u64 {
        let (line, slot) = place(&lines, slots, task);
        let work = MemoryDescriptor::new(line, slot, FAR + task);
        waits.push(register(&reactor, work, &mut cx));
        scan.register(work, Waker::noop());
    }
    reactor.fire();
    let (mut stored, mut rung) = (0, 0);
    let mut store = |n: u64| {
        if written {
            stored += 1;
            let (line, slot) = place(&lines, slots, n);
            line.store(slot, stored);
        }
    };
    let passes = 200_000 / bench.scale;
    let scans = (20_000_000 / tasks as u64 / bench.scale).clamp(20, passes);
    bench.compare(
        "reactor",
        case,
        vec![
            subject("ours", || {
                let start = Instant::now();
                for n in 0..passes {
                    store(n);
                    if written && belled {
                        rung += 1;
                        let group = n as usize % slots / LINE_WORDS % 7;
                        reactor.bell().ring_group(Slot::ALL[group], rung);
                    }
                    assert!(!black_box(&reactor).fire());
                }
                (start.elapsed(), passes)
            }),
            subject("linear-scan", || {
                let start = Instant::now();
                for n in 0..scans {
                    if written {
                        let (line, slot) = place(&lines, slots, n);
                        line.store(slot, n);
                    }
                    assert!(!black_box(&mut scan).fire());
                }
                (start.elapsed(), scans)
            }),
        ],
    );
}

/// Register, store, pass, poll, resolve, while `tasks` others wait, each slot's in the order they
/// were submitted in.
fn whole_wait(bench: &Bench, case: &str, tasks: usize, slots: usize, belled: bool) {
    if !bench.wants(case) {
        return;
    }
    let lines = lines(slots);
    let reactor = Reactor::new(StdClock::new());
    if belled {
        for (at, line) in lines.iter().enumerate() {
            reactor.bind(line, Slot::ALL[at % 7]).expect("a device's slot");
        }
    }
    let count = 200_000 / bench.scale;
    let scans = (20_000_000 / tasks as u64 / bench.scale).clamp(20, count);
    let mut cx = Context::from_waker(Waker::noop());
    let work = |n: u64| {
        let (line, slot) = place(&lines, slots, n);
        MemoryDescriptor::new(line, slot, n + 1)
    };
    let tasks = tasks as u64;
    let mut waits: VecDeque<Wait<'_, '_>> =
        (0..tasks).map(|n| register(&reactor, work(n), &mut cx)).collect();
    let mut first = 0;
    let mut rung = 0;
    // The scan has lines of its own: those of the reactor move on with it.
    let others = self::lines(slots);
    let other = |n: u64| {
        let (line, slot) = place(&others, slots, n);
        MemoryDescriptor::new(line, slot, n + 1)
    };
    let mut scan = LinearScan::default();
    (0..tasks).for_each(|n| scan.register(other(n), Waker::noop()));
    let mut first_of_scan = 0;
    bench.compare(
        "reactor",
        case,
        vec![
            subject("ours", || {
                let start = Instant::now();
                for _ in 0..count {
                    waits.push_back(register(&reactor, work(first + tasks), &mut cx));
                    let done = work(first);
                    done.line().store(done.slot(), done.target());
                    if belled {
                        rung += 1;
                        let group = first as usize % slots / LINE_WORDS % 7;
                        reactor.bell().ring_group(Slot::ALL[group], rung);
                    }
                    assert!(reactor.fire());
                    let mut wait = waits.pop_front().expect("as many as before");
                    assert!(Pin::new(&mut wait).poll(&mut cx).is_ready());
                    first += 1;
                }
                (start.elapsed(), count)
            }),
            subject("linear-scan", || {
                let start = Instant::now();
                for _ in 0..scans {
                    scan.register(other(first_of_scan + tasks), Waker::noop());
                    let done = other(first_of_scan);
                    done.line().store(done.slot(), done.target());
                    assert!(scan.fire());
                    assert!(done.is_complete());
                    first_of_scan += 1;
                }
                (start.elapsed(), scans)
            }),
        ],
    );
}

pub fn run(bench: &Bench) {
    for (tasks, slots) in [
        (1, 1),
        (64, 64),
        (1_000, 64),
        (10_000, 64),
        (100_000, 64),
        (10_000, 1_000),
        (10_000, 10_000),
    ] {
        for (belled, doorbell) in [(false, ""), (true, "_belled")] {
            pass(
                bench,
                &format!("quiet_{tasks}_on_{slots}{doorbell}"),
                tasks,
                slots,
                belled,
                false,
            );
            pass(
                bench,
                &format!("written_{tasks}_on_{slots}{doorbell}"),
                tasks,
                slots,
                belled,
                true,
            );
            whole_wait(bench, &format!("wait_{tasks}_on_{slots}{doorbell}"), tasks, slots, belled);
        }
    }
}

/// Whole waits a second on one thread and on two, each with a reactor of its own.
pub fn scale(bench: &Bench) {
    let mut values = [Vec::new(), Vec::new()];
    let count = 1_000_000 / bench.scale;
    for _ in 0..bench.rounds {
        for threads in [1, 2] {
            let start = Barrier::new(threads);
            let took = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..threads)
                    .map(|at| {
                        let start = &start;
                        scope.spawn(move || {
                            if at == 0 {
                                pin()
                            } else {
                                pin_first()
                            }
                            waits_alone(start, count)
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).max()
            });
            let seconds = took.unwrap_or_default().as_secs_f64();
            values[threads - 1].push(threads as f64 * count as f64 / seconds);
        }
    }
    for (at, threads) in ["1_thread", "2_threads"].into_iter().enumerate() {
        let n = (at as u64 + 1) * count * bench.rounds as u64;
        line("scale", threads, "ours", "waits_per_s", &mut values[at], n, false);
    }
}

fn waits_alone(start: &Barrier, count: u64) -> Duration {
    let lines = lines(64);
    let reactor = Reactor::new(StdClock::new());
    let mut cx = Context::from_waker(Waker::noop());
    start.wait();
    let start = Instant::now();
    for n in 0..count {
        let (line, slot) = place(&lines, 64, n);
        let mut wait = register(&reactor, MemoryDescriptor::new(line, slot, n + 1), &mut cx);
        line.store(slot, n + 1);
        assert!(reactor.fire());
        assert!(Pin::new(&mut wait).poll(&mut cx).is_ready());
    }
    start.elapsed()
}
