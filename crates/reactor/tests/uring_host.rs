//! io_uring as a host: its idle does its duties, and is woken from other threads.
#![cfg(target_os = "linux")]

use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::host::uring::UringIdle;
use gpu_async_reactor::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::conformance;

fn idle(test: &str) -> Option<UringIdle> {
    match UringIdle::new(StdClock::new(), None) {
        Ok(idle) => Some(idle),
        Err(e) => {
            assert_eq!(e.code(), ErrorCode::System);
            eprintln!("SKIPPED {test}: {e}");
            None
        }
    }
}

#[test]
fn the_idle_does_its_duties() {
    let Some(mut idle) = idle("the_idle_does_its_duties") else { return };
    conformance::idle(&StdClock::new(), &mut idle);
    assert_eq!(idle.refused(), 0);
}

#[test]
fn a_store_ends_a_park_and_a_ring_ends_a_sleep_without_a_timer() {
    let Some(mut idle) = idle("a_store_ends_a_park_and_a_ring_ends_a_sleep_without_a_timer") else {
        return;
    };
    let line = Arc::new(CompletionLine::new());
    let unparker = idle.unparker().unwrap().clone();
    let device = {
        let line = line.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            line.store(Slot::ALL[0], 1);
            std::thread::sleep(Duration::from_millis(20));
            unparker.wake_by_ref();
        })
    };
    assert!(idle.park_line(&line, |l| l.load(Slot::ALL[0]) >= 1, DurNs::from_ms(60_000)));
    let start = Instant::now();
    idle.sleep_until(MonoNs::MAX);
    assert!(start.elapsed() < Duration::from_secs(20));
    device.join().unwrap();
}

#[test]
fn an_executor_runs_on_it_and_is_woken_by_another_thread() {
    let Some(mut idle) = idle("an_executor_runs_on_it_and_is_woken_by_another_thread") else {
        return;
    };
    let reactor = Reactor::new(StdClock::new());
    let (sender, receiver) = smol::channel::bounded::<u32>(1);
    let mut executor = DynExecutor::new();
    let sum = executor.spawn_dyn(async {
        let _outside = reactor.outside();
        let start = reactor.monotonic_ns();
        reactor.alarm(start + DurNs::from_ms(3)).await;
        let mut sum = 0;
        while let Ok(number) = receiver.recv().await {
            sum += number;
        }
        sum
    });
    let other = std::thread::spawn(move || {
        for number in 1..=20 {
            std::thread::sleep(Duration::from_millis(1));
            sender.send_blocking(number).unwrap();
        }
    });
    executor.run(&reactor, &mut idle, DurNs::from_ms(60_000)).unwrap();
    other.join().unwrap();
    assert_eq!(run_inline(sum).unwrap(), 210);
}
