//! Devices: each a [`Queue`](crate::Queue) that stores completion numbers.

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "cuda")]
mod line_error;
#[cfg(feature = "cuda")]
pub mod mapped;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "vulkan")]
pub mod vulkan;
pub mod wordwait;

#[cfg(feature = "cuda")]
pub use line_error::LineError;
