//! An open device, owned or borrowed, and what has to outlive its work.
//!
//! Upholds invariant 7: no drop waits for the device. What the device may still use goes to a graveyard,
//! swept as numbers are reached; what is left there when the last handle goes is leaked and counted.

use super::entry::{DeviceInfo, DeviceKind, Instance};
use super::memory::{Page, VulkanLine};
use super::queue::VulkanQueue;
use super::stamps::Calibrator;
use super::timeline::Timeline;
use super::{Kernel, failed};
use crate::{Result, Slot, error};
use ash::vk;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Things in the graveyards of all devices.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// An open Vulkan device. Clones are the same device.
#[derive(Clone)]
pub struct VulkanDevice {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) device: ash::Device,
    pub(super) instance: Instance,
    pub(super) physical: vk::PhysicalDevice,
    pub(super) info: DeviceInfo,
    pub(super) family: u32,
    /// Locked around a submit and nothing else (invariant 5).
    queues: Vec<Arc<Mutex<vk::Queue>>>,
    handed_out: AtomicUsize,
    pub(super) max_difference: u64,
    pub(super) limits: vk::PhysicalDeviceLimits,
    pub(super) calibrator: Option<Calibrator>,
    owned: bool,
    pub(super) lost: AtomicBool,
    places: Mutex<Places>,
    graveyard: Mutex<Vec<Grave>>,
}

/// Where the next queue's word goes. A word is never used by a second queue, for numbers only grow.
/// Queues keep their line and lines their page; the device keeps neither.
#[derive(Default)]
struct Places {
    page: Weak<Page>,
    line: Weak<VulkanLine>,
    used: usize,
}

/// What the device may use until its timeline reaches a number.
struct Grave {
    timeline: Arc<Timeline>,
    number: u64,
    _kept: Box<dyn Any + Send>,
}

impl VulkanDevice {
    /// The devices of this machine, those that this backend can't use included.
    ///
    /// # Errors
    ///
    /// `LibraryMissing` without a loader, `NoDevice` without a driver or a device.
    pub fn list() -> Result<Vec<DeviceInfo>> {
        Ok(Instance::load()?.devices()?.into_iter().map(|(_, info)| info).collect())
    }

    /// Opens the device of that index in [`list`](VulkanDevice::list).
    ///
    /// # Errors
    ///
    /// As `list`; `NoDevice` for an index beyond it, `DeviceUnfit` for a device that lacks something,
    /// or a failed driver call.
    pub fn open(index: usize) -> Result<VulkanDevice> {
        let instance = Instance::load()?;
        let mut devices = instance.devices()?;
        if index >= devices.len() {
            let found = format!("index {index} of {} devices", devices.len());
            return Err(error!(NoDevice, "Vulkan", found));
        }
        let (physical, info) = devices.swap_remove(index);
        Self::open_found(instance, physical, info)
    }

    /// Opens the best device that this backend can use: discrete before integrated before virtual
    /// before software.
    ///
    /// # Errors
    ///
    /// As [`open`](VulkanDevice::open).
    pub fn open_best() -> Result<VulkanDevice> {
        let instance = Instance::load()?;
        let rank = |info: &DeviceInfo| match info.kind {
            DeviceKind::Discrete => 0,
            DeviceKind::Integrated => 1,
            DeviceKind::Virtual => 2,
            DeviceKind::Cpu => 3,
            DeviceKind::Other => 4,
        };
        let best =
            instance.devices()?.into_iter().min_by_key(|(_, info)| (info.fit.is_err(), rank(info)));
        match best {
            Some((physical, info)) => Self::open_found(instance, physical, info),
            None => Err(error!(NoDevice, "Vulkan", "none on this machine")),
        }
    }

