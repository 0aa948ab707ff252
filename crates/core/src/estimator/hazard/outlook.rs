//! Where the end of the wait that goes on is likely, and where so likely that watching is cheaper than
//! napping.

use super::predictor::{KEPT, Predictor};

/// The least spread of a residual, in nanoseconds: a clock and a queue are no finer.
const SPREAD_LEAST: u64 = 4_000;
/// One, where a density is one over a width in nanoseconds.
pub(super) const ONE: u64 = 1 << 40;
/// Likelihood is counted in halves of a sample; what was never seen counts as one half.
const UNSEEN: u64 = 1;

/// Room for the residuals and one more, and the last index: a power of two, so that a mask keeps an index
/// within it at no cost.
const ROOM: usize = (KEPT + 1).next_power_of_two();
const LAST: usize = ROOM - 1;

/// An interval that an end is likely in, and its density: one over its width.
#[derive(Clone, Copy, Debug)]
struct Likely {
    begin: u64,
    end: u64,
    density: u64,
}

const NOWHERE: Likely = Likely { begin: 0, end: 0, density: 0 };

/// One wait's, made when it begins.
#[derive(Clone, Debug)]
pub(super) struct Outlook {
    /// Where each residual puts an end, in order of where that begins; then one that never does.
    likely: [Likely; ROOM],
    count: usize,
    /// Where watching is cheaper than napping.
    hot: [(u64, u64); KEPT],
    hot_count: usize,
}

/// What is known of the time just ahead, and of what comes after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    /// Of the ends just ahead, the sum.
    pub(super) density: u64,
    /// Residuals whose ends are not past.
    pub(super) left: u64,
    /// Where the next likely place after it begins; `u64::MAX` if there is none.
    pub(super) next: u64,
    /// Where the last likely place that is past ended.
    pub(super) past: Option<u64>,
}

impl Outlook {
    pub(super) const fn new() -> Self {
        Self { likely: [NOWHERE; ROOM], count: 0, hot: [(0, 0); KEPT], hot_count: 0 }
    }

    /// How many residuals say something.
    pub(super) fn count(&self) -> u64 {
        self.count as u64
    }

    /// Where watching is cheaper than napping, in order.
    pub(super) fn hot(&self) -> &[(u64, u64)] {
        &self.hot[..self.hot_count]
    }

    fn likely(&self) -> &[Likely] {
        &self.likely[..self.count]
    }

    /// Puts a predictor's residuals where they would be in this wait, and finds where the mean time to
    /// an end is below `hot_below`; two such places with less than `near` between them are one.
    pub(super) fn make(&mut self, predictor: &Predictor, guess: u64, hot_below: u64, near: u64) {
        // In order, with one that is never reached behind them.
        let mut ends = [(u64::MAX, 0u64); ROOM];
        for (i, (residual, spread)) in predictor.spreads().enumerate() {
            let at = (guess as i64 + residual.at).max(1) as u64;
            let spread = spread.min(at / 2).max(SPREAD_LEAST) + residual.width / 2;
            let (begin, end) = (at.saturating_sub(spread), at + spread);
            let density = ONE / (end - begin);
            // Insertion: nearly sorted, for spreads vary less than residuals.
            let mut j = i & LAST;
            while j > 0 && self.likely[j - 1].begin > begin {
                self.likely[j] = self.likely[j - 1];
                j -= 1;
            }
            self.likely[j] = Likely { begin, end, density };
            let mut j = i & LAST;
            while j > 0 && ends[j - 1].0 > end {
                ends[j] = ends[j - 1];
                j -= 1;
            }
            ends[j] = (end, density);
        }
        self.count = predictor.len();
        self.likely[self.count & LAST].begin = u64::MAX;
        self.heat(&ends, (ONE / 2 / hot_below.max(1)).max(1), near);
    }

    /// One sweep over where likelihood begins and ends. `hot` is the density at which half a sample
    /// makes it hot.
    fn heat(&mut self, ends: &[(u64, u64); ROOM], hot: u64, near: u64) {
        let (mut begun, mut ended, mut density) = (0, 0, 0u64);
        let mut bound = (2 * self.count as u64 + UNSEEN) * hot;
        let (mut is_hot, mut since) = (false, 0);
        self.hot_count = 0;
        while ended < self.count {
            // No branch on which of both comes first: it can't be foretold.
            let (next, end) = (&self.likely[begun & LAST], ends[ended & LAST]);
            let begins = next.begin < end.0;
            let mask = u64::from(begins).wrapping_neg();
            density = density + (next.density & mask) - (end.1 & !mask);
            bound -= (2 * hot) & !mask;
            begun += usize::from(begins);
            ended += usize::from(!begins);
            if (density > bound) == is_hot {
                continue;
            }
            let at = next.begin.min(end.0);
            is_hot = !is_hot;
            if is_hot {
                since = at;
                continue;
            }
            match self.hot[..self.hot_count].last_mut() {
                Some(last) if since <= last.1 + near => last.1 = at,
                _ => {
                    self.hot[self.hot_count] = (since, at);
                    self.hot_count += 1;
                }
            }
        }
    }

    /// What is known at a time in the wait, where "just ahead" reaches to `soon`.
    pub(super) fn ahead(&self, now: u64, soon: u64) -> Ahead {
        let mut ahead = Ahead { density: 0, left: 0, next: u64::MAX, past: None };
        for likely in self.likely() {
            if likely.end <= now {
                ahead.past = ahead.past.max(Some(likely.end));
                continue;
            }
            ahead.left += 1;
            match likely.begin <= soon {
                true => ahead.density += likely.density,
                false => ahead.next = ahead.next.min(likely.begin),
            }
        }
        ahead
    }

    /// Whether an end was likely there, or nearly.
    pub(super) fn expected(&self, at: u64, near: u64) -> bool {
        self.likely().iter().any(|l| l.begin <= at + near && at <= l.end + near)
    }

    /// Where in an interval that was slept through the end most likely was: the part of it where the
    /// densest residual puts one. `None` where none does.
    pub(super) fn narrowed(&self, after: u64, by: u64) -> Option<(u64, u64)> {
        let within = self.likely().iter().filter(|l| l.begin < by && l.end > after);
        let densest = within.max_by_key(|l| l.density)?;
        Some((densest.begin.max(after), densest.end.min(by)))
    }
}
