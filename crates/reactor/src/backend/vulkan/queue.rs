//! A completion queue: each submit ends with the store of the next number and the timeline's signal.
//!
//! Upholds invariants 2 (the timeline is the status), 5 (the device's queue is locked around a submit and
//! nothing else), 7, 8 and 11.

use super::compute::Job;
use super::device::{Inner, hold};
use super::gate::Gate;
use super::memory::VulkanLine;
use super::status::VulkanStatus;
use super::store::Stores;
use super::timeline::Timeline;
use crate::{DurNs, MonoNs, Queue, QueueStatus, Result, SharedStatus, Slot, error};
use ash::vk;
use std::sync::{Arc, Mutex};

/// A Vulkan queue whose completions are numbers.
///
/// Several may share one queue of the device: each has its own numbers, and the device's queue is locked
/// only around a submit. Dropping it waits for nothing.
pub struct VulkanQueue {
    inner: Arc<Inner>,
    queue: Arc<Mutex<vk::Queue>>,
    timeline: Arc<Timeline>,
    /// Taken only by `drop`.
    stores: Option<Stores>,
    line: Arc<VulkanLine>,
    slot: Slot,
    number: u64,
    /// Others submit to the queue too, so that a number already stored covers less than all.
    shared_with_owner: bool,
    /// What the next submit waits for.
    gate: Option<Arc<Timeline>>,
    /// Gates that submitted work waits for, each until that work's number.
    gates: Vec<(u64, Arc<Timeline>)>,
    /// What one submit hands over; kept so that a submit allocates nothing once warm (invariant 11).
    batch: Vec<vk::CommandBuffer>,
    label: String,
    status: Arc<VulkanStatus>,
}

impl VulkanQueue {
    pub(super) fn new(
        inner: &Arc<Inner>,
        queue: Arc<Mutex<vk::Queue>>,
        borrowed: Option<Option<vk::CommandPool>>,
    ) -> Result<VulkanQueue> {
        let (line, slot) = inner.place()?;
        let timeline = Arc::new(Timeline::new(inner)?);
        let stores = Stores::new(inner, borrowed.flatten(), line.clone(), slot)?;
        let label = format!("a queue of {}", inner.info.name);
        let status = VulkanStatus::new(inner, &queue, &timeline, &label);
        Ok(VulkanQueue {
            inner: inner.clone(),
            queue,
            timeline,
            stores: Some(stores),
            line,
            slot,
            number: 0,
            shared_with_owner: borrowed.is_some(),
            gate: None,
            gates: Vec::new(),
            batch: Vec::new(),
            label,
            status,
        })
    }

    /// Submits command buffers with the store of the next number behind them: that number.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or a failed driver call: then nothing was submitted.
    ///
    /// # Safety
    ///
    /// The buffers are of this device and family, fully recorded, not pending unless recorded for
    /// simultaneous use, and they and all they use stay as they are until the number is reached.
    pub unsafe fn submit(&mut self, commands: &[vk::CommandBuffer]) -> Result<u64> {
        self.submit_stored(commands)
    }

    /// Runs a job, which owns what the device uses: its number.
    ///
    /// # Errors
    ///
    /// `Misuse` for a job that is still running or of another device, `DeviceLost`, or a failed
    /// driver call.
    pub fn run(&mut self, job: &mut Job, seed: u32, rounds: u32) -> Result<u64> {
        let commands = job.record(&self.inner, seed, rounds)?;
        let number = self.submit_stored(&[commands])?;
        job.submitted(self.timeline.clone(), number);
        Ok(number)
    }

    /// Makes a gate: what is submitted from here on starts once it is opened.
    ///
    /// A device runs the submits to one of its queues in order, so a gate may hold back the other
    /// `VulkanQueue`s that share this one's; don't wait for one of them before opening it.
    ///
    /// # Errors
    ///
    /// `Misuse` while an earlier gate has nothing submitted behind it, or a failed driver call.
    pub fn gate(&mut self) -> Result<Gate> {
        if self.gate.is_some() {
            let doing = format!("gating {}", self.label);
            return Err(error!(Misuse, doing, "submit something behind the last gate first"));
        }
        let timeline = Arc::new(Timeline::new(&self.inner)?);
        self.gate = Some(timeline.clone());
        Ok(Gate::new(timeline))
    }

