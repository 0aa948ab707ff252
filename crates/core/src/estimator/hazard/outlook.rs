//! Where the end of the wait that goes on is likely, and where so likely that watching is cheaper than
//! napping.

use super::predictor::{KEPT, Predictor};

/// The least spread of a residual, in nanoseconds: a clock and a queue are no finer.
const SPREAD_LEAST: u64 = 4_000;
/// One, where a density is one over a width in nanoseconds.
pub(super) const ONE: u64 = 1 << 40;
/// Likelihood is counted in halves of a sample; what was never seen counts as one half.
const UNSEEN: u64 = 1;

/// Room for an edge before those of the residuals and one behind them, and the last index: a power of two,
/// so that a mask keeps an index within it at no cost.
const ROOM: usize = (KEPT + 2).next_power_of_two();
const LAST: usize = ROOM - 1;

/// An interval that an end is likely in, and its density: one over its width.
#[derive(Clone, Copy, Debug)]
struct Likely {
    begin: u64,
    end: u64,
    density: u64,
}

/// Where intervals begin, or where they end: in order, from index 1 on; before them one that nothing comes
/// before. Two arrays, for a pair that was stored as two words is slow to load as one.
#[derive(Clone, Debug)]
struct Edges {
    at: [u64; ROOM],
    density: [u64; ROOM],
}

impl Edges {
    const fn new() -> Self {
        Self { at: [0; ROOM], density: [0; ROOM] }
    }

    /// Puts an edge in its place among those before `index`. Edges come nearly in order, for spreads vary
    /// less than residuals.
    fn insert(&mut self, mut index: usize, at: u64, density: u64) {
        loop {
            let before = (index - 1) & LAST;
            if self.at[before] <= at {
                break;
            }
            self.at[index & LAST] = self.at[before];
            self.density[index & LAST] = self.density[before];
            index -= 1;
        }
        self.at[index & LAST] = at;
        self.density[index & LAST] = density;
    }

    /// Of the first `count` edges, those that lie no later than a time: how many, and their density.
    fn passed(&self, count: usize, at: u64) -> (usize, u64) {
        let mut density = 0;
        for (index, edge) in self.at[1..=count].iter().enumerate() {
            if *edge > at {
                return (index, density);
            }
            density += self.density[index + 1];
        }
        (count, density)
    }
}

/// One wait's, made when it begins.
#[derive(Clone, Debug)]
pub(super) struct Outlook {
    /// Where each residual puts an end.
    likely: [Likely; KEPT],
    /// Where those intervals begin, and where they end: each in order of its own.
    begins: Edges,
    ends: Edges,
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
        let likely = [Likely { begin: 0, end: 0, density: 0 }; KEPT];
        let (begins, ends, hot) = (Edges::new(), Edges::new(), [(0, 0); KEPT]);
        Self { likely, begins, ends, count: 0, hot, hot_count: 0 }
    }

    /// How many residuals say something.
    pub(super) fn count(&self) -> u64 {
        self.count as u64
    }

    /// Where watching is cheaper than napping, in order.
    pub(super) fn hot(&self) -> &[(u64, u64)] {
        &self.hot[..self.hot_count]
    }

    /// Puts a predictor's residuals where they would be in this wait, and finds where the mean time to
    /// an end is below `hot_below`; two such places with less than `near` between them are one.
    pub(super) fn make(&mut self, predictor: &Predictor, guess: u64, hot_below: u64, near: u64) {
        for (index, (likely, (residual, spread))) in
            self.likely.iter_mut().zip(predictor.spreads()).enumerate()
        {
            let at = (guess as i64 + residual.at).max(1) as u64;
            let spread = spread.min(at / 2).max(SPREAD_LEAST) + residual.width / 2;
            let (begin, end) = (at.saturating_sub(spread), at + spread);
            let density = ONE / (end - begin);
            *likely = Likely { begin, end, density };
            self.begins.insert(index + 1, begin, density);
            self.ends.insert(index + 1, end, density);
        }
        self.count = predictor.len();
        // Behind them one that is never reached.
        self.begins.at[(self.count + 1) & LAST] = u64::MAX;
        self.heat((ONE / 2 / hot_below.max(1)).max(1), near);
    }

    /// One sweep over where likelihood begins and ends. `hot` is the density at which half a sample
    /// makes it hot.
    fn heat(&mut self, hot: u64, near: u64) {
        let (mut begun, mut ended, mut density) = (1, 1, 0u64);
        let mut bound = (2 * self.count as u64 + UNSEEN) * hot;
        let (mut is_hot, mut since) = (false, 0);
        self.hot_count = 0;
        while ended <= self.count {
            // No branch on which of both comes first: it can't be foretold.
            let (b, e) = (begun & LAST, ended & LAST);
            let (begin, end) = (self.begins.at[b], self.ends.at[e]);
            let begins = begin < end;
            let mask = u64::from(begins).wrapping_neg();
            density = density + (self.begins.density[b] & mask) - (self.ends.density[e] & !mask);
            bound -= (2 * hot) & !mask;
            begun += usize::from(begins);
            ended += usize::from(!begins);
            if (density > bound) == is_hot {
                continue;
            }
            let at = begin.min(end);
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

    /// What is known at a time in the wait, where "just ahead" reaches to `soon`, which is no earlier.
    pub(super) fn ahead(&self, now: u64, soon: u64) -> Ahead {
        let (begun, density) = self.begins.passed(self.count, soon);
        let (ended, over) = self.ends.passed(begun, now);
        Ahead {
            // What ended by now had begun by then.
            density: density - over,
            left: (self.count - ended) as u64,
            next: self.begins.at[(begun + 1) & LAST],
            past: (ended > 0).then(|| self.ends.at[ended & LAST]),
        }
    }

    /// Whether an end was likely there, or nearly.
    pub(super) fn expected(&self, at: u64, near: u64) -> bool {
        let (begun, _) = self.begins.passed(self.count, at + near);
        let (ended, _) = self.ends.passed(begun, at.saturating_sub(near + 1));
        ended < begun
    }

    /// Where in an interval that was slept through the end most likely was: the part of it where the
    /// densest residual puts one. `None` where none does.
    pub(super) fn narrowed(&self, after: u64, by: u64) -> Option<(u64, u64)> {
        let within = self.likely[..self.count].iter().filter(|l| l.begin < by && l.end > after);
        let densest = within.max_by_key(|l| l.density)?;
        Some((densest.begin.max(after), densest.end.min(by)))
    }
}
