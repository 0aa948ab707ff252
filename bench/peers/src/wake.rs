//! Suites `register` and `wake`: end to end over the simulated device; and wakes that cross threads, for
//! the suite `executor`.

use crate::measure::{Bench, Subject, line, pin_first, subject};
use crate::runtimes::*;
use gpu_async_reactor::backend::sim::{SimDevice, SimOptions, SimQueue, Work};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle, Watcher};
use gpu_async_reactor::{
    Clock, CompletionLine, DurNs, DynExecutor, MemoryDescriptor, Queue, Reactor, Slot,
};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// What an asker on another thread and the task that answers share.
#[derive(Default)]
struct Talk {
    waker: OnceLock<Waker>,
    asked: AtomicU64,
    answered: AtomicU64,
    over: AtomicBool,
}

impl Talk {
    fn answer(&self) {
        self.answered.store(self.asked.load(Ordering::Acquire), Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Asks so many times, each after a pause, and waits for the answer on this thread: what the
    /// answers took.
    fn ask(&self, times: u64, pause: Duration, wake: impl Fn()) -> Duration {
        let mut took = Duration::ZERO;
        for n in 1..=times {
            let start = Instant::now();
            while start.elapsed() < pause {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            self.asked.store(n, Ordering::Release);
            wake();
            while self.answered.load(Ordering::Acquire) < n {
                std::hint::spin_loop();
            }
            took += start.elapsed();
        }
        self.over.store(true, Ordering::Release);
        wake();
        took
    }

    /// The same from a thread of its own, once the task has left its waker.
    fn ask_beside(
        self: &Arc<Self>,
        times: u64,
        pause: Duration,
    ) -> std::thread::JoinHandle<Duration> {
        let talk = self.clone();
        std::thread::spawn(move || {
            pin_first();
            let waker = talk.waker.wait();
            talk.ask(times, pause, || waker.wake_by_ref())
        })
    }
}

/// Answers each question; or keeps its executor busy until all were asked.
enum Talker {
    Answers(Arc<Talk>, Latch),
    Busy(Arc<Talk>, Latch),
}

impl Future for Talker {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (talk, latch) = match &*self {
            Talker::Answers(talk, latch) => {
                let _ = talk.waker.set(cx.waker().clone());
                talk.answer();
                (talk, latch)
            }
            Talker::Busy(talk, latch) => {
                cx.waker().wake_by_ref();
                (talk, latch)
            }
        };
        if !talk.is_over() {
            return Poll::Pending;
        }
        latch.done();
        Poll::Ready(())
    }
}

fn running<'a, R: Runtime>(times: u64) -> Subject<'a> {
    subject(R::NAME, move || {
        let talk = Arc::new(Talk::default());
        let asker = talk.ask_beside(times, Duration::from_micros(2));
        R::run(1, 2, |task, latch| match task {
            0 => Talker::Answers(talk.clone(), latch),
            _ => Talker::Busy(talk.clone(), latch),
        });
        (asker.join().expect("no panic"), times)
    })
}

fn idle<'a, R: Runtime>(times: u64) -> Subject<'a> {
    subject(R::NAME, move || {
        let talk = Arc::new(Talk::default());
        let asker = talk.ask_beside(times, PAUSE);
        R::run(1, 1, |_, latch| Talker::Answers(talk.clone(), latch));
        (asker.join().expect("no panic"), times)
    })
}

/// Long enough that who waits sleeps by then.
const PAUSE: Duration = Duration::from_micros(200);

/// Our executor with a promise of wakes from outside; with `watching` it also waits for a word, and
/// so it naps and doesn't sleep for good.
fn ours_idle(times: u64, watching: bool) -> (Duration, u64) {
    let talk = Arc::new(Talk::default());
    let asker = talk.ask_beside(times, PAUSE);
    let line = CompletionLine::new();
    let clock = StdClock::new();
    let reactor = Reactor::new(clock);
    let _promise = reactor.outside();
    let mut executor = DynExecutor::new();
    let (watched, answers) = (&line, &talk);
    if watching {
        let reactor = &reactor;
        drop(executor.spawn_dyn(async move {
            reactor.ready(MemoryDescriptor::new(watched, Slot::ALL[0], 1), None).await;
        }));
    }
    drop(executor.spawn_dyn(poll_fn(move |cx| {
        let _ = answers.waker.set(cx.waker().clone());
        answers.answer();
        if !answers.is_over() {
            return Poll::Pending;
        }
        watched.store(Slot::ALL[0], 1);
        Poll::Ready(())
    })));
    let mut idle = StdIdle::new(clock, None);
    executor.run(&reactor, &mut idle, DurNs::from_ms(1)).expect("no stall");
    (asker.join().expect("no panic"), times)
}

/// A bare thread that spins on a word, or sleeps in the kernel until it is unparked: the floor.
fn bare(times: u64, spins: bool) -> (Duration, u64) {
    let talk = Arc::new(Talk::default());
    let (asked, thread) = (talk.clone(), std::thread::current());
    let asker = std::thread::spawn(move || {
        pin_first();
        let pause = if spins { Duration::from_micros(2) } else { PAUSE };
        asked.ask(times, pause, || {
            if !spins {
                thread.unpark()
            }
        })
    });
    while !talk.is_over() {
        if spins {
            std::hint::spin_loop()
        } else {
            std::thread::park()
        }
        talk.answer();
    }
    (asker.join().expect("no panic"), times)
}

pub fn cross_thread(bench: &Bench) {
    let times = (20_000 / bench.scale).max(10);
    bench.compare(
        "executor",
        "cross_wake_running",
        vec![
            running::<Ours>(times),
            subject("bare-spin", move || bare(times, true)),
            running::<TokioLocalSet>(times),
            running::<LocalPool>(times),
            running::<FuturesUnordered>(times),
            running::<AsyncExecutor>(times),
        ],
    );
    let times = (1_000 / bench.scale).max(10);
    bench.compare(
        "executor",
        "cross_wake_idle",
        vec![
            subject("ours", move || ours_idle(times, false)),
            subject("ours-napping", move || ours_idle(times, true)),
            subject("bare-futex", move || bare(times, false)),
            idle::<TokioLocalSet>(times),
            idle::<FuturesUnordered>(times),
            idle::<AsyncExecutor>(times),
        ],
    );
}

/// Registers a wait for work that runs on, and forgets it; beside a thousand others.
pub fn register(bench: &Bench) {
    let device = SimDevice::start(SimOptions::default());
    let mut queue = device.queue().expect("a thread");
    let number = queue.submit(Work::lasting(DurNs::from_ms(600_000))).expect("a device");
    let reactor = Reactor::new(StdClock::new());
    let line = queue.line().clone();
    let mut cx = Context::from_waker(Waker::noop());
    let borrowed = || reactor.ready(MemoryDescriptor::new(&line, queue.slot(), number), None);
    let shared = || reactor.ready_shared(line.clone(), queue.slot(), number, None);
    let mut others: Vec<_> = (0..1_000).map(|_| borrowed()).collect();
    others.iter_mut().for_each(|wait| assert!(Pin::new(wait).poll(&mut cx).is_pending()));
    let watcher = Watcher::new(None);
    let n = 100_000 / bench.scale;
    let time = |register: &dyn Fn()| {
        let start = Instant::now();
        (0..n).for_each(|_| register());
        (start.elapsed(), n)
    };
    let pending = |wait: &mut dyn FnMut(&mut Context<'_>) -> bool| {
        assert!(wait(&mut Context::from_waker(Waker::noop())));
    };
    bench.compare(
        "register",
        "register_forget",
        vec![
            subject("ours", || {
                time(&|| {
                    let mut wait = borrowed();
                    pending(&mut |cx| Pin::new(&mut wait).poll(cx).is_pending());
                })
            }),
            subject("ours-shared-line", || {
                time(&|| {
                    let mut wait = shared();
                    pending(&mut |cx| Pin::new(&mut wait).poll(cx).is_pending());
                })
            }),
            subject("ours-watcher", || {
                time(&|| {
                    let mut wait = watcher.watch(line.clone(), queue.slot(), number);
                    pending(&mut |cx| Pin::new(&mut wait).poll(cx).is_pending());
                })
            }),
        ],
    );
}

/// What a run of steps came to.
struct Seen {
    lags_ns: Vec<f64>,
    cpu_ns: f64,
    waits: u64,
}

/// Steps of 1 ms on each queue, one after the other: the lag from the store to the waiter's next
/// instruction, and CPU time a wait without the device's own threads.
fn steps(queues: usize, wait: impl FnOnce(Vec<SimQueue>, u64) -> Vec<f64>, each: u64) -> Seen {
    let device = SimDevice::start(SimOptions::default());
    let made: Vec<_> = (0..queues).map(|_| device.queue().expect("a thread")).collect();
    let (cpu, of_device) = (cpu_time(), device.cpu_time());
    let lags_ns = wait(made, each);
    let cpu = cpu_time() - cpu - Duration::from(device.cpu_time()).saturating_sub(of_device.into());
    let waits = queues as u64 * each;
    Seen { lags_ns, cpu_ns: cpu.as_nanos() as f64 / waits as f64, waits }
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn lag(queue: &SimQueue, number: u64) -> f64 {
    let now = StdClock::new().monotonic_ns();
    queue.stored_at(number).map_or(0.0, |at| now.since(at).0 as f64)
}

const STEP: DurNs = DurNs::from_ms(1);

fn on_reactor(queues: Vec<SimQueue>, each: u64) -> Vec<f64> {
    let lags = RefCell::new(Vec::new());
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    for mut queue in queues {
        let (reactor, lags) = (&reactor, &lags);
        drop(executor.spawn_dyn(async move {
            for _ in 0..each {
                let number = queue.submit(Work::lasting(STEP)).expect("a device");
                reactor.ready_shared(queue.line().clone(), queue.slot(), number, None).await;
                lags.borrow_mut().push(lag(&queue, number));
            }
        }));
    }
    let mut idle = StdIdle::new(StdClock::new(), None);
    executor.run(&reactor, &mut idle, DurNs::from_ms(1)).expect("no stall");
    drop(executor);
    lags.into_inner()
}

fn on_watcher(queues: Vec<SimQueue>, each: u64) -> Vec<f64> {
    let watcher = Watcher::new(None);
    on_tokio(queues, each, async |queue, number| {
        watcher.watch(queue.line().clone(), queue.slot(), number).await;
    })
}

fn on_blocking_threads(queues: Vec<SimQueue>, each: u64) -> Vec<f64> {
    let threads = queues.into_iter().map(|mut queue| {
        std::thread::spawn(move || {
            let step = |_| {
                let number = queue.submit(Work::lasting(STEP)).expect("a device");
                while !queue.block(number, DurNs::from_ms(100)).expect("a device") {}
                lag(&queue, number)
            };
            (0..each).map(step).collect::<Vec<_>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
}

/// What asks the status and gives way, until it is done.
fn on_tokio_polling(queues: Vec<SimQueue>, each: u64) -> Vec<f64> {
    on_tokio(queues, each, async |queue, number| {
        while !queue.status(number).expect("a device") {
            tokio::task::yield_now().await;
        }
    })
}

fn on_tokio(queues: Vec<SimQueue>, each: u64, wait: impl AsyncFn(&mut SimQueue, u64)) -> Vec<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let lags = RefCell::new(Vec::new());
    let tasks = queues.into_iter().map(|mut queue| {
        let (lags, wait) = (&lags, &wait);
        async move {
            for _ in 0..each {
                let number = queue.submit(Work::lasting(STEP)).expect("a device");
                wait(&mut queue, number).await;
                lags.borrow_mut().push(lag(&queue, number));
            }
        }
    });
    runtime.block_on(futures_util::future::join_all(tasks));
    lags.into_inner()
}

pub fn run(bench: &Bench) {
    type Way = fn(Vec<SimQueue>, u64) -> Vec<f64>;
    let ways: [(&str, Way); 4] = [
        ("ours", on_reactor),
        ("ours-watcher", on_watcher),
        ("blocking-thread", on_blocking_threads),
        ("tokio-polling", on_tokio_polling),
    ];
    for queues in [1, 16] {
        let mut seen: Vec<(Vec<f64>, Vec<f64>, u64)> = vec![Default::default(); ways.len()];
        for _ in 0..bench.rounds {
            for ((_, way), (lags, cpu, waits)) in ways.iter().zip(&mut seen) {
                let one = steps(queues, way, (200 / bench.scale).max(5));
                lags.extend(one.lags_ns);
                cpu.push(one.cpu_ns);
                *waits += one.waits;
            }
        }
        let case = format!("steps_1ms_on_{queues}");
        for ((name, _), (lags, cpu, waits)) in ways.iter().zip(&mut seen) {
            line("wake", &case, name, "lag_p50_ns", lags, *waits, true);
            line("wake", &case, name, "cpu_per_wait_ns", cpu, *waits, true);
        }
    }
}
