//! A park around any instruction that monitors a line: the same steps for all of them, and for the
//! stand-in that tests them on every machine.
//!
//! Upholds invariants 3 (the bound holds, in 64-bit arithmetic) and 4 (arm, look, wait, look).

use gpu_async_reactor_core::{CompletionLine, DurNs};

/// One instruction set's way to wait for a store to a line.
pub(crate) trait Monitor {
    /// The counter that deadlines are read against.
    fn now(&self) -> u64;

    /// From here on a store to the line ends the next wait.
    fn arm(&self, line: &CompletionLine);

    /// Waits for such a store, for the counter to read `end`, or for nothing: it may return whenever
    /// it likes, but no later than soon after `end`. `now` is a fresh reading, before `end`.
    fn wait(&self, now: u64, end: u64);
}

/// Ticks of the counter in a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickRate {
    pub(crate) per_ms: u64,
}

impl TickRate {
    /// A span in ticks; rounded up, so that a bound is never cut to nothing, and saturating.
    pub(crate) fn ticks(self, span: DurNs) -> u64 {
        let ticks = (u128::from(span.0) * u128::from(self.per_ms)).div_ceil(1_000_000);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// Waits until `ready` holds or `ticks` have passed: whether it held.
#[inline]
pub(crate) fn park<M: Monitor, R: Fn(&CompletionLine) -> bool>(
    monitor: &M,
    line: &CompletionLine,
    ready: R,
    ticks: u64,
) -> bool {
    if ready(line) {
        return true;
    }
    let end = monitor.now().saturating_add(ticks);
    loop {
        monitor.arm(line);
        // A store between the last look and the arming would end no wait (invariant 4).
        if ready(line) {
            return true;
        }
        let now = monitor.now();
        if now >= end {
            return false;
        }
        monitor.wait(now, end);
        if ready(line) {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_async_reactor_core::Slot;
    use std::cell::{Cell, RefCell};

    /// Stands for an instruction: a counter that only waits move, and a script of what each step meets.
    struct StandIn<'a> {
        now: Cell<u64>,
        /// How far one wait gets at most: the system's limit.
        limit: u64,
        trace: RefCell<Vec<&'static str>>,
        on_arm: &'a dyn Fn(u32),
        on_wait: &'a dyn Fn(u32),
        waits: Cell<u32>,
        arms: Cell<u32>,
    }

    impl<'a> StandIn<'a> {
        fn new(now: u64, limit: u64, on_arm: &'a dyn Fn(u32), on_wait: &'a dyn Fn(u32)) -> Self {
            let (waits, arms) = (Cell::new(0), Cell::new(0));
            let (now, trace) = (Cell::new(now), RefCell::default());
            StandIn { now, limit, trace, on_arm, on_wait, waits, arms }
        }
    }

    impl Monitor for StandIn<'_> {
        fn now(&self) -> u64 {
            self.now.get()
        }
        fn arm(&self, _: &CompletionLine) {
            self.arms.set(self.arms.get() + 1);
            (self.on_arm)(self.arms.get());
            self.trace.borrow_mut().push("arm");
        }
        fn wait(&self, now: u64, end: u64) {
            assert!(now < end && now == self.now.get());
            self.waits.set(self.waits.get() + 1);
            self.trace.borrow_mut().push("wait");
            self.now.set(end.min(now.saturating_add(self.limit)));
            (self.on_wait)(self.waits.get());
        }
    }

    fn stored(line: &CompletionLine) -> bool {
        line.load(Slot::ALL[0]) >= 1
    }

    #[test]
    fn arms_then_looks_then_waits_then_looks() {
        let line = CompletionLine::new();
        let store = |n| line.store(Slot::ALL[0], u64::from(n == 2));
        let monitor = StandIn::new(0, 10, &|_| {}, &store);
        let ready = |l: &CompletionLine| {
            monitor.trace.borrow_mut().push("look");
            stored(l)
        };
        assert!(park(&monitor, &line, ready, 1_000));
        let steps = ["look", "arm", "look", "wait", "look", "arm", "look", "wait", "look"];
        assert_eq!(*monitor.trace.borrow(), steps);
    }

    #[test]
    fn a_store_that_lands_just_before_the_arming_is_seen_without_a_wait() {
        let line = CompletionLine::new();
        let store = |_| line.store(Slot::ALL[0], 1);
        let monitor = StandIn::new(0, 10, &store, &|_| {});
        assert!(park(&monitor, &line, stored, u64::MAX));
        assert_eq!(monitor.waits.get(), 0);
    }

    #[test]
    fn waits_that_return_early_are_repeated_to_the_bound_and_no_further() {
        let line = CompletionLine::new();
        let monitor = StandIn::new(500, 100, &|_| {}, &|_| {});
        assert!(!park(&monitor, &line, stored, 1_050));
        assert_eq!((monitor.waits.get(), monitor.now.get()), (11, 1_550));
    }

    #[test]
    fn a_bound_beyond_32_bits_is_not_cut() {
        let line = CompletionLine::new();
        let (start, ticks) = (u64::from(u32::MAX) - 5, (1 << 40) + 7);
        let monitor = StandIn::new(start, 1 << 33, &|_| {}, &|_| {});
        assert!(!park(&monitor, &line, stored, ticks));
        assert_eq!(monitor.now.get(), start + ticks);
    }

    #[test]
    fn a_bound_beyond_the_counter_waits_for_its_end() {
        let line = CompletionLine::new();
        let store = |n| line.store(Slot::ALL[0], u64::from(n == 3));
        let monitor = StandIn::new(u64::MAX - 1_000, 10, &|_| {}, &store);
        assert!(park(&monitor, &line, stored, u64::MAX));
    }

    #[test]
    fn no_bound_is_one_look_after_the_arming() {
        let line = CompletionLine::new();
        let monitor = StandIn::new(7, 10, &|_| {}, &|_| {});
        assert!(!park(&monitor, &line, stored, 0));
        assert_eq!((monitor.waits.get(), monitor.arms.get()), (0, 1));
    }

    #[test]
    fn spans_become_ticks_in_full_width() {
        let rate = TickRate { per_ms: 2_600_000 };
        assert_eq!(rate.ticks(DurNs(10)), 26);
        assert_eq!(rate.ticks(DurNs(1)), 3);
        assert_eq!(rate.ticks(DurNs::from_ms(10_000)), 26_000_000_000);
        assert_eq!(rate.ticks(DurNs(u64::MAX)), u64::MAX);
        assert_eq!(TickRate { per_ms: 1 }.ticks(DurNs(1)), 1);
        assert_eq!(rate.ticks(DurNs(0)), 0);
    }
}
