//! Our estimator: sleeps while an end is unlikely, naps while it is possible, watches while it is likely.
//!
//! What decides is the hazard, the chance that the work ends in the next moment given that it has not
//! ended yet. With a mean overshoot `o` of a sleep that costs `c` of CPU, napping in cycles of `T` costs
//! `cpu·c/T + lag·h·T/2` a unit of time at hazard `h`, and watching costs `cpu`. So watching is cheaper
//! where `1/h` is below `lag·o² / (2·cpu·(o − c))`, and elsewhere the best nap is `√(2·c·cpu / (lag·h))`.
//!
//! The hazard comes from the last residuals of whichever of a few predictors guessed best lately: none
//! (several lengths are several modes), the last length, the one before it (alternation), a level with a
//! trend (drift), and what steps with about as many rows took. Each residual's likelihood is spread to its
//! second nearest neighbour; some is kept for what was never seen.
//!
//! Integers only: the same answers on every target, and no floating point on targets without it.

use super::predictor::{KEPT, Predictor, Residual};
use super::{Costs, Ending, Schedule, Step};

/// What a sleep costs in CPU, in nanoseconds: entering the kernel, the timer, coming back.
const SLEEP_CPU_NS: u64 = 4_000;
/// The least spread of a residual, in nanoseconds: a clock and a queue are no finer.
const SPREAD_LEAST: u64 = 4_000;
/// Likelihood is counted in halves of a sample; what was never seen counts as one half.
const UNSEEN: u64 = 1;
/// What was never seen is spread over as long again as was waited so far.
/// Ends that came where no residual put one, in 1024ths of all: at the start half, and never none.
const SURPRISES_FIRST: u64 = 512;
const SURPRISES_LEAST: u64 = 2;
/// Sleeps overshoot by this much until it was seen by how much they do.
const OVERSHOOT_GUESS: u64 = 75_000;
/// Rows are remembered in this many bands: each number up to 15, then four to a doubling.
const BANDS: usize = 64;
/// One, where a density is one over a width in nanoseconds.
const ONE: u64 = 1 << 40;

const PREDICTORS: usize = 5;
/// Of a predictor's score.
const HALF_A_BIT: i64 = 8 * 256;

/// The hazard-rate schedule of one point.
#[derive(Clone, Debug)]
pub struct HazardSchedule {
    costs: Costs,
    predictors: [Predictor; PREDICTORS],
    history: History,
    overshoot: Overshoot,
    /// How often an end came where none was likely, in 1024ths.
    surprises: u64,
    wait: Wait,
}

/// What the predictors guess from.
#[derive(Clone, Debug)]
struct History {
    waits: u64,
    last: u64,
    last_but_one: u64,
    level: i64,
    trend: i64,
    /// The rows and the length of the last step in each band; length 0 is none.
    bands: [(u64, u64); BANDS],
}

/// How late sleeps end here.
#[derive(Clone, Copy, Debug)]
struct Overshoot {
    mean: u64,
    /// The quantile at which being late costs as much as being early: lag / (lag + cpu).
    margin: u64,
}

/// The wait that goes on.
#[derive(Clone, Debug)]
struct Wait {
    rows: u64,
    guesses: [u64; PREDICTORS],
    /// Where each residual puts an end, in order of where that begins.
    likely: [Likely; KEPT],
    count: usize,
    /// Where watching is cheaper than napping.
    hot: [(u64, u64); KEPT],
    hot_count: usize,
}

/// An interval that an end is likely in, and its density: one over its width.
#[derive(Clone, Copy, Debug)]
struct Likely {
    begin: u64,
    end: u64,
    density: u64,
}

const NOWHERE: Likely = Likely { begin: 0, end: 0, density: 0 };

impl HazardSchedule {
    /// A schedule that knows nothing yet.
    pub fn new(costs: Costs) -> Self {
        Self {
            costs,
            predictors: [const { Predictor::new() }; PREDICTORS],
            history: History::new(),
            overshoot: Overshoot { mean: OVERSHOOT_GUESS, margin: OVERSHOOT_GUESS },
            surprises: SURPRISES_FIRST,
            wait: Wait {
                rows: 0,
                guesses: [0; PREDICTORS],
                likely: [NOWHERE; KEPT],
                count: 0,
                hot: [(0, 0); KEPT],
                hot_count: 0,
            },
        }
    }

    /// The mean time to an end below which watching is cheaper than napping, in nanoseconds.
    fn hot_below(&self) -> u64 {
        let (o, Costs { lag, cpu }) = (self.overshoot.mean.max(SLEEP_CPU_NS + 1_000), self.costs);
        let per = 2 * u64::from(cpu).max(1) * (o - SLEEP_CPU_NS);
        (u64::from(lag) * o / per).saturating_mul(o)
    }

