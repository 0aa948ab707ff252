//! Host-visible, host-coherent memory: pages of completion lines, and the buffers of jobs.

use super::device::Inner;
use crate::{CompletionLine, Result, error};
use ash::vk;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A mapped buffer that both sides see without flushing.
pub(super) struct Buffer {
    inner: Arc<Inner>,
    pub(super) handle: vk::Buffer,
    memory: vk::DeviceMemory,
    bytes: NonNull<u8>,
    pub(super) size: u64,
}

// SAFETY: the mapping is plain memory; who reads and writes it when is ruled by the queue's numbers, and
// words of lines are atomics.
unsafe impl Send for Buffer {}
// SAFETY: as above; through a shared reference only atomics and `bytes_mut`'s stated duty reach it.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(super) fn new(
        inner: &Arc<Inner>,
        size: u64,
        usage: vk::BufferUsageFlags,
    ) -> Result<Buffer> {
        const DOING: &str = "allocating host-visible device memory";
        let fail = |call, e| inner.failed(DOING, call, e);
        let device = &inner.device;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: the device is live.
        let handle =
            unsafe { device.create_buffer(&info, None) }.map_err(|e| fail("vkCreateBuffer", e))?;
        let destroy = || {
            // SAFETY: just made, and nothing uses it.
            unsafe { device.destroy_buffer(handle, None) };
        };
        // SAFETY: the buffer is the device's.
        let needs = unsafe { device.get_buffer_memory_requirements(handle) };
        let Some(kind) = memory_type(inner, needs.memory_type_bits) else {
            destroy();
            let lacks = "host-visible, host-coherent memory";
            return Err(error!(DeviceUnfit, inner.info.name.as_str(), lacks));
        };
        let info =
            vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
        // SAFETY: the memory type is one of the device's.
        let memory = match unsafe { device.allocate_memory(&info, None) } {
            Ok(memory) => memory,
            Err(e) => {
                destroy();
                return Err(fail("vkAllocateMemory", e));
            }
        };
        let free = |error| {
            destroy();
            // SAFETY: just made; the buffer is gone.
            unsafe { device.free_memory(memory, None) };
            error
        };
        // SAFETY: both are the device's, the memory is large enough and not bound yet.
        unsafe { device.bind_buffer_memory(handle, memory, 0) }
            .map_err(|e| free(fail("vkBindBufferMemory", e)))?;
        // SAFETY: the memory is host-visible and not mapped yet.
        let map =
            unsafe { device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) };
        let bytes = map.map_err(|e| free(fail("vkMapMemory", e)))?;
        let Some(bytes) = NonNull::new(bytes.cast::<u8>()) else {
            return Err(free(error!(Misuse, DOING, "the driver mapped it at address 0")));
        };
        // SAFETY: the mapping is at least `size` bytes, and no work uses it yet.
        unsafe { bytes.as_ptr().write_bytes(0, size as usize) };
        Ok(Buffer { inner: inner.clone(), handle, memory, bytes, size })
    }

    /// The buffer as words.
    ///
    /// # Safety
    ///
    /// The device writes none of it while the slice lives.
    pub(super) unsafe fn words(&self) -> &[u32] {
        // SAFETY: the mapping is `size` bytes, aligned to far more than 4 (the specification says
        // 64); the caller answers for the device.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), (self.size / 4) as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: ours; whoever submits work with it keeps it until that work has ended.
        unsafe {
            self.inner.device.destroy_buffer(self.handle, None);
            self.inner.device.free_memory(self.memory, None);
        }
    }
}

/// A memory type that both sides see, cached on the host where there is a choice.
fn memory_type(inner: &Inner, allowed: u32) -> Option<u32> {
    // SAFETY: the handle is the instance's.
    let memory =
        unsafe { inner.instance.instance.get_physical_device_memory_properties(inner.physical) };
    let needed = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
    (0..memory.memory_type_count)
        .filter(|&kind| allowed & (1 << kind) != 0)
        .filter(|&kind| memory.memory_types[kind as usize].property_flags.contains(needed))
        .max_by_key(|&kind| {
            let flags = memory.memory_types[kind as usize].property_flags;
            flags.contains(vk::MemoryPropertyFlags::HOST_CACHED)
        })
}

const PAGE: u64 = 4_096;
const LINE: u64 = size_of::<CompletionLine>() as u64;

/// A page of completion lines.
pub(super) struct Page {
    pub(super) buffer: Buffer,
    next: AtomicUsize,
}

impl Page {
    pub(super) fn new(inner: &Arc<Inner>) -> Result<Arc<Page>> {
        let buffer = Buffer::new(inner, PAGE, vk::BufferUsageFlags::TRANSFER_DST)?;
        if !buffer.bytes.cast::<CompletionLine>().is_aligned() {
            let doing = "mapping a page of completion lines";
            return Err(error!(Misuse, doing, "the driver's mapping is not aligned to 64 bytes"));
        }
        Ok(Arc::new(Page { buffer, next: AtomicUsize::new(0) }))
    }

    /// A line that nobody has; `None` when the page is used up.
    pub(super) fn line(page: &Arc<Page>) -> Option<VulkanLine> {
        let index = page.next.fetch_add(1, Ordering::Relaxed) as u64;
        (index < PAGE / LINE).then(|| VulkanLine { page: page.clone(), offset: index * LINE })
    }
}

/// A completion line in memory that the device stores to; it keeps its page, and the device, alive.
pub struct VulkanLine {
    pub(super) page: Arc<Page>,
    /// Where in the page it is, in bytes.
    pub(super) offset: u64,
}

impl AsRef<CompletionLine> for VulkanLine {
    fn as_ref(&self) -> &CompletionLine {
        // SAFETY: the offset is a multiple of 64 inside the page, whose mapping is aligned to 64
        // (checked when it was made) and lives as long as `self`. The words are atomics, zeroed at
        // the start, and the device stores to them as to any coherent memory.
        unsafe { &*self.page.buffer.bytes.as_ptr().add(self.offset as usize).cast() }
    }
}

impl std::fmt::Debug for VulkanLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_ref().fmt(f)
    }
}
