//! The standard library as a host: the suites, wakes from other threads, the watcher.

use gpu_async_reactor::host::std_host::{StdClock, StdIdle, Watcher};
use gpu_async_reactor::*;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use testkit::conformance;

/// Tells a hang from a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn idle() -> StdIdle {
    StdIdle::new(StdClock::new(), None)
}

#[test]
fn the_clock_and_its_timer_do_their_duties() {
    conformance::clock(&StdClock::new(), &StdClock::new());
    conformance::timer(&StdClock::new(), &StdClock::new(), |sleep| run_inline(sleep));
    let clock = ManualClock::new();
    conformance::clock(&clock, &clock.handle());
    conformance::timer(&clock, &clock.timer(), |mut sleep| {
        let mut context = Context::from_waker(Waker::noop());
        while sleep.as_mut().poll(&mut context).is_pending() {
            clock.advance(DurNs(500));
        }
    });
}

#[test]
fn the_idles_do_their_duties() {
    conformance::idle(&StdClock::new(), &mut idle());
    let clock = ManualClock::new();
    conformance::idle(&clock, &mut ManualIdle::new(clock.clone()));
}

#[test]
fn situation_13_a_store_between_the_check_and_the_park_ends_the_park_at_once() {
    let line = CompletionLine::new();
    line.store(Slot::ALL[0], 1); // the waiter looked before this
    let start = Instant::now();
    let seen = idle().park_line(&line, |l| l.load(Slot::ALL[0]) >= 1, DurNs::from_ms(60_000));
    assert!(seen && start.elapsed() < PATIENCE);
}

#[test]
fn a_store_from_another_thread_ends_a_park() {
    let line = Arc::new(CompletionLine::new());
    let device = {
        let line = line.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            line.store(Slot::ALL[3], 9);
        })
    };
    assert!(idle().park_line(&line, |l| l.load(Slot::ALL[3]) >= 9, DurNs::from_ms(60_000)));
    device.join().unwrap();
}

#[test]
fn a_wake_from_another_thread_ends_the_executors_park_and_its_sleep() {
    // A park bound and an alarm far beyond patience: only the wake can end the idle in time.
    const FAR: DurNs = DurNs(600_000_000_000);
    for watched in [true, false] {
        let line = CompletionLine::new();
        let reactor = Reactor::new(StdClock::new());
        let slot: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
        let mut executor = DynExecutor::new();
        let task = executor.spawn_dyn({
            let (slot, reactor, line) = (slot.clone(), &reactor, &line);
            async move {
                let far = reactor.clock().monotonic_ns() + FAR;
                let work = MemoryDescriptor::new(line, Slot::ALL[0], 1);
                let mut other: Pin<Box<dyn Future<Output = bool>>> = if watched {
                    Box::pin(reactor.ready(work, Some(far)))
                } else {
                    Box::pin(async move {
                        reactor.alarm(far).await;
                        true
                    })
                };
                poll_fn(|cx| {
                    let _ = other.as_mut().poll(cx).is_ready();
                    let mut slot = slot.lock().unwrap();
                    slot.1 = Some(cx.waker().clone());
                    if slot.0 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        });
        let waker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            let waker = {
                let mut slot = slot.lock().unwrap();
                slot.0 = true;
                slot.1.take()
            };
            waker.unwrap().wake();
        });
        let start = Instant::now();
        let stats = executor.run(&reactor, &mut idle(), FAR).unwrap();
        assert!(start.elapsed() < PATIENCE);
        assert!(if watched { stats.parked > 0 } else { stats.slept > 0 }, "{stats:?}");
        waker.join().unwrap();
        assert!(task.is_finished());
    }
}

#[test]
fn an_idle_handed_to_another_thread_is_woken_there() {
    // Asked here first, then moved: the sleep without an end is the other thread's.
    let mut moved = idle();
    assert!(moved.unparker().is_some());
    let (send, wakers) = mpsc::channel::<Waker>();
    let sleeper = std::thread::spawn(move || {
        // As a reactor does: asks for the waker, then sleeps; early returns are allowed.
        for _ in 0..2 {
            let _ = send.send(moved.unparker().unwrap().clone());
            moved.sleep_until(MonoNs::MAX);
        }
    });
    let start = Instant::now();
    let mut last = wakers.recv_timeout(PATIENCE).unwrap();
    while !sleeper.is_finished() {
        assert!(start.elapsed() < PATIENCE, "slept on");
        last = wakers.try_recv().unwrap_or(last);
        last.wake_by_ref();
        std::thread::sleep(Duration::from_millis(1));
    }
    sleeper.join().unwrap();
}

/// Says which waker was woken.
struct Notes(mpsc::Sender<usize>, usize);

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(self.1);
    }
}

