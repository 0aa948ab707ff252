//! The loader, the instance, and which devices there are.

use super::failed;
use crate::{Error, Result, error};
use ash::vk;
use std::ffi::CStr;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// Software on the host's processor.
    Cpu,
    /// Something else.
    Other,
}

/// One Vulkan device of this machine.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its place in the loader's order, for [`VulkanDevice::open`](super::VulkanDevice::open).
    pub index: usize,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Its driver's name and version.
    pub driver: String,
    /// The version of Vulkan that it speaks.
    pub api: (u32, u32, u32),
    /// Whether this backend can use it, or what it lacks.
    pub fit: std::result::Result<(), String>,
}

/// A loaded loader and an instance of it.
pub(super) struct Instance {
    /// Keeps the library loaded.
    pub(super) entry: ash::Entry,
    pub(super) instance: ash::Instance,
    /// Whether it is ours to destroy.
    owned: bool,
}

impl Instance {
    /// Loads the system's loader and makes an instance.
    pub(super) fn load() -> Result<Instance> {
        let library = if cfg!(windows) { "vulkan-1.dll" } else { "libvulkan.so.1" };
        // SAFETY: the system's Vulkan loader is loaded under its standard name; its initialisers are
        // the platform's to answer for.
        let entry = unsafe { ash::Entry::load() }
            .map_err(|error| error!(LibraryMissing, library, error.to_string()))?;
        // SAFETY: called before any instance exists, which is allowed.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(|e| failed("asking the Vulkan loader", "vkEnumerateInstanceVersion", e))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_2 {
            return Err(error!(DeviceUnfit, "the Vulkan loader", "Vulkan 1.2"));
        }
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the info and what it points to live through the call.
        let instance = unsafe { entry.create_instance(&info, None) }
            .map_err(|e| no_driver("vkCreateInstance", e))?;
        Ok(Instance { entry, instance, owned: true })
    }

    /// A caller's instance, which stays the caller's.
    pub(super) fn borrow(entry: ash::Entry, instance: ash::Instance) -> Instance {
        Instance { entry, instance, owned: false }
    }

    pub(super) fn devices(&self) -> Result<Vec<(vk::PhysicalDevice, DeviceInfo)>> {
        // SAFETY: the instance is live.
        let handles = unsafe { self.instance.enumerate_physical_devices() }
            .map_err(|e| no_driver("vkEnumeratePhysicalDevices", e))?;
        if handles.is_empty() {
            return Err(error!(NoDevice, "Vulkan", "its drivers found none on this machine"));
        }
        Ok(handles
            .into_iter()
            .enumerate()
            .map(|(index, handle)| (handle, self.info(index, handle)))
            .collect())
    }

    pub(super) fn info(&self, index: usize, handle: vk::PhysicalDevice) -> DeviceInfo {
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
        // SAFETY: the handle is the instance's; the chain holds structures of Vulkan 1.2, which the
        // instance was made for; a driver below it leaves them as they are.
        unsafe { self.instance.get_physical_device_properties2(handle, &mut properties) };
        let properties = properties.properties;
        let text = |chars: &[std::ffi::c_char]| -> String {
            // SAFETY: `c_char` has the layout of a byte.
            let bytes = unsafe { std::slice::from_raw_parts(chars.as_ptr().cast(), chars.len()) };
            CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().into_owned()
        };
        let api = properties.api_version;
        DeviceInfo {
            index,
            name: text(&properties.device_name),
            kind: match properties.device_type {
                vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
                vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
                vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
                vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
                _ => DeviceKind::Other,
            },
            driver: format!("{} {}", text(&driver.driver_name), text(&driver.driver_info)),
            api: (
                vk::api_version_major(api),
                vk::api_version_minor(api),
                vk::api_version_patch(api),
            ),
            fit: self.fit(handle, api),
        }
    }

    fn fit(&self, handle: vk::PhysicalDevice, api: u32) -> std::result::Result<(), String> {
        if api < vk::API_VERSION_1_2 {
            return Err("Vulkan 1.2".into());
        }
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut timeline);
        // SAFETY: the handle is the instance's and speaks 1.2, which has the chained structure.
        unsafe { self.instance.get_physical_device_features2(handle, &mut features) };
        if timeline.timeline_semaphore == vk::FALSE {
            return Err("timeline semaphores".into());
        }
        match self.family(handle) {
            Some(_) => Ok(()),
            None => Err("a queue that computes".into()),
        }
    }

    /// A queue family that computes, rather one that does nothing else; and how many queues it has.
    pub(super) fn family(&self, handle: vk::PhysicalDevice) -> Option<(u32, u32)> {
        // SAFETY: the handle is the instance's.
        let families = unsafe { self.instance.get_physical_device_queue_family_properties(handle) };
        families
            .iter()
            .enumerate()
            .filter(|(_, family)| family.queue_flags.contains(vk::QueueFlags::COMPUTE))
            .min_by_key(|(_, family)| family.queue_flags.contains(vk::QueueFlags::GRAPHICS))
            .map(|(index, family)| (index as u32, family.queue_count))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: ours; a device keeps its instance, so none is left.
            unsafe { self.instance.destroy_instance(None) };
        }
    }
}

/// A loader that finds no driver, or a driver that finds no device, says so by failing.
fn no_driver(call: &'static str, result: vk::Result) -> Error {
    match result {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
            error!(NoDevice, "Vulkan", "the loader found no driver; install one for this device")
        }
        vk::Result::ERROR_INITIALIZATION_FAILED => {
            error!(NoDevice, "Vulkan", "the drivers that are installed found no device of theirs")
        }
        other => failed("looking for Vulkan devices", call, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    #[test]
    fn a_missing_driver_is_no_device_and_any_other_failure_names_its_call() {
        for missing in
            [vk::Result::ERROR_INCOMPATIBLE_DRIVER, vk::Result::ERROR_INITIALIZATION_FAILED]
        {
            assert_eq!(no_driver("vkCreateInstance", missing).code(), ErrorCode::NoDevice);
        }
        let error = no_driver("vkCreateInstance", vk::Result::ERROR_OUT_OF_HOST_MEMORY);
        assert_eq!(error.code(), ErrorCode::DriverCall);
        let text = error.to_string();
        assert!(text.contains("vkCreateInstance returned -1 (ERROR_OUT_OF_HOST_MEMORY)"), "{text}");
    }
}
