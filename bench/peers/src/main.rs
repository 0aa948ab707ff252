//! gpu-async-reactor beside its peers: `peers SUITE [--rounds N] [--scale N] [--case PART] [--subject PART]` prints one JSON object a
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
    let mut suite = String::new();
    let mut bench = Bench { rounds: 9, scale: 1, case: None, subject: None };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => bench.rounds = number(args.next(), bench.rounds as u64) as usize,
            "--scale" => bench.scale = number(args.next(), bench.scale),
            "--case" => bench.case = args.next(),
            "--subject" => bench.subject = args.next(),
            _ => suite = arg,
        }
    }
    match suite.as_str() {
        "executor" => executor::run(&bench),
        "reactor" => reactor::run(&bench),
        "timers" => timers::run(&bench),
        "wake" => wake::run(&bench),
        "register" => wake::register(&bench),
        "scale" => reactor::scale(&bench),
        _ => {
            eprintln!(
                "usage: peers executor|reactor|timers|register|wake|scale [--rounds N] [--scale N] [--case PART] [--subject PART]"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn number(text: Option<String>, otherwise: u64) -> u64 {
    text.and_then(|text| text.parse().ok()).filter(|&n| n > 0).unwrap_or(otherwise)
}
