//! Stream memory operations: stores and waits of words, one at a time or batched. The names without `_v2`
//! take `NO_MEMORY_BARRIER`; those with it refuse it.

use super::Handle;
use crate::entries;
use crate::machine::code::*;
use crate::machine::context::{current, stream};
use crate::machine::memory::Kind;
use crate::machine::stream::{Compare, Deed, MemOp};
use crate::machine::{Result, machine};

const NO_MEMORY_BARRIER: u32 = 1;
/// Fewer operations than this go into one batch.
const BATCH_MOST: u32 = 256;

entries! { TABLE;
    fn cuStreamWriteValue32(on: Handle, address: u64, value: u32, flags: u32) {
        submit(on, vec![store(address, value.into(), flags, false, true)?])
    }
    fn cuStreamWriteValue32_v2(on: Handle, address: u64, value: u32, flags: u32) {
        submit(on, vec![store(address, value.into(), flags, false, false)?])
    }
    fn cuStreamWriteValue64(on: Handle, address: u64, value: u64, flags: u32) {
        submit(on, vec![store(address, value, flags, true, true)?])
    }
    fn cuStreamWriteValue64_v2(on: Handle, address: u64, value: u64, flags: u32) {
        submit(on, vec![store(address, value, flags, true, false)?])
    }
    fn cuStreamWaitValue32(on: Handle, address: u64, value: u32, flags: u32) {
        submit(on, vec![wait(address, value.into(), flags, false)?])
    }
    fn cuStreamWaitValue32_v2(on: Handle, address: u64, value: u32, flags: u32) {
        submit(on, vec![wait(address, value.into(), flags, false)?])
    }
    fn cuStreamWaitValue64(on: Handle, address: u64, value: u64, flags: u32) {
        submit(on, vec![wait(address, value, flags, true)?])
    }
    fn cuStreamWaitValue64_v2(on: Handle, address: u64, value: u64, flags: u32) {
        submit(on, vec![wait(address, value, flags, true)?])
    }
    fn cuStreamBatchMemOp(on: Handle, count: u32, ops: *const [u64; 6], flags: u32) {
        submit(on, batch(count, ops, flags, true)?)
    }
    fn cuStreamBatchMemOp_v2(on: Handle, count: u32, ops: *const [u64; 6], flags: u32) {
        submit(on, batch(count, ops, flags, false)?)
    }
}

fn submit(on: Handle, ops: Vec<MemOp>) -> Result<()> {
    stream(on, current)?.submit(Deed::Memory(ops))
}

pub(crate) fn store(
    address: u64,
    value: u64,
    flags: u32,
    wide: bool,
    first: bool,
) -> Result<MemOp> {
    let allowed = if first { NO_MEMORY_BARRIER } else { 0 };
    if flags & !allowed != 0 {
        return Err(INVALID_VALUE);
    }
    place(address, wide)?;
    Ok(MemOp::Store { address, value, wide })
}

fn wait(address: u64, value: u64, flags: u32, wide: bool) -> Result<MemOp> {
    const FLUSH: u32 = 1 << 30;
    let compare = match flags & !FLUSH {
        0 => Compare::Cyclic,
        1 => Compare::Equal,
        2 => Compare::And,
        3 => Compare::Nor,
        _ => return Err(INVALID_VALUE),
    };
    place(address, wide)?;
    Ok(MemOp::Wait { address, value, wide, compare })
}

/// Aligned, the device's, and not managed.
pub(crate) fn place(address: u64, wide: bool) -> Result<()> {
    let bytes = if wide { 8 } else { 4 };
    if !address.is_multiple_of(bytes) {
        return Err(INVALID_VALUE);
    }
    match machine().memory.device_range(address, bytes as usize) {
        Some((_, Kind::Managed)) | None => Err(INVALID_VALUE),
        Some(_) => Ok(()),
    }
}

/// Reads operations of six words each: kind, address, value, flags.
unsafe fn batch(count: u32, ops: *const [u64; 6], flags: u32, first: bool) -> Result<Vec<MemOp>> {
    if count == 0 || count >= BATCH_MOST || flags != 0 || ops.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let ops = unsafe { std::slice::from_raw_parts(ops, count as usize) };
    let read = |op: &[u64; 6]| {
        let (address, value, flags) = (op[1], op[2], op[3] as u32);
        let narrow = u64::from(value as u32);
        Ok(Some(match op[0] as u32 {
            1 => wait(address, narrow, flags, false)?,
            2 => store(address, narrow, flags, false, first)?,
            // A flush of remote writes and a barrier: every store here has a full fence.
            3 | 6 => return Ok(None),
            4 => wait(address, value, flags, true)?,
            5 => store(address, value, flags, true, first)?,
            _ => return Err(INVALID_VALUE),
        }))
    };
    ops.iter().filter_map(|op| read(op).transpose()).collect()
}
