//! The ratios that issue and README state, measured in one run on the simulated device.

use crate::run::{Outcome, cargo, output};
use serde_json::Value;

const POLL: &str = "poll";
const FLAG: &str = "flag:park_us=1000,backstop_us=20000";
const PREDICT: &str = "flag:park_us=1000,backstop_us=20000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=20000,window=3";

/// Steps of 1 ms on the simulated device: a predicted wait uses at most a tenth of polling's CPU,
/// watching alone at most half, each with a median wake lag below 50 µs. One retry: the machine may
/// be busy.
pub(crate) fn check() -> Outcome {
    match measure() {
        Ok(()) => Outcome::Passed,
        Err(first) => {
            println!("once more, for the first run said: {first}");
            measure().into()
        }
    }
}

fn measure() -> Result<(), String> {
    let mut args = vec!["run", "--quiet", "--release", "--", "run", "--device", "sim", "--json"];
    args.extend(["--queues", "1", "--steps", "1000", "--step-us", "1000"]);
    for plan in [POLL, FLAG, PREDICT] {
        args.extend(["--plan", plan]);
    }
    args.extend(["--report", "target/numbers.html"]);
    let text = output(&mut cargo(&args))?;
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|e| format!("reading `{line}`: {e}")))
        .collect::<Result<_, _>>()?;
    let value = |plan: &str, metric: &str| {
        rows.iter()
            .find(|row| row["case"] == plan && row["metric"] == metric)
            .and_then(|row| row["value"].as_f64())
            .ok_or_else(|| format!("no row for {plan}, {metric}"))
    };
    let mut failures = Vec::new();
    let poll_cpu = value(POLL, "cpu_per_wait_ns")?;
    for (plan, share) in [(FLAG, 0.5), (PREDICT, 0.1)] {
        let (cpu, lag) = (value(plan, "cpu_per_wait_ns")?, value(plan, "lag_p50_ns")?);
        println!("{plan}: {:.3} of polling's CPU, median lag {:.1} µs", cpu / poll_cpu, lag / 1e3);
        if cpu > share * poll_cpu || lag >= 50_000.0 {
            failures.push(format!("{plan} is beyond {share} of polling's CPU or 50 µs of lag"));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}
