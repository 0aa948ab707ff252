//! Contexts, primary and other.

use super::Handle;
use crate::machine::code::*;
use crate::machine::context::{self, Context};
use crate::machine::{CURRENT, machine};
use crate::{answer, entries};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

entries! { TABLE;
    fn cuDevicePrimaryCtxRetain(to: *mut Handle, device: i32) {
        let context = machine().device(device)?.retain();
        answer(to, context.handle())
    }
    fn cuDevicePrimaryCtxRelease_v2(device: i32) { machine().device(device)?.release() }
    fn cuDevicePrimaryCtxRelease(device: i32) { machine().device(device)?.release() }
    fn cuDevicePrimaryCtxReset_v2(device: i32) {
        machine().device(device)?.reset();
        Ok(())
    }
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        machine().device(device)?.set_flags(flags);
        Ok(())
    }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) {
        let (found, is_active) = machine().device(device)?.state();
        answer(flags, found)?;
        answer(active, i32::from(is_active))
    }
    fn cuCtxCreate_v2(to: *mut Handle, flags: u32, device: i32) { create(to, flags, device) }
    fn cuCtxCreate_v3(to: *mut Handle, affinities: *const c_void, _count: i32, flags: u32, device: i32) {
        if affinities.is_null() { create(to, flags, device) } else { Err(NOT_SUPPORTED) }
    }
    fn cuCtxCreate_v4(to: *mut Handle, parameters: *const c_void, flags: u32, device: i32) {
        if parameters.is_null() { create(to, flags, device) } else { Err(NOT_SUPPORTED) }
    }
    fn cuCtxDestroy_v2(handle: Handle) {
        let context = machine().contexts.get(handle)?;
        CURRENT.with(|stack| {
            let mut stack = stack.borrow_mut();
            let is_it = |top: &Option<Arc<Context>>| top.as_ref().is_some_and(|top| Arc::ptr_eq(top, &context));
            if stack.last().is_some_and(is_it) {
                stack.pop();
            }
        });
        context.destroy();
        Ok(())
    }
    fn cuCtxSetCurrent(handle: Handle) {
        let context = find(handle)?;
        CURRENT.with(|stack| {
            let mut stack = stack.borrow_mut();
            stack.pop();
            if context.is_some() {
                stack.push(context);
            }
        });
        Ok(())
    }
    fn cuCtxGetCurrent(to: *mut Handle) {
        let current = CURRENT.with(|stack| stack.borrow().last().cloned().flatten());
        answer(to, current.map_or(0, |context| context.handle()))
    }
    fn cuCtxPushCurrent_v2(handle: Handle) {
        let context = find(handle)?;
        CURRENT.with(|stack| stack.borrow_mut().push(context));
        Ok(())
    }
    fn cuCtxPopCurrent_v2(to: *mut Handle) {
        let popped = CURRENT.with(|stack| stack.borrow_mut().pop()).ok_or(INVALID_CONTEXT)?;
        if to.is_null() {
            return Ok(());
        }
        answer(to, popped.map_or(0, |context| context.handle()))
    }
    fn cuCtxGetDevice(to: *mut i32) { answer(to, context::current()?.device as i32) }
    fn cuCtxGetFlags(to: *mut u32) { answer(to, context::current()?.flags.load(Ordering::Relaxed)) }
    fn cuCtxGetApiVersion(handle: Handle, to: *mut u32) {
        if handle != 0 {
            machine().contexts.get(handle)?;
        }
        answer(to, 3_020)
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        context::current()?;
        answer(least, 0)?;
        answer(greatest, 0)
    }
    fn cuCtxSynchronize() {
        let context = context::current()?;
        crate::machine::stream::refuse_unsafe_call()?;
        let mut result = Ok(());
        context.each_stream(|stream| result = result.and(stream.synchronize()));
        result
    }
}

/// A new context, which becomes the thread's current one.
unsafe fn create(to: *mut Handle, flags: u32, device: i32) -> crate::machine::Result<()> {
    let context = Context::create(machine().device(device)?.index, flags);
    CURRENT.with(|stack| stack.borrow_mut().push(Some(context.clone())));
    // SAFETY: the caller's promise.
    unsafe { answer(to, context.handle()) }
}

/// A context, or none for the null handle.
fn find(handle: Handle) -> crate::machine::Result<Option<Arc<Context>>> {
    match handle {
        0 => Ok(None),
        handle => machine().contexts.get(handle).map(Some).map_err(|_| INVALID_CONTEXT),
    }
}