#[test]
fn situation_12_two_watches_on_one_slot_resolve_in_the_order_of_their_targets() {
    let watcher = Watcher::new(None);
    let line = Arc::new(CompletionLine::new());
    let (send, woken) = mpsc::channel();
    let mut watches = [5, 3].map(|target| watcher.watch(line.clone(), Slot::ALL[2], target));
    let mut poll = |which: usize| {
        let waker = Waker::from(Arc::new(Notes(send.clone(), which)));
        Pin::new(&mut watches[which]).poll(&mut Context::from_waker(&waker))
    };
    assert!(poll(0).is_pending() && poll(1).is_pending());
    line.store(Slot::ALL[2], 4);
    assert_eq!(woken.recv_timeout(PATIENCE), Ok(1));
    assert!(poll(1).is_ready() && poll(0).is_pending());
    assert!(woken.try_recv().is_err(), "target 5 was woken at 4");
    line.store(Slot::ALL[2], 5);
    assert_eq!(woken.recv_timeout(PATIENCE), Ok(0));
    assert!(poll(0).is_ready());
}

#[test]
fn a_dropped_watch_lets_go_of_its_line_and_wakes_nobody() {
    let watcher = Watcher::new(None);
    let line = Arc::new(CompletionLine::new());
    let (send, woken) = mpsc::channel();
    let mut watch = Box::pin(watcher.watch(line.clone(), Slot::ALL[0], 1));
    let waker = Waker::from(Arc::new(Notes(send, 0)));
    assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(watch);
    let start = Instant::now();
    while Arc::strong_count(&line) > 1 {
        assert!(start.elapsed() < PATIENCE, "the watcher kept the line");
        std::thread::sleep(Duration::from_millis(1));
    }
    line.store(Slot::ALL[0], 1);
    assert!(woken.recv_timeout(Duration::from_millis(30)).is_err());
}

