//! A host gate: work submitted behind it starts when the host opens it.

use super::timeline::Timeline;
use crate::Result;
use std::sync::Arc;

/// Holds back what was submitted behind it until it is opened; dropping it opens it, so that a forgotten
/// gate can't hold the queue for ever.
///
/// Made by [`VulkanQueue::gate`](super::VulkanQueue::gate).
#[must_use = "dropping a gate opens it"]
pub struct Gate {
    timeline: Option<Arc<Timeline>>,
}

impl Gate {
    pub(super) fn new(timeline: Arc<Timeline>) -> Gate {
        Gate { timeline: Some(timeline) }
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or a failed driver call.
    pub fn open(mut self) -> Result<()> {
        self.timeline.take().map_or(Ok(()), |timeline| timeline.signal(1))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(timeline) = self.timeline.take() {
            // A lost device waits for no gate.
            let _ = timeline.signal(1);
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}
