//! One estimate for each point of a program.

use super::{Estimator, Outcome, PointEstimate};
use crate::plan::DeadlinePlan;
use alloc::collections::BTreeMap;

/// An estimate for each point where a program waits, by a key of its choosing.
///
/// ```
/// use gpu_async_reactor_core::{DeadlinePlan, Outcome, PointTable};
/// let plan = DeadlinePlan { margin_ns: 0, min_sleep_ns: 1, max_sleep_ns: 900, window: 4 };
/// let mut points = PointTable::new();
/// points.observe(&"decode", &plan, Outcome::Exact { residual_ns: 450 });
/// assert_eq!(points.sleep_ns(&"decode", &plan), Some(450));
/// assert_eq!(points.sleep_ns(&"prefill", &plan), None);
/// ```
#[derive(Clone, Debug)]
pub struct PointTable<K: Ord, E = PointEstimate> {
    points: BTreeMap<K, E>,
}

impl<K: Ord> PointTable<K> {
    /// A table that knows no point.
    pub const fn new() -> Self {
        Self { points: BTreeMap::new() }
    }
}

impl<K: Ord, E: Estimator> PointTable<K, E> {
    /// The predicted length of the next wait at a point, in nanoseconds.
    pub fn predicted_ns(&self, key: &K) -> Option<u64> {
        self.points.get(key)?.predicted_ns()
    }

    /// How long the next wait at a point may sleep, in nanoseconds; `None` says not at all.
    pub fn sleep_ns(&self, key: &K, plan: &DeadlinePlan) -> Option<u64> {
        self.points.get(key)?.sleep_ns(plan)
    }

    /// Takes in how a wait at a point ended. Allocates only for a point not seen before.
    pub fn observe(&mut self, key: &K, plan: &DeadlinePlan, outcome: Outcome)
    where
        K: Clone,
    {
        match self.points.get_mut(key) {
            Some(point) => point.observe(plan, outcome),
            None => {
                let mut point = E::default();
                point.observe(plan, outcome);
                self.points.insert(key.clone(), point);
            }
        }
    }
}

impl<K: Ord, E: Estimator> Default for PointTable<K, E> {
    fn default() -> Self {
        Self { points: BTreeMap::new() }
    }
}
