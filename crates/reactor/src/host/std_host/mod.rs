//! The standard library as a host: a clock, an idle for one thread, and a watcher for any runtime.

mod clock;
mod idle;
mod watcher;

pub use clock::StdClock;
#[cfg(feature = "sim")]
pub(crate) use clock::least_timer_slack;
pub use idle::{Naps, StdIdle};
pub use watcher::{Watch, Watcher};
