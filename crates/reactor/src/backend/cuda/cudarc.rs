//! Queues and ports over the streams of cudarc: its users go on submitting through it, and await
//! what they submitted here.
//!
//! * The stream, and through it its context, is kept until the queue is gone and nobody can ask about its
//!   numbers any more: drop either side first.
//! * The stream stays cudarc's: each number asked for is stored behind whatever was submitted by then.
//! * cudarc panics where the driver's library or an entry point is missing. [`context`] looks first, and gives
//!   a typed error instead.
//!
//! ```no_run
//! use gpu_async_reactor::backend::cuda::cudarc;
//! use gpu_async_reactor::watcher::CompletionExt;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let context = cudarc::context(0)?;
//! let stream = context.new_stream()?;
//! let device = cudarc::device(&context)?;
//! let mut queue = cudarc::queue(&device, &stream)?;
//!
//! let copied = stream.clone_htod(&[1u32, 2, 3])?; // and kernels, and whatever else cudarc does
//! queue.completion().await?; // all of that is done; in a task of any runtime
//! # drop(copied);
//! # Ok(())
//! # }
//! ```

use super::{CuStream, CudaDevice, CudaDriver, CudaPort, CudaQueue, MappedLine};
use crate::backend::mapped::table::load;
use crate::backend::mapped::{Failure, Vendor};
use crate::backend::wordwait::WordWait;
use crate::{Result, Slot, error};
use ::cudarc::driver::{CudaContext, CudaStream};
use std::ffi::CStr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A cudarc context of a device's primary context: as `CudaContext::new`, with a typed error for whatever is
/// missing.
///
/// # Errors
///
/// `LibraryMissing` without a driver, `SymbolMissing` for one that lacks what cudarc needs for it, `NoDevice`
/// without a device of that ordinal, or a failed driver call.
pub fn context(ordinal: usize) -> Result<Arc<CudaContext>> {
    let driver = CudaDriver::load()?;
    let table = driver.ready()?;
    if let Some(entry) = lacks(table.library())? {
        return Err(error!(SymbolMissing, table.library(), entry));
    }
    let count = driver.devices()?.len();
    if ordinal >= count {
        let found = format!("there is no device {ordinal}, the driver found {count}");
        return Err(error!(NoDevice, "CUDA", found));
    }
    CudaContext::new(ordinal).map_err(|e| {
        let failure = Failure::Status { call: "cudarc's CudaContext::new", status: e.0 as i32 };
        table.error(&format!("making a context on CUDA device {ordinal}"), failure)
    })
}

/// An entry point that isn't there, of those that cudarc makes a context with and this library doesn't need.
fn lacks(library: &str) -> Result<Option<&'static str>> {
    static LACKS: OnceLock<Option<&str>> = OnceLock::new();
    if let Some(lacks) = LACKS.get() {
        return Ok(*lacks);
    }
    let lookup = load(Path::new(library))?;
    let gone = |name: &&CStr| lookup(name).is_null();
    let first = [c"cuDeviceGetAttribute", c"cuCtxSetCurrent"].into_iter().find(gone);
    Ok(*LACKS.get_or_init(|| first.and_then(|name| name.to_str().ok())))
}

/// The device of a cudarc context, primary or not. It keeps the context.
///
/// # Errors
///
/// `Misuse` for a context of another copy of the driver than the system's; else as [`CudaDevice::open`].
pub fn device(context: &Arc<CudaContext>) -> Result<CudaDevice> {
    let driver = CudaDriver::load()?;
    let (ordinal, raw) = (context.ordinal(), context.cu_ctx().cast());
    if context.is_primary() {
        let doing = format!("opening CUDA device {ordinal} for cudarc");
        let table = driver.ready()?;
        let fail = |failure| table.error(&doing, failure);
        // A handle means something to the driver that gave it alone.
        let own = table.retain(ordinal).map_err(fail)?;
        table.release(ordinal).map_err(fail)?;
        if own.0 != raw {
            let what = format!("cudarc loaded another driver than {}", table.library());
            return Err(error!(Misuse, doing, what));
        }
    }
    // SAFETY: a context of cudarc's, which it releases or destroys when its last owner goes.
    unsafe { driver.open_in(ordinal, raw, context.clone()) }
}

/// A queue over a stream of cudarc's, which it keeps.
///
/// # Errors
///
/// `Misuse` for a stream of another context than the device's, `StreamCapturing`, `DeviceLost`, or a failed
/// driver call.
pub fn queue(device: &CudaDevice, stream: &Arc<CudaStream>) -> Result<CudaQueue> {
    let raw = raw(device, stream)?;
    device.queue_keeping(raw, stream.clone())
}

/// A port over a stream of cudarc's, which it keeps, and a word of a line of its [`device`]; parking in
/// hardware where it is given a [`WordWait`].
///
/// # Errors
///
/// As [`queue`]; `Misuse` too for a word that is already numbered.
pub fn port<'l>(
    stream: &Arc<CudaStream>,
    line: &'l MappedLine,
    slot: Slot,
    word_wait: Option<WordWait>,
) -> Result<CudaPort<'l>> {
    let raw = raw(&line.device(), stream)?;
    CudaPort::keeping(raw, stream.clone(), line, slot, word_wait)
}

/// The stream's handle, if it is of the device's context. The handles of default streams don't tell.
fn raw(device: &CudaDevice, stream: &CudaStream) -> Result<CuStream> {
    if device.inner().context.0 != stream.context().cu_ctx().cast() {
        let doing = format!("using a cudarc stream on {}", device.name());
        return Err(error!(Misuse, doing, "the stream is of another context"));
    }
    // SAFETY: a live stream of the device's context, and so of its driver; whoever asked keeps it.
    Ok(unsafe { CuStream::from_raw(stream.cu_stream().cast()) })
}