    fn open_found(
        instance: Instance,
        physical: vk::PhysicalDevice,
        info: DeviceInfo,
    ) -> Result<VulkanDevice> {
        if let Err(lacks) = &info.fit {
            return Err(error!(DeviceUnfit, info.name.as_str(), lacks.as_str()));
        }
        let Some((family, count)) = instance.family(physical) else {
            return Err(error!(DeviceUnfit, info.name.as_str(), "a queue that computes"));
        };
        let priorities = vec![1.0; count.min(8) as usize];
        let queue = vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&priorities);
        let mut timeline =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let calibrated = Calibrator::is_offered(&instance, physical);
        let mut extensions = Vec::new();
        if calibrated {
            extensions.push(ash::ext::calibrated_timestamps::NAME.as_ptr());
        }
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(std::slice::from_ref(&queue))
            .enabled_extension_names(&extensions)
            .push_next(&mut timeline);
        // SAFETY: the device has the family, the feature and the extension; what the info points to
        // lives through the call.
        let device = unsafe { instance.instance.create_device(physical, &create, None) }
            .map_err(|e| failed(&format!("opening {}", info.name), "vkCreateDevice", e))?;
        let queues = (0..priorities.len() as u32)
            // SAFETY: the device was made with that many queues of that family.
            .map(|index| Arc::new(Mutex::new(unsafe { device.get_device_queue(family, index) })))
            .collect();
        Ok(Self::made(instance, physical, device, info, family, queues, calibrated, true))
    }

    /// A caller's device, which stays the caller's: nothing of it is destroyed here.
    ///
    /// # Errors
    ///
    /// `DeviceUnfit` for a device without timeline semaphores.
    ///
    /// # Safety
    ///
    /// * `device` was made from `physical` of `instance`, with the timeline semaphore feature and
    ///   at least Vulkan 1.2, and has queues of `family`, which computes;
    /// * all of them stay live until this device, its clones, its queues and their statuses, lines,
    ///   kernels, jobs and gates are dropped *and* their work has ended; what had not ended when it was dropped is
    ///   leaked ([`kept`](VulkanDevice::kept)), and keeps using the device.
    pub unsafe fn borrow(
        entry: ash::Entry,
        instance: ash::Instance,
        physical: vk::PhysicalDevice,
        device: ash::Device,
        family: u32,
    ) -> Result<VulkanDevice> {
        let instance = Instance::borrow(entry, instance);
        let info = instance.info(0, physical);
        if let Err(lacks) = &info.fit {
            return Err(error!(DeviceUnfit, info.name.as_str(), lacks.as_str()));
        }
        Ok(Self::made(instance, physical, device, info, family, Vec::new(), false, false))
    }

    #[allow(clippy::too_many_arguments)] // Called twice, a few lines above.
    fn made(
        instance: Instance,
        physical: vk::PhysicalDevice,
        device: ash::Device,
        info: DeviceInfo,
        family: u32,
        queues: Vec<Arc<Mutex<vk::Queue>>>,
        calibrated: bool,
        owned: bool,
    ) -> VulkanDevice {
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut timeline);
        // SAFETY: the handle is the instance's and speaks 1.2.
        unsafe { instance.instance.get_physical_device_properties2(physical, &mut properties) };
        let limits = properties.properties.limits;
        let period = limits.timestamp_period;
        let max_difference = timeline.max_timeline_semaphore_value_difference;
        let calibrator = calibrated
            .then(|| Calibrator::new(&instance, physical, &device, family, period))
            .flatten();
        let inner = Inner {
            device,
            instance,
            physical,
            info,
            family,
            queues,
            handed_out: AtomicUsize::new(0),
            max_difference,
            limits,
            calibrator,
            owned,
            lost: AtomicBool::new(false),
            places: Mutex::default(),
            graveyard: Mutex::default(),
        };
        VulkanDevice { inner: Arc::new(inner) }
    }

    /// What this device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// Whether the true times of stores are known, and to how many nanoseconds the two clocks are
    /// held to agree by the driver.
    pub fn store_times(&self) -> Option<u64> {
        self.inner.calibrator.as_ref().map(Calibrator::deviation_ns)
    }

    /// A completion queue over one of the device's queues, which are handed out in turn: several
    /// share one where the device has fewer.
    ///
    /// # Errors
    ///
    /// `Misuse` for a borrowed device, whose queues are the caller's
    /// ([`borrow_queue`](VulkanDevice::borrow_queue)), or a failed driver call.
    pub fn queue(&self) -> Result<VulkanQueue> {
        let count = self.inner.queues.len();
        if count == 0 {
            let doing = format!("making a queue of {}", self.inner.info.name);
            return Err(error!(Misuse, doing, "a borrowed device's queues are lent by its owner"));
        }
        self.inner.sweep();
        let next = self.inner.handed_out.fetch_add(1, Ordering::Relaxed);
        VulkanQueue::new(&self.inner, self.inner.queues[next % count].clone(), None)
    }

    /// A completion queue over a caller's queue. Work that the caller submits by itself is covered:
    /// each [`store_next`](crate::Queue::store_next) stores a number behind all that was submitted.
    ///
    /// # Errors
    ///
    /// A failed driver call.
    ///
    /// # Safety
    ///
    /// * the queue is one of this device's, of the family that the device was borrowed with, and
    ///   every submit to it by anyone is made while holding that lock;
    /// * `pool`, if given, is of that family, allows its buffers to be reset one by one, and nobody
    ///   else uses it while a method of the queue runs or the queue is dropped, resets it before the
    ///   queue's work has ended, or destroys it before that or before the queue is dropped. A queue
    ///   dropped before its work has ended leaves its command buffers in the pool, to go with it.
    pub unsafe fn borrow_queue(
        &self,
        queue: Arc<Mutex<vk::Queue>>,
        pool: Option<vk::CommandPool>,
    ) -> Result<VulkanQueue> {
        self.inner.sweep();
        VulkanQueue::new(&self.inner, queue, Some(pool))
    }

    /// The small compute kernel that the main job and the tests run.
    ///
    /// # Errors
    ///
    /// A failed driver call.
    pub fn kernel(&self) -> Result<Kernel> {
        Kernel::new(&self.inner)
    }

    /// Things of this process, of all its devices, that were dropped and are kept because a device may
    /// still use them. They are freed as their numbers are reached, by whatever is dropped or made
    /// later; what is left when the last handle of its device goes is leaked.
    pub fn kept() -> u64 {
        KEPT.load(Ordering::Relaxed)
    }

    /// The raw handle, for work of the caller's own.
    pub fn raw(&self) -> &ash::Device {
        &self.inner.device
    }

    /// The family of the device's queues.
    pub fn family(&self) -> u32 {
        self.inner.family
    }
}

