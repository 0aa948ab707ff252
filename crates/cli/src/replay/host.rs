//! How late sleeps end on this machine, measured.

use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::replay::HostModel;
use gpu_async_reactor::{Clock, DurNs, Timer, run_inline};

/// Sleeps of several lengths, a few dozen each: about half a second.
pub(super) fn measure() -> HostModel {
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
    HostModel { overshoots_ns, sleep_cpu_ns, ..model }
}