    /// When the store of a number really happened, on the clock of
    /// [`StdClock`](crate::host::std_host::StdClock); `None` before it did, for numbers over 1,024
    /// stores old, and on devices whose clock can't be told on the host's
    /// ([`VulkanDevice::store_times`](super::VulkanDevice::store_times)).
    pub fn stored_at(&self, number: u64) -> Option<MonoNs> {
        let reached = self.timeline.counter().is_ok_and(|counter| counter >= number);
        let stamps = self.stores.as_ref()?.stamps.as_ref()?;
        if reached { stamps.stored_at(number, self.number) } else { None }
    }

    fn submit_stored(&mut self, commands: &[vk::CommandBuffer]) -> Result<u64> {
        let doing = || format!("submitting to {}", self.label);
        let number = self.number + 1;
        let timeline = &self.timeline;
        if number >= self.inner.max_difference
            && number - timeline.counter()? >= self.inner.max_difference
        {
            return Err(error!(Misuse, doing(), "more numbers are pending than the device allows"));
        }
        let Some(stores) = &mut self.stores else {
            return Err(error!(Misuse, doing(), "the queue is closing"));
        };
        let store = stores.take(number, || timeline.counter())?;
        self.batch.clear();
        self.batch.extend_from_slice(commands);
        self.batch.push(store);
        let (signals, numbers) = ([timeline.semaphore], [number]);
        let wait = self.gate.as_ref().map(|gate| gate.semaphore);
        let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .signal_semaphore_values(&numbers)
            .wait_semaphore_values(&[1][..usize::from(wait.is_some())]);
        let info = vk::SubmitInfo::default()
            .command_buffers(&self.batch)
            .signal_semaphores(&signals)
            .wait_semaphores(wait.as_slice())
            .wait_dst_stage_mask(&stages[..usize::from(wait.is_some())])
            .push_next(&mut values);
        let result = {
            let queue = hold(&self.queue);
            // SAFETY: the queue is held; the caller of `submit`, or the job, answers for its
            // buffers, and `stores` and `gates` for ours; the timeline is kept until it is reached.
            unsafe { self.inner.device.queue_submit(*queue, &[info], vk::Fence::null()) }
        };
        stores.give_back(number, store, result.is_ok());
        result.map_err(|e| self.inner.failed(&doing(), "vkQueueSubmit", e))?;
        self.number = number;
        if let Some(gate) = self.gate.take() {
            self.gates.push((number, gate));
        }
        if !self.gates.is_empty() {
            let reached = self.timeline.counter()?;
            self.gates.retain(|&(number, _)| number > reached);
        }
        Ok(number)
    }
}

impl Queue for VulkanQueue {
    type Line = VulkanLine;

    fn line(&self) -> &Arc<VulkanLine> {
        &self.line
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn store_next(&mut self) -> Result<u64> {
        match self.number {
            // Each submit of ours stores its number.
            number if number > 0 && !self.shared_with_owner => Ok(number),
            _ => self.submit_stored(&[]),
        }
    }

    fn status(&mut self, number: u64) -> Result<bool> {
        Ok(self.timeline.counter()? >= number)
    }

    fn block(&mut self, number: u64, bound: DurNs) -> Result<bool> {
        self.timeline.wait(number, bound)
    }

    fn confirm(&mut self, number: u64) -> Result<()> {
        self.status.confirm(number)
    }

    fn label(&self) -> &str {
        &self.label
    }
}

impl SharedStatus for VulkanQueue {
    fn shared_status(&self) -> Arc<dyn QueueStatus> {
        self.status.clone()
    }
}

impl Drop for VulkanQueue {
    fn drop(&mut self) {
        let mut kept = (self.stores.take(), std::mem::take(&mut self.gates), self.gate.take());
        if !self.timeline.counter().is_ok_and(|counter| counter >= self.number) {
            if let Some(stores) = &mut kept.0 {
                stores.leave_borrowed_pool();
            }
            self.inner.bury(self.timeline.clone(), self.number, Box::new(kept));
        }
        self.inner.sweep();
    }
}

impl std::fmt::Debug for VulkanQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let label = &self.label;
        f.debug_struct("VulkanQueue").field("label", label).field("number", &self.number).finish()
    }
}
