//! A sleep for any runtime, finer than most runtimes' own: a wait for a number that never comes.

use super::{Completion, Ticket, Watcher};
use crate::host::std_host::StdClock;
use crate::{Clock, CompletionLine, DurNs, QueueStatus, Result, Slot};
use std::sync::{Arc, OnceLock};

/// The status of no device: nothing is ever done.
struct Never;

impl QueueStatus for Never {
    fn status(&self, _number: u64) -> Result<bool> {
        Ok(false)
    }
    fn confirm(&self, _number: u64) -> Result<()> {
        Ok(())
    }
    fn label(&self) -> &str {
        "a timer"
    }
}

impl Watcher {
    /// Sleeps for that long from the first poll on, in any runtime. Overshoots by what the system's own
    /// sleep does, tens of microseconds, and not by a runtime's timer wheel. It returns early only when
    /// the watcher's last handle goes.
    pub async fn sleep(&self, span: DurNs) {
        static NEVER: OnceLock<Ticket> = OnceLock::new();
        let never = NEVER.get_or_init(|| {
            Ticket::new(Arc::new(CompletionLine::new()), Slot::ALL[0], u64::MAX, Arc::new(Never))
        });
        let at = StdClock::new().monotonic_ns() + span;
        let _ = Completion::new(Ok(never.clone())).timer().deadline(at).on(self).await;
    }
}
