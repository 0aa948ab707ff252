//! A timeline semaphore: the status that decides.

use super::device::Inner;
use crate::{DurNs, Result};
use ash::vk;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct Timeline {
    inner: Arc<Inner>,
    pub(super) semaphore: vk::Semaphore,
}

impl Timeline {
    pub(super) fn new(inner: &Arc<Inner>) -> Result<Timeline> {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is live and has the feature.
        let semaphore = unsafe { inner.device.create_semaphore(&info, None) }
            .map_err(|e| inner.failed("making a timeline", "vkCreateSemaphore", e))?;
        Ok(Timeline { inner: inner.clone(), semaphore })
    }

    /// The number reached. Once lost, always lost.
    pub(super) fn counter(&self) -> Result<u64> {
        const CALL: &str = "vkGetSemaphoreCounterValue";
        if self.inner.lost.load(Ordering::Acquire) {
            return Err(self.inner.failed("asking a queue's status", CALL, LOST));
        }
        // SAFETY: the semaphore is a live timeline of the device.
        unsafe { self.inner.device.get_semaphore_counter_value(self.semaphore) }
            .map_err(|e| self.inner.failed("asking a queue's status", CALL, e))
    }

    /// Blocks until the number is reached, for at most `bound`: whether it was.
    pub(super) fn wait(&self, number: u64, bound: DurNs) -> Result<bool> {
        const CALL: &str = "vkWaitSemaphores";
        if self.inner.lost.load(Ordering::Acquire) {
            return Err(self.inner.failed("waiting for a queue", CALL, LOST));
        }
        let (semaphores, values) = ([self.semaphore], [number]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: as above; the arrays live through the call.
        match unsafe { self.inner.device.wait_semaphores(&info, bound.0) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(e) => Err(self.inner.failed("waiting for a queue", CALL, e)),
        }
    }

    /// Signals a number from the host.
    pub(super) fn signal(&self, number: u64) -> Result<()> {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(number);
        // SAFETY: the semaphore is a live timeline. That the number grows and that nothing pending
        // signals it is the gate's rule, which signals once.
        unsafe { self.inner.device.signal_semaphore(&info) }
            .map_err(|e| self.inner.failed("opening a gate", "vkSignalSemaphore", e))
    }
}

const LOST: vk::Result = vk::Result::ERROR_DEVICE_LOST;

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: ours; whoever submits with it holds an `Arc` of it until that work has ended.
        unsafe { self.inner.device.destroy_semaphore(self.semaphore, None) };
    }
}
