//! Conformance suites and oracles for the seams of gpu-async-reactor. For tests only.
//!
//! A suite is a function that panics with what went wrong. Upper bounds on time are generous: they tell
//! a hang from a busy machine, and nothing else.

pub mod conformance;
pub mod data;
pub mod oracle;
