//! Waiting for a GPU from Rust.
//!
//! This crate re-exports the `no_std` core and adds devices ([`backend`]) and hosts ([`host`]), each
//! behind its feature.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub use gpu_async_reactor_core::*;

pub mod backend;
pub mod host;
