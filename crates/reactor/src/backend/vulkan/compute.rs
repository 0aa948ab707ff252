//! A small compute kernel with a known answer: the main job's work, and the tests'.

use super::device::Inner;
use super::memory::Buffer;
use super::store::command_pool;
use super::timeline::Timeline;
use crate::{Result, error};
use ash::vk;
use std::sync::Arc;

/// `lcg.comp`, compiled; a test compiles it again and compares.
const SPIRV: &[u8] = include_bytes!("lcg.spv");
const LOCAL_SIZE: u32 = 64;
/// The most turns of a shader's loop in one dispatch (Mesa 22.3's software device stops at 65,535).
const DISPATCH: u32 = 60_000;
const A: u32 = 1_664_525;
const C: u32 = 1_013_904_223;

/// The compiled kernel of a device.
#[derive(Clone)]
pub struct Kernel {
    pipeline: Arc<Pipeline>,
}

struct Pipeline {
    inner: Arc<Inner>,
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    shader: vk::ShaderModule,
    handle: vk::Pipeline,
}

impl Kernel {
    pub(super) fn new(inner: &Arc<Inner>) -> Result<Kernel> {
        let fail = |call, e| inner.failed("making the compute kernel", call, e);
        let device = &inner.device;
        let mut pipeline = Pipeline {
            inner: inner.clone(),
            set_layout: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            shader: vk::ShaderModule::null(),
            handle: vk::Pipeline::null(),
        };
        let binding = vk::DescriptorSetLayoutBinding::default()
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1)
            .stage_flags(vk::ShaderStageFlags::COMPUTE);
        let bindings = [binding];
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: for this and the calls below, the device is live, and what an info points to lives
        // through the call. What was made so far is destroyed with `pipeline` if one fails.
        pipeline.set_layout = unsafe { device.create_descriptor_set_layout(&info, None) }
            .map_err(|e| fail("vkCreateDescriptorSetLayout", e))?;
        let range = vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(size_of::<[u32; 4]>() as u32);
        let (layouts, ranges) = ([pipeline.set_layout], [range]);
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&layouts)
            .push_constant_ranges(&ranges);
        // SAFETY: as above.
        pipeline.layout = unsafe { device.create_pipeline_layout(&info, None) }
            .map_err(|e| fail("vkCreatePipelineLayout", e))?;
        let words: Vec<u32> = SPIRV
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: as above; the code is what the compiler made.
        pipeline.shader = unsafe { device.create_shader_module(&info, None) }
            .map_err(|e| fail("vkCreateShaderModule", e))?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(pipeline.shader)
            .name(c"main");
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(pipeline.layout);
        // SAFETY: as above.
        let made =
            unsafe { device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None) };
        pipeline.handle = made.map_err(|(_, e)| fail("vkCreateComputePipelines", e))?[0];
        Ok(Kernel { pipeline: Arc::new(pipeline) })
    }

    /// A job over that many elements.
    ///
    /// # Errors
    ///
    /// `Misuse` for no element or more than the device can take in one dispatch, or a failed driver
    /// call.
    pub fn job(&self, elements: u32) -> Result<Job> {
        Ok(Job { parts: Some(Box::new(Parts::new(&self.pipeline, elements)?)), running: None })
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let device = &self.inner.device;
        // SAFETY: ours, or null, which is allowed; every job that uses them keeps this until its work
        // has ended.
        unsafe {
            device.destroy_pipeline(self.handle, None);
            device.destroy_shader_module(self.shader, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}

/// Work for [`VulkanQueue::run`](super::VulkanQueue::run), with the memory it writes. Run again and again;
/// dropped while it runs, its memory is kept until the device is done with it (invariant 7).
pub struct Job {
    /// Taken only by `drop`.
    parts: Option<Box<Parts>>,
    running: Option<(Arc<Timeline>, u64)>,
}

struct Parts {
    pipeline: Arc<Pipeline>,
    elements: u32,
    buffer: Buffer,
    descriptors: vk::DescriptorPool,
    set: vk::DescriptorSet,
    commands: vk::CommandPool,
    command: vk::CommandBuffer,
}

impl Parts {
    fn new(pipeline: &Arc<Pipeline>, elements: u32) -> Result<Parts> {
        const DOING: &str = "making a job";
        if elements == 0 {
            return Err(error!(Misuse, DOING, "it needs at least one element"));
        }
        let inner = &pipeline.inner;
        let most = most_elements(&inner.limits);
        if elements > most {
            let wrong = format!("{elements} elements are more than this device's {most}");
            return Err(error!(Misuse, DOING, wrong));
        }
        let device = &inner.device;
        let fail = |call, e| inner.failed(DOING, call, e);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
        let mut parts = Parts {
            pipeline: pipeline.clone(),
            elements,
            buffer: Buffer::new(inner, u64::from(elements) * 4, usage)?,
            descriptors: vk::DescriptorPool::null(),
            set: vk::DescriptorSet::null(),
            commands: vk::CommandPool::null(),
            command: vk::CommandBuffer::null(),
        };
        let size = vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1);
        let sizes = [size];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
        // SAFETY: for this and the calls below, the device is live, and what an info points to lives
        // through the call. What was made so far is destroyed with `parts` if one fails.
        parts.descriptors = unsafe { device.create_descriptor_pool(&info, None) }
            .map_err(|e| fail("vkCreateDescriptorPool", e))?;
        let layouts = [pipeline.set_layout];
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(parts.descriptors)
            .set_layouts(&layouts);
        // SAFETY: as above.
        parts.set = unsafe { device.allocate_descriptor_sets(&info) }
            .map_err(|e| fail("vkAllocateDescriptorSets", e))?[0];
        let whole =
            vk::DescriptorBufferInfo::default().buffer(parts.buffer.handle).range(vk::WHOLE_SIZE);
        let whole = [whole];
        let write = vk::WriteDescriptorSet::default()
            .dst_set(parts.set)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&whole);
        // SAFETY: as above; no work uses the set yet.
        unsafe { device.update_descriptor_sets(&[write], &[]) };
        parts.commands = command_pool(inner)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(parts.commands)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: as above.
        parts.command = unsafe { device.allocate_command_buffers(&info) }
            .map_err(|e| fail("vkAllocateCommandBuffers", e))?[0];
        Ok(parts)
    }

    fn record(&self, seed: u32, rounds: u32) -> Result<()> {
        let (pipeline, commands) = (&self.pipeline, self.command);
        let device = &pipeline.inner.device;
        let fail = |call, e| pipeline.inner.failed("recording a job", call, e);
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let parameters = |rounds: u32, goes_on: bool| {
            let mut bytes = [0; 16];
            let values = [seed, rounds, self.elements, u32::from(goes_on)];
            for (four, value) in bytes.chunks_exact_mut(4).zip(values) {
                four.copy_from_slice(&value.to_ne_bytes());
            }
            bytes
        };
        use vk::{AccessFlags as Access, PipelineStageFlags as Stage};
        let between = vk::MemoryBarrier::default()
            .src_access_mask(Access::SHADER_WRITE)
            .dst_access_mask(Access::SHADER_READ | Access::SHADER_WRITE);
        // SAFETY: the job is not running, so the buffer is not pending; its pool allows a reset by
        // beginning; all that is bound lives until the job's number is reached.
        unsafe {
            device
                .begin_command_buffer(commands, &begin)
                .map_err(|e| fail("vkBeginCommandBuffer", e))?;
            let compute = vk::PipelineBindPoint::COMPUTE;
            device.cmd_bind_pipeline(commands, compute, pipeline.handle);
            let (layout, sets) = (pipeline.layout, [self.set]);
            device.cmd_bind_descriptor_sets(commands, compute, layout, 0, &sets, &[]);
            let stage = vk::ShaderStageFlags::COMPUTE;
            let mut left = rounds;
            loop {
                let now = left.min(DISPATCH);
                let parameters = parameters(now, left < rounds);
                device.cmd_push_constants(commands, layout, stage, 0, &parameters);
                device.cmd_dispatch(commands, self.elements.div_ceil(LOCAL_SIZE), 1, 1);
                left -= now;
                if left == 0 {
                    break;
                }
                let (at, none) = (Stage::COMPUTE_SHADER, vk::DependencyFlags::empty());
                device.cmd_pipeline_barrier(commands, at, at, none, &[between], &[], &[]);
            }
            device.end_command_buffer(commands).map_err(|e| fail("vkEndCommandBuffer", e))
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let device = &self.pipeline.inner.device;
        // SAFETY: ours, or null, which is allowed; dropped only once the work has ended. Sets and
        // buffers go with their pools.
        unsafe {
            device.destroy_command_pool(self.commands, None);
            device.destroy_descriptor_pool(self.descriptors, None);
        }
    }
}

impl Job {
    pub(super) fn record(
        &mut self,
        inner: &Arc<Inner>,
        seed: u32,
        rounds: u32,
    ) -> Result<vk::CommandBuffer> {
        const DOING: &str = "running a job";
        let idle = self.is_idle()?;
        let Some(parts) = &self.parts else {
            return Err(error!(Misuse, DOING, "it is gone"));
        };
        if !Arc::ptr_eq(&parts.pipeline.inner, inner) {
            return Err(error!(Misuse, DOING, "it was made on another device"));
        }
        if !idle {
            return Err(error!(Misuse, DOING, "it is still running; await its number first"));
        }
        parts.record(seed, rounds)?;
        Ok(parts.command)
    }

    pub(super) fn submitted(&mut self, timeline: Arc<Timeline>, number: u64) {
        self.running = Some((timeline, number));
    }

    /// Whether the device is done with it.
    fn is_idle(&self) -> Result<bool> {
        match &self.running {
            Some((timeline, number)) => Ok(timeline.counter()? >= *number),
            None => Ok(true),
        }
    }

    /// Whether every element has the value that this seed and these rounds give.
    ///
    /// # Errors
    ///
    /// `Misuse` while the job runs, or `DeviceLost`.
    pub fn verify(&self, seed: u32, rounds: u32) -> Result<bool> {
        let idle = self.is_idle()?;
        let Some(parts) = self.parts.as_ref().filter(|_| idle) else {
            return Err(error!(Misuse, "checking a job", "it is still running"));
        };
        let (a, c) = jump(rounds);
        // SAFETY: the job is idle, and `self` is borrowed, so nothing starts it.
        let words = unsafe { parts.buffer.words() };
        let right = |(i, &word): (usize, &u32)| {
            word == seed.wrapping_add(i as u32).wrapping_mul(a).wrapping_add(c)
        };
        Ok(words.iter().enumerate().all(right))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let (Some((timeline, number)), Some(parts)) = (self.running.take(), self.parts.take())
            && !timeline.counter().is_ok_and(|counter| counter >= number)
        {
            let inner = parts.pipeline.inner.clone();
            inner.bury(timeline, number, parts);
            inner.sweep();
        }
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("running", &self.running.is_some()).finish_non_exhaustive()
    }
}

/// The elements that one dispatch reaches and one storage buffer holds: a driver checks neither.
fn most_elements(limits: &vk::PhysicalDeviceLimits) -> u32 {
    let reached = limits.max_compute_work_group_count[0].saturating_mul(LOCAL_SIZE);
    reached.min(limits.max_storage_buffer_range / size_of::<u32>() as u32)
}

/// So many steps of the generator as one: `x → a·x + c`, by doubling.
fn jump(mut rounds: u32) -> (u32, u32) {
    let (mut a, mut c) = (1u32, 0u32);
    let (mut step_a, mut step_c) = (A, C);
    while rounds > 0 {
        if rounds & 1 == 1 {
            a = a.wrapping_mul(step_a);
            c = c.wrapping_mul(step_a).wrapping_add(step_c);
        }
        step_c = step_c.wrapping_mul(step_a).wrapping_add(step_c);
        step_a = step_a.wrapping_mul(step_a);
        rounds >>= 1;
    }
    (a, c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_held_to_the_least_of_the_limits() {
        let mut limits = vk::PhysicalDeviceLimits::default();
        limits.max_compute_work_group_count[0] = 65_535;
        limits.max_storage_buffer_range = 1 << 27;
        assert_eq!(most_elements(&limits), 65_535 * 64);
        limits.max_compute_work_group_count[0] = u32::MAX;
        assert_eq!(most_elements(&limits), 1 << 25);
    }

    #[test]
    fn a_jump_is_as_many_steps() {
        let mut x = 12_345u32;
        for rounds in 0..2_000 {
            let (a, c) = jump(rounds);
            assert_eq!(12_345u32.wrapping_mul(a).wrapping_add(c), x, "{rounds} rounds");
            x = x.wrapping_mul(A).wrapping_add(C);
        }
    }

    #[test]
    fn the_compiled_shader_is_the_source_compiled() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/vulkan/lcg.comp");
        let out = std::env::temp_dir().join(format!("lcg-{}.spv", std::process::id()));
        let run = std::process::Command::new("glslangValidator")
            .args(["-V", "--target-env", "vulkan1.0", source, "-o"])
            .arg(&out)
            .output();
        match run {
            Err(_) => eprintln!(
                "SKIPPED the_compiled_shader_is_the_source_compiled: no glslangValidator here"
            ),
            Ok(run) => {
                assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
                let fresh = std::fs::read(&out).unwrap();
                let _ = std::fs::remove_file(&out);
                // The header's third word is the compiler's version.
                assert_eq!((&fresh[..8], &fresh[12..]), (&SPIRV[..8], &SPIRV[12..]));
            }
        }
    }
}
