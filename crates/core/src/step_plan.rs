//! Plans that name their estimator: every wait plan's text, and `<park>+<estimator>:<fields>`.

use crate::estimator::{
    Costs, Ending, Ewma, HalfMean, HalfMin, HazardSchedule, MinSchedule, Naps, Schedule, Step,
};
use crate::plan::{in_range, read_keys};
use crate::{Bands, DeadlinePlan, Error, HostCaps, Park, Result, Strictness, WaitPlan, error};
use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

/// The largest weight of a cost.
const COST_MAX: u64 = 1_000;
const MARGIN_US_MAX: u64 = 10_000;

/// Which estimator a plan sleeps by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EstimatorKind {
    /// The least of the last lengths (`predict`, the published one).
    Min(DeadlinePlan),
    /// Half of the mean (`half-mean`).
    HalfMean,
    /// Half of the least (`half-min`).
    HalfMin,
    /// A moving average less a margin in nanoseconds (`ewma:margin_us=<n>`).
    Ewma {
        /// Wake this much before the average.
        margin_ns: u64,
    },
    /// Naps of 50 µs, no prediction (`nap`).
    Nap,
    /// The hazard rate (`hazard:lag=<n>,cpu=<n>`).
    Hazard(Costs),
}

/// How to wait for one piece of work, by any estimator.
///
/// Every [`WaitPlan`]'s text means here what it means there. Further suffixes name another estimator:
/// `+half-mean`, `+half-min`, `+nap`, `+ewma:margin_us=<n>` and `+hazard:lag=<n>,cpu=<n>`, where the
/// numbers weigh a microsecond of wake lag against one of CPU. Each key stands once, nothing is defaulted.
///
/// ```
/// use gpu_async_reactor_core::StepPlan;
/// let plan: StepPlan = "flag:park_us=100,backstop_us=20000+hazard:lag=5,cpu=1".parse()?;
/// assert_eq!(plan.to_string().parse(), Ok(plan));
/// assert!("block+nap".parse::<StepPlan>().is_err());
/// # Ok::<(), gpu_async_reactor_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepPlan {
    /// What the wait does while it watches.
    pub park: Park,
    /// What it sleeps by; `None` never sleeps.
    pub estimator: Option<EstimatorKind>,
}

/// A banded plan that names its estimators.
pub type StepBands = Bands<StepPlan>;

impl From<StepPlan> for StepBands {
    fn from(plan: StepPlan) -> StepBands {
        Bands::single(plan)
    }
}

/// A running estimator of one point. The hazard rate's is large, so it is boxed.
#[derive(Clone, Debug)]
pub enum AnySchedule {
    /// See [`EstimatorKind::Min`].
    Min(MinSchedule),
    /// See [`EstimatorKind::HalfMean`].
    HalfMean(HalfMean),
    /// See [`EstimatorKind::HalfMin`].
    HalfMin(HalfMin),
    /// See [`EstimatorKind::Ewma`].
    Ewma(Ewma),
    /// See [`EstimatorKind::Nap`].
    Nap(Naps),
    /// See [`EstimatorKind::Hazard`].
    Hazard(Box<HazardSchedule>),
    /// Watches from the start.
    Watch,
}

impl StepPlan {
    /// A schedule for one point, which knows nothing yet.
    pub fn schedule(&self) -> AnySchedule {
        match self.estimator {
            None => AnySchedule::Watch,
            Some(EstimatorKind::Min(plan)) => AnySchedule::Min(MinSchedule::new(plan)),
            Some(EstimatorKind::HalfMean) => AnySchedule::HalfMean(HalfMean::default()),
            Some(EstimatorKind::HalfMin) => AnySchedule::HalfMin(HalfMin::default()),
            Some(EstimatorKind::Ewma { margin_ns }) => AnySchedule::Ewma(Ewma::new(margin_ns)),
            Some(EstimatorKind::Nap) => AnySchedule::Nap(Naps),
            Some(EstimatorKind::Hazard(costs)) => {
                AnySchedule::Hazard(Box::new(HazardSchedule::new(costs)))
            }
        }
    }