    /// The best cycle of naps at a mean time to an end.
    fn cycle(&self, mean: u64) -> u64 {
        let Costs { lag, cpu } = self.costs;
        let price = 2 * SLEEP_CPU_NS * u64::from(cpu) / u64::from(lag).max(1);
        price.max(1).saturating_mul(mean).isqrt()
    }

    /// Puts the chosen predictor's residuals where they would be in this wait.
    fn place(&mut self, chosen: usize) {
        let predictor = &self.predictors[chosen];
        let guess = self.wait.guesses[chosen] as i64;
        let residuals = predictor.residuals();
        self.wait.count = residuals.len();
        for (i, residual) in residuals.iter().enumerate() {
            let at = guess.saturating_add(residual.at).max(1) as u64;
            let spread = predictor.spread(i).min(at / 2).max(SPREAD_LEAST) + residual.width / 2;
            let begin = at.saturating_sub(spread);
            let likely = Likely { begin, end: at + spread, density: ONE / (at + spread - begin) };
            // Insertion: nearly sorted, for spreads vary less than residuals.
            let mut j = i;
            while j > 0 && self.wait.likely[j - 1].begin > likely.begin {
                self.wait.likely[j] = self.wait.likely[j - 1];
                j -= 1;
            }
            self.wait.likely[j] = likely;
        }
    }

