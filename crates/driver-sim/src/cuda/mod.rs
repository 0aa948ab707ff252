//! CUDA's driver interface.

mod context;
mod device;
mod event;
mod graph;
mod memop;
mod memory;
mod module;
mod pool;
mod stream;

pub(crate) use device::put_text;
pub(crate) use memop::place;
pub(crate) use memory::{copy, fill};
pub(crate) use stream::slow;

use crate::Address;

pub(crate) const TABLES: &[&[(&str, Address)]] = &[
    device::TABLE,
    context::TABLE,
    memory::TABLE,
    pool::TABLE,
    stream::TABLE,
    memop::TABLE,
    event::TABLE,
    module::TABLE,
    graph::TABLE,
];

pub(crate) type Handle = usize;
