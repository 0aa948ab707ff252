//! A Vulkan device: a compute shader whose rounds are calibrated to the lengths that steps ask for.

use super::{About, StepDevice, StepQueue};
use crate::workload::Step;
use gpu_async_reactor::backend::vulkan::{
    DeviceInfo, DeviceKind, Job, Kernel, VulkanDevice, VulkanQueue,
};
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::{Clock, DurNs, HostCaps, MonoNs, Queue, Result, error};
use std::sync::{Mutex, PoisonError};

/// Invocations of the shader: one workgroup, so that steps of several queues can run side by side.
const ELEMENTS: u32 = 64;
/// A software device is opened at most this often; more queues share.
const OPENED_MOST: usize = 16;
/// A calibration run that takes longer than this is a device that hangs.
const DEADLINE: DurNs = DurNs::from_ms(5_000);

pub(crate) struct Vulkan {
    /// The device, opened once, or for a software device once for each queue.
    opened: Mutex<Vec<Open>>,
    about: About,
    index: usize,
    software: bool,
    rounds_per_us: f64,
}

struct Open {
    device: VulkanDevice,
    kernel: Kernel,
}

impl Vulkan {
    /// Opens a device of the loader's list, or the best one.
    pub(crate) fn open(index: Option<usize>) -> Result<Vulkan> {
        let device = match index {
            Some(index) => VulkanDevice::open(index)?,
            None => VulkanDevice::open_best()?,
        };
        let kernel = device.kernel()?;
        let (index, software) = (device.info().index, device.info().kind == DeviceKind::Cpu);
        let no_store_times = device.store_times().is_none().then(|| {
            "the driver can't tell the device's clock on the host's (VK_EXT_calibrated_timestamps)"
                .to_owned()
        });
        let about = About {
            name: describe(device.info()),
            simulated: false,
            no_store_times,
            caps: HostCaps { flag_wait: Ok(()) },
            note: software.then(|| {
                "a software device runs on the host's cores: lag includes waiting for a core, and the \
                 more queues, the more of it"
                    .to_owned()
            }),
        };
        let rounds_per_us = calibrate(&device, &kernel)?;
        let opened = Mutex::new(vec![Open { device, kernel }]);
        Ok(Vulkan { opened, about, index, software, rounds_per_us })
    }

    /// Mesa's software device has one queue, and a submit to it blocks while it runs a step; opened
    /// again, it runs steps side by side as a device with several queues does.
    fn place(&self, index: usize) -> Result<(VulkanQueue, Job)> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let place = if self.software { index % OPENED_MOST } else { 0 };
        while opened.len() <= place {
            let device = VulkanDevice::open(self.index)?;
            let kernel = device.kernel()?;
            opened.push(Open { device, kernel });
        }
        let Open { device, kernel } = &opened[place];
        Ok((device.queue()?, kernel.job(ELEMENTS)?))
    }
}

/// A device's name, what it is, and its driver.
pub(crate) fn describe(info: &DeviceInfo) -> String {
    let kind = match info.kind {
        DeviceKind::Discrete => "discrete GPU",
        DeviceKind::Integrated => "integrated GPU",
        DeviceKind::Virtual => "virtual GPU",
        DeviceKind::Cpu => "software on the host's CPU",
        _ => "other device",
    };
    let (major, minor, _) = info.api;
    format!(
        "{} (vulkan:{}, {kind}, Vulkan {major}.{minor}, {})",
        info.name, info.index, info.driver
    )
}

/// Rounds of the shader in a microsecond: from the difference of two lengths, so that what a submit
/// costs whatever its length is not in it; the best of a few, since others use the machine too.
fn calibrate(device: &VulkanDevice, kernel: &Kernel) -> Result<f64> {
    const SHORT: u32 = 50_000;
    let mut queue = device.queue()?;
    let mut job = kernel.job(ELEMENTS)?;
    let mut best = |rounds: u32| -> Result<u64> {
        let mut best = u64::MAX;
        for seed in 0..5 {
            best = best.min(timed(&mut queue, &mut job, seed, rounds)?);
        }
        Ok(best)
    };
    best(1_000)?; // the first run compiles the shader
    let short = best(SHORT)?;
    // A fast device needs longer runs before the difference says something.
    for times in [10, 100, 1_000] {
        let span = best(SHORT * times)?.saturating_sub(short);
        if span > 500_000 || times == 1_000 {
            return Ok(f64::from(SHORT * (times - 1)) * 1_000.0 / span.max(1) as f64);
        }
    }
    Ok(f64::from(SHORT))
}

fn timed(queue: &mut VulkanQueue, job: &mut Job, seed: u32, rounds: u32) -> Result<u64> {
    let clock = StdClock::new();
    let begin = clock.monotonic_ns();
    let number = queue.run(job, seed, rounds)?;
    if !queue.block(number, DEADLINE)? {
        return Err(error!(DeviceHang, format!("calibrating {}", queue.label()), DEADLINE));
    }
    Ok(clock.monotonic_ns().since(begin).0)
}

impl StepDevice for Vulkan {
    type Queue = VulkanSteps;

    fn about(&self) -> &About {
        &self.about
    }

    fn queue(&self, index: usize, _steps: usize) -> Result<VulkanSteps> {
        let (queue, job) = self.place(index)?;
        Ok(VulkanSteps {
            queue,
            job,
            index: index as u32,
            rounds_per_us: self.rounds_per_us,
            rounds: 0,
        })
    }
}

pub(crate) struct VulkanSteps {
    queue: VulkanQueue,
    job: Job,
    index: u32,
    rounds_per_us: f64,
    /// Of the last step submitted.
    rounds: u32,
}

impl VulkanSteps {
    /// Unlike that of the step before, whose result would otherwise pass for this one's.
    fn seed(&self, step: usize) -> u32 {
        (self.index << 24) ^ step as u32
    }
}

impl StepQueue for VulkanSteps {
    type Queue = VulkanQueue;

    fn queue(&mut self) -> &mut VulkanQueue {
        &mut self.queue
    }

    fn submit_step(&mut self, index: usize, step: &Step) -> Result<u64> {
        self.rounds = ((step.us as f64 * self.rounds_per_us) as u32).max(1);
        let seed = self.seed(index);
        self.queue.run(&mut self.job, seed, self.rounds)
    }

    fn verify_step(&mut self, index: usize) -> Result<bool> {
        self.job.verify(self.seed(index), self.rounds)
    }

    fn stored_at(&self, number: u64) -> Option<MonoNs> {
        self.queue.stored_at(number)
    }
}
