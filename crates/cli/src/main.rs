//! The command `gpu-reactor`: awaits real device work by each plan, says what this machine offers, and
//! measures the library itself.
//!
//! Upholds invariants 3 (no wait is without a deadline), 8 (loss and hang end with a code of their
//! own) and 14 (whatever it prints says whether the device is simulated).

mod args;
mod bench;
mod doctor;
mod exit;
mod replay;
mod report;
mod run;
mod sys;
mod tune;
mod workload;

use args::{Args, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => return exit::of_clap(&e),
    };
    let done = match args.command {
        None => run::run(&args.run),
        Some(Command::Run(run)) => run::run(&run),
        Some(Command::Doctor(doctor)) => doctor::doctor(&doctor),
        Some(Command::Bench(bench)) => bench::bench(&bench),
        Some(Command::Replay(replay)) => replay::replay(&replay),
        Some(Command::Tune(tune)) => tune::tune(&tune),
        Some(Command::AskCuda) => run::devices::ask::answer(),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}