impl Drop for VulkanDevice {
    fn drop(&mut self) {
        self.inner.sweep();
    }
}

impl std::fmt::Debug for VulkanDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanDevice").field("info", &self.inner.info).finish_non_exhaustive()
    }
}

impl Inner {
    /// Notes a loss, and makes the error of a failed call.
    pub(super) fn failed(
        &self,
        doing: &str,
        call: &'static str,
        result: vk::Result,
    ) -> crate::Error {
        if result == vk::Result::ERROR_DEVICE_LOST {
            self.lost.store(true, Ordering::Release);
        }
        failed(doing, call, result)
    }

    /// A word for a new queue.
    pub(super) fn place(self: &Arc<Self>) -> Result<(Arc<VulkanLine>, Slot)> {
        let mut places = hold(&self.places);
        if let Some(slot) = Slot::new(places.used)
            && let Some(line) = places.line.upgrade()
        {
            places.used += 1;
            return Ok((line, slot));
        }
        let line = match places.page.upgrade().as_ref().and_then(Page::line) {
            Some(line) => line,
            None => {
                let page = Page::new(self)?;
                places.page = Arc::downgrade(&page);
                let line = Page::line(&page);
                let none = || error!(Misuse, "placing a completion word", "a new page has no line");
                line.ok_or_else(none)?
            }
        };
        let line = Arc::new(line);
        places.line = Arc::downgrade(&line);
        places.used = 1;
        Ok((line, Slot::ALL[0]))
    }

    /// Keeps something until the timeline reaches the number, without waiting for it.
    pub(super) fn bury(&self, timeline: Arc<Timeline>, number: u64, kept: Box<dyn Any + Send>) {
        // Counted first: another thread may free it as soon as it is there.
        KEPT.fetch_add(1, Ordering::Relaxed);
        hold(&self.graveyard).push(Grave { timeline, number, _kept: kept });
    }

    /// Frees what is no longer used.
    pub(super) fn sweep(&self) {
        let freed: Vec<Grave> = {
            let mut graves = hold(&self.graveyard);
            // A driver call under the graveyard's lock, which no waker, submit or wait ever takes.
            let reached = |grave: &mut Grave| {
                grave.timeline.counter().is_ok_and(|counter| counter >= grave.number)
            };
            graves.extract_if(.., reached).collect()
        };
        KEPT.fetch_sub(freed.len() as u64, Ordering::Relaxed);
        drop(freed);
    }
}

impl Drop for Inner {
    /// Reached only once nothing refers to the device, graves included: so all its work has ended.
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: ours, and every object made of it holds an `Arc` of this and is gone.
            unsafe { self.device.destroy_device(None) };
        }
    }
}

/// Locks; a panic of somebody who held it left nothing half done here.
pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
