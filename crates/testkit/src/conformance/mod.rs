//! One suite for each seam; every implementation passes it.

mod host;
mod queue;

pub use host::{clock, idle, timer};
pub use queue::{Rig, pending_waits, plans, queue, reactor_waits};

/// Plans of every shape, with and without a prediction.
pub const PLANS: &[&str] = &[
    "block",
    "poll",
    "flag:park_us=100,backstop_us=5000",
    "poll+predict:margin_us=100,min_sleep_us=50,max_sleep_us=100000,window=4",
    "flag:park_us=100,backstop_us=5000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=100000,window=4",
];
