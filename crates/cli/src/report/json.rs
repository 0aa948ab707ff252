//! The results as lines of JSON: one object for each number.

use super::Facts;
use crate::run::stats::PlanResult;
use serde_json::{Value, json};

/// Prints one plan's rows on stdout.
pub(crate) fn rows(result: &PlanResult, facts: &Facts) {
    let tally = &result.tally;
    let (case, waits) = (&result.plan, tally.waits);
    let row = |metric: &str, value: Value| {
        let device = &facts.device;
        print(&json!({
            "suite": "run", "case": case, "subject": "ours", "host": result.host.name(), "metric": metric, "value": value,
            "n": waits, "device": device.name, "simulated": device.simulated,
        }));
    };
    row("waits", waits.into());
    row("verified", tally.verified.into());
    row("wrong", tally.wrong.into());
    if let Some(lag) = result.lag {
        row("lag_p50_ns", lag.p50.into());
        row("lag_p99_ns", lag.p99.into());
        row("lag_max_ns", lag.max.into());
    }
    if let Some(cpu) = result.cpu_per_wait_ns() {
        row("cpu_per_wait_ns", cpu.into());
    }
    row("wall_ns", result.wall_ns.into());
    row("sleeps", tally.sleeps.into());
    row("parks", tally.parks.into());
    row("queries", tally.queries.into());
    if let Some(e) = &tally.error {
        row("error", e.code().number().into());
    }
}

/// Prints one object on a line of its own.
pub(crate) fn print(row: &Value) {
    crate::sys::outln!("{row}");
}
