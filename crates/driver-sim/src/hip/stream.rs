//! Streams, captures, host functions, stores and waits of words.

use super::Handle;
use crate::cuda::{place, slow};
use crate::machine::code::*;
use crate::machine::context::{current_hip, stream};
use crate::machine::stream::{Compare, Deed, HostFn, MemOp, Stream, refuse_unsafe_call};
use crate::machine::{CAPTURE_MODE, machine};
use crate::{answer, entries};
use std::ffi::c_void;

const NON_BLOCKING: u32 = 1;

entries! { TABLE;
    fn hipStreamCreate(to: *mut Handle) {
        answer(to, Stream::create(&current_hip()?, true, false).publish())
    }
    fn hipStreamCreateWithFlags(to: *mut Handle, flags: u32) {
        let stream = Stream::create(&current_hip()?, flags & NON_BLOCKING == 0, false);
        answer(to, stream.publish())
    }
    fn hipStreamDestroy(on: Handle) {
        machine().streams.remove(on)?.close();
        Ok(())
    }
    fn hipStreamQuery(on: Handle) {
        slow();
        let stream = stream(on, current_hip)?;
        refuse_unsafe_call()?;
        stream.query()
    }
    fn hipStreamSynchronize(on: Handle) {
        let stream = stream(on, current_hip)?;
        refuse_unsafe_call()?;
        stream.synchronize()
    }
    fn hipStreamWaitEvent(on: Handle, event: Handle, _flags: u32) {
        let event = machine().events.get(event)?;
        let recording = event.recording();
        stream(on, current_hip)?.submit(Deed::WaitFor(event, recording))
    }
    fn hipStreamGetDevice(on: Handle, device: *mut i32) {
        answer(device, stream(on, current_hip)?.context().device as i32)
    }
    fn hipStreamIsCapturing(on: Handle, to: *mut i32) {
        answer(to, stream(on, current_hip)?.capture_status()?)
    }
    fn hipStreamBeginCapture(on: Handle, mode: i32) { stream(on, current_hip)?.begin_capture(mode) }
    fn hipStreamEndCapture(on: Handle, graph: *mut Handle) {
        let deeds = stream(on, current_hip)?.end_capture()?;
        answer(graph, machine().graphs.add(crate::machine::graph::Graph { deeds }))
    }
    fn hipGraphDestroy(graph: Handle) { machine().graphs.remove(graph).map(|_| ()) }
    fn hipThreadExchangeStreamCaptureMode(mode: *mut i32) {
        if mode.is_null() || !(0..=2).contains(&*mode) {
            return Err(INVALID_VALUE);
        }
        let last = CAPTURE_MODE.replace(*mode);
        answer(mode, last)
    }
    fn hipLaunchHostFunc(on: Handle, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) {
        let function = function.ok_or(INVALID_VALUE)?;
        stream(on, current_hip)?.submit(Deed::Host(HostFn { function, data: data as usize }))
    }
    fn hipStreamWriteValue64(on: Handle, address: *mut c_void, value: u64, flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        place(address as u64, true)?;
        let store = MemOp::Store { address: address as u64, value, wide: true };
        let stream = stream(on, current_hip)?;
        // Releases before the middle of 2026 store at once in a capture rather than record it.
        if stream.capture_status()? != 0 {
            return stream.store_at_once(store);
        }
        stream.submit(Deed::Memory(vec![store]))
    }
    fn hipStreamWaitValue64(on: Handle, address: *mut c_void, value: u64, flags: u32, mask: u64) {
        let compare = match flags {
            0 => Compare::AtLeast,
            1 => Compare::Equal,
            2 => Compare::And,
            3 => Compare::Nor,
            _ => return Err(INVALID_VALUE),
        };
        if mask != u64::MAX {
            return Err(NOT_SUPPORTED);
        }
        place(address as u64, true)?;
        let wait = MemOp::Wait { address: address as u64, value, wide: true, compare };
        stream(on, current_hip)?.submit(Deed::Memory(vec![wait]))
    }
}
