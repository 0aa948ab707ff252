//! What is known of a queue's numbers: told by the handlers of its command buffers, asked from any thread.
//!
//! Upholds invariants 2 (the buffers' status decides), 5 (the lock is held for bookkeeping and nothing else), 7
//! (the handlers keep the line alive), 8 (a failed buffer is an error of every call from then on) and 13
//! (numbers only grow: one is done once all before it are).

use super::{BufferError, BufferStatus, failed};
use crate::{CompletionLine, DurNs, Error, QueueStatus, Result, Slot, error};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Ledger {
    line: Arc<CompletionLine>,
    slot: Slot,
    label: String,
    /// All numbers up to this one are done.
    done: AtomicU64,
    /// Something in `state` makes every answer an error.
    is_failed: AtomicBool,
    /// The last number that will be reached, once the queue is gone.
    last: AtomicU64,
    state: Mutex<State>,
    /// Wakes blocked waits: a number, or a failure.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Done before one that was committed earlier: buffers begin in order and may end out of it.
    ahead: Vec<u64>,
    failure: Option<(u64, BufferError)>,
}

impl Ledger {
    pub(super) fn new(line: Arc<CompletionLine>, slot: Slot, label: String) -> Arc<Ledger> {
        Arc::new(Ledger {
            line,
            slot,
            label,
            done: AtomicU64::new(0),
            is_failed: AtomicBool::new(false),
            last: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub(super) fn line(&self) -> &Arc<CompletionLine> {
        &self.line
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// What tells how the buffer of that number ended.
    pub(super) fn report(self: &Arc<Self>, number: u64) -> Report {
        Report { ledger: self.clone(), number }
    }

    /// The queue is gone: nothing behind `last` will be committed.
    pub(super) fn close(&self, last: u64) {
        self.last.store(last, Ordering::Release);
    }

    /// Blocks until the number's status is known, for at most `bound`: whether it is done.
    pub(super) fn wait(&self, number: u64, bound: DurNs) -> Result<bool> {
        let state = self.hold();
        // Under the lock, which whoever changes the answer takes: no change is missed.
        let unknown = |_: &mut State| matches!(self.status(number), Ok(false));
        let waited = self.changed.wait_timeout_while(state, Duration::from(bound), unknown);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.status(number)
    }

    fn ended(&self, number: u64, status: BufferStatus) {
        let mut state = self.hold();
        match status {
            BufferStatus::Pending => return,
            BufferStatus::Failed(failure) => {
                state.failure.get_or_insert((number, failure));
                self.is_failed.store(true, Ordering::Release);
            }
            BufferStatus::Completed => {
                state.ahead.push(number);
                let before = self.done.load(Ordering::Relaxed);
                let mut done = before;
                while let Some(at) = state.ahead.iter().position(|&ahead| ahead == done + 1) {
                    state.ahead.swap_remove(at);
                    done += 1;
                }
                if done > before && !self.is_failed.load(Ordering::Relaxed) {
                    // The status first, so that whoever sees the word finds it (invariant 2). Release: the
                    // work's results, which the handler may read, are visible to whoever sees either.
                    self.done.store(done, Ordering::Release);
                    self.line.store(self.slot, done);
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn failure(&self, number: u64) -> Error {
        let doing = format!("asking about number {number} of {}", self.label);
        match &self.hold().failure {
            Some((at, failure)) if *at == number => failed(doing, failure),
            Some((at, failure)) => {
                failed(format!("{doing}, behind the failed number {at}"), failure)
            }
            None => error!(DeviceLost, doing, "it failed"),
        }
    }

    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueStatus for Ledger {
    fn status(&self, number: u64) -> Result<bool> {
        if self.is_failed.load(Ordering::Acquire) {
            return Err(self.failure(number));
        }
        if self.done.load(Ordering::Acquire) >= number {
            return Ok(true);
        }
        if number > self.last.load(Ordering::Acquire) {
            let doing = format!("asking about number {number} of {}", self.label);
            return Err(error!(
                DeviceLost,
                doing, "the queue was dropped before it gave that number"
            ));
        }
        Ok(false)
    }

    fn confirm(&self, number: u64) -> Result<()> {
        // The status never says done of work that failed: there is nothing else to ask.
        if self.is_failed.load(Ordering::Acquire) { Err(self.failure(number)) } else { Ok(()) }
    }

    fn label(&self) -> &str {
        &self.label
    }
}

/// Told, once, how a command buffer ended; given to [`Commands::commit`](super::Commands::commit).
#[must_use = "a queue that isn't told how its buffer ended never gets past its number"]
pub struct Report {
    ledger: Arc<Ledger>,
    number: u64,
}

impl Report {
    /// The buffer ended so. [`BufferStatus::Pending`] is no end and tells nothing.
    pub fn ended(&self, status: BufferStatus) {
        self.ledger.ended(self.number, status);
    }
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Report").field("number", &self.number).finish_non_exhaustive()
    }
}
