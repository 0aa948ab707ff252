//! How long the last wait at a point was slept through at first: for its next wait the thread need not be
//! woken from a sleep that ends sooner.
//!
//! A hint that is gone costs a wake, and one that is wrong is off by what the prediction is.

use crate::DurNs;
use std::sync::atomic::{AtomicU64, Ordering};

const PLACES: usize = 256;
/// Of a word: a span in units of 1,024 ns, and above it a mark of the point's.
const SPAN_BITS: u32 = 40;

/// A span for each point, as long as no other point takes its place.
pub(super) struct Hints([AtomicU64; PLACES]);

impl Hints {
    pub(super) fn new() -> Hints {
        Hints([const { AtomicU64::new(0) }; PLACES])
    }

    fn at(&self, (line, slot): (usize, usize)) -> (&AtomicU64, u64) {
        // Fibonacci hashing: the upper bits are the well mixed ones.
        let mixed = ((line ^ slot) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = (mixed >> 56) as usize % PLACES;
        (&self.0[place], mixed << 8 >> SPAN_BITS << SPAN_BITS)
    }

    pub(super) fn set(&self, point: (usize, usize), span: DurNs) {
        let (word, mark) = self.at(point);
        let span = (span.0 >> 10).min((1 << SPAN_BITS) - 1);
        let hint = mark | span;
        // Mostly it is what it was, and others read that cache line.
        if word.load(Ordering::Relaxed) != hint {
            word.store(hint, Ordering::Relaxed);
        }
    }

    /// The span, rounded down; 0 where nothing is known.
    pub(super) fn get(&self, point: (usize, usize)) -> DurNs {
        let (word, mark) = self.at(point);
        let hint = word.load(Ordering::Relaxed);
        let span = hint & ((1 << SPAN_BITS) - 1);
        DurNs(if hint == mark | span { span << 10 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_points_own_and_never_longer_than_it_was_set() {
        let hints = Hints::new();
        let points = |i: usize| (0x7f00_0000_0000 + 64 * (i / 8), i % 8);
        assert_eq!(hints.get(points(0)), DurNs(0));
        for i in 0..64 {
            hints.set(points(i), DurNs::from_us(1_000 + i as u64));
        }
        let known = (0..64).filter(|&i| hints.get(points(i)) != DurNs(0)).count();
        assert!(known > 32, "{known} of 64 are left");
        for i in 0..64 {
            let (got, set) = (hints.get(points(i)), DurNs::from_us(1_000 + i as u64));
            assert!(got == DurNs(0) || got <= set && set.0 - got.0 < 1_024, "{i}: {got}");
        }
        (64..1_000).for_each(|i| assert_eq!(hints.get(points(i)), DurNs(0), "{i}"));
        hints.set(points(3), DurNs(u64::MAX));
        assert!(hints.get(points(3)) > DurNs::from_ms(1_000_000));
        hints.set(points(3), DurNs(0));
        assert_eq!(hints.get(points(3)), DurNs(0));
    }
}
