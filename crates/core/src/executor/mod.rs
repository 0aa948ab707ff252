//! Runs the tasks of one thread, and fills their waits with whichever of them is ready.
//!
//! A round polls every ready task once and fires the reactor between polls; only when nothing is
//! ready does the thread idle, in the reactor's turn. Upholds invariants 4 (a wake from another
//! thread ends the idle) and 12 (nothing ready, nothing spent).

mod join;
mod ready;
mod task;

pub use join::JoinHandle;

use crate::{Clock, DurNs, Idle, Reactor, Result, Turn};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::Cell;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::Waker;
use ready::ReadySet;
use task::{Shared, Tasks};

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Polls of tasks.
    pub polls: u64,
    /// Passes of the reactor that woke something.
    pub woke: u64,
    /// Sleeps to a timer.
    pub slept: u64,
    /// Parks on lines.
    pub parked: u64,
    /// Time in sleeps and parks, in nanoseconds.
    pub idle_ns: u64,
}

/// Rounds that find a task ready again before the host may look at its own.
const BUSY_ROUNDS: u32 = 64;

/// Runs tasks of one future type, without boxing them; [`DynExecutor`] runs mixed ones.
///
/// ```
/// use gpu_async_reactor_core::*;
/// let clock = ManualClock::new();
/// let reactor = Reactor::new(clock.handle());
/// let mut executor = Executor::new();
/// for ms in [2, 1] {
///     let reactor = &reactor;
///     executor.spawn(async move { reactor.alarm(MonoNs(ms * 1_000_000)).await });
/// }
/// let stats = executor.run(&reactor, &mut ManualIdle::new(clock), DurNs::from_us(100))?;
/// assert_eq!((stats.polls, stats.slept), (4, 2));
/// # Ok::<(), Error>(())
/// ```
pub struct Executor<F: Future<Output = ()>> {
    shared: Rc<Shared<F>>,
    ready: ReadySet,
    tasks: Tasks<F>,
}

/// A boxed task of a [`DynExecutor`].
pub type DynTask<'t> = Pin<Box<dyn Future<Output = ()> + 't>>;

/// Runs tasks of any types that live for `'t`, each in a box.
pub type DynExecutor<'t> = Executor<DynTask<'t>>;

impl<F: Future<Output = ()>> Executor<F> {
    /// An executor with no task.
    pub fn new() -> Self {
        Self { shared: Rc::new(Shared::new()), ready: ReadySet::new(), tasks: Tasks::new() }
    }

    /// Adds a task; the next run polls it once, and then only after its waker fired.
    pub fn spawn(&mut self, future: F) -> JoinHandle {
        let joined = self.shared.places.admit();
        self.tasks.place(&mut self.ready, joined.place(), future);
        JoinHandle::unit(joined)
    }

    /// A handle that spawns from inside a task.
    pub fn spawner(&self) -> Spawner<F> {
        Spawner { shared: self.shared.clone() }
    }

    /// Tasks that have not ended.
    pub fn unfinished(&self) -> usize {
        self.shared.places.live()
    }

