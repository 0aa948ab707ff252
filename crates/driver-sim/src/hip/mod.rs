//! HIP's runtime interface, over the same machine. The current context is the primary one of the thread's
//! device, made when it is first needed.

mod device;
mod event;
mod memory;
mod module;
mod rtc;
mod stream;

use crate::Address;

pub(crate) const TABLES: &[&[(&str, Address)]] =
    &[device::TABLE, memory::TABLE, stream::TABLE, event::TABLE, module::TABLE, rtc::TABLE];

pub(crate) type Handle = usize;
