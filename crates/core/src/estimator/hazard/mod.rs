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

mod history;
mod outlook;
mod predictor;

use super::{Costs, Ending, Schedule, Step};
use history::{History, PREDICTORS};
use outlook::{ONE, Outlook};
use predictor::{Predictor, Residual};

/// What a sleep costs in CPU, in nanoseconds: entering the kernel, the timer, coming back.
const SLEEP_CPU_NS: u64 = 4_000;
/// No nap is shorter, in nanoseconds.
const NAP_LEAST: u64 = 20_000;
/// Surprises are a share in parts of this.
const ALL: u64 = 1 << 20;
/// Ends that came where no residual put one: at the start half of all, and never none.
const SURPRISES_FIRST: u64 = ALL / 2;
const SURPRISES_LEAST: u64 = ALL / 1_024;
/// Of how many waits the share of surprises is a moving mean.
const SURPRISES_OF: u64 = 8;
/// Sleeps overshoot by this much until it was seen by how much they do.
const OVERSHOOT_GUESS: u64 = 75_000;
/// No wait counts as longer, in nanoseconds: nine years.
const LONGEST: u64 = 1 << 58;
/// Of a predictor's score.
const HALF_A_BIT: i64 = 8 * 256;

/// The hazard-rate schedule of one point.
#[derive(Clone, Debug)]
pub struct HazardSchedule {
    costs: Costs,
    predictors: [Predictor; PREDICTORS],
    history: History,
    overshoot: Overshoot,
    /// How often an end came where none was likely, in parts of [`ALL`].
    surprises: u64,
    /// The rows and the guesses of the wait that goes on.
    rows: u64,
    guesses: [u64; PREDICTORS],
    outlook: Outlook,
}

/// How late sleeps end here.
#[derive(Clone, Copy, Debug)]
struct Overshoot {
    mean: u64,
    /// The quantile at which being late costs as much as being early: lag / (lag + cpu).
    margin: u64,
}

impl HazardSchedule {
    /// A schedule that knows nothing yet.
    pub fn new(costs: Costs) -> Self {
        Self {
            costs,
            predictors: [const { Predictor::new() }; PREDICTORS],
            history: History::new(),
            overshoot: Overshoot { mean: OVERSHOOT_GUESS, margin: OVERSHOOT_GUESS },
            surprises: SURPRISES_FIRST,
            rows: 0,
            guesses: [0; PREDICTORS],
            outlook: Outlook::new(),
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

    /// How far to nap, `now` after the start, and not beyond `limit`.
    fn nap(&self, now: u64, limit: u64) -> u64 {
        let ahead = self.outlook.ahead(now, now + self.overshoot.mean);
        // What was never seen is spread over as long again as was waited since the last likely place;
        // before the first one, up to there.
        let over = match ahead.past {
            Some(past) if ahead.density == 0 || ahead.next == u64::MAX => now - past,
            None if ahead.density == 0 && ahead.next != u64::MAX => ahead.next,
            _ => now / 2,
        };
        let unseen = self.surprises / 1_024 * (self.outlook.count() + 1);
        let hazard = ahead.density * 1_024 + ONE / (over + OVERSHOOT_GUESS) * unseen;
        let weight = (ahead.left * 1_024 + unseen).saturating_mul(ONE / 64);
        let until = now + self.cycle((weight / hazard.max(1)).saturating_mul(64));
        let until = if ahead.density == 0 { until.min(ahead.next) } else { until };
        until.saturating_sub(self.overshoot.mean).max(now + NAP_LEAST).min(limit.max(now + 1))
    }
}

impl Schedule for HazardSchedule {
    fn begin(&mut self, rows: u64) {
        self.rows = rows;
        self.guesses = self.history.guesses(rows);
        // A predictor must be better than none by half a bit, or one odd length would be believed.
        let loss = |(i, p): &(usize, &Predictor)| {
            let few = p.len() < 4;
            (few, p.score() + if *i > 0 { HALF_A_BIT } else { 0 })
        };
        let chosen = self.predictors.iter().enumerate().min_by_key(loss).map_or(0, |(i, _)| i);
        let (predictor, guess) = (&self.predictors[chosen], self.guesses[chosen]);
        let (hot_below, near) = (self.hot_below(), self.overshoot.mean);
        self.outlook.make(predictor, guess, hot_below, near);
    }

    fn step(&self, elapsed_ns: u64) -> Step {
        match self.outlook.hot().iter().find(|&&(_, end)| elapsed_ns < end) {
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
        let (slept_from, slept_to) = match ending {
            Ending::At(at) => (at.min(LONGEST), at.min(LONGEST)),
            Ending::Between(after, by) => (after.min(by).min(LONGEST), by.min(LONGEST)),
        };
        let (from, to, expected) = match ending {
            Ending::At(_) => {
                let expected = self.outlook.expected(slept_to, self.overshoot.mean);
                (slept_from, slept_to, expected)
            }
            Ending::Between(..) => match self.outlook.narrowed(slept_from, slept_to) {
                Some((from, to)) => (from, to, true),
                None => (slept_from, slept_to, false),
            },
        };
        let least = (ALL / (self.history.waits + 1)).max(SURPRISES_LEAST);
        let found = if expected { least } else { ALL };
        self.surprises = (self.surprises * (SURPRISES_OF - 1) + found) / SURPRISES_OF;
        let (length, width) = (from + (to - from) / 2, to - from);
        let known = self.history.waits > 0;
        for (i, (predictor, guess)) in self.predictors.iter_mut().zip(self.guesses).enumerate() {
            if known || i == 0 {
                let less = |at: u64| at as i64 - guess as i64;
                let residual = Residual { at: less(length), width };
                predictor.learn(residual, (less(slept_from), less(slept_to)));
            }
        }
        self.history.learn(self.rows, length);
    }
}
