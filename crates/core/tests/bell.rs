//! Doorbell rings that nobody waits for.

#![cfg(not(loom))]

use gpu_async_reactor_core::*;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

/// A ring for a group without waiters would otherwise end every later park at once, and the thread
/// would spin until somebody waited there again.
#[test]
fn a_ring_that_nobody_waits_for_ends_no_park() {
    let (belled, other) = (CompletionLine::new(), CompletionLine::new());
    let clock = ManualClock::new();
    let reactor = Reactor::new(clock.handle());
    let bell = reactor.bell().clone();
    reactor.bind(&belled, Slot::ALL[0]).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = [&belled, &other].map(|line| {
        let mut wait = reactor.ready(MemoryDescriptor::new(line, Slot::ALL[1], 1), None);
        assert!(Pin::new(&mut wait).poll(&mut cx).is_pending());
        Some(wait)
    });
    assert!(!reactor.fire());
    waits[0] = None;
    bell.ring_group(Slot::ALL[0], 9);
    let mut idle = ManualIdle::new(clock.handle());
    for turn in 1..=3 {
        assert_eq!(reactor.turn(&mut idle, DurNs(100), 1).unwrap(), Turn::Parked);
        assert_eq!(clock.monotonic_ns(), MonoNs(turn * 100), "parked for its bound");
    }
    // A wait registered after the ring still sees the word that was stored before it.
    belled.store(Slot::ALL[1], 1);
    let mut late = reactor.ready(MemoryDescriptor::new(&belled, Slot::ALL[1], 1), None);
    assert!(Pin::new(&mut late).poll(&mut cx).is_ready());
}
