//! What was counted under one plan.

use super::devices::StepQueue;
use super::drive::Way;
use crate::args::Host;
use gpu_async_reactor::replay::{Recorder, Row};
use gpu_async_reactor::{Error, EstimatorKind, MonoNs, Park, Result, StepBands, WaitReport};

/// What one queue's waits did.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) waits: u64,
    pub(crate) verified: u64,
    pub(crate) wrong: u64,
    pub(crate) sleeps: u64,
    pub(crate) parks: u64,
    pub(crate) queries: u64,
    pub(crate) lags_ns: Vec<u64>,
    /// CPU time that went into submitting and checking, not into waiting.
    pub(crate) aside_cpu_ns: u64,
    pub(crate) error: Option<Error>,
}

impl Tally {
    /// A tally with room for that many waits, so that none of them allocates.
    pub(crate) fn with_room(waits: usize) -> Tally {
        Tally { lags_ns: Vec::with_capacity(waits), ..Tally::default() }
    }

    pub(crate) fn count(&mut self, report: &WaitReport, queries: u64) {
        self.waits += 1;
        self.sleeps += u64::from(report.sleeps);
        self.parks += u64::from(report.parks);
        self.queries += queries;
    }

    /// Counts the wake lag of a step that is done, keeps its row, and checks its result.
    pub(crate) fn check<Q: StepQueue>(
        &mut self,
        queue: &mut Q,
        (index, number): (usize, u64),
        woke: MonoNs,
        mut row: Row,
        recorder: Option<&Recorder>,
    ) -> Result<()> {
        let stored = queue.stored_at(number);
        self.lags_ns.extend(stored.map(|stored| woke.since(stored).0));
        if let Some(recorder) = recorder {
            row.duration_ns = stored.unwrap_or(woke).since(MonoNs(row.start_ns)).0;
            recorder.record(row);
        }
        match queue.verify_step(index)? {
            true => self.verified += 1,
            false => self.wrong += 1,
        }
        Ok(())
    }

    /// Adds another queue's.
    pub(crate) fn add(&mut self, other: Tally) {
        self.waits += other.waits;
        self.verified += other.verified;
        self.wrong += other.wrong;
        self.sleeps += other.sleeps;
        self.parks += other.parks;
        self.queries += other.queries;
        self.lags_ns.extend(other.lags_ns);
        self.aside_cpu_ns += other.aside_cpu_ns;
        self.error = self.error.take().or(other.error);
    }
}

/// What one plan did, all queues together.
#[derive(Debug)]
pub(crate) struct PlanResult {
    /// The plan's text, or what stands for a plan where the host finds its own.
    pub(crate) plan: String,
    pub(crate) host: Host,
    /// What to call it in a table: its kind, and which one of several of a kind.
    pub(crate) name: String,
    /// How many threads ran the queues' steps.
    pub(crate) threads: usize,
    pub(crate) tally: Tally,
    /// Waits that the plan was to do.
    pub(crate) asked: u64,
    pub(crate) wall_ns: u64,
    /// CPU time of the threads that waited, less what went into submitting and checking.
    pub(crate) cpu_ns: Option<u64>,
    pub(crate) lag: Option<Lag>,
}

/// Wake lag, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Lag {
    /// Of sorted lags.
    pub(crate) fn of(sorted: &[u64]) -> Option<Lag> {
        let max = *sorted.last()?;
        Some(Lag { p50: at(sorted, 0.5), p99: at(sorted, 0.99), max })
    }
}

/// The nearest-rank quantile of sorted values, of which there is at least one.
pub(crate) fn at(sorted: &[u64], share: f64) -> u64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

impl PlanResult {
    pub(crate) fn cpu_per_wait_ns(&self) -> Option<f64> {
        let cpu = self.cpu_ns?;
        (self.tally.waits > 0).then(|| cpu as f64 / self.tally.waits as f64)
    }
}

/// What kind of plan it is.
fn kind(plan: &StepBands) -> String {
    let [band] = plan.bands() else { return format!("{} bands", plan.bands().len()) };
    let park = match band.plan.park {
        Park::Block => "block",
        Park::QueryPoll => "poll",
        Park::FlagWait { .. } => "flag",
    };
    let estimator = match band.plan.estimator {
        None => return park.to_owned(),
        Some(EstimatorKind::Min(_)) => "predict",
        Some(EstimatorKind::HalfMean) => "half-mean",
        Some(EstimatorKind::HalfMin) => "half-min",
        Some(EstimatorKind::Ewma { .. }) => "ewma",
        Some(EstimatorKind::Nap) => "nap",
        Some(EstimatorKind::Hazard(_)) => "hazard",
    };
    format!("{park}+{estimator}")
}

/// A name for each way to wait: its plan's kind, with the host where there are several, numbered where there are
/// several of a kind.
pub(super) fn names(ways: &[Way]) -> Vec<String> {
    let one_host = ways.iter().all(|way| way.host() == ways[0].host());
    let name = |way: &Way| match way {
        Way::Completions => "completion (tokio)".to_owned(),
        Way::Plan(_, bands) if one_host => kind(bands),
        Way::Plan(host, bands) => format!("{} ({})", kind(bands), host.name()),
    };
    let kinds: Vec<_> = ways.iter().map(name).collect();
    let name = |(i, kind): (usize, &String)| {
        let same = |kinds: &[String]| kinds.iter().filter(|other| *other == kind).count();
        match same(&kinds) {
            1 => kind.clone(),
            _ => format!("{kind} {}", same(&kinds[..=i])),
        }
    };
    kinds.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(Lag::of(&hundred), Some(Lag { p50: 50, p99: 99, max: 100 }));
        assert_eq!(Lag::of(&[7]), Some(Lag { p50: 7, p99: 7, max: 7 }));
        assert_eq!(Lag::of(&[]), None);
    }

    #[test]
    fn plans_of_a_kind_are_numbered() {
        let texts = ["poll", "block", "poll", "poll;rows>=8:block", "poll+nap"];
        let way = |host, text: &str| Way::Plan(host, text.parse().unwrap());
        let ways = texts.map(|text| way(Host::Std, text));
        assert_eq!(names(&ways), ["poll 1", "block", "poll 2", "2 bands", "poll+nap"]);
        let ways = [way(Host::Std, "poll"), way(Host::Uring, "poll"), Way::Completions];
        assert_eq!(names(&ways), ["poll (std)", "poll (uring)", "completion (tokio)"]);
    }
}
