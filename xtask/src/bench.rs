//! `cargo xtask bench SUITE [--json] [--heavy] …`: builds the peers' own workspace and runs a suite of it.
//! With `--heavy` the runtimes that take long to build take part, too. Suite `cuda` builds its peers with CUDA's
//! headers. Anything else is passed on.

use crate::headers;
use crate::run::{cargo, must, output};
use serde_json::Value;
use std::process::{Command, ExitCode};

pub(crate) const MANIFEST: &str = "bench/peers/Cargo.toml";
const PROGRAM: &str = "bench/peers/target/release/peers";

pub(crate) fn main(args: &[String]) -> ExitCode {
    let (json, heavy) = (has(args, "--json"), has(args, "--heavy"));
    let passed_on = args.iter().filter(|arg| !["--json", "--heavy"].contains(&arg.as_str()));
    let bench = || -> Result<(), String> {
        // cargo speaks on stderr; stdout is for the rows. Not `--locked`: a new dependency of the
        // crate under test would fail here, where nobody looks for it.
        let mut build = cargo(&["build", "--quiet", "--release", "--manifest-path", MANIFEST]);
        build.args(heavy.then_some(["--features", "heavy"]).into_iter().flatten());
        if has(args, "cuda") {
            build.args(["--features", "cuda"]).env("CUDA_HOME", headers::cuda()?);
        }
        must(&mut build)?;
        let mut command = Command::new(PROGRAM);
        command.args(passed_on);
        if json {
            return must(&mut command);
        }
        output(&mut command)?.lines().try_for_each(row)
    };
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn has(args: &[String], flag: &str) -> bool {
    args.iter().any(|arg| arg == flag)
}

fn row(line: &str) -> Result<(), String> {
    let row: Value = serde_json::from_str(line).map_err(|e| format!("reading `{line}`: {e}"))?;
    let text = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    println!(
        "{:<28} {:<18} {:>14.2} {:<12} ±{:.1} %{}",
        text("case"),
        text("subject"),
        number("value"),
        text("metric"),
        number("noise") * 100.0,
        if row["simulated"] == true { "  simulated" } else { "" },
    );
    Ok(())
}

/// The peers build and a suite runs, each subject of it: the rows are not looked at, for the machine
/// may be busy.
pub(crate) fn smoke() -> crate::run::Outcome {
    let check = || -> Result<(), String> {
        let mut build = cargo(&["build", "--quiet", "--release", "--manifest-path", MANIFEST]);
        let mut suites =
            vec![vec!["executor"], vec!["reactor"], vec!["timers"], vec!["register"], vec!["wake"]];
        match headers::cuda() {
            Ok(home) => {
                build.args(["--features", "cuda"]).env("CUDA_HOME", home);
                suites.push(vec!["cuda", "--case", "8 x 1 ms"]);
            }
            Err(why) => println!("SKIPPED suite cuda: {why}"),
        }
        must(&mut build)?;
        for args in suites {
            let suite = args[0];
            let rows =
                output(Command::new(PROGRAM).args(args).args(["--rounds", "1", "--scale", "100"]))?;
            let count = rows.lines().count();
            if count == 0 || rows.lines().any(|line| serde_json::from_str::<Value>(line).is_err()) {
                return Err(format!("suite {suite} printed {count} rows, or a line that is none"));
            }
            println!("suite {suite}: {count} rows");
        }
        Ok(())
    };
    check().into()
}
