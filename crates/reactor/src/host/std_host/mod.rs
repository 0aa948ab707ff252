//! The standard library as a host: a clock, an idle for one thread, and a watcher for any runtime.

mod clock;
mod idle;
mod naps;
mod watcher;

pub use clock::StdClock;
#[cfg(any(feature = "sim", feature = "compio"))]
pub(crate) use clock::least_timer_slack;
pub use idle::StdIdle;
pub(crate) use naps::Napper;
pub use naps::Naps;
pub use watcher::{Watch, Watcher};
