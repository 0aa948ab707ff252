//! The standard library as a host.
