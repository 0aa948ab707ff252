//! One way to guess the next length, and how its last guesses were wrong: the residuals, kept sorted.

/// Residuals kept. More would smooth better and forget a change more slowly.
pub(super) const KEPT: usize = 28;

/// A residual, and how wide the interval was that it was seen in: 0 where it was seen exactly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Residual {
    pub(super) at: i64,
    pub(super) width: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Predictor {
    /// In order of size.
    sorted: [Residual; KEPT],
    /// In order of age: which value to take out next.
    aged: [i64; KEPT],
    len: u8,
    oldest: u8,
    /// The moving mean of how far residuals fell from their neighbours, as a logarithm: small is
    /// good.
    score: i64,
}

impl Predictor {
    pub(super) const fn new() -> Self {
        let sorted = [Residual { at: 0, width: 0 }; KEPT];
        Self { sorted, aged: [0; KEPT], len: 0, oldest: 0, score: 0 }
    }

    pub(super) fn residuals(&self) -> &[Residual] {
        &self.sorted[..usize::from(self.len)]
    }

    pub(super) fn score(&self) -> i64 {
        self.score
    }

    /// How far around the `i`th residual its likelihood is spread: to its second nearest neighbour,
    /// so that a few samples say little about the gaps between them.
    pub(super) fn spread(&self, i: usize) -> u64 {
        let all = self.residuals();
        let far = |below: usize, above: usize| match (i.checked_sub(below), all.get(i + above)) {
            (Some(first), Some(last)) => {
                (last.at - all[i].at).max(all[i].at - all[first].at) as u64
            }
            _ => u64::MAX,
        };
        far(2, 0).min(far(1, 1)).min(far(0, 2))
    }

    /// Takes in a residual, and lets the oldest go.
    pub(super) fn learn(&mut self, residual: Residual) {
        let len = usize::from(self.len);
        let place = self.residuals().partition_point(|kept| kept.at < residual.at);
        if len >= 2 {
            let far = |i: usize| match self.residuals().get(i) {
                Some(kept) => kept.at.abs_diff(residual.at),
                None => u64::MAX,
            };
            // The second nearest of the two below and the two above.
            let (below, above) = (far(place.wrapping_sub(1)), far(place));
            let second = below.max(above).min(far(place.wrapping_sub(2))).min(far(place + 1));
            let loss = i64::from(log2_sixteenths(second.saturating_add(residual.width)));
            self.score += (loss * 256 - self.score) / 16;
        }
        let mut place = place;
        if len == KEPT {
            let gone = self.aged[usize::from(self.oldest)];
            let from = self.residuals().partition_point(|kept| kept.at < gone);
            if from < place {
                self.sorted.copy_within(from + 1..place, from);
                place -= 1;
            } else {
                self.sorted.copy_within(place..from, place + 1);
            }
        } else {
            self.sorted.copy_within(place..len, place + 1);
            self.len += 1;
        }
        self.sorted[place] = residual;
        self.aged[usize::from(self.oldest)] = residual.at;
        self.oldest = (self.oldest + 1) % KEPT as u8;
    }
}

/// A logarithm to the base 2, in sixteenths.
fn log2_sixteenths(value: u64) -> u32 {
    let value = value.max(1_000);
    let whole = value.ilog2();
    whole * 16 + ((value >> (whole - 4)) & 15) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_last_ones_are_kept_in_order(values in prop::collection::vec(-50i64..50, 1..120)) {
            let mut predictor = Predictor::new();
            for (n, &at) in values.iter().enumerate() {
                predictor.learn(Residual { at, width: 0 });
                let mut last: Vec<_> = values[..=n].iter().rev().take(KEPT).copied().collect();
                last.sort_unstable();
                let kept: Vec<_> = predictor.residuals().iter().map(|r| r.at).collect();
                prop_assert_eq!(kept, last);
            }
        }
    }

    #[test]
    fn a_spread_reaches_the_second_nearest() {
        let mut predictor = Predictor::new();
        for at in [0, 10, 30, 100] {
            predictor.learn(Residual { at, width: 0 });
        }
        assert_eq!([0, 1, 2, 3].map(|i| predictor.spread(i)), [30, 20, 30, 90]);
    }
}
