//! HIP devices: the same shapes as CUDA's ([`mapped`]), over AMD's runtime.
//!
//! | what | how | source |
//! |---|---|---|
//! | the word | `hipStreamWriteValue64`: a release barrier, then a one-thread kernel that stores; marked beta | HIP runtime API, "Stream memory operations" |
//! | the word and a doorbell | two stores, in order; there is no batch | |
//! | the line's memory | `hipHostMalloc`, coherent and mapped; signal memory has eight bytes and no line | the same, `hipExtMallocWithFlags` |
//! | the status | an event of each number, before its store (`hipEventQuery`) | |
//! | the blocking wait | an event with `hipEventBlockingSync`, awaited by a helper thread | |
//! | a host gate | `hipStreamWaitValue64`: a kernel that spins on the device, so it occupies a queue; its comparison is plain ≥ | the same |
//! | whether the device can store | it is made to, when it is opened: the attribute that should tell is always true | HIP's source |
//! | captures | refused before anything is asked: releases before the middle of 2026 run a store at once in a capture | HIP's source |
//!
//! This backend has run on the simulated driver only, and against AMD's library on a machine with no device.

mod table;

pub use table::Hip;

use super::LineError;
use super::mapped::{self, Device, Driver};
use crate::Result;

/// A loaded HIP runtime.
pub type HipDriver = Driver<Hip>;
/// An open HIP device.
pub type HipDevice = Device<Hip>;
/// A stream that somebody else owns, as HIP names it.
pub type HipStream = mapped::Stream<Hip>;
/// A completion line that a HIP device stores to.
pub type MappedLine = mapped::MappedLine<Hip>;
/// A HIP stream whose completions are numbers.
pub type HipQueue = mapped::StreamQueue<Hip>;
/// A completion port over a HIP stream, a line and one of its words.
pub type HipPort<'l> = mapped::StreamPort<'l, Hip>;
/// Holds back what was submitted behind it until the host opens it.
pub type HipGate = mapped::Gate<Hip>;
/// A kernel of a stated length whose result is known, for measurements and tests.
pub type StepKernel = mapped::StepKernel<Hip>;
/// Where one step at a time of a [`StepKernel`] leaves its result.
pub type StepJob = mapped::StepJob<Hip>;

impl HipDevice {
    /// Opens a device of the system's runtime, by its ordinal.
    ///
    /// # Errors
    ///
    /// `LibraryMissing` without a runtime, `SymbolMissing` for one that lacks what everything needs,
    /// `NoDevice` without a device of that ordinal, or a failed call.
    pub fn open(ordinal: usize) -> Result<HipDevice> {
        HipDriver::load()?.open(ordinal)
    }
}

impl MappedLine {
    /// A line of the device that is current on this thread.
    ///
    /// # Errors
    ///
    /// `Unavailable` without a runtime or an entry point, `NoDomain` without a device, `Status` with the
    /// runtime's answer to a refused allocation.
    pub fn new() -> std::result::Result<MappedLine, LineError> {
        mapped::line_of_current()
    }
}
