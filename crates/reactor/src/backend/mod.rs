//! Devices: each a [`Queue`](crate::Queue) that stores completion numbers.

#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "vulkan")]
pub mod vulkan;
pub mod wordwait;
