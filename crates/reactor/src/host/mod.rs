//! Hosts: each gives a thread its clock and its idle.

#[cfg(feature = "std")]
pub mod std_host;
#[cfg(feature = "tokio")]
pub mod tokio;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub mod uring;
