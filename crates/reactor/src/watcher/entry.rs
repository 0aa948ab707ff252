//! Where a future and the watcher's thread meet: one lock around a phase and a waker.
//!
//! Upholds invariants 4 (a waker is left under the lock that a result is left under) and 5 (wakers
//! leave the lock before they run). `crates/watcher-models` runs this file under loom.

use super::sync::{Mutex, MutexGuard, PoisonError};
use crate::{DurNs, MonoNs};
use std::task::Waker;

pub(super) enum Phase<R> {
    /// The watcher watches.
    Waiting,
    /// The watcher woke the task ahead of the completion, then: the task's next poll watches the word
    /// for that long.
    Early { woken: MonoNs, watch: DurNs },
    /// The watcher ended the wait.
    Done(R),
    /// The future took its result, ended the wait itself, or was dropped.
    Left,
}

pub(super) struct State<J, R> {
    pub(super) phase: Phase<R>,
    /// The task's.
    pub(super) waker: Option<Waker>,
    /// For the watcher to pick up.
    pub(super) job: Option<J>,
    /// The place in the watcher's table, once it has one.
    pub(super) place: Option<usize>,
    /// When the future saw the completion itself.
    pub(super) seen_at: Option<MonoNs>,
    /// What an early wake took from the waker's call to the task's poll.
    pub(super) wake_took: Option<DurNs>,
    /// The word was reached before the task, woken early, first looked.
    pub(super) late: bool,
}

/// `J` is what is asked, `R` how it ends.
pub(super) struct Entry<J, R>(Mutex<State<J, R>>);

impl<J, R> Entry<J, R> {
    pub(super) fn new() -> Self {
        Entry(Mutex::new(State {
            phase: Phase::Left,
            waker: None,
            job: None,
            place: None,
            seen_at: None,
            wake_took: None,
            late: false,
        }))
    }

    /// Made ready for another wait.
    pub(super) fn set(&mut self, job: J, waker: Waker) {
        *self.hold() = State {
            phase: Phase::Waiting,
            waker: Some(waker),
            job: Some(job),
            place: None,
            seen_at: None,
            wake_took: None,
            late: false,
        };
    }

    pub(super) fn hold(&self) -> MutexGuard<'_, State<J, R>> {
        // Nothing that is done while it is held can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the wait, if its future still waits: the waker to wake, with nothing locked.
    pub(super) fn finish(&self, result: R) -> Option<Waker> {
        let mut state = self.hold();
        match state.phase {
            Phase::Waiting | Phase::Early { .. } => {
                state.phase = Phase::Done(result);
                state.waker.take()
            }
            Phase::Done(_) | Phase::Left => None,
        }
    }
}

impl<J, R> Entry<J, R> {
    /// The future leaves: its place at the watcher, and its waker to drop with nothing locked.
    pub(super) fn leave(&self, seen_at: Option<MonoNs>) -> (Option<usize>, Option<Waker>) {
        let mut state = self.hold();
        state.phase = Phase::Left;
        state.seen_at = seen_at;
        (state.place, state.waker.take())
    }
}
