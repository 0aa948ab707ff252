//! Gates: the instructions of each hot path, counted by valgrind's callgrind, beside what is on record.

use crate::run::{Outcome, cargo, is_there, must, output};
use std::fmt::Write;
use std::process::Command;

const RECORD: &str = "bench/gates.txt";
const PROGRAM: &str = "target/release/examples/hot_paths";
/// How far a count may lie from the record, as a share of it.
const TOLERANCE: f64 = 0.02;
/// The lengths of the two runs whose difference is counted.
const RUNS: [u64; 2] = [20_000, 120_000];

/// Each count lies within the tolerance of its record. Fewer instructions fail, too: the record is
/// brought up to date on purpose, by `cargo xtask gates-update`, with the reason in the commit.
pub(crate) fn check() -> Outcome {
    if !is_there("valgrind", &["--version"]) {
        return Outcome::Skipped("valgrind is not installed".into());
    }
    let record = match std::fs::read_to_string(RECORD) {
        Ok(record) => record,
        Err(error) => return Outcome::Failed(format!("reading {RECORD}: {error}")),
    };
    let compiler = match compiler() {
        Ok(compiler) => compiler,
        Err(error) => return Outcome::Failed(error),
    };
    let recorded = record.lines().find_map(|line| line.strip_prefix("# counted with "));
    if recorded != Some(&compiler) {
        let other = recorded.unwrap_or("an unknown compiler");
        return Outcome::Skipped(format!("the record is of {other}, this is {compiler}"));
    }
    measure().and_then(|counts| compare(&record, &counts)).into()
}

/// Writes the record anew.
pub(crate) fn update() -> Result<(), String> {
    let mut text = format!(
        "# Instructions of one turn of each hot path (crates/core/examples/hot_paths.rs); checked by\n\
         # `cargo xtask gates`, written by `cargo xtask gates-update`.\n# counted with {}\n",
        compiler()?
    );
    for (name, count) in measure()? {
        let _ = writeln!(text, "{name} {count:.2}");
    }
    std::fs::write(RECORD, text).map_err(|error| format!("writing {RECORD}: {error}"))
}

fn compiler() -> Result<String, String> {
    Ok(output(Command::new("rustc").arg("--version"))?.trim().to_owned())
}

fn compare(record: &str, counts: &[(String, f64)]) -> Result<(), String> {
    let mut beyond = Vec::new();
    let recorded = |wanted: &str| {
        let mut fields = record.lines().filter_map(|line| line.split_once(' '));
        fields.find(|(name, _)| *name == wanted).and_then(|(_, count)| count.parse::<f64>().ok())
    };
    for (name, count) in counts {
        match recorded(name) {
            None => beyond.push(format!("{name} is not on record")),
            Some(before) => {
                println!("{name:<22} {count:>9.2} instructions, {before:.2} on record");
                if (count - before).abs() > TOLERANCE * before {
                    beyond.push(format!("{name} went from {before:.2} to {count:.2}"));
                }
            }
        }
    }
    if beyond.is_empty() { Ok(()) } else { Err(beyond.join("; ")) }
}

fn measure() -> Result<Vec<(String, f64)>, String> {
    let args = ["build", "--quiet", "--release", "--example", "hot_paths", "--features", "std"];
    must(cargo(&args).args(["-p", "gpu-async-reactor-core"]))?;
    output(&mut Command::new(PROGRAM))?
        .lines()
        .map(|name| {
            let [short, long] = RUNS.map(|times| count(name, times));
            let turns = (RUNS[1] - RUNS[0]) as f64;
            Ok((name.to_owned(), (long? - short?) as f64 / turns))
        })
        .collect()
}

fn count(name: &str, times: u64) -> Result<u64, String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", PROGRAM, name]);
    let output = command.arg(times.to_string()).output();
    let output = output.map_err(|error| format!("{command:?} did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split("Collected : ").nth(1));
    collected
        .filter(|_| output.status.success())
        .and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| format!("{command:?} ended with {}\n{text}", output.status))
}
