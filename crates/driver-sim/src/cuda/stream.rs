//! Streams, captures and host functions.

use super::Handle;
use crate::machine::code::*;
use crate::machine::context::{current, stream};
use crate::machine::stream::{Deed, HostFn, Stream, refuse_unsafe_call};
use crate::machine::{CAPTURE_MODE, machine};
use crate::{answer, entries};
use std::ffi::c_void;

const NON_BLOCKING: u32 = 1;

entries! { TABLE;
    fn cuStreamCreate(to: *mut Handle, flags: u32) {
        let stream = Stream::create(&current()?, flags & NON_BLOCKING == 0, false);
        answer(to, stream.publish())
    }
    fn cuStreamCreateWithPriority(to: *mut Handle, flags: u32, _priority: i32) {
        let stream = Stream::create(&current()?, flags & NON_BLOCKING == 0, false);
        answer(to, stream.publish())
    }
    fn cuStreamDestroy_v2(on: Handle) {
        machine().streams.remove(on)?.close();
        Ok(())
    }
    fn cuStreamQuery(on: Handle) {
        slow();
        let stream = stream(on, current)?;
        refuse_unsafe_call()?;
        stream.query()
    }
    fn cuStreamSynchronize(on: Handle) {
        let stream = stream(on, current)?;
        refuse_unsafe_call()?;
        stream.synchronize()
    }
    fn cuStreamWaitEvent(on: Handle, event: Handle, _flags: u32) {
        let event = machine().events.get(event)?;
        let recording = event.recording();
        stream(on, current)?.submit(Deed::WaitFor(event, recording))
    }
    fn cuStreamGetCtx(on: Handle, to: *mut Handle) {
        let stream = stream(on, current)?;
        stream.context().check()?;
        answer(to, stream.context().handle())
    }
    fn cuStreamGetFlags(on: Handle, to: *mut u32) {
        let stream = stream(on, current)?;
        answer(to, if stream.is_blocking() { 0 } else { NON_BLOCKING })
    }
    fn cuStreamGetPriority(on: Handle, to: *mut i32) {
        stream(on, current)?;
        answer(to, 0)
    }
    fn cuStreamIsCapturing(on: Handle, to: *mut i32) { answer(to, stream(on, current)?.capture_status()?) }
    fn cuStreamBeginCapture_v2(on: Handle, mode: i32) { stream(on, current)?.begin_capture(mode) }
    fn cuStreamEndCapture(on: Handle, graph: *mut Handle) {
        let deeds = stream(on, current)?.end_capture()?;
        answer(graph, machine().graphs.add(crate::machine::graph::Graph { deeds }))
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) {
        if mode.is_null() || !(0..=2).contains(&*mode) {
            return Err(INVALID_VALUE);
        }
        let last = CAPTURE_MODE.replace(*mode);
        answer(mode, last)
    }
    fn cuLaunchHostFunc_v2(
        on: Handle, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void, _spin_or_block: u32,
    ) {
        let function = function.ok_or(INVALID_VALUE)?;
        stream(on, current)?.submit(Deed::Host(HostFn { function, data: data as usize }))
    }
    fn cuLaunchHostFunc(on: Handle, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) {
        let function = function.ok_or(INVALID_VALUE)?;
        stream(on, current)?.submit(Deed::Host(HostFn { function, data: data as usize }))
    }
}

/// A query takes as long as the script says.
pub(crate) fn slow() {
    let us = machine().script().query_us;
    if us > 0 {
        std::thread::sleep(std::time::Duration::from_micros(us));
    }
}
