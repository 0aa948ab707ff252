//! How a thread of the standard library idles: spins a little, then naps that grow.
//!
//! Upholds invariants 3 (every park is bounded), 4 (looked at before each nap and after it) and 12 (with
//! nothing to watch it sleeps in the kernel).

use super::StdClock;
use super::clock::least_timer_slack;
use crate::backend::wordwait::WordWait;
use crate::{Clock, CompletionLine, DurNs, Idle, LineSet, MonoNs};
use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;

/// Spinning at the start of a park: about what a nap's wake-up costs, so that work nearly done is seen
/// at once.
const SPIN: DurNs = DurNs::from_us(5);
/// A nap lasts this share of the time already parked, so that the lag it can add is this share of the
/// wait, …
const NAP_SHARE: u64 = 32;
/// … at least [`Naps::least`]: on 1 ms steps naps of 20 µs took 43 % of a core and of 40 µs 29 %, for the same
/// median lag, …
const NAP_LEAST: DurNs = DurNs::from_us(40);
/// … and at most [`Naps::most`], whatever the wait.
const NAP_MOST: DurNs = DurNs::from_us(250);

/// Bounds of the naps between two looks.
#[derive(Clone, Copy, Debug)]
pub struct Naps {
    /// The shortest nap. Default 40 µs.
    pub least: DurNs,
    /// The longest nap. Default 250 µs.
    pub most: DurNs,
}

impl Default for Naps {
    fn default() -> Naps {
        Naps { least: NAP_LEAST, most: NAP_MOST }
    }
}

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
    /// When the parking that goes on began: naps go on growing from one bound to the next, as long as
    /// nothing was ready in between.
    since: MonoNs,
    /// When the last bound ended with nothing ready.
    ended: MonoNs,
    naps: Naps,
}

impl StdIdle {
    /// An idle for one thread, this or another.
    pub fn new(clock: StdClock, word_wait: Option<WordWait>) -> StdIdle {
        StdIdle::with_naps(clock, word_wait, Naps::default())
    }

    /// An idle for one thread, whose naps have those bounds; a `most` below `least` is taken as
    /// `least`.
    pub fn with_naps(clock: StdClock, word_wait: Option<WordWait>, naps: Naps) -> StdIdle {
        let naps = Naps { most: naps.most.max(naps.least), ..naps };
        let unparker = OnceCell::new();
        StdIdle { clock, word_wait, unparker, since: MonoNs(0), ended: MonoNs(0), naps }
    }

    /// Spins, then naps, until `ready` or the end of the bound.
    fn park(&mut self, ready: impl Fn() -> bool, bound: DurNs) -> bool {
        if ready() {
            return true;
        }
        least_timer_slack();
        let start = self.clock.monotonic_ns();
        let end = start + bound;
        if start.since(self.ended) > SPIN {
            self.since = start;
        }
        self.ended = MonoNs(0);
        let mut now = start;
        while now < end {
            let parked = now.since(self.since);
            if parked < SPIN {
                core::hint::spin_loop();
            } else {
                let nap = DurNs(parked.0 / NAP_SHARE).clamp(self.naps.least, self.naps.most);
                thread::park_timeout(Duration::from(nap.min(end.since(now))));
            }
            if ready() {
                return true;
            }
            now = self.clock.monotonic_ns();
        }
        self.ended = now;
        false
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
