//! Clocks, timers and idles.

use gpu_async_reactor_core::{
    Clock, CompletionLine, DurNs, Idle, LineSet, MonoNs, Slot, Timer, WatchedLine,
};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

/// Longer than any machine is busy: past this it is a hang.
const PATIENCE: DurNs = DurNs(2_000_000_000);

/// The duties of a [`Clock`].
pub fn clock<C: Clock>(clock: &C, same: &C) {
    let mut last = clock.monotonic_ns();
    for _ in 0..10_000 {
        let (a, b) = (clock.monotonic_ns(), same.monotonic_ns());
        assert!(last <= a && a <= b, "time went back: {last:?}, {a:?}, {b:?}");
        last = b;
    }
}

/// The duties of a [`Timer`]. `drive` polls a future to its end, moving time where time is moved.
pub fn timer<C: Clock, T: Timer>(
    clock: &C,
    timer: &T,
    mut drive: impl FnMut(Pin<&mut dyn Future<Output = ()>>),
) {
    let mut context = Context::from_waker(Waker::noop());
    let now = clock.monotonic_ns();
    for passed in [MonoNs(0), now] {
        let mut sleep = pin!(timer.sleep_until(passed));
        assert!(sleep.as_mut().poll(&mut context).is_ready(), "{passed:?} has passed");
    }
    for span in [1, 1_000, 300_000, 3_000_000] {
        let at = clock.monotonic_ns() + DurNs(span);
        drive(pin!(timer.sleep_until(at)));
        let woke = clock.monotonic_ns();
        assert!(woke >= at, "woke {} early", at.since(woke));
        assert!(woke.since(at) < PATIENCE, "woke {} late", woke.since(at));
    }
    // A dropped sleep leaves nothing behind that would disturb the next one.
    drop(timer.sleep_until(clock.monotonic_ns() + DurNs(1_000)));
    drive(pin!(timer.sleep_until(clock.monotonic_ns() + DurNs(2_000))));
}

/// The duties of an [`Idle`].
pub fn idle<C: Clock, I: Idle>(clock: &C, idle: &mut I) {
    let line = CompletionLine::new();
    let reached = |line: &CompletionLine| line.load(Slot::ALL[0]) >= 1;

    // A sleep ends at its time, or before; one to the past at once.
    for at in [MonoNs(0), clock.monotonic_ns(), clock.monotonic_ns() + DurNs(500_000)] {
        idle.sleep_until(at);
        assert!(clock.monotonic_ns().since(at) < PATIENCE || at == MonoNs(0), "slept past {at:?}");
    }
    // Invariant 3: a park on a silent line ends within its bound, and says that nothing was seen.
    for bound in [0, 1, 10_000, 2_000_000] {
        let start = clock.monotonic_ns();
        assert!(!idle.park_line(&line, reached, DurNs(bound)), "a silent line was ready");
        let took = clock.monotonic_ns().since(start);
        assert!(took.0 < bound + PATIENCE.0, "a bound of {bound} ns took {took}");
    }
    // Invariant 4: it looks before it sleeps, and believes only `ready`.
    let looks = Cell::new(0);
    let start = clock.monotonic_ns();
    let seen = idle.park_line(
        &line,
        |_| {
            looks.set(looks.get() + 1);
            true
        },
        DurNs(60_000_000_000),
    );
    assert!(seen && looks.get() >= 1, "a ready line was not seen");
    assert!(clock.monotonic_ns().since(start) < PATIENCE, "a ready line was slept on");
    // A store that lands between two looks ends the park: at the third look here.
    looks.set(0);
    let seen = idle.park_line(
        &line,
        |line| {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                line.store(Slot::ALL[0], 1);
            }
            reached(line)
        },
        DurNs(60_000_000_000),
    );
    // Under time that moves in one step to the bound there may be no third look.
    assert!(seen || looks.get() < 3, "a store during the park was not seen");

    // Several lines: whichever is ready ends it, and none is waited for in turn.
    let lines: [CompletionLine; 5] = std::array::from_fn(|_| CompletionLine::new());
    let watched = std::array::from_fn::<_, 5, _>(|i| WatchedLine::new(&lines[i], Slot::ALL[i], 3));
    let set = LineSet::new(&watched);
    assert!(!idle.park_lines(&set, DurNs(100_000)), "silent lines were ready");
    for (i, line) in lines.iter().enumerate() {
        line.store(Slot::ALL[i], 3);
        assert!(idle.park_lines(&set, DurNs(60_000_000_000)), "line {i} was not seen");
        line.store(Slot::ALL[i], 2);
    }
    assert!(!idle.park_lines(&LineSet::new(&[]), DurNs(1)), "no line was ready");

    // Invariant 4: a wake from another thread ends a sleep, whether it came before it or during it.
    let Some(unparker) = idle.unparker().cloned() else { return };
    for before in [true, false] {
        let wake = unparker.clone();
        let other = std::thread::spawn(move || {
            if !before {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            wake.wake();
        });
        let during = if before {
            other.join().unwrap();
            None
        } else {
            Some(other)
        };
        let start = clock.monotonic_ns();
        idle.sleep_until(start + DurNs(60_000_000_000));
        assert!(clock.monotonic_ns().since(start) < PATIENCE, "slept on (woken before: {before})");
        if let Some(other) = during {
            other.join().unwrap();
        }
    }
}
