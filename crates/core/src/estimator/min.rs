//! The published estimator: the minimum of the last outcomes.

use super::{Estimator, Outcome};
use crate::plan::{DeadlinePlan, WINDOW_MAX};

/// Predicts that a wait takes as long as the shortest of the last few.
///
/// Safe and coarse: a wait is almost never woken late, and on work of several lengths it sleeps for
/// the shortest.
///
/// ```
/// use gpu_async_reactor_core::{DeadlinePlan, Outcome, PointEstimate};
/// let plan = DeadlinePlan { margin_ns: 50, min_sleep_ns: 100, max_sleep_ns: 900, window: 2 };
/// let mut point = PointEstimate::new();
/// assert_eq!(point.sleep_ns(&plan), None); // the first wait never sleeps
/// point.observe(&plan, Outcome::Exact { residual_ns: 400 });
/// point.observe(&plan, Outcome::Exact { residual_ns: 500 });
/// assert_eq!(point.predicted_ns(), Some(400));
/// assert_eq!(point.sleep_ns(&plan), Some(350));
/// point.observe(&plan, Outcome::Late { woke_ns: 350 }); // halves, and 400 leaves the window
/// assert_eq!(point.predicted_ns(), Some(175));
/// ```
#[derive(Clone, Debug)]
pub struct PointEstimate {
    /// The last outcomes, oldest overwritten first. All are kept, so that the window may change.
    ring: [u64; WINDOW_MAX],
    next: u8,
    len: u8,
    /// The window of the last observation, which [`PointEstimate::predicted_ns`] looks at.
    window: u8,
}

impl PointEstimate {
    /// A point that nothing is known of.
    pub const fn new() -> Self {
        Self { ring: [0; WINDOW_MAX], next: 0, len: 0, window: WINDOW_MAX as u8 }
    }

    /// The predicted length of the next wait, in nanoseconds, over the window last observed with.
    pub fn predicted_ns(&self) -> Option<u64> {
        self.min_of_last(usize::from(self.window))
    }

    /// How long the next wait may sleep, in nanoseconds: the prediction less the margin, at most
    /// `max_sleep_ns`; `None` below `min_sleep_ns` or when nothing is known.
    pub fn sleep_ns(&self, plan: &DeadlinePlan) -> Option<u64> {
        let sleep = self.min_of_last(plan.window)?.saturating_sub(plan.margin_ns);
        let sleep = sleep.min(plan.max_sleep_ns);
        (sleep >= plan.min_sleep_ns && sleep > 0).then_some(sleep)
    }

    /// Takes in how a wait ended.
    pub fn observe(&mut self, plan: &DeadlinePlan, outcome: Outcome) {
        self.window = plan.window.clamp(1, WINDOW_MAX) as u8;
        let entry = match outcome {
            Outcome::Exact { residual_ns } | Outcome::Immediate { residual_ns } => residual_ns,
            Outcome::Late { woke_ns } => {
                self.predicted_ns().map_or(woke_ns, |predicted| predicted.min(woke_ns)) / 2
            }
        };
        self.ring[usize::from(self.next)] = entry;
        self.next = (self.next + 1) % WINDOW_MAX as u8;
        self.len = (self.len + 1).min(WINDOW_MAX as u8);
    }

    fn min_of_last(&self, window: usize) -> Option<u64> {
        let last = window.clamp(1, WINDOW_MAX).min(usize::from(self.len));
        (1..=last)
            .map(|back| self.ring[(usize::from(self.next) + WINDOW_MAX - back) % WINDOW_MAX])
            .min()
    }
}

impl Default for PointEstimate {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimator for PointEstimate {
    fn predicted_ns(&self) -> Option<u64> {
        self.predicted_ns()
    }

    fn sleep_ns(&self, plan: &DeadlinePlan) -> Option<u64> {
        self.sleep_ns(plan)
    }

    fn observe(&mut self, plan: &DeadlinePlan, outcome: Outcome) {
        self.observe(plan, outcome);
    }
}
