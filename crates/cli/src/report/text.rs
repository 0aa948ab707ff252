//! The results on a terminal: lines, a table, a histogram.

use super::{Facts, known, span};
use crate::exit::Exit;
use crate::run::stats::PlanResult;

/// Where a line goes.
type Say<'a> = &'a dyn Fn(&str);

pub(crate) fn opening(facts: &Facts, passed: &[String], say: Say<'_>) {
    for line in passed {
        say(&format!("not used: {line}"));
    }
    say(&format!("device:   {}", facts.device.name));
    say(&format!("machine:  {}", facts.machine));
    say(&format!("work:     {}", facts.work));
    if facts.device.simulated {
        say("SIMULATED: these numbers say how the host waits, and nothing about a GPU");
    }
    if let Some(note) = &facts.device.note {
        say(&format!("note:     {note}"));
    }
    if let Some(why) = &facts.device.no_store_times {
        say(&format!("wake lag: unknown, {why}"));
    }
}

/// One line when a plan is over.
pub(crate) fn plan_line(result: &PlanResult) -> String {
    let tally = &result.tally;
    let end = match &tally.error {
        Some(e) => format!("; ended by: {e}"),
        None => String::new(),
    };
    format!(
        "{}, {}: {} of {} waits, {} results right, {} wrong, {}{end}",
        result.host.name(),
        result.plan,
        tally.waits,
        result.asked,
        tally.verified,
        tally.wrong,
        span(result.wall_ns as f64)
    )
}

pub(crate) fn closing(results: &[PlanResult], facts: &Facts, say: Say<'_>) {
    say("");
    table(results, say);
    histogram(results, say);
    let simulated = if facts.device.simulated { "simulated" } else { "not simulated" };
    say("");
    say(&format!("{} ({simulated}), {}, {}", facts.device.name, facts.machine, facts.date));
}

pub(crate) const COLUMNS: [&str; 12] = [
    "plan", "threads", "waits", "verified", "lag p50", "lag p99", "lag max", "CPU/wait", "wall",
    "sleeps", "parks", "queries",
];

/// A plan's row, in the order of [`COLUMNS`].
pub(crate) fn cells(result: &PlanResult) -> [String; 12] {
    let tally = &result.tally;
    let lag = |pick: fn(&crate::run::stats::Lag) -> u64| {
        known(result.lag.as_ref().map(|lag| pick(lag) as f64))
    };
    [
        result.name.clone(),
        result.threads.to_string(),
        tally.waits.to_string(),
        tally.verified.to_string(),
        lag(|lag| lag.p50),
        lag(|lag| lag.p99),
        lag(|lag| lag.max),
        known(result.cpu_per_wait_ns()),
        span(result.wall_ns as f64),
        tally.sleeps.to_string(),
        tally.parks.to_string(),
        tally.queries.to_string(),
    ]
}

fn table(results: &[PlanResult], say: Say<'_>) {
    let rows: Vec<_> = results.iter().map(cells).collect();
    let head = COLUMNS.map(str::to_owned);
    aligned(std::iter::once(&head).chain(&rows), say);
}

/// Rows with their columns aligned: the first to the left, numbers to the right.
pub(crate) fn aligned<'a, const N: usize>(
    rows: impl Iterator<Item = &'a [String; N]> + Clone,
    say: Say<'_>,
) {
    let mut widths = [0; N];
    for row in rows.clone() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            match i {
                0 => line.push_str(&format!("{cell:<width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        say(line.trim_end());
    }
}

/// The upper edges of the histogram's bins, in nanoseconds; the last has none.
const EDGES: [u64; 9] =
    [2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

fn histogram(results: &[PlanResult], say: Say<'_>) {
    if results.iter().all(|result| result.tally.lags_ns.is_empty()) {
        return;
    }
    say("");
    say("wake lag, share of each plan's waits:");
    let mut rows = vec![std::array::from_fn(|i| match i {
        0 => String::new(),
        10 => "more".to_owned(),
        i => format!("<{}", span(EDGES[i - 1] as f64).replace(".00", "").replace(".0", "")),
    })];
    for result in results {
        let bins = bins(&result.tally.lags_ns);
        let total = result.tally.lags_ns.len().max(1);
        rows.push(std::array::from_fn::<String, 11, _>(|i| match i {
            0 => result.name.clone(),
            i => bar(bins[i - 1] as f64 / total as f64),
        }));
    }
    aligned(rows.iter(), say);
}

/// A share as a percentage with a bar of up to four eighth-filled blocks.
fn bar(share: f64) -> String {
    const EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    if share == 0.0 {
        return "·".to_owned();
    }
    let filled = (share * 32.0).round() as usize;
    let blocks = "█".repeat(filled / 8);
    let rest = EIGHTHS[filled % 8].to_string();
    format!("{blocks}{} {:.0}%", rest.trim(), share * 100.0)
}

fn bins(lags: &[u64]) -> [usize; 10] {
    let mut bins = [0; 10];
    for lag in lags {
        bins[EDGES.iter().position(|edge| lag < edge).unwrap_or(9)] += 1;
    }
    bins
}

/// The last word, on stderr where it is no success.
pub(crate) fn verdict(results: &[PlanResult], plans: usize, exit: Exit) {
    let waits: u64 = results.iter().map(|result| result.tally.waits).sum();
    let error = results.iter().find_map(|result| result.tally.error.as_ref());
    let wrong: u64 = results.iter().map(|result| result.tally.wrong).sum();
    let so_far = format!("{} of {plans} plans, {waits} waits done", results.len());
    match (exit, error) {
        (Exit::Done, _) => {}
        (Exit::Interrupted, _) => eprintln!("gpu-reactor: interrupted ({so_far})"),
        (_, Some(e)) => eprintln!("gpu-reactor: {e} ({so_far})"),
        (_, None) => eprintln!("gpu-reactor: {wrong} wrong results ({so_far})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lag_falls_into_one_bin() {
        let bins = bins(&[0, 1_999, 2_000, 999_999, 1_000_000, u64::MAX]);
        assert_eq!(bins, [2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn bars_say_the_share() {
        assert_eq!([bar(0.0), bar(1.0), bar(0.25)], ["·", "████ 100%", "█ 25%"]);
    }
}
