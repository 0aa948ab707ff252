//! A queue's status for whoever doesn't own the queue: asked from any thread.
//!
//! Upholds invariant 2 where a wait outlives its borrow of the queue: futures of other runtimes hold
//! this, and resolve `Ok` only after it said done.

use crate::{Queue, Result};
use alloc::sync::Arc;

/// What a queue's device says, asked from any thread. Duties of an implementer:
///
/// 1. `status` and `confirm` are [`Queue::status`] and [`Queue::confirm`], and answer at once;
/// 2. once the device is lost every call says so, for ever;
/// 3. when the queue is gone, a number that it will never reach is an error and not a `false`.
pub trait QueueStatus: Send + Sync {
    /// Whether the device's status says that all work up to `number` is done.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or a failed driver call.
    fn status(&self, number: u64) -> Result<bool>;

    /// Asked when the status says done and the word doesn't: is the device lost?
    ///
    /// # Errors
    ///
    /// `DeviceLost` when it is.
    fn confirm(&self, number: u64) -> Result<()>;

    /// What to call the queue in an error, with its device.
    fn label(&self) -> &str;
}

/// A queue that gives out its status. The handle may outlive the queue.
pub trait SharedStatus: Queue {
    /// The status, for any thread. Allocates nothing.
    fn shared_status(&self) -> Arc<dyn QueueStatus>;
}

impl<Q: SharedStatus + ?Sized> SharedStatus for &mut Q {
    fn shared_status(&self) -> Arc<dyn QueueStatus> {
        (**self).shared_status()
    }
}
