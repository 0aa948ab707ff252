//! Initialisation, devices and names of errors.

use crate::cuda::put_text;
use crate::machine::code::*;
use crate::machine::context::current_hip;
use crate::machine::stream::refuse_unsafe_call;
use crate::machine::{HIP_DEVICE, machine};
use crate::{answer, entries};
use std::ffi::c_char;

entries! { TABLE;
    #[uninit]
    fn hipInit(flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        machine().init()
    }
    #[uninit]
    fn hipDriverGetVersion(version: *mut i32) { answer(version, 70_000_000) }
    #[uninit]
    fn hipRuntimeGetVersion(version: *mut i32) { answer(version, 70_000_000) }
    #[uninit]
    fn hipGetDeviceCount(count: *mut i32) {
        // Asking for the count initialises, as every call of this interface does.
        match machine().init() {
            Ok(()) => answer(count, machine().devices().len() as i32),
            Err(status) => {
                answer(count, 0)?;
                Err(status)
            }
        }
    }
    fn hipSetDevice(device: i32) {
        machine().device(device)?;
        HIP_DEVICE.set(device as usize);
        Ok(())
    }
    fn hipGetDevice(device: *mut i32) { answer(device, HIP_DEVICE.get() as i32) }
    fn hipDeviceGetName(name: *mut c_char, length: i32, device: i32) {
        let index = machine().device(device)?.index;
        put_text(&format!("Simulated device {index} (no GPU)"), name, length)
    }
    fn hipDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        machine().device(device)?;
        let script = machine().script();
        let told = script.attributes.iter().find(|(number, _)| *number == attribute);
        // That words can be stored and waited for is said of every device, whether it is so or not. The wall
        // clock's rate is in kHz.
        let own = if attribute == 10_017 { 1_000_000 } else { 1 };
        answer(value, told.map_or(own, |&(_, value)| value))
    }
    fn hipDevicePrimaryCtxRetain(to: *mut usize, device: i32) {
        let context = machine().device(device)?.retain();
        answer(to, context.handle())
    }
    fn hipDevicePrimaryCtxRelease(device: i32) { machine().device(device)?.release() }
    fn hipDeviceReset() {
        machine().device(HIP_DEVICE.get() as i32)?.reset();
        Ok(())
    }
    fn hipDeviceSynchronize() {
        let context = current_hip()?;
        refuse_unsafe_call()?;
        let mut result = Ok(());
        context.each_stream(|stream| result = result.and(stream.synchronize()));
        result
    }
}

/// `hipGetErrorName` of the vendor's interface: the only ones that answer with a text.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorName(code: i32) -> *const c_char {
    let known = NAMES.iter().find(|(number, _, _)| *number == code);
    known.map_or(c"hipErrorUnknown", |(_, _, name)| name).as_ptr()
}

/// `hipGetErrorString` of the vendor's interface.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorString(code: i32) -> *const c_char {
    hipGetErrorName(code)
}
