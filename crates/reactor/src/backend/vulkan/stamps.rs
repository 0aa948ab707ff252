//! When a store really happened, on the host's clock: a timestamp behind it, and both clocks read at once.

use super::device::{Inner, hold};
use super::entry::Instance;
use crate::host::std_host::StdClock;
use crate::{Clock, DurNs, MonoNs, Result};
use ash::vk;
use std::sync::{Arc, Mutex};

/// The host's clock among the time domains: [`StdClock`] reads the same one.
const HOST: vk::TimeDomainEXT = vk::TimeDomainEXT::CLOCK_MONOTONIC;
/// The two clocks are read together this often, so that their drift stays far below a microsecond.
const EVERY: DurNs = DurNs::from_ms(100);

/// Reads the device's clock and the host's together.
pub(super) struct Calibrator {
    calls: ash::ext::calibrated_timestamps::Device,
    /// Nanoseconds a tick of the device's.
    period: f32,
    last: Mutex<Reading>,
}

#[derive(Clone, Copy)]
struct Reading {
    ticks: u64,
    host: MonoNs,
    deviation_ns: u64,
}

impl Calibrator {
    /// Whether the device has the extension and both clocks.
    pub(super) fn is_offered(instance: &Instance, physical: vk::PhysicalDevice) -> bool {
        // SAFETY: the handle is the instance's.
        let extensions =
            unsafe { instance.instance.enumerate_device_extension_properties(physical) };
        let name = Ok(ash::ext::calibrated_timestamps::NAME);
        let has = |all: Vec<vk::ExtensionProperties>| {
            all.iter().any(|extension| extension.extension_name_as_c_str() == name)
        };
        if !cfg!(target_os = "linux") || !extensions.is_ok_and(has) {
            return false;
        }
        let calls =
            ash::ext::calibrated_timestamps::Instance::new(&instance.entry, &instance.instance);
        // SAFETY: the device has the extension.
        unsafe { calls.get_physical_device_calibrateable_time_domains(physical) }.is_ok_and(
            |domains| domains.contains(&HOST) && domains.contains(&vk::TimeDomainEXT::DEVICE),
        )
    }

    /// `None` where the queues of the family write no timestamps of 64 bits, or a reading fails.
    pub(super) fn new(
        instance: &Instance,
        physical: vk::PhysicalDevice,
        device: &ash::Device,
        family: u32,
        period: f32,
    ) -> Option<Calibrator> {
        // SAFETY: the handle is the instance's.
        let families =
            unsafe { instance.instance.get_physical_device_queue_family_properties(physical) };
        if families.get(family as usize)?.timestamp_valid_bits < 64 {
            return None;
        }
        let calls = ash::ext::calibrated_timestamps::Device::new(&instance.instance, device);
        let last = Mutex::new(read(&calls)?);
        Some(Calibrator { calls, period, last })
    }

    /// How far the two readings may be apart, in nanoseconds, as the driver says.
    pub(super) fn deviation_ns(&self) -> u64 {
        hold(&self.last).deviation_ns
    }

    /// A tick of the device's as a time of the host's.
    fn host_time(&self, ticks: u64) -> MonoNs {
        let now = StdClock::new().monotonic_ns();
        let last = *hold(&self.last);
        let reading = if now.since(last.host) > EVERY {
            // Called with nothing locked (invariant 5).
            let fresh = read(&self.calls).unwrap_or(last);
            *hold(&self.last) = fresh;
            fresh
        } else {
            last
        };
        let apart = |ticks: u64| (ticks as f64 * f64::from(self.period)) as u64;
        match ticks.checked_sub(reading.ticks) {
            Some(later) => reading.host + DurNs(apart(later)),
            None => MonoNs(reading.host.0.saturating_sub(apart(reading.ticks - ticks))),
        }
    }
}

fn read(calls: &ash::ext::calibrated_timestamps::Device) -> Option<Reading> {
    let domain = |domain| vk::CalibratedTimestampInfoEXT::default().time_domain(domain);
    let domains = [domain(vk::TimeDomainEXT::DEVICE), domain(HOST)];
    // SAFETY: the device has the extension and both domains.
    let (stamps, deviation_ns) = unsafe { calls.get_calibrated_timestamps(&domains) }.ok()?;
    let [ticks, host] = stamps[..] else { return None };
    Some(Reading { ticks, host: MonoNs(host), deviation_ns })
}

/// Timestamps behind a queue's last stores.
pub(super) struct Stamps {
    inner: Arc<Inner>,
    pool: vk::QueryPool,
}

impl Stamps {
    /// Stores whose time is kept.
    const KEPT: u64 = 1_024;

    /// `None` where the device's clock can't be told on the host's.
    pub(super) fn new(inner: &Arc<Inner>) -> Result<Option<Stamps>> {
        if inner.calibrator.is_none() {
            return Ok(None);
        }
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(Self::KEPT as u32);
        // SAFETY: the device is live.
        let pool = unsafe { inner.device.create_query_pool(&info, None) }
            .map_err(|e| inner.failed("making a queue's timestamps", "vkCreateQueryPool", e))?;
        Ok(Some(Stamps { inner: inner.clone(), pool }))
    }

    /// Records the timestamp of a number's store.
    ///
    /// # Safety
    ///
    /// The buffer is being recorded, outside a render pass, right behind the store.
    pub(super) unsafe fn record(&self, commands: vk::CommandBuffer, number: u64) {
        let (device, query) = (&self.inner.device, (number % Self::KEPT) as u32);
        // SAFETY: the caller's duty; the query is one of the pool's.
        unsafe {
            device.cmd_reset_query_pool(commands, self.pool, query, 1);
            let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
            device.cmd_write_timestamp(commands, stage, self.pool, query);
        }
    }

    /// When the store of a reached number happened; `last` is the last number submitted, behind
    /// which old queries are used again.
    pub(super) fn stored_at(&self, number: u64, last: u64) -> Option<MonoNs> {
        if number == 0 || number + Self::KEPT <= last {
            return None;
        }
        let mut ticks = [0u64];
        let query = (number % Self::KEPT) as u32;
        // SAFETY: the pool is live and the query is in it; a result that isn't there is an error.
        let result = unsafe {
            let flags = vk::QueryResultFlags::TYPE_64;
            self.inner.device.get_query_pool_results(self.pool, query, &mut ticks, flags)
        };
        result.ok()?;
        self.inner.calibrator.as_ref().map(|calibrator| calibrator.host_time(ticks[0]))
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        // SAFETY: ours; the queue keeps it until its work has ended.
        unsafe { self.inner.device.destroy_query_pool(self.pool, None) };
    }
}
