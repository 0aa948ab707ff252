//! Tokio as a host: its clock and timer do their duties, in real and in paused time.

use gpu_async_reactor::host::tokio::TokioClock;
use gpu_async_reactor::*;
use std::time::{Duration, Instant};
use testkit::conformance;

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn the_clock_and_its_timer_do_their_duties() {
    let runtime = current_thread();
    let clock = {
        let _in = runtime.enter();
        TokioClock::new()
    };
    conformance::clock(&clock, &{ clock });
    conformance::timer(&clock, &{ clock }, |sleep| runtime.block_on(sleep));
}

#[test]
fn a_sleep_below_a_millisecond_is_not_rounded_up_to_the_wheel() {
    let runtime = current_thread();
    runtime.block_on(async {
        let clock = TokioClock::new();
        let mut least = u64::MAX;
        for _ in 0..20 {
            let start = clock.monotonic_ns();
            clock.sleep_until(start + DurNs::from_us(200)).await;
            least = least.min(clock.monotonic_ns().since(start).0);
        }
        // Tokio alone takes 1.0 ms and more.
        assert!((200_000..950_000).contains(&least), "{least} ns");
    });
}

#[tokio::test(start_paused = true)]
async fn paused_time_is_obeyed() {
    let real = Instant::now();
    let clock = TokioClock::new();
    assert_eq!(clock.monotonic_ns(), MonoNs(0));
    let at = DurNs::from_ms(3_600_000);
    clock.sleep_until(MonoNs(0) + at).await;
    let slept = clock.monotonic_ns().since(MonoNs(0));
    assert!(slept >= at && slept.0 - at.0 <= 1_000_000, "{slept}");
    clock.sleep_until(clock.monotonic_ns() + DurNs::from_us(100)).await;
    assert!(real.elapsed() < Duration::from_secs(60), "paused time passed in real time");
}
