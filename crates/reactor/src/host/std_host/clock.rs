//! The system's monotonic clock, and a timer that sleeps on the calling thread.

use crate::{Clock, DurNs, MonoNs, Timer};
use std::time::Duration;

/// The system's monotonic clock.
///
/// On Linux its readings are `CLOCK_MONOTONIC` itself, so that they compare with device timestamps
/// calibrated against it; elsewhere they count from the first reading of the process.
///
/// As a [`Timer`] it sleeps on the calling thread: for one wait at a time
/// ([`run_inline`](crate::run_inline)). Tasks of a reactor use the reactor as their timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdClock(());

impl StdClock {
    /// The clock.
    pub const fn new() -> StdClock {
        StdClock(())
    }
}

impl Clock for StdClock {
    #[cfg(target_os = "linux")]
    fn monotonic_ns(&self) -> MonoNs {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // The kernel counts up from the machine's start, so neither part is ever negative.
        MonoNs((now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64))
    }

    #[cfg(not(target_os = "linux"))]
    fn monotonic_ns(&self) -> MonoNs {
        use std::sync::OnceLock;
        use std::time::Instant;
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let since = ORIGIN.get_or_init(Instant::now).elapsed();
        MonoNs(DurNs::from(since).0)
    }
}

impl Timer for StdClock {
    /// Sleeps on the calling thread, with the least timer slack.
    async fn sleep_until(&self, at: MonoNs) {
        least_timer_slack();
        loop {
            let left = at.since(self.monotonic_ns());
            if left == DurNs(0) {
                return;
            }
            std::thread::sleep(Duration::from(left));
        }
    }
}

/// Asks the kernel not to put off this thread's timers: 50 µs by default on Linux, 1 ns from here on.
/// Once for each thread.
pub(crate) fn least_timer_slack() {
    #[cfg(target_os = "linux")]
    {
        use std::cell::Cell;
        thread_local! {
            static DONE: Cell<bool> = const { Cell::new(false) };
        }
        if !DONE.replace(true) {
            // Refused, say by a sandbox: sleeps overshoot more, and nothing else changes.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        }
    }
}
