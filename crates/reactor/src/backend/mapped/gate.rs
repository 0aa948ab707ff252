//! A host gate: work submitted behind it starts when the host opens it.

use super::Vendor;
use super::line::Home;
use crate::Slot;
use std::sync::Arc;

/// The word that the host opens the gate with, and the one that the device stores to once it is through.
pub(super) const OPEN: Slot = Slot::ALL[0];
pub(super) const PASSED: Slot = Slot::ALL[1];

/// Holds back what was submitted behind it until it is opened; dropping it opens it, for a wait that never
/// ends would hold its stream, and all behind it, for ever.
///
/// Made by [`StreamQueue::gate`](super::StreamQueue::gate).
#[must_use = "dropping a gate opens it"]
pub struct Gate<V: Vendor> {
    /// Its memory is kept until the device is through.
    home: Arc<Home<V>>,
}

impl<V: Vendor> Gate<V> {
    pub(super) fn new(home: Arc<Home<V>>) -> Gate<V> {
        Gate { home }
    }

    /// Opens it.
    pub fn open(self) {}

    /// Whether the device is through.
    pub fn has_passed(&self) -> bool {
        crate::reached(self.home.place.line(), PASSED, 1)
    }
}

impl<V: Vendor> Drop for Gate<V> {
    fn drop(&mut self) {
        self.home.place.line().store(OPEN, 1);
    }
}

impl<V: Vendor> std::fmt::Debug for Gate<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("has_passed", &self.has_passed()).finish()
    }
}
