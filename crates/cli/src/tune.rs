//! `gpu-reactor tune`: measures this host, records a workload, finds the plan that costs least on it, and
//! tries that plan for real.

use crate::args::TuneArgs;
use crate::exit::{Exit, Failure};
use crate::replay;
use crate::report::{Writer, json, span};
use crate::run::devices::{self, Opened, StepDevice, Want, on_device};
use crate::run::stats::PlanResult;
use crate::sys::outln;
use crate::workload::Workload;
use gpu_async_reactor::replay::{Recorder, Recording, Replayed};
use gpu_async_reactor::{Costs, StepBands};
use serde_json::json;
use std::sync::Arc;

/// The plan that records: its waits disturb the device least.
const RECORDS: &str = "block";
const FLAG: &str = "flag:park_us=1000,backstop_us=20000";

/// Measures, records, searches, tries, says.
pub(crate) fn tune(args: &TuneArgs) -> Result<Exit, Failure> {
    let say = |line: &str| if args.json { eprintln!("{line}") } else { outln!("{line}") };
    let plot = args.plot.as_deref().map(Writer::open).transpose()?;
    let want = Want { driver_sim: args.driver_sim, fault: None };
    let (opened, _) = devices::choose(args.device, want)?;
    let about = on_device!(&opened, device => device.about().clone());
    say(&format!("device: {}", about.name));
    let model = replay::host::measure();
    let mut late = model.overshoots_ns.clone();
    late.sort_unstable();
    let quantile = |share: usize| late.get(late.len() * share / 100).copied().unwrap_or(0);
    say(&format!(
        "host:   sleeps end {} late (median; {} at worst in ten), and take {} of CPU",
        span(quantile(50) as f64),
        span(quantile(90) as f64),
        span(model.sleep_cpu_ns as f64)
    ));
    let work = Workload::traced(usize::from(args.queues), args.steps as usize, None)?;
    let recording = match &args.trace {
        Some(path) => replay::read(path)?,
        None => record(&opened, &work)?,
    };
    say(&format!("waits:  {}", recording.rows.len()));

    let plans = candidates(args.cost)?;
    let mut results = replay::all(&recording, &plans, &model, args.cost, 1);
    if let Some(plot) = plot {
        say(&format!("plot:   {}", plot.write(&replay::plot::pareto(&results))?));
    }
    let oracle = results.swap_remove(0);
    results.retain(|result| result.subject.parse::<StepBands>().is_ok());
    results.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let [best, second, ..] = &results[..] else {
        return Err(Failure::bad_input("there is no plan to choose from"));
    };
    say(&format!("plan:   {}", best.subject));
    say(&format!(
        "why:    {:.1} µs of cost a wait; the next best, {}, {:.1}; an oracle {:.1}",
        best.cost, second.subject, second.cost, oracle.cost
    ));
    let plan: StepBands = best.subject.parse()?;
    let live = crate::run::once(&opened, &plan, &work, None)?;
    verdict(args, best, &live, &about, &say);
    let right = live.tally.verified == live.asked;
    Ok(if right { Exit::Done } else { Exit::Wrong })
}

fn record(opened: &Opened, work: &Workload) -> Result<Recording, Failure> {
    let recorder = Arc::new(Recorder::new(work.queues.iter().map(Vec::len).sum()));
    let plan: StepBands = RECORDS.parse()?;
    crate::run::once(opened, &plan, work, Some(recorder.clone()))?;
    Ok(recorder.recording())
}

/// What is looked at: the word alone, the published estimator over its margins and windows, the
/// moving average over margins, naps, and the hazard rate at the price asked for.
fn candidates(costs: Costs) -> Result<Vec<StepBands>, Failure> {
    let Costs { lag, cpu } = costs;
    let mut texts = vec![
        "poll".to_owned(),
        FLAG.to_owned(),
        format!("{FLAG}+nap"),
        format!("{FLAG}+hazard:lag={lag},cpu={cpu}"),
    ];
    for margin in [30, 60, 100, 150, 250] {
        texts.push(format!("{FLAG}+ewma:margin_us={margin}"));
        for window in [1, 3, 8, 16] {
            texts.push(format!(
                "{FLAG}+predict:margin_us={margin},min_sleep_us=50,max_sleep_us=1000000,window={window}"
            ));
        }
    }
    Ok(texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

/// What was expected beside what was measured.
fn verdict(
    args: &TuneArgs,
    best: &Replayed,
    live: &PlanResult,
    about: &devices::About,
    say: &dyn Fn(&str),
) {
    let lags = &live.tally.lags_ns;
    let mean = (!lags.is_empty()).then(|| lags.iter().sum::<u64>() as f64 / lags.len() as f64);
    let price = f64::from(args.cost.cpu) / f64::from(args.cost.lag);
    let cost = mean.zip(live.cpu_per_wait_ns()).map(|(lag, cpu)| (lag + price * cpu) / 1e3);
    let known = |value: Option<f64>| value.map_or("unknown".to_owned(), span);
    say(&format!(
        "tried:  lag p50 {} (expected {}), mean {} ({}); cost {} ({:.1} µs)",
        known(live.lag.map(|lag| lag.p50 as f64)),
        span(best.lag_p50_ns as f64),
        known(mean),
        span(best.lag_mean_ns),
        cost.map_or("unknown".to_owned(), |cost| format!("{cost:.1} µs")),
        best.cost,
    ));
    if !args.json {
        return;
    }
    let row = |metric: &str, value: f64| {
        json::print(&json!({
            "suite": "tune", "case": best.subject, "subject": "ours", "metric": metric,
            "value": value, "n": live.tally.waits, "device": about.name,
            "simulated": about.simulated,
        }));
    };
    row("expected_cost", best.cost);
    row("expected_lag_p50_ns", best.lag_p50_ns as f64);
    if let (Some(lag), Some(cost)) = (live.lag, cost) {
        row("lag_p50_ns", lag.p50 as f64);
        row("cost", cost);
    }
}
