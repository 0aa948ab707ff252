//! A compio runtime as a host: files and sockets are served on the thread that awaits the GPU.
//!
//! Upholds invariants 3, 4 (a wake from another thread ends compio's wait in the kernel) and 12.
//!
//! A completion of compio's wakes a task as it would in compio: on the executor of this crate that rings
//! the reactor's bell, which ends the idle at once. A word can't end a wait in the kernel, so a park naps
//! in compio's ring; there is no park in hardware here, for the kernel's completions don't end one.

use super::std_host::{Napper, Naps, StdClock, least_timer_slack};
use crate::{
    Clock, CompletionLine, DurNs, Executor, Idle, LineSet, MonoNs, Reactor, Result, RunStats,
};
use compio::runtime::Runtime;
use std::fmt;
use std::future::Future;
use std::task::Waker;
use std::time::Duration;

/// An [`Idle`] over a compio runtime, on the runtime's thread.
///
/// Tasks of the executor may use anything of compio's; tasks spawned on the runtime itself run, too,
/// whenever the executor idles, and once in a while when it doesn't.
///
/// ```
/// use gpu_async_reactor::host::{compio::CompioIdle, std_host::StdClock};
/// use gpu_async_reactor::{DurNs, DynExecutor, Reactor};
/// # let Ok(runtime) = compio::runtime::Runtime::new() else { return Ok(()) };
/// let mut idle = CompioIdle::new(runtime, StdClock::new());
/// let reactor = Reactor::new(StdClock::new());
/// let mut executor = DynExecutor::new();
/// let bytes = executor.spawn_dyn(compio::fs::read("Cargo.toml"));
/// idle.run(&mut executor, &reactor, DurNs::from_ms(1))?;
/// assert!(!gpu_async_reactor::run_inline(bytes)?.expect("a file").is_empty());
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
pub struct CompioIdle {
    runtime: Runtime,
    unparker: Waker,
    clock: StdClock,
    napper: Napper,
}

impl CompioIdle {
    /// An idle of the runtime's thread.
    pub fn new(runtime: Runtime, clock: StdClock) -> CompioIdle {
        CompioIdle::with_naps(runtime, clock, Naps::default())
    }

    /// An idle whose naps have those bounds: how late a word may be seen, against what looking costs.
    pub fn with_naps(runtime: Runtime, clock: StdClock, naps: Naps) -> CompioIdle {
        let unparker = runtime.waker();
        CompioIdle { runtime, unparker, clock, napper: Napper::new(naps) }
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Runs an executor inside the runtime: as [`Executor::run`], which outside of a runtime would have
    /// compio's futures panic. The kernel may wake any task, so nothing is taken for a stall.
    ///
    /// # Errors
    ///
    /// As [`Executor::run`], but for `Stalled`.
    ///
    /// # Panics
    ///
    /// As [`Executor::run`]; and as compio does, when its driver fails.
    pub fn run<F: Future<Output = ()>, C: Clock>(
        &mut self,
        executor: &mut Executor<F>,
        reactor: &Reactor<'_, C>,
        park_bound: DurNs,
    ) -> Result<RunStats> {
        let (runtime, _io) = (self.runtime.clone(), reactor.outside());
        runtime.enter(|| executor.run(reactor, self, park_bound))
    }
}

/// Runs what is ready of compio's, then waits for its completions for at most that long, or with `None`
/// until one comes.
fn serve(runtime: &Runtime, most: Option<Duration>) {
    runtime.enter(|| {
        let most = match runtime.run() {
            true => Some(Duration::ZERO), // more is ready
            false => match (most, runtime.current_timeout()) {
                (Some(most), Some(timer)) => Some(most.min(timer)),
                (most, timer) => most.or(timer),
            },
        };
        runtime.poll_with(most);
        runtime.run();
    });
}

impl Idle for CompioIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        least_timer_slack();
        let left = at.since(self.clock.monotonic_ns());
        if left > DurNs(0) {
            serve(&self.runtime, (at != MonoNs::MAX).then(|| left.into()));
        }
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        least_timer_slack();
        let runtime = &self.runtime;
        let nap = |_, length: DurNs| serve(runtime, Some(length.into()));
        self.napper.park(self.clock, || ready(line), bound, nap)
    }

    fn park_lines(&mut self, set: &LineSet<'_>, bound: DurNs) -> bool {
        least_timer_slack();
        let runtime = &self.runtime;
        let nap = |_, length: DurNs| serve(runtime, Some(length.into()));
        self.napper.park(self.clock, || set.any_ready(), bound, nap)
    }

    fn unparker(&self) -> Option<&Waker> {
        Some(&self.unparker)
    }

    fn glance(&mut self) {
        serve(&self.runtime, Some(Duration::ZERO));
    }
}

impl fmt::Debug for CompioIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompioIdle").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}
