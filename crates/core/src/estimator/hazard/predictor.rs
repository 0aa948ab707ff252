//! One way to guess the next length, and how its last guesses were wrong: the residuals, kept sorted.

/// Residuals kept. More would smooth better, forget a change more slowly, and take longer.
pub(super) const KEPT: usize = 24;
/// No residual is as far: what stands on both sides of those there are, so that each has neighbours.
const FAR: i64 = 1 << 61;
const BELOW: usize = 2;
const PADDED: usize = BELOW + KEPT + 2;
/// Of how many waits a score is a moving mean.
const SCORE_OF: i64 = 8;

/// A residual, and how wide the interval was that it was seen in: 0 where it was seen exactly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Residual {
    pub(super) at: i64,
    pub(super) width: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Predictor {
    /// In order of size, from [`BELOW`] on; before and behind them what is [`FAR`].
    sorted: [Residual; PADDED],
    /// In order of age: which value to take out next.
    aged: [i64; KEPT],
    len: u8,
    oldest: u8,
    /// The moving mean of how thinly residuals were spread where the next one fell, as a logarithm:
    /// small is good.
    score: i64,
}

impl Predictor {
    pub(super) const fn new() -> Self {
        let mut sorted = [Residual { at: FAR, width: 0 }; PADDED];
        sorted[0].at = -FAR;
        sorted[1].at = -FAR;
        Self { sorted, aged: [0; KEPT], len: 0, oldest: 0, score: 0 }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn score(&self) -> i64 {
        self.score
    }

    /// Each residual, in order of size, and how far around it its likelihood is spread: to its second
    /// nearest neighbour, so that a few samples say little about the gaps between them.
    pub(super) fn spreads(&self) -> impl Iterator<Item = (Residual, u64)> + '_ {
        self.sorted[..self.len() + 4].windows(5).map(|five| {
            let here = five[BELOW];
            (here, second(here.at, [five[0].at, five[1].at, five[3].at, five[4].at]))
        })
    }

    /// How many residuals are less: where in order that one would stand.
    fn below(&self, at: i64) -> usize {
        self.sorted[BELOW..BELOW + KEPT].partition_point(|kept| kept.at < at)
    }

    /// Takes in a residual, and lets the oldest go. It is judged first: how thinly the others were
    /// spread over `from..to`, where it was if that was slept through.
    pub(super) fn learn(&mut self, residual: Residual, (from, to): (i64, i64)) {
        let mut place = self.below(residual.at);
        if self.len >= 2 {
            let thin = match to > from {
                true => self.thin_over(place, residual.at, (from, to)),
                false => self.second_nearest(place, residual.at),
            };
            self.score += (i64::from(log2_sixteenths(thin)) * 256 - self.score) / SCORE_OF;
        }
        let sorted = &mut self.sorted[BELOW..BELOW + KEPT];
        if usize::from(self.len) == KEPT {
            let gone = self.aged[usize::from(self.oldest)];
            let gap = sorted.partition_point(|kept| kept.at < gone);
            if gap < place {
                sorted.copy_within(gap + 1..place, gap);
                place -= 1;
            } else {
                sorted.copy_within(place..gap, place + 1);
            }
        } else {
            sorted.copy_within(place..usize::from(self.len), place + 1);
            self.len += 1;
        }
        sorted[place] = residual;
        self.aged[usize::from(self.oldest)] = residual.at;
        self.oldest = if usize::from(self.oldest) + 1 == KEPT { 0 } else { self.oldest + 1 };
    }

    /// How far the second nearest residual is from one that would stand at that place.
    fn second_nearest(&self, place: usize, at: i64) -> u64 {
        let four = &self.sorted[place..place + 4];
        second(at, [four[0].at, four[1].at, four[2].at, four[3].at])
    }

    /// Twice an interval's width over the residuals in it: as far as the second nearest one would be.
    fn thin_over(&self, place: usize, at: i64, (from, to): (i64, i64)) -> u64 {
        let width = (to - from) as u64;
        match self.below(to + 1) - self.below(from) {
            held @ 2.. => 2 * width / held as u64,
            _ => self.second_nearest(place, at) + width,
        }
    }
}

/// How far the second nearest is, of the two below and the two above in order.
fn second(at: i64, [a, b, c, d]: [i64; 4]) -> u64 {
    (at - a).min((at - b).max(c - at)).min(d - at) as u64
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

    fn kept(predictor: &Predictor) -> Vec<i64> {
        predictor.spreads().map(|(residual, _)| residual.at).collect()
    }

    fn learn(predictor: &mut Predictor, at: i64) {
        predictor.learn(Residual { at, width: 0 }, (at, at));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_last_ones_are_kept_in_order(values in prop::collection::vec(-50i64..50, 1..120)) {
            let mut predictor = Predictor::new();
            for (n, &at) in values.iter().enumerate() {
                learn(&mut predictor, at);
                let mut last: Vec<_> = values[..=n].iter().rev().take(KEPT).copied().collect();
                last.sort_unstable();
                prop_assert_eq!(kept(&predictor), last);
            }
        }

        /// Against sorting all distances.
        #[test]
        fn spreads_and_scores_go_by_the_second_nearest(
            values in prop::collection::vec(-1_000_000i64..1_000_000, 2..KEPT),
            next in -1_000_000i64..1_000_000,
        ) {
            let mut predictor = Predictor::new();
            values.iter().for_each(|&at| learn(&mut predictor, at));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            for (i, (residual, spread)) in predictor.spreads().enumerate() {
                let mut far: Vec<_> =
                    (0..sorted.len()).filter(|&j| j != i).map(|j| residual.at.abs_diff(sorted[j])).collect();
                far.sort_unstable();
                match far.get(1) {
                    Some(&second) => prop_assert_eq!(spread, second),
                    None => prop_assert!(spread > 1 << 60),
                }
            }
            let mut far: Vec<_> = values.iter().map(|at| at.abs_diff(next)).collect();
            far.sort_unstable();
            prop_assert_eq!(predictor.second_nearest(predictor.below(next), next), far[1]);
        }
    }

    #[test]
    fn an_interval_counts_for_the_residuals_in_it() {
        let thin = |within: i64| {
            let mut predictor = Predictor::new();
            (0..20).for_each(|n| learn(&mut predictor, if n < within { n } else { 9_000_000 + n }));
            predictor.thin_over(predictor.below(0), 0, (-40_000, 40_000))
        };
        assert_eq!([20, 10, 2].map(thin), [8_000, 16_000, 80_000]);
        assert_eq!(thin(1), 9_000_001 + 80_000);
    }
}
