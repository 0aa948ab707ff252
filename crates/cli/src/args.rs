//! The command line.

use clap::{Parser, Subcommand, ValueEnum};
use gpu_async_reactor::{Costs, StepBands, StepPlan};
use std::path::PathBuf;
use std::str::FromStr;

const EXIT_CODES: &str = "\
Exit codes:
  0    done, and every result right
  1    a wrong result, a missing completion, or a self-test that failed
  2    bad input: a device, plan, file or path that can't be used
  3    the device was lost; what completed before is reported
  130  Ctrl-C; what was measured before is reported (a second Ctrl-C ends at once)";

/// Awaits device work by each wait plan, and says what each one cost.
#[derive(Debug, Parser)]
#[command(name = "gpu-reactor", version, after_help = EXIT_CODES)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Awaits the same device work by each plan (the default)
    #[command(after_help = EXIT_CODES)]
    Run(RunArgs),
    /// Says what this machine offers, and tests each device found
    #[command(after_help = EXIT_CODES)]
    Doctor(DoctorArgs),
    /// Measures the executor, the reactor and its timers
    Bench(BenchArgs),
    /// Waits recorded waits again, in virtual time, under other plans
    #[command(after_help = EXIT_CODES)]
    Replay(ReplayArgs),
    /// Finds the wait plan for this machine and a workload, and tries it
    #[command(after_help = EXIT_CODES)]
    Tune(TuneArgs),
    /// Asks CUDA's driver for its devices as an ordinary user; the command starts itself so
    #[command(hide = true)]
    AskCuda,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// The device to record on and to try the plan on; the best one if not given
    #[arg(long, value_name = "KIND[:INDEX]")]
    pub(crate) device: Option<DeviceChoice>,
    /// The simulated CUDA driver inside, or with --device hip the HIP one: no GPU, and every report says so.
    /// The variable GPU_DRIVER_SIM scripts it
    #[arg(long)]
    pub(crate) driver_sim: bool,
    /// A recording, as `run --record` writes it, in place of recording the trace's steps now
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// What a microsecond of wake lag and one of CPU cost
    #[arg(long, value_name = "lag=N,cpu=N", default_value = "lag=5,cpu=1", value_parser = costs)]
    pub(crate) cost: Costs,
    /// Queues that work at the same time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) queues: u16,
    /// Steps of each queue
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=4_000))]
    pub(crate) steps: u32,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Draws lag against CPU of every plan looked at, as an SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// A recording, as `run --record` writes it
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A wait plan; give it again for more. The default is one of each estimator
    #[arg(long = "plan", value_name = "TEXT")]
    pub(crate) plans: Vec<StepBands>,
    /// What a microsecond of wake lag and one of CPU cost
    #[arg(long, value_name = "lag=N,cpu=N", default_value = "lag=5,cpu=1", value_parser = costs)]
    pub(crate) cost: Costs,
    /// How late sleeps end: as measured on this machine now, or as the model says that is the same everywhere
    #[arg(long, value_name = "HOST", default_value = "model", value_parser = ["model", "measured"])]
    pub(crate) host: String,
    /// Where the generator of the host's lateness starts
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Draws lag against CPU, as an SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// Reads costs by the rules of a plan's text.
fn costs(text: &str) -> Result<Costs, String> {
    let plan: StepPlan = format!("poll+hazard:{text}").parse().map_err(|e| format!("{e}"))?;
    match plan.estimator {
        Some(gpu_async_reactor::EstimatorKind::Hazard(costs)) => Ok(costs),
        _ => Err(format!("`{text}` is not `lag=N,cpu=N`")),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The device: sim, vulkan, cuda, hip or metal, and which one of them; the best one if not given
    #[arg(long, value_name = "KIND[:INDEX]")]
    pub(crate) device: Option<DeviceChoice>,
    /// The simulated CUDA driver inside, or with --device hip the HIP one: no GPU, and every report says so.
    /// The variable GPU_DRIVER_SIM scripts it
    #[arg(long)]
    pub(crate) driver_sim: bool,
    /// A wait plan, or a banded one; give it again for more. The default is one of each kind
    #[arg(long = "plan", value_name = "TEXT")]
    pub(crate) plans: Vec<StepBands>,
    /// What carries the waits; several, to compare them
    #[arg(
        long = "host",
        value_enum,
        value_name = "HOST",
        value_delimiter = ',',
        default_value = "std"
    )]
    pub(crate) hosts: Vec<Host>,
    /// Queues that work at the same time
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) queues: u16,
    /// Steps of each queue, under each plan
    #[arg(long, default_value_t = 250, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) steps: u32,
    /// Steps of this fixed length, in microseconds, in place of the trace's
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) step_us: Option<u64>,
    /// A trace to follow (TIMESTAMP,ContextTokens,GeneratedTokens), in place of the excerpt inside
    #[arg(long, value_name = "FILE", conflicts_with = "step_us")]
    pub(crate) trace: Option<PathBuf>,
    /// Where the report goes
    #[arg(long, default_value = "gpu-reactor-report.html", value_name = "FILE")]
    pub(crate) report: PathBuf,
    /// Results alone on stdout, one JSON object a line; everything else on stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// A wait longer than this is a missing completion; by default 5 s, or four times what all queues'
    /// longest steps take one after another if that is more
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub(crate) deadline_ms: Option<u64>,
    /// Writes the waits of the first plan to a file, for `replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// A fault of the simulated device, at each queue's number N: lose@N, hang@N, refuse@N,
    /// lost-store@N or wrong@N; with --driver-sim lose@N, hang@N or lost-store@N
    #[arg(long, value_name = "FAULT@N")]
    pub(crate) sim_fault: Option<SimFault>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Tests the simulated CUDA and HIP drivers inside in the place of the system's; no GPU, and it says so
    #[arg(long)]
    pub(crate) driver_sim: bool,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// The suites to run: executor, reactor, timers; all if none is given
    #[arg(value_name = "SUITE", value_parser = ["executor", "reactor", "timers"])]
    pub(crate) suites: Vec<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What carries the waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Host {
    /// One thread that naps or sleeps
    Std,
    /// One thread that waits in a ring of the kernel's (Linux)
    Uring,
    /// One thread inside a compio runtime (Linux)
    Compio,
    /// A tokio runtime's tasks, woken by the watcher, which finds its own plan
    Tokio,
}

