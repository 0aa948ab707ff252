//! What is posted to the watcher's thread, and the moment from which nothing more is.
//!
//! Upholds invariants 7 and 8: whatever was taken in before the end is ended by the thread, and whatever
//! comes after is handed back. `crates/watcher-models` runs this file under loom.

use super::sync::{Mutex, PoisonError};
use std::collections::VecDeque;

/// Arrivals, bodies whose futures are gone, and places to look at.
pub(super) struct Inbox<E, G> {
    posted: Mutex<Posted<E, G>>,
}

pub(super) struct Posted<E, G> {
    pub(super) arrivals: Vec<E>,
    pub(super) graves: Vec<G>,
    /// Places in the thread's table.
    pub(super) nudged: Vec<usize>,
    /// Entries to use again, the longest unused first.
    pub(super) free: VecDeque<E>,
    /// The thread has ended, or is about to with nothing more taken in.
    gone: bool,
}

impl<E, G> Posted<E, G> {
    pub(super) fn new() -> Self {
        let (arrivals, graves, nudged) = (Vec::new(), Vec::new(), Vec::new());
        Posted { arrivals, graves, nudged, free: VecDeque::new(), gone: false }
    }
}

impl<E, G> Inbox<E, G> {
    pub(super) fn new() -> Self {
        Inbox { posted: Mutex::new(Posted::new()) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Posted<E, G>) -> T) -> T {
        // Pushes and swaps are all that happens there, so a panic leaves nothing half done.
        act(&mut self.posted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Posts an entry, made from those that may be used again; `None` once the thread is gone.
    pub(super) fn arrive(&self, make: impl FnOnce(&mut VecDeque<E>) -> E) -> Option<E>
    where
        E: Clone,
    {
        self.with(|posted| {
            if posted.gone {
                return None;
            }
            let entry = make(&mut posted.free);
            posted.arrivals.push(entry.clone());
            Some(entry)
        })
    }

    /// Posts a body.
    ///
    /// # Errors
    ///
    /// The body, once the thread is gone.
    pub(super) fn bury(&self, grave: G) -> Result<(), G> {
        self.with(|posted| {
            if posted.gone {
                return Err(grave);
            }
            posted.graves.push(grave);
            Ok(())
        })
    }

    pub(super) fn nudge(&self, place: usize) {
        self.with(|posted| posted.nudged.push(place));
    }

    /// Swaps what was posted for the emptied vectors of `taken`, and gives its `free` back; with `end`
    /// nothing is taken in from here on.
    pub(super) fn empty(&self, taken: &mut Posted<E, G>, end: bool) {
        self.with(|posted| {
            std::mem::swap(&mut taken.arrivals, &mut posted.arrivals);
            std::mem::swap(&mut taken.graves, &mut posted.graves);
            std::mem::swap(&mut taken.nudged, &mut posted.nudged);
            posted.free.append(&mut taken.free);
            posted.gone |= end;
        });
    }
}
