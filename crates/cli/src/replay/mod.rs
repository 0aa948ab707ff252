//! `gpu-reactor replay`: recorded waits, waited again in virtual time under other plans.

pub(crate) mod host;
pub(crate) mod plot;

use crate::args::ReplayArgs;
use crate::exit::{Exit, Failure};
use crate::report::{Writer, json, span, text};
use gpu_async_reactor::replay::{self, HostModel, Recording, Replayed};
use gpu_async_reactor::{Costs, StepBands};
use serde_json::json;

/// One of each estimator.
const DEFAULT_PLANS: [&str; 7] = [
    "flag:park_us=1000,backstop_us=20000",
    "poll+predict:margin_us=100,min_sleep_us=50,max_sleep_us=500000,window=8",
    "poll+ewma:margin_us=100",
    "poll+half-mean",
    "poll+half-min",
    "poll+nap",
    "poll+hazard:lag=5,cpu=1",
];

/// Replays, prints, draws.
pub(crate) fn replay(args: &ReplayArgs) -> Result<Exit, Failure> {
    let name = args.file.display().to_string();
    let recording = read(&args.file)?;
    let plot = args.plot.as_deref().map(Writer::open).transpose()?;
    let mut plans = args.plans.clone();
    if plans.is_empty() {
        for text in DEFAULT_PLANS {
            plans.push(text.parse()?);
        }
    }
    let model = match args.host.as_str() {
        "measured" => host::measure(),
        _ => HostModel::default(),
    };
    let results = all(&recording, &plans, &model, args.cost, args.seed);
    if args.json {
        results.iter().for_each(rows);
    } else {
        table(&results, args.cost, &name);
    }
    if let Some(plot) = plot {
        let path = plot.write(&plot::pareto(&results))?;
        if !args.json {
            crate::sys::outln!("plot: {path}");
        }
    }
    Ok(Exit::Done)
}

/// Reads a recording's file.
pub(crate) fn read(path: &std::path::Path) -> Result<Recording, Failure> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::bad_input(format!("reading the recording {name}: {e}")))?;
    Ok(Recording::read(&name, &text)?)
}

/// The plans, and what no plan can be, in one list.
pub(crate) fn all(
    recording: &Recording,
    plans: &[StepBands],
    model: &HostModel,
    costs: Costs,
    seed: u64,
) -> Vec<Replayed> {
    let mut results = vec![
        replay::oracle(recording, model, costs, seed),
        replay::spin(recording, model, costs),
        replay::block(recording, model, costs, seed),
    ];
    results.extend(plans.iter().map(|plan| replay::replay(recording, plan, model, costs, seed)));
    results
}

fn table(results: &[Replayed], costs: Costs, name: &str) {
    let head = ["plan", "lag p50", "lag p99", "lag mean", "CPU", "late", "cost"].map(str::to_owned);
    let rows: Vec<_> = results
        .iter()
        .map(|result| {
            [
                result.subject.clone(),
                span(result.lag_p50_ns as f64),
                span(result.lag_p99_ns as f64),
                span(result.lag_mean_ns),
                format!("{:.2} %", 100.0 * result.cpu_share),
                format!("{:.1} %", 100.0 * result.late_share),
                format!("{:.1}", result.cost),
            ]
        })
        .collect();
    text::aligned(std::iter::once(&head).chain(&rows), &|line| crate::sys::outln!("{line}"));
    let waits = results.first().map_or(0, |result| result.waits);
    crate::sys::outln!(
        "\n{waits} waits of {name}, replayed; cost: microseconds of lag, and of CPU at {} to {}",
        costs.cpu,
        costs.lag
    );
}

fn rows(result: &Replayed) {
    let row = |metric: &str, value: f64| {
        json::print(&json!({
            "suite": "predict", "case": result.subject, "subject": "ours", "metric": metric,
            "value": value, "n": result.waits, "device": "replay", "simulated": true,
        }));
    };
    row("lag_p50_ns", result.lag_p50_ns as f64);
    row("lag_p99_ns", result.lag_p99_ns as f64);
    row("lag_mean_ns", result.lag_mean_ns);
    row("cpu_share", result.cpu_share);
    row("late_share", result.late_share);
    row("cost", result.cost);
}
