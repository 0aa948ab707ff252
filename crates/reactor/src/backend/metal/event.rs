//! What the port and the queue need of Metal.

use super::Report;
use crate::{DurNs, Result};

/// A value in the device's hands that only grows: an `MTLSharedEvent`. Safe to ask from any thread.
pub trait SharedEvent: Send + Sync + Sized {
    /// What makes one.
    type Device: ?Sized;

    /// An event whose value is 0.
    ///
    /// # Errors
    ///
    /// `DeviceUnfit` when the device gives none.
    fn new(device: &Self::Device) -> Result<Self>;

    /// The greatest value signalled so far.
    fn signaled(&self) -> u64;

    /// Blocks until the value is signalled, for at most `bound`, which may be rounded to milliseconds: whether
    /// it was.
    fn wait(&self, value: u64, bound: DurNs) -> bool;
}

/// How far a command buffer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BufferStatus {
    /// Not ended: to be committed, scheduled or running.
    Pending,
    /// It ran to its end.
    Completed,
    /// It ended with an error, and may have signalled nothing.
    Failed(BufferError),
}

/// Why a command buffer failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferError {
    /// The `MTLCommandBufferError`.
    pub code: i32,
    /// What the driver says of it.
    pub text: String,
}

/// Work that was committed: an `MTLCommandBuffer`.
pub trait CommandBuffer {
    /// How far it is, at once.
    fn status(&self) -> BufferStatus;
}

/// An in-order queue of command buffers, and the event that they signal.
pub trait Commands {
    /// The event.
    type Event: SharedEvent;
    /// What work is encoded into.
    type Buffer: ?Sized;

    /// The event that each buffer signals at its end.
    fn event(&self) -> &Self::Event;

    /// Makes a buffer, has work encoded into it, then the signal of that value, and commits it. `report` is told
    /// how the buffer ended, once, from any thread; it is dropped untold when nothing was committed.
    ///
    /// # Errors
    ///
    /// What `encode` returned, or a failed driver call: then nothing was committed.
    fn commit(
        &mut self,
        value: u64,
        encode: impl FnOnce(&Self::Buffer) -> Result<()>,
        report: Report,
    ) -> Result<()>;
}
