//! Waiting for a GPU from Rust.
//!
//! This crate re-exports the `no_std` core and adds devices ([`backend`]) and hosts ([`host`]), each
//! behind its feature.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub use gpu_async_reactor_core::*;

pub mod backend;
pub mod host;
#[cfg(feature = "std")]
pub mod inflight;
#[cfg(feature = "std")]
pub mod replay;
#[cfg(feature = "std")]
pub mod watcher;

/// The examples of README, compiled and run as its readers would.
#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// The guide's example.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/README.md")]
mod guide {}
