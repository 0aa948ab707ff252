//! Where a future and the watcher's thread meet: one lock around a phase and a waker.
//!
//! Upholds invariants 4 (a waker is left under the lock that a result is left under) and 5 (wakers
//! leave the lock before they run).

use super::{Ticket, WaitError};
use crate::{DurNs, MonoNs, SharedLine, Slot};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// A word that ends a wait when it is reached.
#[derive(Clone)]
pub(super) struct Until {
    pub(super) line: SharedLine,
    pub(super) slot: Slot,
    pub(super) target: u64,
}

impl Until {
    pub(super) fn reached(&self) -> bool {
        crate::reached((*self.line).as_ref(), self.slot, self.target)
    }
}

/// What the watcher is asked to do.
pub(super) struct Job {
    pub(super) ticket: Ticket,
    pub(super) start: MonoNs,
    pub(super) deadline: Option<MonoNs>,
    pub(super) until: Option<Until>,
    /// Only the deadline counts: the word is of no device.
    pub(super) timer: bool,
}

pub(super) enum Phase {
    /// The watcher watches.
    Waiting,
    /// The watcher woke the task ahead of the completion, then: the task's next poll watches the word
    /// for that long.
    Early { woken: MonoNs, watch: DurNs },
    /// The watcher ended the wait.
    Done(Result<(), WaitError>),
    /// The future took its result, ended the wait itself, or was dropped.
    Left,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// The task's.
    pub(super) waker: Option<Waker>,
    /// For the watcher to pick up.
    pub(super) job: Option<Job>,
    /// The place in the watcher's table, once it has one.
    pub(super) place: Option<usize>,
    /// When the future saw the completion itself.
    pub(super) seen_at: Option<MonoNs>,
    /// What an early wake took from the waker's call to the task's poll.
    pub(super) wake_took: Option<DurNs>,
}

pub(super) struct Entry(Mutex<State>);

impl Entry {
    pub(super) fn new() -> Entry {
        Entry(Mutex::new(State {
            phase: Phase::Left,
            waker: None,
            job: None,
            place: None,
            seen_at: None,
            wake_took: None,
        }))
    }

    /// Made ready for another wait.
    pub(super) fn set(&mut self, job: Job, waker: Waker) {
        let state = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        *state = State {
            phase: Phase::Waiting,
            waker: Some(waker),
            job: Some(job),
            place: None,
            seen_at: None,
            wake_took: None,
        };
    }

    pub(super) fn hold(&self) -> MutexGuard<'_, State> {
        // Nothing that is done while it is held can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the wait, if its future still waits: the waker to wake, with nothing locked.
    pub(super) fn finish(&self, result: Result<(), WaitError>) -> Option<Waker> {
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