    /// Finds where the hazard is above the bound, by one sweep over where likelihood begins and ends.
    fn heat(&mut self) {
        let bound = self.hot_below();
        let Wait { likely, count, hot, hot_count, .. } = &mut self.wait;
        let begins = &likely[..*count];
        let mut ends = [(0u64, 0u64); KEPT];
        for (i, &Likely { end, density, .. }) in begins.iter().enumerate() {
            let mut j = i;
            while j > 0 && ends[j - 1].0 > end {
                ends[j] = ends[j - 1];
                j -= 1;
            }
            ends[j] = (end, density);
        }
        *hot_count = 0;
        let (mut begun, mut ended, mut density, mut since) = (0, 0, 0u64, None);
        while ended < begins.len() {
            let at = match begins.get(begun) {
                Some(next) if next.begin < ends[ended].0 => {
                    density += next.density;
                    begun += 1;
                    next.begin
                }
                _ => {
                    density -= ends[ended].1;
                    ended += 1;
                    ends[ended - 1].0
                }
            };
            let left = 2 * (begins.len() - ended) as u64 + UNSEEN;
            let is_hot = left * (ONE / 2) < density.saturating_mul(bound);
            match (since, is_hot) {
                (None, true) => since = Some(at),
                (Some(from), false) => {
                    since = None;
                    // Two with less between them than a sleep overshoots are one.
                    match hot[..*hot_count].last_mut() {
                        Some(last) if from <= last.1 + self.overshoot.mean => last.1 = at,
                        _ => {
                            hot[*hot_count] = (from, at);
                            *hot_count += 1;
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// How far to nap, `now` after the start, and not beyond `limit`.
    fn nap(&self, now: u64, limit: u64) -> u64 {
        let (mut density, mut left, mut next) = (0u64, 0u64, u64::MAX);
        let soon = now + self.overshoot.mean;
        for likely in self.wait.likely[..self.wait.count].iter().filter(|likely| likely.end > now) {
            left += 1;
            match likely.begin <= soon {
                true => density += likely.density,
                false => next = next.min(likely.begin),
            }
        }
        // What was never seen, in 1024ths of a sample, is spread over as long again as was waited.
        let unseen = self.surprises * (self.wait.count as u64 + 1);
        let over = if density == 0 && next != u64::MAX { next } else { now / 2 };
        let hazard = density * 1_024 + ONE / (over + OVERSHOOT_GUESS) * unseen;
        let mean =
            ((left * 1_024 + unseen).saturating_mul(ONE / 64) / hazard.max(1)).saturating_mul(64);
        let until = now + self.cycle(mean);
        let until = if density == 0 { until.min(next) } else { until };
        until.saturating_sub(self.overshoot.mean).max(now + 20_000).min(limit.max(now + 1))
    }
}

impl Schedule for HazardSchedule {
    fn begin(&mut self, rows: u64) {
        self.wait.rows = rows;
        self.wait.guesses = self.history.guesses(rows);
        // A predictor must be better than none by half a bit, or one odd length would be believed.
        let loss = |(i, p): &(usize, &Predictor)| {
            let few = p.residuals().len() < 4;
            (few, p.score() + if *i > 0 { HALF_A_BIT } else { 0 })
        };
        let chosen = self.predictors.iter().enumerate().min_by_key(loss).map_or(0, |(i, _)| i);
        self.place(chosen);
        self.heat();
    }

    fn step(&self, elapsed_ns: u64) -> Step {
        let hot = &self.wait.hot[..self.wait.hot_count];
        match hot.iter().find(|&&(_, end)| elapsed_ns < end) {
            // In it, or too near to wake in time.
            Some(&(from, end)) if from <= elapsed_ns + self.overshoot.margin => Step::Watch(end),
            Some(&(from, _)) => Step::Sleep(self.nap(elapsed_ns, from - self.overshoot.margin)),
            None => Step::Sleep(self.nap(elapsed_ns, u64::MAX)),
        }
    }

    fn overslept(&mut self, by_ns: u64) {
        let Costs { lag, cpu } = self.costs;
        let (lag, cpu) = (u64::from(lag), u64::from(cpu));
        let Overshoot { mean, margin } = &mut self.overshoot;
        *mean = (*mean * 15 + by_ns) / 16;
        let step = (*margin / 32).max(200);
        *margin = match by_ns > *margin {
            true => *margin + step * lag / (lag + cpu).max(1),
            false => margin.saturating_sub(step * cpu / (lag + cpu).max(1)).max(1_000),
        };
    }

    fn ended(&mut self, ending: Ending) {
        let (length, width) = match ending {
            Ending::At(at) => (at, 0),
            Ending::Between(after, by) => (after / 2 + by / 2, by.saturating_sub(after)),
        };
        let near = self.overshoot.mean;
        let likely = &self.wait.likely[..self.wait.count];
        let expected = likely.iter().any(|l| l.begin <= length + near && length <= l.end + near);
        let least = (1_024 / (self.history.waits + 1)).max(SURPRISES_LEAST);
        let target = if expected { least } else { 1_024 };
        self.surprises = (self.surprises * 15 + target) / 16;
        let known = self.history.waits > 0;
        for (i, (predictor, guess)) in self.predictors.iter_mut().zip(self.wait.guesses).enumerate()
        {
            if known || i == 0 {
                predictor.learn(Residual { at: length as i64 - guess as i64, width });
            }
        }
        self.history.learn(self.wait.rows, length);
    }
}

impl History {
    const fn new() -> Self {
        let (last, last_but_one, level, trend) = (0, 0, 0, 0);
        Self { waits: 0, last, last_but_one, level, trend, bands: [(0, 0); BANDS] }
    }

    fn guesses(&self, rows: u64) -> [u64; PREDICTORS] {
        let drifted = (self.level + self.trend).max(0) as u64;
        [0, self.last, self.last_but_one, drifted, self.by_rows(rows)]
    }

    /// Between the nearest bands below and above that were seen, in proportion.
    fn by_rows(&self, rows: u64) -> u64 {
        let seen = |&&(_, length): &&(u64, u64)| length > 0;
        let band = band(rows);
        let below = self.bands[..=band].iter().rev().filter(seen).find(|(r, _)| *r <= rows);
        let above = self.bands[band..].iter().filter(seen).find(|(r, _)| *r >= rows);
        match (below, above) {
            (Some(&(r0, l0)), Some(&(r1, l1))) if r1 > r0 => {
                let (part, whole) = ((rows - r0) as i64, (r1 - r0) as i64);
                let rise = (l1 as i64 - l0 as i64).saturating_mul(part) / whole.max(1);
                l0.saturating_add_signed(rise)
            }
            (Some(&(_, length)), _) | (None, Some(&(_, length))) => length,
            (None, None) => self.last,
        }
    }

    fn learn(&mut self, rows: u64, length: u64) {
        if self.waits == 0 {
            self.level = length as i64;
            self.last = length;
        }
        let guess = self.level + self.trend;
        let error = length as i64 - guess;
        self.level = guess + error / 2;
        self.trend += error / 16;
        self.last_but_one = self.last;
        self.last = length;
        self.waits += 1;
        self.bands[band(rows)] = (rows, length.max(1));
    }
}

/// The band of a number of rows.
fn band(rows: u64) -> usize {
    match rows {
        0..16 => rows as usize,
        _ => {
            let octave = rows.ilog2() as usize;
            (16 + (octave - 4) * 4 + ((rows >> (octave - 2)) & 3) as usize).min(BANDS - 1)
        }
    }
}
