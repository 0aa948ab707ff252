//! What a queue runs.

use crate::DurNs;
use std::fmt;

/// An effect on memory, at the end of a piece of work.
pub(super) type Effect = Box<dyn FnOnce() + Send>;

/// One piece of work: a length of time, then an effect.
#[must_use = "work does nothing until it is submitted"]
pub struct Work {
    pub(super) length: DurNs,
    pub(super) effect: Option<Effect>,
}

impl Work {
    /// Work that takes that long.
    pub fn lasting(length: DurNs) -> Work {
        Work { length, effect: None }
    }

    /// Work that takes as long as the closure does, on the queue's thread. A panic in it is the
    /// device's loss. Under virtual time it takes no time.
    pub fn running(work: impl FnOnce() + Send + 'static) -> Work {
        Work { length: DurNs(0), effect: Some(Box::new(work)) }
    }

    /// Does this at the end, before the word is stored: what the work writes.
    pub fn effect(mut self, effect: impl FnOnce() + Send + 'static) -> Work {
        self.effect = Some(match self.effect {
            None => Box::new(effect),
            Some(first) => Box::new(|| {
                first();
                effect();
            }),
        });
        self
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("length", &self.length).finish_non_exhaustive()
    }
}