#[test]
fn a_watch_polled_with_another_waker_wakes_that_one() {
    let watcher = Watcher::new(None);
    let line = Arc::new(CompletionLine::new());
    let (send, woken) = mpsc::channel();
    let mut watch = Box::pin(watcher.watch(line.clone(), Slot::ALL[0], 1));
    for which in [0, 1] {
        let waker = Waker::from(Arc::new(Notes(send.clone(), which)));
        assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    // Until the second letter is taken, the first poll's waker is the one that is registered.
    std::thread::sleep(Duration::from_millis(50));
    line.store(Slot::ALL[0], 1);
    let first = woken.recv_timeout(PATIENCE).unwrap();
    assert!(first == 1 || woken.recv_timeout(PATIENCE) == Ok(1), "the second was never woken");
}

#[test]
fn watches_outlive_their_watcher_and_many_lines_are_served() {
    let watcher = Watcher::new(None);
    let lines: Vec<_> = (0..50).map(|_| Arc::new(CompletionLine::new())).collect();
    let (send, woken) = mpsc::channel();
    let mut watches: Vec<_> = (0..400)
        .map(|n| Box::pin(watcher.watch(lines[n % 50].clone(), Slot::ALL[n / 50], 1 + n as u64)))
        .collect();
    drop(watcher);
    for (n, watch) in watches.iter_mut().enumerate() {
        let waker = Waker::from(Arc::new(Notes(send.clone(), n)));
        assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    for n in 0..400 {
        lines[n % 50].store(Slot::ALL[n / 50], 1 + n as u64);
    }
    let mut seen: Vec<_> = (0..400).map(|_| woken.recv_timeout(PATIENCE).unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..400).collect::<Vec<_>>());
    drop(watches);
    let start = Instant::now();
    while lines.iter().any(|line| Arc::strong_count(line) > 1) {
        assert!(start.elapsed() < PATIENCE, "the thread still holds a line");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_lock_is_held_while_a_waker_runs() {
    // A waker that registers another watch from inside: a held lock would never end this.
    struct Again(Arc<Watcher>, Arc<CompletionLine>, AtomicU32, mpsc::Sender<u32>);
    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            let round = self.2.fetch_add(1, Ordering::Relaxed) + 1;
            let mut next = Box::pin(self.0.watch(self.1.clone(), Slot::ALL[0], 99));
            let _ = next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            drop(next);
            let _ = self.3.send(round);
        }
    }
    let watcher = Arc::new(Watcher::new(None));
    let line = Arc::new(CompletionLine::new());
    let (send, woken) = mpsc::channel();
    let again = Arc::new(Again(watcher.clone(), line.clone(), AtomicU32::new(0), send));
    let mut watch = Box::pin(watcher.watch(line.clone(), Slot::ALL[0], 1));
    let waker = Waker::from(again);
    assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    line.store(Slot::ALL[0], 1);
    assert_eq!(woken.recv_timeout(PATIENCE), Ok(1));
}

#[test]
fn a_waker_that_panics_takes_no_other_watch_with_it() {
    struct Broken(mpsc::Sender<usize>);
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(99);
            std::panic::resume_unwind(Box::new("a waker's own panic"));
        }
    }
    let watcher = Watcher::new(None);
    let line = Arc::new(CompletionLine::new());
    for round in 1..=6 {
        let (send, woken) = mpsc::channel();
        let broken = Waker::from(Arc::new(Broken(send.clone())));
        let mut first = Box::pin(watcher.watch(line.clone(), Slot::ALL[0], round));
        assert!(first.as_mut().poll(&mut Context::from_waker(&broken)).is_pending());
        let mut watches: Vec<_> = (0..14)
            .map(|n| Box::pin(watcher.watch(line.clone(), Slot::ALL[1 + n / 2], round)))
            .collect();
        for (n, watch) in watches.iter_mut().enumerate() {
            let waker = Waker::from(Arc::new(Notes(send.clone(), n)));
            assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        if round % 2 == 0 {
            // Time to register: the panic comes in the reactor's pass, else as its letter is taken.
            std::thread::sleep(Duration::from_millis(20));
        }
        for slot in Slot::ALL {
            line.store(slot, round);
        }
        // Woken once more than needed is legal; woken never is not.
        let mut missing: std::collections::BTreeSet<_> = (0..14).chain([99]).collect();
        while !missing.is_empty() {
            let woke = woken.recv_timeout(PATIENCE);
            missing.remove(&woke.unwrap_or_else(|_| panic!("round {round}: lost {missing:?}")));
        }
    }
}

/// Invariant 12: a watcher that has worked and has nothing in flight is never scheduled.
#[test]
#[cfg(target_os = "linux")]
fn an_idle_watcher_does_not_run() {
    struct Tid(mpsc::Sender<usize>, Arc<AtomicU64>);
    impl Wake for Tid {
        fn wake(self: Arc<Self>) {
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            let tid = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            self.1.store(tid, Ordering::Relaxed);
            let _ = self.0.send(0);
        }
    }
    let watcher = Watcher::new(None);
    let line = Arc::new(CompletionLine::new());
    let (send, woken) = mpsc::channel();
    let tid = Arc::new(AtomicU64::new(0));
    let waker = Waker::from(Arc::new(Tid(send, tid.clone())));
    let mut watch = Box::pin(watcher.watch(line.clone(), Slot::ALL[0], 1));
    assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    line.store(Slot::ALL[0], 1);
    woken.recv_timeout(PATIENCE).unwrap();
    drop(watch);
    let status = format!("/proc/self/task/{}/status", tid.load(Ordering::Relaxed));
    let switches = || -> u64 {
        let text = std::fs::read_to_string(&status).unwrap();
        let lines = text.lines().filter(|line| line.contains("ctxt_switches"));
        lines.map(|line| line.split_whitespace().last().unwrap().parse::<u64>().unwrap()).sum()
    };
    std::thread::sleep(Duration::from_millis(50));
    let before = switches();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(switches() - before, 0, "context switches of an idle watcher");
    drop(watcher);
}
