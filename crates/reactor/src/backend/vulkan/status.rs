//! A queue's status, from any thread: its timeline's counter, which Vulkan lets any thread ask.
//!
//! Upholds invariants 2 and 5 (the device's queue is locked around a submit and nothing else).

use super::device::{Inner, hold};
use super::timeline::Timeline;
use crate::{DurNs, QueueStatus, Result};
use ash::vk;
use std::sync::{Arc, Mutex};

pub(super) struct VulkanStatus {
    inner: Arc<Inner>,
    queue: Arc<Mutex<vk::Queue>>,
    timeline: Arc<Timeline>,
    label: String,
}

impl VulkanStatus {
    pub(super) fn new(
        inner: &Arc<Inner>,
        queue: &Arc<Mutex<vk::Queue>>,
        timeline: &Arc<Timeline>,
        label: &str,
    ) -> Arc<VulkanStatus> {
        Arc::new(VulkanStatus {
            inner: inner.clone(),
            queue: queue.clone(),
            timeline: timeline.clone(),
            label: label.to_owned(),
        })
    }
}

impl QueueStatus for VulkanStatus {
    fn status(&self, number: u64) -> Result<bool> {
        Ok(self.timeline.counter()? >= number)
    }

    fn confirm(&self, number: u64) -> Result<()> {
        // A wait that is already over, and a submit of nothing: drivers check for a loss in both.
        self.timeline.wait(number, DurNs(0))?;
        let queue = hold(&self.queue);
        // SAFETY: the queue is held; there is nothing in the submit.
        unsafe { self.inner.device.queue_submit(*queue, &[], vk::Fence::null()) }
            .map_err(|e| self.inner.failed("asking for a loss", "vkQueueSubmit", e))
    }

    fn label(&self) -> &str {
        &self.label
    }
}
