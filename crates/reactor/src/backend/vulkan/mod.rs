//! Vulkan devices.
