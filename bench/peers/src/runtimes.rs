//! Each executor behind one function: spawn so many tasks, run until all have ended, so many times;
//! what that took, without making and dropping the executor.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Told by each task when it ends; the last one wakes who waits for all.
#[derive(Clone, Default)]
pub struct Latch(Rc<(Cell<usize>, RefCell<Option<Waker>>)>);

impl Latch {
    fn expect(&self, tasks: usize) {
        self.0.0.set(tasks);
    }

    pub fn done(&self) {
        let left = self.0.0.get().wrapping_sub(1);
        self.0.0.set(left);
        if left == 0
            && let Some(waker) = self.0.1.take()
        {
            waker.wake();
        }
    }

    fn wait(&self) -> impl Future<Output = ()> {
        std::future::poll_fn(|cx| {
            if self.0.0.get() == 0 {
                return Poll::Ready(());
            }
            self.0.1.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
    }
}

pub trait Runtime {
    const NAME: &'static str;
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration;
}

pub struct Ours;

impl Runtime for Ours {
    const NAME: &'static str = "ours";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        use gpu_async_reactor::{DurNs, Executor, Reactor, host::std_host::*};
        let clock = StdClock::new();
        let reactor = Reactor::new(clock);
        let mut idle = StdIdle::new(clock, None);
        let latch = Latch::default();
        let mut executor = Executor::new();
        let start = Instant::now();
        for _ in 0..batches {
            (0..tasks).for_each(|task| drop(executor.spawn(make(task, latch.clone()))));
            executor.run(&reactor, &mut idle, DurNs::from_us(100)).expect("no stall");
        }
        start.elapsed()
    }
}

pub struct OursDyn;

impl Runtime for OursDyn {
    const NAME: &'static str = "ours-dyn";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        use gpu_async_reactor::{DurNs, DynExecutor, Reactor, host::std_host::*};
        let clock = StdClock::new();
        let reactor = Reactor::new(clock);
        let mut idle = StdIdle::new(clock, None);
        let latch = Latch::default();
        let mut executor = DynExecutor::new();
        let start = Instant::now();
        for _ in 0..batches {
            (0..tasks).for_each(|task| drop(executor.spawn(Box::pin(make(task, latch.clone())))));
            executor.run(&reactor, &mut idle, DurNs::from_us(100)).expect("no stall");
        }
        start.elapsed()
    }
}

pub struct Embassy;

#[unsafe(export_name = "__pender")]
fn pender(_context: *mut ()) {
    PENDED.set(true);
}

thread_local! {
    static PENDED: Cell<bool> = const { Cell::new(false) };
}

impl Runtime for Embassy {
    const NAME: &'static str = "embassy";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        use embassy_executor::raw::{Executor, TaskStorage};
        // Its tasks and executor live for ever; places are used again in each batch.
        let executor: &'static Executor = Box::leak(Box::new(Executor::new(std::ptr::null_mut())));
        let places: &'static [TaskStorage<F>] =
            Box::leak((0..tasks).map(|_| TaskStorage::new()).collect());
        let latch = Latch::default();
        let start = Instant::now();
        for _ in 0..batches {
            latch.expect(tasks);
            for (task, place) in places.iter().enumerate() {
                let token = place.spawn(|| make(task, latch.clone())).expect("a free place");
                executor.spawner().spawn(token);
            }
            while latch.0.0.get() > 0 {
                assert!(PENDED.replace(false), "a task is ready");
                // SAFETY: polled by this thread alone, and never from inside a task.
                unsafe { executor.poll() };
            }
        }
        start.elapsed()
    }
}

pub struct TokioLocalSet;

impl Runtime for TokioLocalSet {
    const NAME: &'static str = "tokio-localset";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let local = tokio::task::LocalSet::new();
        let latch = Latch::default();
        let start = Instant::now();
        local.block_on(&runtime, async {
            for _ in 0..batches {
                latch.expect(tasks);
                for task in 0..tasks {
                    tokio::task::spawn_local(make(task, latch.clone()));
                }
                latch.wait().await;
            }
        });
        start.elapsed()
    }
}

pub struct FuturesUnordered;

impl Runtime for FuturesUnordered {
    const NAME: &'static str = "futures-unordered";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        use futures_util::StreamExt;
        let latch = Latch::default();
        let mut set = futures_util::stream::FuturesUnordered::new();
        let start = Instant::now();
        futures_executor::block_on(async {
            for _ in 0..batches {
                set.extend((0..tasks).map(|task| make(task, latch.clone())));
                while set.next().await.is_some() {}
            }
        });
        start.elapsed()
    }
}

pub struct LocalPool;

impl Runtime for LocalPool {
    const NAME: &'static str = "local-pool";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        use futures_util::task::LocalSpawnExt;
        let latch = Latch::default();
        let mut pool = futures_executor::LocalPool::new();
        let spawner = pool.spawner();
        let start = Instant::now();
        for _ in 0..batches {
            for task in 0..tasks {
                spawner.spawn_local(make(task, latch.clone())).expect("it lives");
            }
            pool.run();
        }
        start.elapsed()
    }
}

pub struct AsyncExecutor;

impl Runtime for AsyncExecutor {
    const NAME: &'static str = "async-executor";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        let latch = Latch::default();
        let executor = async_executor::LocalExecutor::new();
        let start = Instant::now();
        futures_lite::future::block_on(executor.run(async {
            for _ in 0..batches {
                latch.expect(tasks);
                (0..tasks).for_each(|task| executor.spawn(make(task, latch.clone())).detach());
                latch.wait().await;
            }
        }));
        start.elapsed()
    }
}

pub struct Compio;

impl Runtime for Compio {
    const NAME: &'static str = "compio";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        let latch = Latch::default();
        // Its executor alone, without the driver that its runtime looks at between ticks.
        let executor = compio_executor::Executor::new();
        let start = Instant::now();
        for _ in 0..batches {
            latch.expect(tasks);
            (0..tasks).for_each(|task| executor.spawn(make(task, latch.clone())).detach());
            while latch.0.0.get() > 0 {
                executor.tick();
            }
        }
        start.elapsed()
    }
}

#[cfg(feature = "heavy")]
pub struct Monoio;

#[cfg(feature = "heavy")]
impl Runtime for Monoio {
    const NAME: &'static str = "monoio";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        let mut runtime =
            monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().build().expect("a runtime");
        let latch = Latch::default();
        runtime.block_on(async {
            let start = Instant::now();
            for _ in 0..batches {
                latch.expect(tasks);
                (0..tasks).for_each(|task| drop(monoio::spawn(make(task, latch.clone()))));
                latch.wait().await;
            }
            start.elapsed()
        })
    }
}

#[cfg(feature = "heavy")]
pub struct Glommio;

#[cfg(feature = "heavy")]
impl Runtime for Glommio {
    const NAME: &'static str = "glommio";
    fn run<F: Future<Output = ()> + 'static>(
        batches: usize,
        tasks: usize,
        make: impl Fn(usize, Latch) -> F,
    ) -> Duration {
        let executor = glommio::LocalExecutorBuilder::default().make().expect("io_uring");
        let latch = Latch::default();
        executor.run(async {
            let start = Instant::now();
            for _ in 0..batches {
                latch.expect(tasks);
                (0..tasks).for_each(|task| {
                    drop(glommio::spawn_local(make(task, latch.clone())).detach())
                });
                latch.wait().await;
            }
            start.elapsed()
        })
    }
}
