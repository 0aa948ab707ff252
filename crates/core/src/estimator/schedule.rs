//! A wait's schedule: when to sleep, when to watch, and what the wait taught.

use super::{DeadlinePlan, Outcome, PointEstimate};

/// What a wait does next, until a time since its start, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sleep.
    Sleep(u64),
    /// Watch the word without sleeping.
    Watch(u64),
}

/// When a wait's work ended, as far as the wait saw, in nanoseconds since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was watched: ended then.
    At(u64),
    /// It ended during a sleep: after the first and by the second.
    Between(u64, u64),
}

/// What waiting costs, in the same unit: a microsecond of wake lag against one of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Costs {
    /// Of a microsecond of lag.
    pub lag: u32,
    /// Of a microsecond of CPU.
    pub cpu: u32,
}

/// Decides how each wait at one point goes, from how the earlier ones went. Duties of an implementer:
///
/// 1. `begin`, then `step` as often as the wait asks, then `ended` once;
/// 2. a step ends after the time it is asked at;
/// 3. be pure: the same calls give the same answers, in bounded memory, and allocate nothing.
pub trait Schedule {
    /// A wait begins; `rows` is what the program knows of its size, 0 if nothing.
    fn begin(&mut self, rows: u64);
    /// What the wait does now, `elapsed_ns` after it began and with the work not done.
    fn step(&self, elapsed_ns: u64) -> Step;
    /// A sleep ended that much later than it was to.
    fn overslept(&mut self, by_ns: u64);
    /// The work ended.
    fn ended(&mut self, ending: Ending);
}

/// The published estimator as a schedule: one sleep, then watch.
#[derive(Clone, Debug)]
pub struct MinSchedule {
    plan: DeadlinePlan,
    point: PointEstimate,
}

impl MinSchedule {
    /// A schedule that knows nothing yet.
    pub fn new(plan: DeadlinePlan) -> Self {
        Self { plan, point: PointEstimate::new() }
    }
}

impl Schedule for MinSchedule {
    fn begin(&mut self, _rows: u64) {}

    fn step(&self, elapsed_ns: u64) -> Step {
        match self.point.sleep_ns(&self.plan) {
            Some(sleep) if elapsed_ns < sleep => Step::Sleep(sleep),
            _ => Step::Watch(u64::MAX),
        }
    }

    fn overslept(&mut self, _by_ns: u64) {}

    fn ended(&mut self, ending: Ending) {
        let outcome = match ending {
            Ending::At(residual_ns) => Outcome::Exact { residual_ns },
            Ending::Between(_, woke_ns) => Outcome::Late { woke_ns },
        };
        self.point.observe(&self.plan, outcome);
    }
}

/// No prediction: naps of 50 µs to the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naps;

impl Schedule for Naps {
    fn begin(&mut self, _rows: u64) {}

    fn step(&self, elapsed_ns: u64) -> Step {
        Step::Sleep(elapsed_ns + 50_000)
    }

    fn overslept(&mut self, _by_ns: u64) {}

    fn ended(&mut self, _ending: Ending) {}
}
