//! Command buffers that store a number, used again as numbers are reached.

use super::device::Inner;
use super::memory::VulkanLine;
use super::stamps::Stamps;
use crate::{Result, Slot};
use ash::vk;
use std::collections::VecDeque;
use std::sync::Arc;

/// A queue's store buffers. Steady state makes none.
pub(super) struct Stores {
    inner: Arc<Inner>,
    pool: vk::CommandPool,
    /// A borrowed pool is not ours to destroy.
    owned: bool,
    free: Vec<vk::CommandBuffer>,
    pending: VecDeque<(u64, vk::CommandBuffer)>,
    pub(super) line: Arc<VulkanLine>,
    pub(super) slot: Slot,
    pub(super) stamps: Option<Stamps>,
}

impl Stores {
    pub(super) fn new(
        inner: &Arc<Inner>,
        borrowed: Option<vk::CommandPool>,
        line: Arc<VulkanLine>,
        slot: Slot,
    ) -> Result<Stores> {
        let stamps = Stamps::new(inner)?;
        let (pool, owned) = match borrowed {
            Some(pool) => (pool, false),
            None => (command_pool(inner)?, true),
        };
        let (free, pending) = (Vec::new(), VecDeque::new());
        Ok(Stores { inner: inner.clone(), pool, owned, free, pending, line, slot, stamps })
    }

    /// A recorded buffer that stores `number`; `reached` says how far the queue is, and is asked
    /// only when no buffer is free.
    pub(super) fn take(
        &mut self,
        number: u64,
        reached: impl FnOnce() -> Result<u64>,
    ) -> Result<vk::CommandBuffer> {
        if self.free.is_empty() && !self.pending.is_empty() {
            let reached = reached()?;
            let done = self.pending.partition_point(|&(number, _)| number <= reached);
            self.free.extend(self.pending.drain(..done).map(|(_, buffer)| buffer));
        }
        let buffer = match self.free.pop() {
            Some(buffer) => buffer,
            None => self.allocate()?,
        };
        match self.record(buffer, number) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                self.free.push(buffer);
                Err(error)
            }
        }
    }

    /// Says that a buffer was submitted, or that it wasn't.
    pub(super) fn give_back(&mut self, number: u64, buffer: vk::CommandBuffer, submitted: bool) {
        match submitted {
            true => self.pending.push_back((number, buffer)),
            false => self.free.push(buffer),
        }
    }

    /// Gives a borrowed pool back with the buffers still in it, for its owner to free with it: once the
    /// queue is dropped, nobody here knows when the owner uses or destroys the pool.
    pub(super) fn leave_borrowed_pool(&mut self) {
        if !self.owned {
            self.pending.clear();
            self.free.clear();
        }
    }

    fn allocate(&self) -> Result<vk::CommandBuffer> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is ours, or lent for our use alone while we run.
        unsafe { self.inner.device.allocate_command_buffers(&info) }
            .map(|buffers| buffers[0])
            .map_err(|e| self.inner.failed("storing a number", "vkAllocateCommandBuffers", e))
    }

    fn record(&self, commands: vk::CommandBuffer, number: u64) -> Result<()> {
        let device = &self.inner.device;
        let fail = |call, e| self.inner.failed("recording a store", call, e);
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the buffer is not pending, for its number was reached, and its pool allows a
        // reset by beginning.
        unsafe { device.begin_command_buffer(commands, &begin) }
            .map_err(|e| fail("vkBeginCommandBuffer", e))?;
        use vk::{AccessFlags as Access, PipelineStageFlags as Stage};
        // What the work wrote is made visible to the host, and comes before the word.
        let before = vk::MemoryBarrier::default()
            .src_access_mask(Access::MEMORY_WRITE)
            .dst_access_mask(Access::HOST_READ | Access::TRANSFER_WRITE);
        let after = vk::MemoryBarrier::default()
            .src_access_mask(Access::TRANSFER_WRITE)
            .dst_access_mask(Access::HOST_READ);
        let offset = self.line.offset + self.slot.index() as u64 * 8;
        let none = vk::DependencyFlags::empty();
        // SAFETY: the buffer is being recorded; the page is large enough for the word, which is
        // aligned to 4, and lives until the number is reached.
        unsafe {
            let to = Stage::HOST | Stage::TRANSFER;
            device.cmd_pipeline_barrier(
                commands,
                Stage::ALL_COMMANDS,
                to,
                none,
                &[before],
                &[],
                &[],
            );
            let page = self.line.page.buffer.handle;
            device.cmd_update_buffer(commands, page, offset, &number.to_ne_bytes());
            let (from, to) = (Stage::TRANSFER, Stage::HOST);
            device.cmd_pipeline_barrier(commands, from, to, none, &[after], &[], &[]);
            if let Some(stamps) = &self.stamps {
                stamps.record(commands, number);
            }
            device.end_command_buffer(commands)
        }
        .map_err(|e| fail("vkEndCommandBuffer", e))
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: ours; dropped only once the work has ended. Its buffers go with it.
            unsafe { self.inner.device.destroy_command_pool(self.pool, None) };
            return;
        }
        let buffers = self.pending.drain(..).map(|(_, buffer)| buffer).chain(self.free.drain(..));
        let buffers: Vec<_> = buffers.collect();
        if !buffers.is_empty() {
            // SAFETY: allocated from the caller's pool by us, and no longer pending.
            unsafe { self.inner.device.free_command_buffers(self.pool, &buffers) };
        }
    }
}

/// A pool whose buffers are reset one by one.
pub(super) fn command_pool(inner: &Arc<Inner>) -> Result<vk::CommandPool> {
    let info = vk::CommandPoolCreateInfo::default()
        .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
        .queue_family_index(inner.family);
    // SAFETY: the family is one that the device was made with.
    unsafe { inner.device.create_command_pool(&info, None) }
        .map_err(|e| inner.failed("making a command pool", "vkCreateCommandPool", e))
}
