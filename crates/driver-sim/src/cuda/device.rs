//! Initialisation, devices, names of errors, and finding entry points.

use crate::machine::code::*;
use crate::machine::machine;
use crate::{answer, entries, text};
use std::ffi::{c_char, c_void};

entries! { TABLE;
    #[uninit]
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        machine().init()
    }
    #[uninit]
    fn cuDriverGetVersion(version: *mut i32) { answer(version, machine().script().version) }
    #[uninit]
    fn cuGetErrorName(code: i32, name: *mut *const c_char) { error_text(code, name) }
    #[uninit]
    fn cuGetErrorString(code: i32, text: *mut *const c_char) { error_text(code, text) }
    #[uninit]
    fn cuGetProcAddress_v2(name: *const c_char, to: *mut *mut c_void, version: i32, _flags: u64, found: *mut i32) {
        proc_address(text(name)?, to, version, found)
    }
    #[uninit]
    fn cuGetProcAddress(name: *const c_char, to: *mut *mut c_void, version: i32, _flags: u64) {
        let mut found = 0;
        proc_address(text(name)?, to, version, &mut found)?;
        if found == 0 { Ok(()) } else { Err(NOT_FOUND) }
    }
    fn cuDeviceGetCount(count: *mut i32) { answer(count, machine().devices().len() as i32) }
    fn cuDeviceGet(device: *mut i32, ordinal: i32) {
        machine().device(ordinal)?;
        answer(device, ordinal)
    }
    fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) {
        let index = machine().device(device)?.index;
        put_text(&format!("Simulated device {index} (no GPU)"), name, length)
    }
    fn cuDeviceGetPCIBusId(name: *mut c_char, length: i32, device: i32) {
        let index = machine().device(device)?.index;
        put_text(&format!("0000:{index:02x}:00.0"), name, length)
    }
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) {
        let index = machine().device(device)?.index;
        answer(uuid, [index as u8; 16])
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) {
        machine().device(device)?;
        answer(bytes, 1 << 30)
    }
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        machine().device(device)?;
        let script = machine().script();
        let told = script.attributes.iter().find(|(number, _)| *number == attribute);
        answer(value, told.map_or_else(|| device_attribute(attribute), |&(_, value)| value))
    }
}

/// What a device says of itself; 0 where nothing is said.
fn device_attribute(attribute: i32) -> i32 {
    match attribute {
        1 => 1_024,      // threads in a block
        2..=4 => 1_024,  // a block's sides
        5..=7 => 65_535, // a grid's sides
        8 => 49_152,     // shared memory of a block
        10 => 32,        // warp
        16 => 4,         // multiprocessors
        19 | 41 => 1,    // host memory can be mapped; unified addressing
        75 => 9,         // compute capability 9.0
        76 => 0,
        83 => 1,             // managed memory
        92 | 122 | 123 => 1, // 64-bit stream memory operations, both versions, and NOR
        _ => 0,
    }
}

unsafe fn error_text(code: i32, to: *mut *const c_char) -> crate::machine::Result<()> {
    let known = NAMES.iter().find(|(number, _, _)| *number == code);
    let name = known.map_or(std::ptr::null(), |(_, name, _)| name.as_ptr());
    // SAFETY: the caller's promise.
    unsafe { answer(to, name) }?;
    known.map(|_| ()).ok_or(INVALID_VALUE)
}

/// Writes a text that ends with a zero, cut to the length.
///
/// # Safety
///
/// `to` is null or has room for `length` bytes.
pub(crate) unsafe fn put_text(
    text: &str,
    to: *mut c_char,
    length: i32,
) -> crate::machine::Result<()> {
    let room = usize::try_from(length).ok().and_then(|n| n.checked_sub(1)).ok_or(INVALID_VALUE)?;
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    let bytes = &text.as_bytes()[..text.len().min(room)];
    // SAFETY: not null, with room for the bytes and the zero.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        to.add(bytes.len()).write(0);
    }
    Ok(())
}

/// An unknown name is a success with a null pointer, as the real library has it; the newest version of a
/// known one is found by its plain name.
unsafe fn proc_address(
    name: &str,
    to: *mut *mut c_void,
    version: i32,
    found: *mut i32,
) -> crate::machine::Result<()> {
    // From 12.0 the plain names of the stream memory operations mean their second version.
    let memop = name.starts_with("cuStreamWriteValue")
        || name.starts_with("cuStreamWaitValue")
        || name == "cuStreamBatchMemOp";
    let second = (!memop || version >= 12_000).then(|| format!("{name}_v2"));
    let address = second.and_then(|name| crate::entry(&name)).or_else(|| crate::entry(name));
    // SAFETY: the caller's promise.
    unsafe {
        answer(to, address.map_or(std::ptr::null_mut(), |address| address.as_ptr()))?;
        if !found.is_null() {
            found.write(i32::from(address.is_none()));
        }
    }
    Ok(())
}
