//! Hosts: each gives a thread its clock and its idle.

#[cfg(all(feature = "compio", target_os = "linux"))]
pub mod compio;
#[cfg(feature = "std")]
pub mod std_host;
#[cfg(feature = "tokio")]
pub mod tokio;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub mod uring;
