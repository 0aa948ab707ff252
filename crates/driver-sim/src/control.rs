//! What tests ask of the simulation besides the vendor's interface. The same is exported from the library,
//! for processes that have it loaded.

use crate::machine::{code, machine};
use crate::script::Script;
use std::ffi::c_char;
use std::sync::atomic::Ordering;

/// Behaves as the script says from now on.
///
/// # Errors
///
/// The part of the script that means nothing.
pub fn set_script(script: &str) -> Result<(), String> {
    machine().set_script(Script::parse(script)?);
    Ok(())
}

/// When a value was stored to a device address, in nanoseconds of the system's monotonic clock; `None` before
/// it was.
pub fn stored_at_ns(address: u64, value: u64) -> Option<u64> {
    machine().stored_at(address, value)
}

/// When a kernel of a stream ended, by the stream's handle and the kernel's number on it, from 1, in
/// nanoseconds of the system's monotonic clock; `None` before it did, or when it is too long ago.
pub fn kernel_ended_at_ns(stream: usize, kernel: u64) -> Option<u64> {
    machine().streams.get(stream).ok()?.ended_at(kernel)
}

/// CPU time of the device's own threads without the host functions that they call: what a real device would
/// not use, in nanoseconds.
pub fn device_cpu_ns() -> u64 {
    machine().device_cpu.load(Ordering::Relaxed)
}

/// How many of a thing there are: `contexts`, `streams`, `events`, `modules`, `pages` (of host memory),
/// `references` (to primary contexts), or how often an entry point was called since it was first asked about.
pub fn tally(what: &str) -> u64 {
    machine().tally(what)
}

/// [`set_script`], for a process that has loaded the library: 0, or 1 for a script that means nothing.
///
/// # Safety
///
/// `script` ends with a zero.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gpuDriverSimScript(script: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    match unsafe { crate::text(script) }.map(set_script) {
        Ok(Ok(())) => code::OK,
        _ => code::INVALID_VALUE,
    }
}

/// [`stored_at_ns`], 0 for "not yet".
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gpuDriverSimStoredAt(address: u64, value: u64) -> u64 {
    stored_at_ns(address, value).unwrap_or(0)
}

/// [`kernel_ended_at_ns`], 0 for "not yet".
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gpuDriverSimKernelEndedAt(stream: usize, kernel: u64) -> u64 {
    kernel_ended_at_ns(stream, kernel).unwrap_or(0)
}

/// [`device_cpu_ns`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gpuDriverSimDeviceCpu() -> u64 {
    device_cpu_ns()
}

/// [`tally`].
///
/// # Safety
///
/// `what` ends with a zero.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gpuDriverSimTally(what: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { crate::text(what) }.map_or(u64::MAX, tally)
}
