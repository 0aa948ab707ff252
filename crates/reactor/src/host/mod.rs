//! Hosts: each gives a thread its clock and its idle.

#[cfg(feature = "std")]
pub mod std_host;
