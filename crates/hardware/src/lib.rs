//! CUDA's driver interface as far as measurements beside this project's backend need it, and the device's
//! clock in the host's time. For `gpu-hardware` and the benchmarks.

// Handles are the driver's and go to the driver, which tells good ones from bad.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod api;
pub mod bad;
pub mod clock;
