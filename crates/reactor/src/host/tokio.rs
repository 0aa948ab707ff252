//! Tokio as a host: a clock and a timer that obey its time, paused time too.
//!
//! Tokio's wheel turns once a millisecond, so the timer hands a sleep's last stretch to the process's
//! [`Watcher`].

use crate::watcher::Watcher;
use crate::{Clock, DurNs, MonoNs, Timer};
use std::time::Duration;
use tokio::time::Instant;

/// How long before its end a sleep leaves tokio's wheel: a turn of it, and what a wake costs.
const WHEEL: Duration = Duration::from_micros(1_200);

/// Tokio's time, from the moment the clock was made. Copies read the same time.
///
/// ```
/// use gpu_async_reactor::host::tokio::TokioClock;
/// use gpu_async_reactor::{Clock, DurNs, Timer};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let clock = TokioClock::new();
/// let at = clock.monotonic_ns() + DurNs::from_us(300);
/// clock.sleep_until(at).await;
/// assert!(clock.monotonic_ns() >= at);
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    /// A clock that reads 0 now.
    pub fn new() -> TokioClock {
        TokioClock { origin: Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> TokioClock {
        TokioClock::new()
    }
}

impl Clock for TokioClock {
    fn monotonic_ns(&self) -> MonoNs {
        MonoNs(DurNs::from(self.origin.elapsed()).0)
    }
}

/// Whether tokio's time stands still while the system's goes on.
fn paused() -> bool {
    let (tokio, system) = (Instant::now(), std::time::Instant::now());
    while system.elapsed() == Duration::ZERO {
        std::hint::spin_loop();
    }
    Instant::now() == tokio
}

impl Timer for TokioClock {
    /// Must be polled inside a tokio runtime whose time is enabled.
    async fn sleep_until(&self, at: MonoNs) {
        loop {
            let now = self.monotonic_ns();
            if now >= at {
                return;
            }
            let left = Duration::from(at.since(now));
            if left > WHEEL && !paused() {
                tokio::time::sleep(left - WHEEL).await;
                continue;
            }
            match Watcher::of_process() {
                Ok(watcher) if !paused() => watcher.sleep(at.since(self.monotonic_ns())).await,
                _ => tokio::time::sleep(left).await,
            }
        }
    }
}
