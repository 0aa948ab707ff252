//! Recorded waits, waited again under another plan: what it would have cost.
//!
//! Time is virtual and the host is a model ([`HostModel`]), so the same recording, plan and seed give the
//! same answer on every machine. Nothing here waits.

mod host;
mod recorder;
mod recording;

pub use host::HostModel;
pub use recorder::Recorder;
pub use recording::{Recording, Row};

use crate::{AnySchedule, Costs, Ending, Park, Schedule, Step, StepBands};
use host::Host;
use std::collections::BTreeMap;

/// What a plan, or something that no plan can be, cost over a recording.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The plan's text, or `oracle`, `spin` or `block`.
    pub subject: String,
    /// Waits.
    pub waits: usize,
    /// Median wake lag, in nanoseconds.
    pub lag_p50_ns: u64,
    /// The lag that one wait in a hundred exceeds, in nanoseconds.
    pub lag_p99_ns: u64,
    /// Mean lag, in nanoseconds.
    pub lag_mean_ns: f64,
    /// Mean CPU of a wait, in nanoseconds.
    pub cpu_mean_ns: f64,
    /// CPU over the time waited.
    pub cpu_share: f64,
    /// Mean cost of a wait: microseconds of lag, and of CPU by their price in lag.
    pub cost: f64,
    /// The same over the first hundred waits.
    pub cost_cold: f64,
    /// Share of the waits that a sleep ended late.
    pub late_share: f64,
}

/// What one wait cost.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    lag_ns: u64,
    cpu_ns: u64,
    late: bool,
}

/// Waits again by a plan or a banded one, with a schedule of its own for each point in each band.
///
/// ```
/// use gpu_async_reactor::replay::{HostModel, Recording, Row, replay};
/// use gpu_async_reactor::Costs;
/// let rows = (0..100).map(|_| Row { point: 0, rows: 1, start_ns: 0, duration_ns: 5_000_000 });
/// let recording = Recording { rows: rows.collect() };
/// let plan = "flag:park_us=1000,backstop_us=20000+hazard:lag=5,cpu=1;rows>=8:poll+nap".parse()?;
/// let costs = Costs { lag: 5, cpu: 1 };
/// let ours = replay(&recording, &plan, &HostModel::default(), costs, 1);
/// assert!(ours.lag_p50_ns < 10_000 && ours.cpu_share < 0.05);
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
pub fn replay(
    recording: &Recording,
    bands: &StepBands,
    model: &HostModel,
    costs: Costs,
    seed: u64,
) -> Replayed {
    let mut host = Host::new(model, seed);
    let mut points: BTreeMap<(u64, u64), AnySchedule> = BTreeMap::new();
    let mut waits = Vec::with_capacity(recording.rows.len());
    for row in &recording.rows {
        // The first band starts at 0, so one is at or below any number of rows.
        let Some(band) = bands.bands().iter().rev().find(|band| band.from_rows <= row.rows) else {
            continue;
        };
        let schedule = points.entry((band.from_rows, row.point));
        let schedule = schedule.or_insert_with(|| band.plan.schedule());
        waits.push(one(row, band.plan.park, schedule, &mut host));
    }
    summary(bands.to_string(), waits, recording, costs)
}

