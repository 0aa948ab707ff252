//! gpu-async-reactor beside its peers: `peers SUITE [--rounds N] [--scale N] [--case PART] [--subject PART]` prints one JSON object a
//! line. Subjects of a case run in one process, in rounds that take turns.

#[cfg(feature = "cuda")]
mod cuda;
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
    #[cfg(feature = "cuda")]
    if std::env::args().nth(1).is_some_and(|first| first == "cuda-child") {
        return ended(cuda::child(args.skip(1)));
    }
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
        #[cfg(feature = "cuda")]
        "cuda" => return ended(cuda::run(&bench)),
        "executor" => executor::run(&bench),
        "reactor" => reactor::run(&bench),
        "timers" => timers::run(&bench),
        "wake" => wake::run(&bench),
        "register" => wake::register(&bench),
        "scale" => reactor::scale(&bench),
        _ => {
            eprintln!(
                "usage: peers cuda|executor|reactor|timers|register|wake|scale [--rounds N] [--scale N] [--case PART] [--subject PART]"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

#[cfg(feature = "cuda")]
fn ended(done: gpu_async_reactor_hardware::api::Answer<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: Option<String>, otherwise: u64) -> u64 {
    text.and_then(|text| text.parse().ok()).filter(|&n| n > 0).unwrap_or(otherwise)
}
