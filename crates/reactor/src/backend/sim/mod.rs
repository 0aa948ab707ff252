//! A simulated device: in-order queues that run work of a chosen length, store numbers behind it, and
//! fail as their script says. Nothing here is a GPU, and every label says so (invariant 14).
//!
//! | modelled | how |
//! |---|---|
//! | queues | in order, each on a thread of its own ([`SimDevice`]), or all under manual time ([`VirtualDevice`]) |
//! | work | a length of time, an effect on memory, or both ([`Work`]) |
//! | completion | the effect, then the word's store, then the status; a doorbell behind the store if asked for |
//! | faults | a script ([`Faults`]): lost, late and early stores, loss, hang, refusal, slow status |
//! | true times | when each word was really stored ([`SimQueue::stored_at`]) |
//!
//! Not modelled: memory bandwidth, contention between queues, the cost of a driver call beyond what
//! [`Faults::slow_status`] adds.

mod engine;
mod faults;
mod status;
mod threads;
mod virtual_time;
mod work;

pub use faults::{Faults, SimOptions};
pub use threads::{SimDevice, SimQueue};
pub use virtual_time::{VirtualDevice, VirtualIdle, VirtualQueue};
pub use work::Work;

use crate::{Error, error};

fn lost(label: &str) -> Error {
    error!(DeviceLost, label, "the simulation's script lost it")
}
