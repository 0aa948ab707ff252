//! From what earlier waits at a point took, how long the next one may sleep.
//!
//! Pure: nanoseconds in and out, no clock, no allocation once a point is known.

mod baselines;
mod hazard;
mod min;
mod schedule;
mod table;

pub use baselines::{Ewma, HalfMean, HalfMin};
pub use hazard::HazardSchedule;
pub use min::PointEstimate;
pub use schedule::{Costs, Ending, MinSchedule, Naps, Schedule, Step};
pub use table::PointTable;

use crate::DeadlinePlan;

/// How one wait ended, as far as it says something about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The wait was awake when the work completed: its length is known.
    Exact {
        /// From the start of the wait to its completion, in nanoseconds.
        residual_ns: u64,
    },
    /// The work was done when the sleep ended: it took at most this long.
    Late {
        /// From the start of the wait to the end of its sleep, in nanoseconds.
        woke_ns: u64,
    },
    /// The work was done at the first query, before any sleep.
    Immediate {
        /// From the start of the wait to the answer, in nanoseconds.
        residual_ns: u64,
    },
}

/// Predicts the length of a wait from the outcomes of earlier ones. Duties of an implementer:
///
/// 1. before the first outcome, never sleep;
/// 2. never sleep longer than the plan's `max_sleep_ns`, nor shorter than its `min_sleep_ns`;
/// 3. a late wake never raises the prediction;
/// 4. be pure: the same outcomes give the same answer, in bounded memory.
pub trait Estimator: Default {
    /// The predicted length of the next wait, in nanoseconds.
    fn predicted_ns(&self) -> Option<u64>;
    /// How long the next wait may sleep, in nanoseconds; `None` says not at all.
    fn sleep_ns(&self, plan: &DeadlinePlan) -> Option<u64>;
    /// Takes in how a wait ended.
    fn observe(&mut self, plan: &DeadlinePlan, outcome: Outcome);
}