impl Host {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Host::Std => "std",
            Host::Uring => "uring",
            Host::Compio => "compio",
            Host::Tokio => "tokio",
        }
    }
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cuda,
    Hip,
    Metal,
    Vulkan,
    Sim,
}

impl Kind {
    /// Every kind, the one to prefer first.
    pub(crate) const ALL: [Kind; 5] = [Kind::Cuda, Kind::Hip, Kind::Metal, Kind::Vulkan, Kind::Sim];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Cuda => "cuda",
            Kind::Hip => "hip",
            Kind::Metal => "metal",
            Kind::Vulkan => "vulkan",
            Kind::Sim => "sim",
        }
    }
}

/// The device that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceChoice {
    pub(crate) kind: Kind,
    pub(crate) index: Option<usize>,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            format!("unknown device `{name}`; the devices are sim, vulkan, cuda, hip and metal")
        })?;
        let index = index.map(|index| {
            index.parse().map_err(|_| format!("the index `{index}` of {name} is no whole number"))
        });
        Ok(DeviceChoice { kind, index: index.transpose()? })
    }
}

/// A fault that the simulated device is to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimFault {
    pub(crate) kind: FaultKind,
    pub(crate) number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Lose,
    Hang,
    Refuse,
    LostStore,
    Wrong,
}

impl FromStr for SimFault {
    type Err = String;

    fn from_str(text: &str) -> Result<SimFault, String> {
        let (name, number) = text.split_once('@').unwrap_or((text, ""));
        let kind = match name {
            "lose" => FaultKind::Lose,
            "hang" => FaultKind::Hang,
            "refuse" => FaultKind::Refuse,
            "lost-store" => FaultKind::LostStore,
            "wrong" => FaultKind::Wrong,
            _ => return Err(format!("unknown fault `{name}`")),
        };
        match number.parse() {
            Ok(number) if number > 0 => Ok(SimFault { kind, number }),
            _ => Err(format!("`{number}` is no number of a step, counted from 1")),
        }
    }
}
