//! One entry for every check: `cargo xtask ci` runs them all, `cargo xtask NAME…` some of them.

mod bench;
mod checks;
mod gates;
mod headers;
mod numbers;
mod peer_tests;
mod run;
mod vendor;

use run::Outcome;
use std::process::ExitCode;
use std::time::Instant;

/// A check: its name, what it proves, and how.
type Check = (&'static str, &'static str, fn() -> Outcome);

const CHECKS: &[Check] = &[
    ("fmt", "the code is formatted", checks::fmt),
    ("clippy", "no lint fires, with every feature and every target", checks::clippy),
    ("features", "each feature builds alone", checks::features),
    ("docs", "the documentation builds without a warning", checks::docs),
    ("links", "what the documents link to is there", checks::links),
    ("no-std", "the core links and runs without a standard library", checks::no_std),
    ("loom", "the handshakes hold in every interleaving", checks::loom),
    ("word-waits", "hardware parks arm, look and wait, on x86-64 and aarch64", checks::word_waits),
    ("metal", "the Apple side of the Metal backend compiles", checks::metal),
    ("msrv", "the stated minimum version of Rust is enough", checks::msrv),
    ("deny", "licences and sources of dependencies are allowed", checks::deny),
    ("examples", "the examples run", checks::examples),
    ("main-job", "the main job runs and verifies every result", checks::main_job),
    ("hardware", "what proves a device runs, on the simulated driver", checks::hardware),
    ("vendors", "the vendors' own libraries get typed errors without a device", vendor::libraries),
    ("cuda-async", "NVIDIA's own tests of it pass on the simulated driver", peer_tests::cuda_async),
    ("asan", "random load touches no memory it should not", checks::asan),
    ("tsan", "random load has no data race", checks::tsan),
    ("gates", "no hot path runs more or fewer instructions than are on record", gates::check),
    ("peers", "the benchmarks build and run", bench::smoke),
    ("numbers", "the wait plans cost what the README says, as ratios", numbers::check),
];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some("bench" | "gates-update") = asked.first().map(String::as_str) {
        return command(&asked);
    }
    let all = asked.iter().any(|name| name == "ci");
    let unknown =
        asked.iter().find(|name| *name != "ci" && !CHECKS.iter().any(|(check, ..)| check == name));
    if asked.is_empty() || unknown.is_some() {
        eprintln!("usage: cargo xtask ci | NAME… | bench SUITE [--json] [--heavy] | gates-update");
        for (name, proves, _) in CHECKS {
            eprintln!("  {name:<10} {proves}");
        }
        return ExitCode::from(2);
    }
    if let Err(error) = std::env::set_current_dir(run::root()) {
        eprintln!("entering the project's folder: {error}");
        return ExitCode::FAILURE;
    }
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
    for (name, proves, check) in CHECKS {
        if !all && !asked.iter().any(|wanted| wanted == name) {
            continue;
        }
        println!("== {name}: {proves}");
        let start = Instant::now();
        let outcome = check();
        let seconds = start.elapsed().as_secs_f32();
        match outcome {
            Outcome::Passed => {
                passed += 1;
                println!("ok {name} ({seconds:.0} s)");
            }
            Outcome::Skipped(why) => {
                println!("SKIPPED {name}: {why}");
                skipped.push(*name);
            }
            Outcome::Failed(why) => {
                println!("FAILED {name}: {why}");
                failed.push(*name);
            }
        }
    }
    let list = |names: &[&str]| match names {
        [] => String::new(),
        _ => format!(" ({})", names.join(", ")),
    };
    println!("skipped checks: {}{}", skipped.len(), list(&skipped));
    println!("failed checks: {}{}", failed.len(), list(&failed));
    println!("checks: {passed} passed, {} failed, {} skipped", failed.len(), skipped.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is no check: measures, or writes the record that a check compares with.
fn command(asked: &[String]) -> ExitCode {
    if let Err(error) = std::env::set_current_dir(run::root()) {
        eprintln!("entering the project's folder: {error}");
        return ExitCode::FAILURE;
    }
    if asked[0] == "bench" {
        return bench::main(&asked[1..]);
    }
    match gates::update() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
