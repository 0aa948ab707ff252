//! Devices: each a [`Queue`](crate::Queue) that stores completion numbers.

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "hip")]
pub mod hip;
#[cfg(any(feature = "cuda", feature = "hip"))]
mod line_error;
#[cfg(any(feature = "cuda", feature = "hip"))]
pub mod mapped;
#[cfg(feature = "metal")]
pub mod metal;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "vulkan")]
pub mod vulkan;
pub mod wordwait;

#[cfg(any(feature = "cuda", feature = "hip"))]
pub use line_error::LineError;
