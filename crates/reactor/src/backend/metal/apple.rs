//! The Apple side, over objc2-metal.
//!
//! `unsafe` is here for one call: giving Metal a completed handler.

use super::queue::Places;
use super::{BufferError, BufferStatus, CommandBuffer, Commands, MetalQueue, Report, SharedEvent};
use crate::{DurNs, Error, Result, error};
use block2::RcBlock;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandQueue, MTLCreateSystemDefaultDevice,
    MTLDevice, MTLEvent, MTLSharedEvent,
};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// How many buffers may be pending on a queue of ours before Metal blocks the caller; its own default is 64.
const PENDING: usize = 1_024;

/// A Metal device, and the words of its queues.
pub struct MetalDevice {
    raw: Retained<ProtocolObject<dyn MTLDevice>>,
    name: String,
    places: Mutex<(usize, Places)>,
}

impl MetalDevice {
    /// The system's default device.
    ///
    /// # Errors
    ///
    /// `NoDevice` where there is none.
    pub fn open_default() -> Result<MetalDevice> {
        autoreleasepool(|_| match MTLCreateSystemDefaultDevice() {
            Some(raw) => Ok(MetalDevice::over(raw)),
            None => Err(error!(NoDevice, "Metal", "the system has no default device")),
        })
    }

    /// A device that is already open.
    pub fn over(raw: Retained<ProtocolObject<dyn MTLDevice>>) -> MetalDevice {
        let name = autoreleasepool(|_| raw.name().to_string());
        MetalDevice { raw, name, places: Mutex::default() }
    }

    /// What the driver calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device itself.
    pub fn as_raw(&self) -> &ProtocolObject<dyn MTLDevice> {
        &self.raw
    }

    /// A queue over a new command queue.
    ///
    /// # Errors
    ///
    /// `DeviceUnfit` when the device gives no command queue or no event.
    pub fn queue(&self) -> Result<MetalQueue<MetalCommands>> {
        let made = autoreleasepool(|_| self.raw.newCommandQueueWithMaxCommandBufferCount(PENDING));
        let queue = made.ok_or_else(|| self.unfit("a command queue for another user"))?;
        self.queue_over(queue)
    }

    /// A queue over a command queue of this device that others use too. How many buffers it lets pend before
    /// it blocks is its maker's choice.
    ///
    /// # Errors
    ///
    /// `DeviceUnfit` when the device gives no event.
    pub fn queue_over(
        &self,
        queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    ) -> Result<MetalQueue<MetalCommands>> {
        let event = MetalEvent::new(&self.raw)?;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let label = format!("Metal queue {} of {}", places.0, self.name);
        places.0 += 1;
        let place = places.1.next_place();
        Ok(MetalQueue::new(MetalCommands { queue, event, label: label.clone() }, place, label))
    }

    fn unfit(&self, lacks: &str) -> Error {
        error!(DeviceUnfit, &*self.name, lacks)
    }
}

impl std::fmt::Debug for MetalDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetalDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An `MTLSharedEvent`.
#[derive(Debug)]
pub struct MetalEvent {
    raw: Retained<ProtocolObject<dyn MTLSharedEvent>>,
}

impl MetalEvent {
    /// The event itself.
    pub fn as_raw(&self) -> &ProtocolObject<dyn MTLSharedEvent> {
        &self.raw
    }
}

impl SharedEvent for MetalEvent {
    type Device = ProtocolObject<dyn MTLDevice>;

    fn new(device: &Self::Device) -> Result<MetalEvent> {
        autoreleasepool(|_| match device.newSharedEvent() {
            Some(raw) => Ok(MetalEvent { raw }),
            None => Err(error!(DeviceUnfit, device.name().to_string(), "shared events")),
        })
    }

    fn signaled(&self) -> u64 {
        self.raw.signaledValue()
    }

    fn wait(&self, value: u64, bound: DurNs) -> bool {
        // A thread that has no pool of its own would leak what the call autoreleases.
        autoreleasepool(|_| {
            self.raw.waitUntilSignaledValue_timeoutMS(value, bound.0.div_ceil(1_000_000))
        })
    }
}

/// A command buffer that was committed. It stays on the thread that made it.
#[derive(Debug)]
pub struct MetalBuffer {
    raw: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
}

impl MetalBuffer {
    /// A buffer that signals a port's value and was committed.
    pub fn new(raw: Retained<ProtocolObject<dyn MTLCommandBuffer>>) -> MetalBuffer {
        MetalBuffer { raw }
    }
}

impl CommandBuffer for MetalBuffer {
    fn status(&self) -> BufferStatus {
        status(&self.raw)
    }
}

fn status(buffer: &ProtocolObject<dyn MTLCommandBuffer>) -> BufferStatus {
    match buffer.status() {
        MTLCommandBufferStatus::Completed => BufferStatus::Completed,
        MTLCommandBufferStatus::Error => autoreleasepool(|_| {
            let failure = match buffer.error() {
                Some(error) => BufferError {
                    code: i32::try_from(error.code()).unwrap_or(i32::MAX),
                    text: error.localizedDescription().to_string(),
                },
                None => BufferError { code: 0, text: "no reason given".to_owned() },
            };
            BufferStatus::Failed(failure)
        }),
        _ => BufferStatus::Pending,
    }
}

/// A command queue and the event that each of its buffers signals.
#[derive(Debug)]
pub struct MetalCommands {
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    event: MetalEvent,
    label: String,
}

impl MetalCommands {
    /// The command queue.
    pub fn as_raw(&self) -> &ProtocolObject<dyn MTLCommandQueue> {
        &self.queue
    }
}

impl Commands for MetalCommands {
    type Event = MetalEvent;
    type Buffer = ProtocolObject<dyn MTLCommandBuffer>;

    fn event(&self) -> &MetalEvent {
        &self.event
    }

    fn commit(
        &mut self,
        value: u64,
        encode: impl FnOnce(&Self::Buffer) -> Result<()>,
        report: Report,
    ) -> Result<()> {
        autoreleasepool(|_| {
            let Some(buffer) = self.queue.commandBuffer() else {
                let doing = format!("committing number {value} to {}", self.label);
                return Err(error!(StoreRefused, doing, "the queue gave no command buffer"));
            };
            encode(&buffer)?;
            let event: &ProtocolObject<dyn MTLEvent> = ProtocolObject::from_ref(&*self.event.raw);
            buffer.encodeSignalEvent_value(event, value);
            let told = RcBlock::new(move |ended: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
                // SAFETY: Metal calls the handler with the buffer that ended, alive for the call.
                report.ended(status(unsafe { ended.as_ref() }));
            });
            // SAFETY: the pointer is of a live block, which Metal copies; it may run on any thread, and what
            // it captures is a `Report`, which is Send and Sync.
            unsafe { buffer.addCompletedHandler(RcBlock::as_ptr(&told)) };
            buffer.commit();
            Ok(())
        })
    }
}

const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<Report>();
    any_thread::<MetalEvent>();
    any_thread::<MetalDevice>();
};
