//! CUDA devices: a stream's completion word is stored by the device behind the work, in page-locked host
//! memory, with an event as the authority.
//!
//! | what | how | source |
//! |---|---|---|
//! | the word | `cuStreamWriteValue64`, which fences as `__threadfence_system` does before it stores | CUDA driver API, "Stream memory operations" |
//! | the word and a doorbell | one `cuStreamBatchMemOp` of two stores, in order | the same |
//! | the status | an event of each number, before its store (`cuEventQuery`) | |
//! | the blocking wait | an event with `CU_EVENT_BLOCKING_SYNC`, awaited by a helper thread | |
//! | a host gate | `cuStreamWaitValue64` until a word of the host's is at least 1; its GEQ is cyclic, and only ever sees numbers that grow (invariant 13) | |
//! | whether the device can store | it is made to, when it is opened: attributes lie | |
//! | other threads' captures | every call is made in relaxed capture mode (`cuThreadExchangeStreamCaptureMode`): in global mode a query from another thread breaks a capture | CUDA driver API, "Stream capture" |
//!
//! The library is loaded at run time: a machine without it, without an entry point or without a device gets
//! three different errors. It is never unloaded, for it may have threads.
//!
//! ```no_run
//! use gpu_async_reactor::backend::cuda::CudaDevice;
//! use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
//! use gpu_async_reactor::*;
//!
//! # fn launch(_: *mut std::ffi::c_void) -> Result<()> { Ok(()) }
//! let device = CudaDevice::open(0)?;
//! let mut queue = device.queue()?;
//! let number = queue.submit(|stream| launch(stream.as_raw()))?;
//! let (clock, line) = (StdClock::new(), queue.line().clone());
//! let idle = OnThread(StdIdle::new(clock, None));
//! let mut port = QueuePort::new(&mut queue, (*line).as_ref(), idle, clock).number(number);
//! let plan: WaitPlan = "flag:park_us=100,backstop_us=2000".parse()?;
//! run_inline(wait(&plan, None, &mut port, &clock, &clock))?;
//! # Ok::<(), Error>(())
//! ```

mod table;

pub use table::Cuda;

use super::LineError;
use super::mapped::{self, Device, Driver};
use crate::Result;

/// A loaded CUDA driver.
pub type CudaDriver = Driver<Cuda>;
/// An open CUDA device.
pub type CudaDevice = Device<Cuda>;
/// A stream that somebody else owns, as CUDA names it.
pub type CuStream = mapped::Stream<Cuda>;
/// A completion line that a CUDA device stores to.
pub type MappedLine = mapped::MappedLine<Cuda>;
/// A CUDA stream whose completions are numbers.
pub type CudaQueue = mapped::StreamQueue<Cuda>;
/// A completion port over a CUDA stream, a line and one of its words.
pub type CudaPort<'l> = mapped::StreamPort<'l, Cuda>;
/// Holds back what was submitted behind it until the host opens it.
pub type CudaGate = mapped::Gate<Cuda>;
/// A kernel of a stated length whose result is known, for measurements and tests.
pub type StepKernel = mapped::StepKernel<Cuda>;
/// Where one step at a time of a [`StepKernel`] leaves its result.
pub type StepJob = mapped::StepJob<Cuda>;

impl CudaDevice {
    /// Opens a device of the system's driver, by its ordinal.
    ///
    /// # Errors
    ///
    /// `LibraryMissing` without a driver, `SymbolMissing` for one that lacks what everything needs, `NoDevice`
    /// without a device of that ordinal, or a failed driver call.
    pub fn open(ordinal: usize) -> Result<CudaDevice> {
        CudaDriver::load()?.open(ordinal)
    }
}

impl MappedLine {
    /// A line of the device whose context is current on this thread, or of the first device.
    ///
    /// # Errors
    ///
    /// `Unavailable` without a driver or an entry point, `NoDomain` without a device, `Status` with the
    /// driver's answer to a refused allocation.
    pub fn new() -> std::result::Result<MappedLine, LineError> {
        mapped::line_of_current()
    }
}
