//! Every estimator on every data set, as a Markdown table: what `docs/measurements/prediction.md` holds.

use gpu_async_reactor::replay::{HostModel, Recording, Replayed, Row, block, oracle, replay, spin};
use gpu_async_reactor::{Costs, StepPlan};

const COSTS: Costs = Costs { lag: 5, cpu: 1 };
const ESTIMATORS: [&str; 7] = [
    "",
    "+predict:margin_us=100,min_sleep_us=50,max_sleep_us=500000,window=8",
    "+ewma:margin_us=100",
    "+half-mean",
    "+half-min",
    "+nap",
    "+hazard:lag=5,cpu=1",
];

fn main() -> gpu_async_reactor::Result<()> {
    let model = HostModel::default();
    println!(
        "| set | oracle | spin | block | flag alone | min | ewma | half mean | half min | nap | **hazard** | its lag p50 / p99 | its CPU | cold, to nap |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (name, steps) in testkit::data::all(true, 3_000) {
        let row =
            |&(rows, duration_ns): &(u64, u64)| Row { point: 0, rows, start_ns: 0, duration_ns };
        let recording = Recording { rows: steps.iter().map(row).collect() };
        let plans = ESTIMATORS.map(|text| -> gpu_async_reactor::Result<Replayed> {
            let poll = if text.is_empty() { "flag:park_us=1000,backstop_us=20000" } else { "poll" };
            let plan: StepPlan = format!("{poll}{text}").parse()?;
            Ok(replay(&recording, &plan, &model, COSTS, 1))
        });
        let mut cells = vec![
            oracle(&recording, &model, COSTS, 1).cost,
            spin(&recording, &model, COSTS).cost,
            block(&recording, &model, COSTS, 1).cost,
        ];
        let mut last = None;
        let mut nap_cold = 0.0;
        for plan in plans {
            let plan = plan?;
            cells.push(plan.cost);
            if plan.subject.ends_with("nap") {
                nap_cold = plan.cost_cold;
            }
            last = Some(plan);
        }
        let Some(ours) = last else { continue };
        let cells: Vec<String> = cells.iter().map(|cost| format!("{cost:.0}")).collect();
        println!(
            "| {name} | {} | {:.1} / {:.0} µs | {:.1} % | {:.2} |",
            cells.join(" | "),
            ours.lag_p50_ns as f64 / 1e3,
            ours.lag_p99_ns as f64 / 1e3,
            100.0 * ours.cpu_share,
            ours.cost_cold / nap_cold,
        );
    }
    Ok(())
}