    /// The plan this host can run: itself, or one that polls with the same estimator where no word
    /// can be watched; and why.
    ///
    /// # Errors
    ///
    /// `PlanRefused` where another plan would be needed and `strictness` allows none.
    pub fn resolve(
        &self,
        caps: &HostCaps,
        strictness: Strictness,
    ) -> Result<(StepPlan, Option<Error>)> {
        let wait = WaitPlan { park: self.park, predict: None };
        let resolved = wait.resolve(caps, strictness)?;
        Ok((StepPlan { park: resolved.plan.park, ..*self }, resolved.warning))
    }
}

impl From<WaitPlan> for StepPlan {
    fn from(plan: WaitPlan) -> StepPlan {
        StepPlan { park: plan.park, estimator: plan.predict.map(EstimatorKind::Min) }
    }
}

impl fmt::Display for StepPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let predict = match self.estimator {
            Some(EstimatorKind::Min(plan)) => Some(plan),
            _ => None,
        };
        WaitPlan { park: self.park, predict }.fmt(f)?;
        match self.estimator {
            None | Some(EstimatorKind::Min(_)) => Ok(()),
            Some(EstimatorKind::HalfMean) => f.write_str("+half-mean"),
            Some(EstimatorKind::HalfMin) => f.write_str("+half-min"),
            Some(EstimatorKind::Nap) => f.write_str("+nap"),
            Some(EstimatorKind::Ewma { margin_ns }) => {
                write!(f, "+ewma:margin_us={}", margin_ns / 1_000)
            }
            Some(EstimatorKind::Hazard(Costs { lag, cpu })) => {
                write!(f, "+hazard:lag={lag},cpu={cpu}")
            }
        }
    }
}

impl FromStr for StepPlan {
    type Err = Error;

    /// Reads a plan's text.
    ///
    /// # Errors
    ///
    /// As a [`WaitPlan`]'s, with the same codes.
    fn from_str(text: &str) -> Result<StepPlan> {
        let Some((park_text, suffix)) = text.split_once('+') else {
            return text.parse::<WaitPlan>().map(StepPlan::from);
        };
        let (name, fields) = suffix.split_once(':').unwrap_or((suffix, ""));
        let estimator = match name {
            "half-mean" => EstimatorKind::HalfMean,
            "half-min" => EstimatorKind::HalfMin,
            "nap" => EstimatorKind::Nap,
            "ewma" => {
                let [margin] = read_keys(fields, ["margin_us"])?;
                in_range(fields, "margin_us", margin, 0, MARGIN_US_MAX)?;
                EstimatorKind::Ewma { margin_ns: margin * 1_000 }
            }
            "hazard" => {
                let [lag, cpu] = read_keys(fields, ["lag", "cpu"])?;
                in_range(fields, "lag", lag, 1, COST_MAX)?;
                in_range(fields, "cpu", cpu, 1, COST_MAX)?;
                EstimatorKind::Hazard(Costs { lag: lag as u32, cpu: cpu as u32 })
            }
            _ => return text.parse::<WaitPlan>().map(StepPlan::from),
        };
        let fieldless = matches!(name, "half-mean" | "half-min" | "nap");
        if fieldless && suffix.contains(':') {
            return Err(error!(PlanUnknownKey, suffix, fields));
        }
        let park = park_text.parse::<WaitPlan>()?.park;
        if park == Park::Block {
            return Err(error!(PlanPredictOnBlock, text));
        }
        Ok(StepPlan { park, estimator: Some(estimator) })
    }
}

macro_rules! each {
    ($self:expr, $schedule:ident => $act:expr, $watch:expr) => {
        match $self {
            AnySchedule::Min($schedule) => $act,
            AnySchedule::HalfMean($schedule) => $act,
            AnySchedule::HalfMin($schedule) => $act,
            AnySchedule::Ewma($schedule) => $act,
            AnySchedule::Nap($schedule) => $act,
            AnySchedule::Hazard($schedule) => $act,
            AnySchedule::Watch => $watch,
        }
    };
}

impl Schedule for AnySchedule {
    fn begin(&mut self, rows: u64) {
        each!(self, schedule => schedule.begin(rows), ());
    }

    fn step(&self, elapsed_ns: u64) -> Step {
        each!(self, schedule => schedule.step(elapsed_ns), Step::Watch(u64::MAX))
    }

    fn overslept(&mut self, by_ns: u64) {
        each!(self, schedule => schedule.overslept(by_ns), ());
    }

    fn ended(&mut self, ending: Ending) {
        each!(self, schedule => schedule.ended(ending), ());
    }
}
