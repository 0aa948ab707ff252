//! Proves and measures the CUDA backend on a device: what must hold, then wake lag and CPU per wait beside the
//! driver's own ways to wait. `tests/hardware/run` starts it.
//!
//! Every check and every way is a process of its own, started from here, so that one that hangs is ended and
//! one that loses its context takes nothing with it.

mod checks;
mod measure;
mod report;

use checks::Check;
use clap::{Parser, Subcommand, ValueEnum};
use gpu_async_reactor_hardware::api::{Answer, Api};
use gpu_async_reactor_hardware::{api, clock};
use measure::Way;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Proves and measures the CUDA backend on a device.
#[derive(Parser)]
#[command(name = "gpu-hardware")]
struct Args {
    /// The driver's library.
    #[arg(long, default_value = "libcuda.so.1", global = true)]
    driver: PathBuf,
    /// A simulated driver in its place, labelled as such.
    #[arg(long, conflicts_with = "driver")]
    driver_sim: bool,
    /// How a simulated driver behaves.
    #[arg(long, default_value = "devices=2", requires = "driver_sim")]
    script: String,
    /// Fewer rounds, fewer streams, a look at visibility of two seconds.
    #[arg(long)]
    quick: bool,
    /// How long data and words are compared, in seconds: half for mapped memory, half for copied.
    #[arg(long)]
    visibility_s: Option<u64>,
    /// Only the checks.
    #[arg(long)]
    checks_only: bool,
    /// A file for the lines of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// One check, in this process.
    Check { check: Check, seconds: u64 },
    /// One way to wait, in this process.
    Measure {
        way: Way,
        #[arg(long)]
        quick: bool,
    },
}

/// The longest that a part takes besides what it was asked to look for.
const PATIENCE: Duration = Duration::from_secs(150);

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.part {
        Some(Part::Check { check, seconds }) => {
            check.run(&args.driver, *seconds).map(|seen| println!("{seen}"))
        }
        Some(Part::Measure { way, quick }) => measure::measure(&args.driver, *way, *quick),
        None => return all(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn all(args: &Args) -> ExitCode {
    match everything(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every check and every way: whether nothing was violated.
fn everything(args: &Args) -> Answer<bool> {
    let folder = tempfile::tempdir()?;
    let driver = match args.driver_sim {
        true => {
            use driver_sim::install::{Vendor, install};
            install(folder.path(), Vendor::Cuda, &[])?
        }
        false => args.driver.clone(),
    };
    let script = args.driver_sim.then_some(&*args.script);
    // Asked here, and nothing else is: a fault in a part's context is not this one's.
    let about = Api::open(&driver, false)?;
    let kind = if args.driver_sim { "simulated driver, no GPU" } else { "device" };
    println!("{} ({kind}), driver {}\n", about.name()?, about.version()?);

    let mut report = report::Report::new(args.json.as_deref(), &about.name()?, args.driver_sim)?;
    let visibility = args.visibility_s.unwrap_or(if args.quick { 2 } else { 120 }).div_ceil(2);
    for &check in Check::value_variants() {
        let seconds = visibility.to_string();
        let (right, said) = part(&driver, script, &["check", &check.name(), &seconds], visibility)?;
        report.check(&check.name(), right, said.trim())?;
    }
    println!();
    for &way in Way::value_variants().iter().filter(|_| !args.checks_only) {
        let name = way.name();
        let mut part_args = vec!["measure", &name];
        part_args.extend(args.quick.then_some("--quick"));
        let (right, said) = part(&driver, script, &part_args, 0)?;
        report.way(&name, right, &said)?;
    }
    report.end()
}

/// Runs a part of this program in a process of its own: whether it went well, and what it said.
fn part(
    driver: &Path,
    script: Option<&str>,
    args: &[&str],
    seconds: u64,
) -> Answer<(bool, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--driver").arg(driver).args(args);
    if let Some(script) = script {
        command.env("GPU_DRIVER_SIM", script);
    }
    let mut said = tempfile::tempfile()?;
    let output = Stdio::from(said.try_clone()?);
    let mut child = command.stdin(Stdio::null()).stdout(output).spawn()?;
    let until = Instant::now() + PATIENCE + Duration::from_secs(seconds);
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > until => {
                child.kill()?;
                child.wait()?;
                return Ok((
                    false,
                    format!("hung: ended after {} s", PATIENCE.as_secs() + seconds),
                ));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    use std::io::{Read, Seek, SeekFrom};
    let mut text = String::new();
    said.seek(SeekFrom::Start(0))?;
    said.read_to_string(&mut text)?;
    match status.code() {
        Some(code) => Ok((code == 0, text)),
        None => Ok((false, format!("{text}ended by {status}"))),
    }
}
