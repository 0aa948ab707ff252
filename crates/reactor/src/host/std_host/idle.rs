//! How a thread of the standard library idles: spins a little, then naps that grow.
//!
//! Upholds invariants 3 (every park is bounded), 4 (looked at before each nap and after it) and 12 (with
//! nothing to watch it sleeps in the kernel).

use super::clock::least_timer_slack;
use super::{Napper, Naps, StdClock};
use crate::backend::wordwait::WordWait;
use crate::{Clock, CompletionLine, DurNs, Idle, LineSet, MonoNs};
use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;

/// An [`Idle`] of the thread that uses it.
///
/// A sleep and a nap are a timed wait in the kernel, with the least timer slack, that another thread
/// ends through [`unparker`](Idle::unparker). With a [`WordWait`] a park waits in hardware instead.
#[derive(Debug)]
pub struct StdIdle {
    clock: StdClock,
    word_wait: Option<WordWait>,
    /// Ends the sleeps of one thread: the first that asked for it, or the last that slept.
    unparker: OnceCell<(ThreadId, Waker)>,
    napper: Napper,
}

impl StdIdle {
    /// An idle for one thread, this or another.
    pub fn new(clock: StdClock, word_wait: Option<WordWait>) -> StdIdle {
        StdIdle::with_naps(clock, word_wait, Naps::default())
    }

    /// An idle for one thread, whose naps have those bounds; a `most` below `least` is taken as
    /// `least`.
    pub fn with_naps(clock: StdClock, word_wait: Option<WordWait>, naps: Naps) -> StdIdle {
        let unparker = OnceCell::new();
        StdIdle { clock, word_wait, unparker, napper: Napper::new(naps) }
    }

    /// Spins, then naps, until `ready` or the end of the bound.
    fn park(&mut self, ready: impl Fn() -> bool, bound: DurNs) -> bool {
        least_timer_slack();
        self.napper.park(self.clock, ready, bound, |_, nap| thread::park_timeout(nap.into()))
    }
}

/// What ends the calling thread's sleeps.
fn unparker_here() -> (ThreadId, Waker) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
        fn wake_by_ref(self: &Arc<Self>) {
            self.0.unpark();
        }
    }
    let thread = thread::current();
    (thread.id(), Waker::from(Arc::new(Unpark(thread))))
}

impl Idle for StdIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        if self.unparker.get().is_some_and(|(thread, _)| *thread != thread::current().id()) {
            // It was handed to this thread: whoever asked meanwhile holds the other thread's waker, so
            // this returns early and is asked again.
            self.unparker = OnceCell::from(unparker_here());
            return;
        }
        if at == MonoNs::MAX {
            thread::park();
            return;
        }
        least_timer_slack();
        let left = at.since(self.clock.monotonic_ns());
        if left > DurNs(0) {
            thread::park_timeout(Duration::from(left));
        }
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        match self.word_wait {
            Some(word_wait) => word_wait.park(line, ready, bound),
            None => self.park(|| ready(line), bound),
        }
    }

    fn park_lines(&mut self, set: &LineSet<'_>, bound: DurNs) -> bool {
        let mut lines = set.lines();
        match (self.word_wait, lines.next(), lines.next()) {
            // One monitor to a thread: with one line it is watched in hardware.
            (Some(word_wait), Some(only), None) => {
                word_wait.park(only.line(), |_| set.any_ready(), bound)
            }
            _ => self.park(|| set.any_ready(), bound),
        }
    }

    fn unparker(&self) -> Option<&Waker> {
        Some(&self.unparker.get_or_init(unparker_here).1)
    }
}
