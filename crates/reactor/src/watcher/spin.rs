//! A spin of the watcher's own where completions are expected, within a share of a core.
//!
//! Without it a park there naps, and a nap's end is late by more than the wait was predicted wrong.

use crate::{Clock, DurNs, MonoNs};
use std::cell::Cell;

/// What may be saved up: so long a spin, once.
const SAVED_MOST: u64 = 1_000_000;

/// When the watcher spins, and how much of it is left to spend.
#[derive(Debug)]
pub(super) struct Spin {
    share_permille: u64,
    until: Cell<MonoNs>,
    /// Nanoseconds of spinning that are paid for.
    saved: Cell<u64>,
    /// When that was last added to.
    added: Cell<MonoNs>,
}

impl Spin {
    pub(super) fn new(share_permille: u64, now: MonoNs) -> Spin {
        Spin { share_permille, until: Cell::new(now), saved: Cell::new(0), added: Cell::new(now) }
    }

    /// A completion is expected before `at`.
    pub(super) fn expect(&self, at: MonoNs) {
        self.until.set(self.until.get().max(at));
    }

    /// Spins until `ready`, the bound, or until nothing is expected or paid for any more: whether it was
    /// ready, and what is left of the bound.
    pub(super) fn spin<C: Clock>(
        &self,
        clock: &C,
        ready: impl Fn() -> bool,
        bound: DurNs,
    ) -> (bool, DurNs) {
        let start = clock.monotonic_ns();
        let earned = start.since(self.added.get()).0.saturating_mul(self.share_permille) / 1_000;
        let saved = self.saved.get().saturating_add(earned).min(SAVED_MOST);
        self.added.set(start);
        let most = DurNs(saved).min(bound).min(self.until.get().since(start));
        let (mut seen, mut spun) = (false, DurNs(0));
        while spun < most && !seen {
            // Looks are cheaper than the clock.
            for _ in 0..8 {
                seen = seen || ready();
                std::hint::spin_loop();
            }
            spun = clock.monotonic_ns().since(start);
        }
        self.saved.set(saved.saturating_sub(spun.0));
        (seen, DurNs(bound.0.saturating_sub(spun.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each look at the clock is a microsecond later.
    struct Steps(Cell<u64>);

    impl Clock for Steps {
        fn monotonic_ns(&self) -> MonoNs {
            self.0.set(self.0.get() + 1_000);
            MonoNs(self.0.get())
        }
    }

    fn at(ms: u64) -> Steps {
        Steps(Cell::new(ms * 1_000_000))
    }

    #[test]
    fn it_spins_only_where_something_is_expected_and_no_longer_than_the_bound() {
        let spin = Spin::new(1_000, MonoNs(0));
        let bound = DurNs::from_us(50);
        assert_eq!(spin.spin(&at(10), || false, bound), (false, bound));
        spin.expect(MonoNs(10_020_000));
        let (seen, left) = spin.spin(&at(10), || false, bound);
        assert!(!seen && left >= DurNs::from_us(28) && left <= DurNs::from_us(32), "{left}");
        spin.expect(MonoNs(99_000_000));
        assert_eq!(spin.spin(&at(20), || false, bound), (false, DurNs(0)));
    }

    #[test]
    fn what_is_ready_ends_it() {
        let spin = Spin::new(1_000, MonoNs(0));
        spin.expect(MonoNs(99_000_000));
        let looks = Cell::new(0);
        let ready = || {
            looks.set(looks.get() + 1);
            looks.get() > 20
        };
        let (seen, left) = spin.spin(&at(10), ready, DurNs::from_us(50));
        assert!(seen && left == DurNs::from_us(47), "{left}");
    }

    #[test]
    fn it_spends_its_share_and_saves_up_no_more_than_a_millisecond() {
        let spin = Spin::new(20, MonoNs(0));
        spin.expect(MonoNs(u64::MAX));
        let clock = at(1_000);
        let spent = |from: u64| DurNs::from_ms(9).0 - from;
        let (_, left) = spin.spin(&clock, || false, DurNs::from_ms(9));
        assert!(spent(left.0).abs_diff(1_000_000) <= 2_000, "{left}");
        // Ten milliseconds later: a fiftieth of them.
        clock.0.set(clock.0.get() + 10_000_000);
        let (_, left) = spin.spin(&clock, || false, DurNs::from_ms(9));
        assert!(spent(left.0).abs_diff(220_000) <= 5_000, "{left}");
    }
}
