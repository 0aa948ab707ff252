//! gpu-async-reactor beside its peers: `peers SUITE [--rounds N] [--scale N]` prints one JSON object a
//! line. Subjects of a case run in one process, in rounds that take turns.

mod executor;
mod measure;
mod reactor;
mod runtimes;
mod timers;
mod wake;

use measure::Bench;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut suite, mut rounds, mut scale) = (String::new(), 9, 1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse().ok());
        match arg.as_str() {
            "--rounds" => rounds = number().unwrap_or(rounds),
            "--scale" => scale = number().unwrap_or(scale),
            _ => suite = arg,
        }
    }
    let bench = Bench::new(rounds as usize, scale);
    match suite.as_str() {
        "executor" => executor::run(&bench),
        "reactor" => reactor::run(&bench),
        "timers" => timers::run(&bench),
        "wake" => wake::run(&bench),
        "register" => wake::register(&bench),
        "scale" => reactor::scale(&bench),
        _ => {
            eprintln!("usage: peers executor|reactor|timers|register|wake|scale [--rounds N] [--scale N]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
