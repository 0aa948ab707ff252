//! The executor and the reactor under random load from three threads: `stress ROUNDS SEED`. Run under
//! the sanitizers by `cargo xtask asan tsan`.

use atomic_waker::AtomicWaker;
use gpu_async_reactor_core::*;
use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const TASKS: u64 = 100;
const LINES: usize = 3;

#[derive(Clone, Copy)]
struct Since(Instant);

impl Clock for Since {
    fn monotonic_ns(&self) -> MonoNs {
        MonoNs(self.0.elapsed().as_nanos() as u64)
    }
}

struct Naps(Since, Waker);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Idle for Naps {
    fn sleep_until(&mut self, at: MonoNs) {
        let left = at.since(self.0.monotonic_ns());
        thread::park_timeout(Duration::from(left).min(Duration::from_secs(1)));
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let end = self.0.monotonic_ns() + bound;
        while !ready(line) && self.0.monotonic_ns() < end {
            thread::park_timeout(Duration::from_micros(20));
        }
        ready(line)
    }

    fn unparker(&self) -> Option<&Waker> {
        Some(&self.1)
    }
}

fn random(state: &Cell<u64>) -> u64 {
    let mut x = state.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    state.replace(x)
}

/// A task's request to be woken by the other thread, which answers before it does so. No lock is in
/// it: a sanitizer that doesn't know the standard library's couldn't tell what it orders.
#[derive(Default)]
struct Letter {
    asked: AtomicBool,
    waker: AtomicWaker,
    answer: AtomicU64,
}

impl Letter {
    async fn ask(&self) {
        let mut posted = false;
        poll_fn(|cx| {
            if !posted {
                posted = true;
                self.answer.store(0, Ordering::Relaxed);
                self.waker.register(cx.waker());
                self.asked.store(true, Ordering::Release);
                return Poll::Pending;
            }
            // Relaxed: that it is there is the wake's promise.
            assert_eq!(self.answer.load(Ordering::Relaxed), 7, "woken before the answer was there");
            Poll::Ready(())
        })
        .await;
    }

    fn answer(&self) -> bool {
        let asked = self.asked.swap(false, Ordering::Acquire);
        if asked {
            self.answer.store(7, Ordering::Relaxed);
            self.waker.wake();
        }
        asked
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (rounds, seed) = (args.next().unwrap_or(200), args.next().unwrap_or(1));
    let lines: [CompletionLine; LINES] = Default::default();
    let letters: Vec<Letter> = (0..TASKS).map(|_| Letter::default()).collect();
    let over = AtomicBool::new(false);
    let clock = Since(Instant::now());
    let reactor = Reactor::new(clock);
    reactor.bind(&lines[0], Slot::ALL[0]).expect("a device's slot");
    let bell = reactor.bell().clone();
    let done = Cell::new(0);
    thread::scope(|scope| {
        // The device: stores to random words, and rings for the first line.
        let device = scope.spawn(|| {
            let state = Cell::new(seed | 1);
            let mut numbers = [[0; LINE_WORDS]; LINES];
            for ring in 1.. {
                let (line, slot) =
                    (random(&state) as usize % LINES, random(&state) as usize % LINE_WORDS);
                numbers[line][slot] += 1;
                lines[line].store(Slot::ALL[slot], numbers[line][slot]);
                if line == 0 {
                    bell.ring_group(Slot::ALL[0], ring);
                }
                if over.load(Ordering::Acquire) {
                    break;
                }
                thread::yield_now();
            }
        });
        // The waker: answers letters in no order.
        let answerer = scope.spawn(|| {
            let state = Cell::new(seed | 5);
            while !over.load(Ordering::Acquire) {
                if !letters[(random(&state) % TASKS) as usize].answer() {
                    thread::yield_now();
                }
            }
        });
        let _promise = reactor.outside();
        let mut executor = DynExecutor::new();
        for task in 0..TASKS {
            let (reactor, lines, letters, done) = (&reactor, &lines, &letters, &done);
            let spawner = executor.spawner();
            drop(executor.spawn_dyn(async move {
                let state = Cell::new((seed << 8 | task) | 1 << 40);
                for _ in 0..rounds {
                    let now = reactor.monotonic_ns();
                    match random(&state) % 5 {
                        0 => yield_now().await,
                        1 => reactor.alarm(now + DurNs(random(&state) % 50_000)).await,
                        2 => letters[task as usize].ask().await,
                        3 => {
                            let child = spawner.spawn_dyn(async { yield_now().await });
                            child.await.expect("it ends");
                        }
                        _ => {
                            let line = &lines[random(&state) as usize % LINES];
                            let slot = Slot::ALL[random(&state) as usize % LINE_WORDS];
                            let target = line.load(slot) + random(&state) % 3;
                            let until = Some(now + DurNs(200_000));
                            let work = MemoryDescriptor::new(line, slot, target);
                            if reactor.ready(work, until).await {
                                assert!(work.is_complete());
                            }
                        }
                    }
                }
                done.set(done.get() + 1);
            }));
        }
        let unpark = Waker::from(Arc::new(Unpark(thread::current())));
        let run = executor.run(&reactor, &mut Naps(clock, unpark), DurNs::from_us(500));
        over.store(true, Ordering::Release);
        // A join is what a sanitizer knows; the end of a scope isn't.
        for thread in [device, answerer] {
            thread.join().expect("no panic");
        }
        run.expect("no stall");
    });
    assert_eq!((done.get(), reactor.pending()), (TASKS, (0, 0)));
    println!("{TASKS} tasks of {rounds} rounds ended");
}
