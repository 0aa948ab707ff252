//! Memory: device, page-locked, managed and for signals; copies and fills.

use super::Handle;
use crate::cuda::{copy, fill};
use crate::machine::code::*;
use crate::machine::context::{allocate, current_hip, stream};
use crate::machine::machine;
use crate::machine::memory::Kind;
use crate::machine::stream::refuse_unsafe_call;
use crate::{answer, entries};
use std::ffi::c_void;

/// `hipHostMallocMapped`.
const MAPPED: u32 = 2;
/// `hipMallocSignalMemory`.
const SIGNAL: u32 = 2;

entries! { TABLE;
    fn hipMalloc(to: *mut *mut c_void, bytes: usize) {
        refuse_unsafe_call()?;
        answer(to, allocate(&*current_hip()?, bytes, Kind::Device)? as *mut c_void)
    }
    fn hipExtMallocWithFlags(to: *mut *mut c_void, bytes: usize, flags: u32) {
        // A signal is one word, and not a line of eight.
        let kind = match (flags, bytes) {
            (SIGNAL, 8) => Kind::Signal,
            (SIGNAL, _) => return Err(INVALID_VALUE),
            _ => Kind::Device,
        };
        answer(to, allocate(&*current_hip()?, bytes, kind)? as *mut c_void)
    }
    fn hipMallocManaged(to: *mut *mut c_void, bytes: usize, _flags: u32) {
        answer(to, allocate(&*current_hip()?, bytes, Kind::Managed)? as *mut c_void)
    }
    fn hipFree(address: *mut c_void) {
        current_hip()?;
        let freed = |kind| matches!(kind, Kind::Device | Kind::Managed | Kind::Signal);
        if address.is_null() { Ok(()) } else { machine().memory.free(address as usize, freed) }
    }
    fn hipHostMalloc(to: *mut *mut c_void, bytes: usize, flags: u32) {
        refuse_unsafe_call()?;
        let mapped = flags & MAPPED != 0 || !machine().script().distinct_addresses;
        answer(to, allocate(&*current_hip()?, bytes, Kind::Host { mapped })? as *mut c_void)
    }
    fn hipHostFree(address: *mut c_void) {
        current_hip()?;
        machine().memory.free(address as usize, |kind| matches!(kind, Kind::Host { .. }))
    }
    fn hipHostGetDevicePointer(to: *mut *mut c_void, host: *mut c_void, flags: u32) {
        current_hip()?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        answer(to, machine().memory.device_address(host as usize)? as *mut c_void)
    }
    fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, _kind: i32, on: Handle) {
        copy(&stream(on, current_hip)?, to as u64, from as u64, bytes)
    }
    fn hipMemsetAsync(to: *mut c_void, value: i32, bytes: usize, on: Handle) {
        fill(&stream(on, current_hip)?, to as u64, vec![value as u8], bytes)
    }
    fn hipMemsetD32Async(to: *mut c_void, value: i32, words: usize, on: Handle) {
        fill(&stream(on, current_hip)?, to as u64, value.to_ne_bytes().to_vec(), 4 * words)
    }
}
