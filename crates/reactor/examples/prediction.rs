//! Every estimator on every data set, as the Markdown table that `docs/measurements/prediction.md` holds; or,
//! with a set's name, that set as a recording for `gpu-reactor replay`.

use gpu_async_reactor::replay::{HostModel, Recording, Replayed, Row, block, oracle, replay, spin};
use gpu_async_reactor::{Costs, Result, StepBands};

const COSTS: Costs = Costs { lag: 5, cpu: 1 };
const ESTIMATORS: [&str; 7] = [
    "flag:park_us=1000,backstop_us=20000",
    "poll+predict:margin_us=100,min_sleep_us=50,max_sleep_us=500000,window=8",
    "poll+ewma:margin_us=100",
    "poll+half-mean",
    "poll+half-min",
    "poll+nap",
    "poll+hazard:lag=5,cpu=1",
];
const HEAD: &str = "\
| set | oracle | spin | block | flag alone | min | ewma | half mean | half min | nap | **hazard** | its lag p50 / p99 | its CPU | cold, to nap |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

#[allow(dead_code)] // A test takes the table alone.
fn main() -> Result<()> {
    match std::env::args().nth(1) {
        None => print!("{}", table()?),
        Some(name) => {
            let set = sets().into_iter().find(|(found, _)| *found == name);
            print!("{}", set.map(|(_, recording)| recording.write()).unwrap_or_default());
        }
    }
    Ok(())
}

/// The reported half of each set.
pub(crate) fn sets() -> Vec<(&'static str, Recording)> {
    let row = |(rows, duration_ns)| Row { point: 0, rows, start_ns: 0, duration_ns };
    let recording = |steps: Vec<_>| Recording { rows: steps.into_iter().map(row).collect() };
    let sets = testkit::data::all(true, 3_000).into_iter();
    sets.map(|(name, steps)| (name, recording(steps))).collect()
}

/// The table, a line for each set.
pub(crate) fn table() -> Result<String> {
    let model = HostModel::default();
    let mut table = HEAD.to_owned();
    for (name, recording) in sets() {
        let plans = ESTIMATORS.map(|text| -> Result<Replayed> {
            Ok(replay(&recording, &text.parse::<StepBands>()?, &model, COSTS, 1))
        });
        let plans = plans.into_iter().collect::<Result<Vec<_>>>()?;
        let [.., nap, ours] = &plans[..] else { continue };
        let others = [
            oracle(&recording, &model, COSTS, 1),
            spin(&recording, &model, COSTS),
            block(&recording, &model, COSTS, 1),
        ];
        let cells: Vec<_> =
            others.iter().chain(&plans).map(|result| format!("{:.0}", result.cost)).collect();
        table += &format!(
            "| {name} | {} | {:.1} / {:.0} µs | {:.1} % | {:.2} |\n",
            cells.join(" | "),
            ours.lag_p50_ns as f64 / 1e3,
            ours.lag_p99_ns as f64 / 1e3,
            100.0 * ours.cpu_share,
            ours.cost_cold / nap.cost_cold,
        );
    }
    Ok(table)
}
