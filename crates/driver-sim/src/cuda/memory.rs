//! Memory: device, page-locked, registered and managed; copies and fills.

use super::Handle;
use crate::machine::code::*;
use crate::machine::context::{allocate, current, stream};
use crate::machine::kernel::Effect;
use crate::machine::memory::{Kind, Pinned};
use crate::machine::stream::{Deed, Stream, refuse_unsafe_call};
use crate::machine::{Result, machine};
use crate::{answer, entries};
use std::ffi::c_void;
use std::sync::Arc;

/// Host memory that the device can use.
const DEVICE_MAP: u32 = 2;

entries! { TABLE;
    fn cuMemAlloc_v2(to: *mut u64, bytes: usize) {
        refuse_unsafe_call()?;
        answer(to, allocate(&*current()?, bytes, Kind::Device)? as u64)
    }
    fn cuMemFree_v2(address: u64) {
        current()?;
        if address == 0 { Ok(()) } else { machine().memory.free(address as usize, |kind| matches!(kind, Kind::Device | Kind::Managed)) }
    }
    fn cuMemAllocManaged(to: *mut u64, bytes: usize, _flags: u32) {
        answer(to, allocate(&*current()?, bytes, Kind::Managed)? as u64)
    }
    fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, flags: u32) {
        refuse_unsafe_call()?;
        // Under unified addressing all page-locked memory is mapped; `distinct_addresses` is a system without.
        let mapped = flags & DEVICE_MAP != 0 || !machine().script().distinct_addresses;
        answer(to, allocate(&*current()?, bytes, Kind::Host { mapped })? as *mut c_void)
    }
    fn cuMemAllocHost_v2(to: *mut *mut c_void, bytes: usize) {
        refuse_unsafe_call()?;
        let mapped = !machine().script().distinct_addresses;
        answer(to, allocate(&*current()?, bytes, Kind::Host { mapped })? as *mut c_void)
    }
    fn cuMemFreeHost(address: *mut c_void) {
        current()?;
        machine().memory.free(address as usize, |kind| matches!(kind, Kind::Host { .. }))
    }
    fn cuMemHostGetDevicePointer_v2(to: *mut u64, host: *mut c_void, flags: u32) {
        current()?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        answer(to, machine().memory.device_address(host as usize)?)
    }
    fn cuMemHostGetFlags(to: *mut u32, host: *mut c_void) {
        match machine().memory.kind(host as u64) {
            Some(Kind::Host { mapped }) => answer(to, if mapped { DEVICE_MAP } else { 0 }),
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuMemHostRegister_v2(host: *mut c_void, bytes: usize, flags: u32) {
        let mapped = flags & DEVICE_MAP != 0 || !machine().script().distinct_addresses;
        machine().memory.register(host as usize, bytes, mapped, current()?.handle())
    }
    fn cuMemHostUnregister(host: *mut c_void) {
        machine().memory.free(host as usize, |kind| matches!(kind, Kind::Registered { .. }))
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        current()?;
        answer(free, 1 << 29)?;
        answer(total, 1 << 30)
    }
    fn cuPointerGetAttribute(to: *mut c_void, attribute: i32, address: u64) {
        const MEMORY_TYPE: i32 = 2;
        let kind = machine().memory.kind(address).ok_or(INVALID_VALUE)?;
        let on_host = matches!(kind, Kind::Host { .. } | Kind::Registered { .. });
        match attribute {
            MEMORY_TYPE => answer(to.cast::<u32>(), if on_host { 1 } else { 2 }),
            _ => Err(NOT_SUPPORTED),
        }
    }
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) { copy_now(to, from as u64, bytes) }
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) { copy_now(to as u64, from, bytes) }
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) { copy_now(to, from, bytes) }
    fn cuMemcpy(to: u64, from: u64, bytes: usize) { copy_now(to, from, bytes) }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, on: Handle) {
        copy(&stream(on, current)?, to, from as u64, bytes)
    }
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, on: Handle) {
        copy(&stream(on, current)?, to as u64, from, bytes)
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, on: Handle) {
        copy(&stream(on, current)?, to, from, bytes)
    }
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, on: Handle) { copy(&stream(on, current)?, to, from, bytes) }
    fn cuMemsetD8_v2(to: u64, value: u8, bytes: usize) { fill_now(to, vec![value], bytes) }
    fn cuMemsetD32_v2(to: u64, value: u32, words: usize) { fill_now(to, value.to_ne_bytes().to_vec(), 4 * words) }
    fn cuMemsetD8Async(to: u64, value: u8, bytes: usize, on: Handle) {
        fill(&stream(on, current)?, to, vec![value], bytes)
    }
    fn cuMemsetD32Async(to: u64, value: u32, words: usize, on: Handle) {
        fill(&stream(on, current)?, to, value.to_ne_bytes().to_vec(), 4 * words)
    }
}

fn submit(
    stream: &Arc<Stream>,
    effect: impl Fn(&Pinned<'_>) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let effect: Effect = Arc::new(effect);
    stream.submit(Deed::Move(effect))
}

/// A copy between the driver's memory and the caller's own, which is pageable, is asynchronous as far as that
/// allows: what is read was read when the call returns, and what is written was written.
pub(crate) fn copy(stream: &Arc<Stream>, to: u64, from: u64, bytes: usize) -> Result<()> {
    let pageable = |address| machine().memory.kind(address).is_none();
    if bytes == 0 || stream.is_capturing() {
        return submit(stream, move |memory| memory.copy(to, from, bytes));
    }
    if pageable(from) && !pageable(to) {
        let mut staged = vec![0u8; bytes];
        // SAFETY: the caller of the copy vouches for the range until the call returns.
        unsafe { std::ptr::copy(from as *const u8, staged.as_mut_ptr(), bytes) };
        return submit(stream, move |memory| memory.copy(to, staged.as_ptr() as u64, bytes));
    }
    submit(stream, move |memory| memory.copy(to, from, bytes))?;
    if pageable(to) { stream.synchronize() } else { Ok(()) }
}

pub(crate) fn fill(stream: &Arc<Stream>, to: u64, pattern: Vec<u8>, bytes: usize) -> Result<()> {
    machine().memory.device_range(to, bytes).ok_or(INVALID_VALUE)?;
    submit(stream, move |memory| memory.fill(to, bytes, &pattern))
}

/// A call without a stream goes by the legacy one and waits for it.
fn copy_now(to: u64, from: u64, bytes: usize) -> Result<()> {
    refuse_unsafe_call()?;
    let stream = stream(0, current)?;
    copy(&stream, to, from, bytes)?;
    stream.synchronize()
}

fn fill_now(to: u64, pattern: Vec<u8>, bytes: usize) -> Result<()> {
    refuse_unsafe_call()?;
    let stream = stream(0, current)?;
    fill(&stream, to, pattern, bytes)?;
    stream.synchronize()
}
