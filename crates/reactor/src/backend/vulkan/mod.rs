//! Vulkan devices: a queue whose completion word is stored by the device at the end of the work, with a
//! timeline semaphore as the authority.
//!
//! | what | how |
//! |---|---|
//! | the word | `vkCmdUpdateBuffer` of eight bytes behind the work, between barriers, to host-coherent memory |
//! | the status | the timeline's counter (`vkGetSemaphoreCounterValue`) |
//! | the blocking wait | `vkWaitSemaphores`, always bounded: a lost device may leave its waiters asleep |
//! | the store's true time | a timestamp behind the store, on the host's clock (`VK_EXT_calibrated_timestamps`) |
//! | a host gate | a timeline that later work waits for and the host signals ([`Gate`]) |
//!
//! `vkCmdFillBuffer` is not used for the word: it writes 32 bits at a time, and half-new words were seen.
//! The specification promises the host a view of the word only once the timeline has signalled, so a word
//! seen earlier is a hint and the status decides (invariant 2).
//!
//! The library is loaded at run time; a machine without it, without a driver or without a device gets three
//! different errors.

mod compute;
mod device;
mod entry;
mod gate;
mod memory;
mod queue;
mod stamps;
mod status;
mod store;
mod timeline;

pub use compute::{Job, Kernel};
pub use device::VulkanDevice;
pub use entry::{DeviceInfo, DeviceKind};
pub use gate::Gate;
pub use memory::VulkanLine;
pub use queue::VulkanQueue;

use crate::{Error, error};
use ash::vk;

/// What a failed call says.
fn failed(doing: &str, call: &'static str, result: vk::Result) -> Error {
    match result {
        vk::Result::ERROR_DEVICE_LOST => {
            error!(DeviceLost, doing, format!("{call} returned ERROR_DEVICE_LOST"))
        }
        other => error!(DriverCall, doing, call, other.as_raw(), format!("{other:?}")),
    }
}
