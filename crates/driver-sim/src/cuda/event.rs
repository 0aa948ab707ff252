//! Events.

use super::Handle;
use super::stream::slow;
use crate::machine::code::INVALID_HANDLE;
use crate::machine::context::{current, stream};
use crate::machine::event::Event;
use crate::machine::machine;
use crate::machine::stream::{Deed, refuse_unsafe_call};
use crate::{answer, entries};
use std::sync::Arc;

entries! { TABLE;
    fn cuEventCreate(to: *mut Handle, flags: u32) {
        let event = Event::new(current()?, flags);
        answer(to, machine().events.add(event))
    }
    fn cuEventDestroy_v2(event: Handle) { machine().events.remove(event).map(|_| ()) }
    fn cuEventRecord(event: Handle, on: Handle) { record(event, on) }
    fn cuEventRecordWithFlags(event: Handle, on: Handle, _flags: u32) { record(event, on) }
    fn cuEventQuery(event: Handle) {
        slow();
        let event = machine().events.get(event)?;
        refuse_unsafe_call()?;
        event.query()
    }
    fn cuEventSynchronize(event: Handle) {
        let event = machine().events.get(event)?;
        refuse_unsafe_call()?;
        event.synchronize()
    }
    fn cuEventElapsedTime(to: *mut f32, from: Handle, until: Handle) {
        let (from, until) = (machine().events.get(from)?, machine().events.get(until)?);
        answer(to, until.elapsed(&from)?)
    }
    fn cuEventElapsedTime_v2(to: *mut f32, from: Handle, until: Handle) {
        let (from, until) = (machine().events.get(from)?, machine().events.get(until)?);
        answer(to, until.elapsed(&from)?)
    }
}

/// An event is recorded on a stream of its own context.
pub(crate) fn record(event: Handle, on: Handle) -> crate::machine::Result<()> {
    let (event, stream) = (machine().events.get(event)?, stream(on, current)?);
    if !Arc::ptr_eq(event.context(), stream.context()) {
        return Err(INVALID_HANDLE);
    }
    let recording = event.record();
    stream.submit(Deed::Record(event, recording))
}
