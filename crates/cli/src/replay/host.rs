//! How late sleeps end on this machine, and what waking a blocked thread takes, measured.

use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::replay::HostModel;
use gpu_async_reactor::{Clock, DurNs, Timer, run_inline};
use std::sync::{Condvar, Mutex, PoisonError};

/// Sleeps of several lengths, a few dozen each: about half a second.
pub(crate) fn measure() -> HostModel {
    let clock = StdClock::new();
    let mut overshoots_ns = Vec::new();
    let before = crate::sys::thread_cpu_ns();
    let mut sleeps = 0;
    for (length, times) in [(100, 100), (1_000, 60), (5_000, 40), (10_000, 15)] {
        for _ in 0..times {
            let at = clock.monotonic_ns() + DurNs::from_us(length);
            run_inline(clock.sleep_until(at));
            overshoots_ns.push(clock.monotonic_ns().since(at).0);
            sleeps += 1;
        }
    }
    let model = HostModel::default();
    let spent = crate::sys::thread_cpu_ns().zip(before).map(|(now, before)| now - before);
    let sleep_cpu_ns = spent.map_or(model.sleep_cpu_ns, |spent| spent / sleeps);
    let (block_lags_ns, block_cpu_ns) =
        blocked().unwrap_or_else(|| (model.block_lags_ns.clone(), model.block_cpu_ns));
    HostModel { overshoots_ns, sleep_cpu_ns, block_lags_ns, block_cpu_ns, ..model }
}

/// A thread blocked on a condition, signalled by another after a while, as a driver does it: each time
/// from the signal to its next instruction, and its CPU for each.
fn blocked() -> Option<(Vec<u64>, u64)> {
    const WAKES: u64 = 60;
    let clock = StdClock::new();
    let (state, signal) = (Mutex::new((0u64, 0u64)), Condvar::new());
    std::thread::scope(|scope| {
        let driver = std::thread::Builder::new().spawn_scoped(scope, || {
            for number in 1..=WAKES {
                let at = clock.monotonic_ns() + DurNs::from_us(1_500);
                run_inline(clock.sleep_until(at));
                *state.lock().unwrap_or_else(PoisonError::into_inner) =
                    (number, clock.monotonic_ns().0);
                signal.notify_one();
            }
        });
        driver.ok()?;
        let before = crate::sys::thread_cpu_ns()?;
        let mut lags = Vec::new();
        let mut seen = 0;
        while seen < WAKES {
            let held = state.lock().unwrap_or_else(PoisonError::into_inner);
            let held = signal.wait_while(held, |(number, _)| *number == seen);
            let (number, stored) = *held.unwrap_or_else(PoisonError::into_inner);
            lags.push(clock.monotonic_ns().0.saturating_sub(stored));
            seen = number;
        }
        let spent = crate::sys::thread_cpu_ns()? - before;
        Some((lags, spent / WAKES))
    })
}
