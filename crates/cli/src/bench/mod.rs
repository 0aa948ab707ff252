//! `gpu-reactor bench`: what the executor, the reactor and its timers cost, without peers.

mod suites;

use crate::args::BenchArgs;
use crate::exit::{Exit, Failure};
use crate::report::{json, text};
use crate::sys;
use serde_json::json;
use std::time::{Duration, Instant};

/// Rounds of a case; the value is their median.
const ROUNDS: usize = 7;
/// A round goes on for at least this, so that the clock's own cost doesn't show.
const ROUND: Duration = Duration::from_millis(20);

/// One measured case.
pub(crate) struct Row {
    suite: &'static str,
    case: String,
    /// Nanoseconds for one operation: the median of the rounds.
    ns: f64,
    /// Operations in all rounds.
    n: u64,
}

/// Measures `run`, which does `ops` operations a call and says how long they took.
pub(crate) fn case(
    suite: &'static str,
    case: impl Into<String>,
    ops: u64,
    mut run: impl FnMut() -> gpu_async_reactor::Result<Duration>,
) -> Result<Row, Failure> {
    run()?; // warm-up
    let mut rounds = Vec::with_capacity(ROUNDS);
    let mut n = 0;
    for _ in 0..ROUNDS {
        let (begin, mut spent, mut done) = (Instant::now(), Duration::ZERO, 0);
        while begin.elapsed() < ROUND {
            spent += run()?;
            done += ops;
        }
        rounds.push(spent.as_nanos() as f64 / done as f64);
        n += done;
    }
    rounds.sort_by(f64::total_cmp);
    Ok(Row { suite, case: case.into(), ns: rounds[ROUNDS / 2], n })
}

/// Runs the suites asked for, or all of them.
pub(crate) fn bench(args: &BenchArgs) -> Result<Exit, Failure> {
    if cfg!(debug_assertions) {
        eprintln!("note: this build is not optimised; its numbers say little");
    }
    let wanted = |suite: &str| args.suites.is_empty() || args.suites.iter().any(|s| s == suite);
    let mut rows = Vec::new();
    if wanted("executor") {
        rows.extend(suites::executor()?);
    }
    if wanted("reactor") {
        rows.extend(suites::reactor()?);
    }
    if wanted("timers") {
        rows.extend(suites::timers()?);
    }
    if args.json {
        for row in rows {
            json::print(&json!({
                "suite": row.suite, "case": row.case, "subject": "ours", "metric": "ns",
                "value": row.ns, "n": row.n, "device": "cpu", "simulated": false,
            }));
        }
        return Ok(Exit::Done);
    }
    let head = ["case", "suite", "ns", "n"].map(str::to_owned);
    let rows: Vec<_> = rows
        .into_iter()
        .map(|row| [row.case, row.suite.to_owned(), format!("{:.1}", row.ns), row.n.to_string()])
        .collect();
    text::aligned(std::iter::once(&head).chain(&rows), &|line| crate::sys::outln!("{line}"));
    crate::sys::outln!("\nmedian of {ROUNDS} rounds; {}, {}", sys::Machine::here(), sys::date());
    Ok(Exit::Done)
}