/// One wait in steps, as [`wait_steps`](crate::wait_steps) does it.
fn one(row: &Row, park: Park, schedule: &mut AnySchedule, host: &mut Host<'_>) -> Wait {
    let end = row.duration_ns;
    schedule.begin(row.rows);
    let (mut now, mut cpu_ns) = (0, host.model.wait_cpu_ns);
    if park == Park::Block {
        return host.block();
    }
    loop {
        match schedule.step(now) {
            Step::Sleep(until) => {
                let over = host.overshoot();
                let woke = until.max(now + 1) + over;
                cpu_ns += host.model.sleep_cpu_ns;
                schedule.overslept(over);
                if woke >= end {
                    schedule.ended(Ending::Between(now, woke));
                    return Wait { lag_ns: woke - end, cpu_ns, late: true };
                }
                now = woke;
            }
            Step::Watch(until) => {
                if until == u64::MAX && park != Park::QueryPoll {
                    let parked = host.park(now, end);
                    schedule.ended(Ending::At(end + parked.lag_ns));
                    return Wait { cpu_ns: cpu_ns + parked.cpu_ns, ..parked };
                }
                if end <= until {
                    schedule.ended(Ending::At(end));
                    let cpu_ns = cpu_ns + end - now;
                    return Wait { lag_ns: host.look(), cpu_ns, late: false };
                }
                cpu_ns += until - now;
                now = until;
            }
        }
    }
}

/// What nobody can beat: knows each length, and sleeps to just before it.
pub fn oracle(recording: &Recording, model: &HostModel, costs: Costs, seed: u64) -> Replayed {
    let mut host = Host::new(model, seed);
    let margin = host.overshoot_quantile(0.95);
    let waits = recording.rows.iter().map(|row| {
        let until = row.duration_ns.saturating_sub(margin);
        let woke = if until > 0 { until + host.overshoot() } else { 0 };
        let sleep_cpu = if until > 0 { model.sleep_cpu_ns } else { 0 };
        match woke.checked_sub(row.duration_ns) {
            Some(lag_ns) => Wait { lag_ns, cpu_ns: sleep_cpu, late: true },
            None => Wait {
                lag_ns: host.look(),
                cpu_ns: sleep_cpu + row.duration_ns - woke,
                late: false,
            },
        }
    });
    let waits = waits.collect();
    summary("oracle".into(), waits, recording, costs)
}

/// A core for each wait.
pub fn spin(recording: &Recording, model: &HostModel, costs: Costs) -> Replayed {
    let mut host = Host::new(model, 1);
    let wait = |row: &Row| Wait { lag_ns: host.look(), cpu_ns: row.duration_ns, late: false };
    summary("spin".into(), recording.rows.iter().map(wait).collect(), recording, costs)
}

/// A thread for each wait, asleep until the driver wakes it.
pub fn block(recording: &Recording, model: &HostModel, costs: Costs, seed: u64) -> Replayed {
    let mut host = Host::new(model, seed);
    let waits = recording.rows.iter().map(|_| host.block()).collect();
    summary("block".into(), waits, recording, costs)
}

fn summary(subject: String, waits: Vec<Wait>, recording: &Recording, costs: Costs) -> Replayed {
    let count = waits.len().max(1);
    let price = f64::from(costs.cpu) / f64::from(costs.lag.max(1));
    let cost = |w: &Wait| (w.lag_ns as f64 + price * w.cpu_ns as f64) / 1_000.0;
    let mean = |waits: &[Wait]| waits.iter().map(cost).sum::<f64>() / waits.len().max(1) as f64;
    let mut lags: Vec<u64> = waits.iter().map(|wait| wait.lag_ns).collect();
    lags.sort_unstable();
    let at = |share: f64| {
        let rank = (lags.len() as f64 * share).ceil() as usize;
        lags.get(rank.clamp(1, count) - 1).copied().unwrap_or(0)
    };
    let time: u64 = recording.rows.iter().map(|row| row.duration_ns).sum();
    let cpu: u64 = waits.iter().map(|wait| wait.cpu_ns).sum();
    Replayed {
        subject,
        waits: waits.len(),
        lag_p50_ns: at(0.5),
        lag_p99_ns: at(0.99),
        lag_mean_ns: lags.iter().sum::<u64>() as f64 / count as f64,
        cpu_mean_ns: cpu as f64 / count as f64,
        cpu_share: cpu as f64 / time.max(1) as f64,
        cost: mean(&waits),
        cost_cold: mean(&waits[..waits.len().min(100)]),
        late_share: waits.iter().filter(|wait| wait.late).count() as f64 / count as f64,
    }
}
