//! Conformance suites and oracles for the seams of gpu-async-reactor. For tests only.

pub mod oracle;
