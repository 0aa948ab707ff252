//! Stream-ordered memory and its pools.

use super::Handle;
use crate::machine::code::*;
use crate::machine::context::{allocate_from, current, stream};
use crate::machine::pool::{Pool, is_narrow};
use crate::machine::stream::Deed;
use crate::machine::{Result, machine};
use crate::{answer, entries};
use std::ffi::c_void;

/// The beginning of `CUmemPoolProps`, which is longer.
#[repr(C)]
pub(crate) struct PoolProps {
    allocation: i32,
    handles: i32,
    location: i32,
    device: i32,
}

/// Page-locked memory, the only kind that pools have, and a device as its place.
const PINNED: i32 = 1;
const DEVICE: i32 = 1;

entries! { TABLE;
    fn cuMemAllocAsync(to: *mut u64, bytes: usize, on: Handle) {
        let stream = stream(on, current)?;
        let pool = machine().device(stream.context().device as i32)?.pool();
        answer(to, allocate_from(pool, stream.context(), bytes)?)
    }
    fn cuMemAllocFromPoolAsync(to: *mut u64, bytes: usize, pool: Handle, on: Handle) {
        answer(to, allocate_from(pool, stream(on, current)?.context(), bytes)?)
    }
    fn cuMemFreeAsync(address: u64, on: Handle) {
        stream(on, current)?.submit(Deed::Free(address as usize))
    }
    fn cuDeviceGetDefaultMemPool(to: *mut Handle, device: i32) { answer(to, machine().device(device)?.pool()) }
    fn cuMemPoolCreate(to: *mut Handle, props: *const PoolProps) { create(to, props) }
    fn cuMemPoolDestroy(pool: Handle) {
        if machine().devices().iter().any(|device| device.pool() == pool) {
            return Err(INVALID_VALUE);
        }
        machine().pools.remove(pool).map(|_| ())
    }
    fn cuMemPoolGetAttribute(pool: Handle, attribute: i32, to: *mut c_void) {
        let value = machine().pools.get(pool)?.attribute(attribute)?;
        if is_narrow(attribute) { answer(to.cast::<u32>(), value as u32) } else { answer(to.cast::<u64>(), value) }
    }
    fn cuMemPoolSetAttribute(pool: Handle, attribute: i32, value: *const c_void) {
        if value.is_null() {
            return Err(INVALID_VALUE);
        }
        let value = if is_narrow(attribute) { value.cast::<u32>().read().into() } else { value.cast::<u64>().read() };
        machine().pools.get(pool)?.set_attribute(attribute, value)
    }
}

unsafe fn create(to: *mut Handle, props: *const PoolProps) -> Result<()> {
    if props.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's promise.
    let PoolProps { allocation, handles, location, device } = unsafe { props.read() };
    machine().device(device)?;
    match (allocation, handles, location) {
        // SAFETY: the caller's promise.
        (PINNED, 0, DEVICE) => unsafe { answer(to, machine().pools.add(Pool::default())) },
        // Memory that other processes share, and memory of the host's.
        (PINNED, _, _) => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}
