//! Events.

use super::Handle;
use crate::cuda::slow;
use crate::machine::code::INVALID_HANDLE;
use crate::machine::context::{current_hip, stream};
use crate::machine::event::Event;
use crate::machine::machine;
use crate::machine::stream::{Deed, refuse_unsafe_call};
use crate::{answer, entries};
use std::sync::Arc;

entries! { TABLE;
    fn hipEventCreateWithFlags(to: *mut Handle, flags: u32) {
        let event = Event::new(current_hip()?, flags);
        answer(to, machine().events.add(event))
    }
    fn hipEventDestroy(event: Handle) { machine().events.remove(event).map(|_| ()) }
    fn hipEventRecord(event: Handle, on: Handle) {
        let (event, stream) = (machine().events.get(event)?, stream(on, current_hip)?);
        if !Arc::ptr_eq(event.context(), stream.context()) {
            return Err(INVALID_HANDLE);
        }
        let recording = event.record();
        stream.submit(Deed::Record(event, recording))
    }
    fn hipEventQuery(event: Handle) {
        slow();
        let event = machine().events.get(event)?;
        refuse_unsafe_call()?;
        event.query()
    }
    fn hipEventSynchronize(event: Handle) {
        let event = machine().events.get(event)?;
        refuse_unsafe_call()?;
        event.synchronize()
    }
    fn hipEventElapsedTime(to: *mut f32, from: Handle, until: Handle) {
        let (from, until) = (machine().events.get(from)?, machine().events.get(until)?);
        answer(to, until.elapsed(&from)?)
    }
}