    /// Runs until every task has ended. `park_bound` bounds each park.
    ///
    /// # Errors
    ///
    /// `Stalled` when tasks are left and nothing is registered with the reactor that could wake
    /// one. The tasks are kept; a later run goes on with them.
    ///
    /// # Panics
    ///
    /// When a task panics. Tasks that were ready in the same round may then never be polled again:
    /// drop the executor.
    pub fn run<C: Clock, I: Idle>(
        &mut self,
        reactor: &Reactor<'_, C>,
        idle: &mut I,
        park_bound: DurNs,
    ) -> Result<RunStats> {
        let bell = Waker::from(reactor.bell().clone());
        let mut stats = RunStats::default();
        let mut arrivals = true;
        let mut until_glance = BUSY_ROUNDS;
        loop {
            if arrivals {
                self.tasks.place_arrivals(&mut self.ready, &self.shared);
            }
            self.round(reactor, &mut stats);
            arrivals = self.shared.has_arrivals();
            let unfinished = self.shared.places.live();
            if unfinished == 0 {
                return Ok(stats);
            }
            if arrivals || self.ready.any() {
                until_glance -= 1;
                if until_glance == 0 {
                    until_glance = BUSY_ROUNDS;
                    idle.glance();
                    arrivals = true; // what it woke may have spawned
                }
                continue;
            }
            // From here on wakers run that may spawn.
            arrivals = true;
            if reactor.fire() {
                stats.woke += 1;
                continue;
            }
            // Invariant 4: declared asleep, which fails if a task is ready; whoever makes one ready
            // from here on rings the bell, which ends the turn's idle.
            if !self.ready.sleep(&bell) {
                continue;
            }
            let start = reactor.monotonic_ns();
            let early = Some(self.ready.early());
            let turn = reactor.turn_unless(idle, park_bound, unfinished, early);
            self.ready.awake();
            match turn {
                Ok(Turn::Woke) => {
                    stats.woke += 1;
                    continue;
                }
                Ok(Turn::Slept) => stats.slept += 1,
                Ok(Turn::Parked) => stats.parked += 1,
                // Another thread's wake may just have come.
                Err(_) if self.has_work() => continue,
                Err(stalled) => return Err(stalled),
            }
            stats.idle_ns += reactor.monotonic_ns().since(start).0;
        }
    }

    /// Polls every ready task once, and fires the reactor between polls.
    fn round<C: Clock>(&mut self, reactor: &Reactor<'_, C>, stats: &mut RunStats) {
        let Executor { shared, ready, tasks } = self;
        ready.round(|index| {
            if tasks.poll(index, &shared.places) {
                stats.polls += 1;
                stats.woke += u64::from(reactor.fire());
            }
        });
    }

    fn has_work(&self) -> bool {
        self.ready.any() || self.shared.has_arrivals()
    }
}

impl<'t> DynExecutor<'t> {
    /// Adds a task of any type; its handle resolves to what it gives.
    pub fn spawn_dyn<T: 't>(&mut self, future: impl Future<Output = T> + 't) -> JoinHandle<T> {
        spawn_dyn(&self.shared, future)
    }
}

impl<F: Future<Output = ()>> Default for Executor<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Future<Output = ()>> Drop for Executor<F> {
    /// Drops the tasks that are left; their handles resolve to `TaskDropped`.
    fn drop(&mut self) {
        self.tasks.close(&self.shared);
    }
}

impl<F: Future<Output = ()>> fmt::Debug for Executor<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("unfinished", &self.unfinished()).finish()
    }
}

/// Spawns tasks onto an executor of this thread, from inside its tasks too.
pub struct Spawner<F> {
    shared: Rc<Shared<F>>,
}

impl<F: Future<Output = ()>> Spawner<F> {
    /// Adds a task, which the executor polls in its next round. Once the executor is gone the task
    /// is dropped at once and its handle says so.
    pub fn spawn(&self, future: F) -> JoinHandle {
        JoinHandle::unit(self.shared.admit(future))
    }
}

impl<'t> Spawner<DynTask<'t>> {
    /// Adds a task of any type; its handle resolves to what it gives.
    pub fn spawn_dyn<T: 't>(&self, future: impl Future<Output = T> + 't) -> JoinHandle<T> {
        spawn_dyn(&self.shared, future)
    }
}

impl<F> Clone for Spawner<F> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<F> fmt::Debug for Spawner<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

fn spawn_dyn<'t, T: 't>(
    shared: &Shared<DynTask<'t>>,
    future: impl Future<Output = T> + 't,
) -> JoinHandle<T> {
    let output = Rc::new(Cell::new(None));
    let into = output.clone();
    let task = shared.admit(Box::pin(async move { into.set(Some(future.await)) }));
    JoinHandle::shared(task, output)
}
