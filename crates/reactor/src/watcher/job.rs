//! What the watcher is asked to do.

use super::entry::{self, Phase as AnyPhase};
use super::hints::Hints;
use super::{Ticket, WaitError, WatcherOptions};
use crate::{MonoNs, SharedLine, Slot};

/// Where a future and the watcher's thread meet.
pub(super) type Entry = entry::Entry<Job, Result<(), WaitError>>;
pub(super) type Phase = AnyPhase<Result<(), WaitError>>;

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

impl Job {
    /// The line's place and the slot.
    pub(super) fn point(&self) -> (usize, usize) {
        (std::ptr::from_ref(self.ticket.line()).addr(), self.ticket.slot().index())
    }

    /// When the watcher's thread has to have taken it up.
    pub(super) fn needs_a_look_by(&self, options: &WatcherOptions, hints: &Hints) -> MonoNs {
        let predicted = match (self.timer, &self.until) {
            (true, _) => MonoNs::MAX,
            (_, Some(_)) => self.start,
            (_, None) => self.start + hints.get(self.point()).min(options.backstop),
        };
        self.deadline.map_or(predicted, |at| at.min(predicted))
    }
}
