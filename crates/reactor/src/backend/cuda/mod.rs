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
//!
//! # Streams of others
//!
//! A stream of another runtime in the process serves as well, by its raw handle: whatever was submitted to it
//! when a number is asked for is awaited. Who owns the stream goes with it, and is kept for as long as the
//! queue needs the stream ([`Device::queue_keeping`]); the runtime may drop its own share at any time. For
//! cudarc the feature `cudarc` does this.
//!
//! ```
//! use gpu_async_reactor::backend::cuda::{CuStream, CudaDriver};
//! use gpu_async_reactor::watcher::CompletionExt;
//! use std::{ffi::c_void, sync::Arc};
//!
//! # // The other runtime and the driver are played by the simulated driver, in this process.
//! # fn entry<F: Copy>(name: &str) -> F {
//! #     let address = driver_sim::entry(name).unwrap();
//! #     unsafe { std::mem::transmute_copy(&address) }
//! # }
//! # struct OtherStream(*mut c_void);
//! # unsafe impl Send for OtherStream {}
//! # unsafe impl Sync for OtherStream {}
//! # impl OtherStream {
//! #     fn new() -> OtherStream {
//! #         let (mut context, mut stream) = (std::ptr::null_mut::<c_void>(), std::ptr::null_mut());
//! #         unsafe {
//! #             entry::<extern "C" fn(u32) -> i32>("cuInit")(0);
//! #             let retain = entry::<unsafe extern "C" fn(*mut *mut c_void, i32) -> i32>("cuDevicePrimaryCtxRetain");
//! #             assert_eq!(retain(&mut context, 0), 0);
//! #             entry::<unsafe extern "C" fn(*mut c_void) -> i32>("cuCtxSetCurrent")(context);
//! #             let create = entry::<unsafe extern "C" fn(*mut *mut c_void, u32) -> i32>("cuStreamCreate");
//! #             assert_eq!(create(&mut stream, 1), 0);
//! #         }
//! #         OtherStream(stream)
//! #     }
//! #     fn handle(&self) -> *mut c_void { self.0 }
//! # }
//! # impl Drop for OtherStream {
//! #     fn drop(&mut self) {
//! #         unsafe { entry::<unsafe extern "C" fn(*mut c_void) -> i32>("cuStreamDestroy_v2")(self.0) };
//! #     }
//! # }
//! # let lookup = |name: &std::ffi::CStr| {
//! #     let found = name.to_str().ok().and_then(driver_sim::entry);
//! #     found.map_or(std::ptr::null_mut(), |address| address.as_ptr())
//! # };
//! # let driver = unsafe { CudaDriver::from_lookup("the simulated driver", &lookup)? };
//! # /*
//! let driver = CudaDriver::load()?;
//! # */
//! let device = driver.open(0)?; // whose primary context the other runtime uses
//! let theirs = Arc::new(OtherStream::new());
//! // SAFETY: a live stream of this driver, for as long as `theirs` is there.
//! let stream = unsafe { CuStream::from_raw(theirs.handle()) };
//! let mut queue = device.queue_keeping(stream, theirs.clone())?;
//! // … the other runtime submits work to its stream …
//! let done = queue.completion();
//! drop((theirs, queue));
//! # smol::block_on(async {
//! done.await?;
//! # Ok::<(), gpu_async_reactor::watcher::WaitError>(()) }).unwrap();
//! # Ok::<(), gpu_async_reactor::Error>(())
//! ```
//!
//! [`Device::queue_keeping`]: CudaDevice::queue_keeping

#[cfg(feature = "cudarc")]
pub mod cudarc;
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
