//! Work of CUDA's awaited by tasks of one tokio thread: this crate's completions beside NVIDIA's `cuda-async` and
//! three ways with cudarc. Wake lag is from the device's own time at the kernel's end to the first
//! instruction behind the wait; CPU time is the process's without a simulated device's threads.
//!
//! A round of a subject is a process of its own, and subjects take turns. On the first device that
//! `libcuda.so.1` has, else on the simulated driver, and the rows say which.

mod ours;
mod register;
mod round;
mod theirs;

use crate::measure::{Bench, row};
use driver_sim::install::{Vendor, install};
use gpu_async_reactor_hardware::api::{Answer, Api};
use round::{Measured, Subject};
use std::path::Path;
use std::process::Command;

/// A subject: its name, what it is told by its environment, and its rounds.
struct Entry {
    name: &'static str,
    told: &'static [(&'static str, &'static str)],
    round: fn(round::Plan) -> Answer<Measured>,
    register: fn(usize) -> Answer<Measured>,
}

const fn entry<S: Subject>(
    name: &'static str,
    told: &'static [(&'static str, &'static str)],
) -> Entry {
    Entry { name, told, round: round::run::<S>, register: register::run::<S> }
}

const SUBJECTS: &[Entry] = &[
    entry::<ours::Completion>("completion", &[]),
    entry::<theirs::CudaAsync>("cuda-async", &[]),
    entry::<theirs::CudaAsync>("cuda-async-block", &[("CUDA_ASYNC_HOST_SYNC", "block")]),
    entry::<theirs::Poll>("cudarc-poll", &[]),
    entry::<theirs::Synchronize>("cudarc-sync", &[]),
    entry::<theirs::Callback>("cudarc-callback", &[]),
];

/// Those that are asked how fast they register. `cuda-async` is spared the 20 µs for which it watches
/// before it registers.
const REGISTER: &[Entry] = &[
    entry::<ours::Completion>("completion", &[]),
    entry::<ours::Ticket>("ticket", &[]),
    entry::<theirs::CudaAsync>("cuda-async", &[("CUDA_ASYNC_SPIN_BUDGET_US", "0")]),
    entry::<theirs::Callback>("cudarc-callback", &[]),
];

const STEPS_US: [u64; 4] = [50, 1_000, 10_000, 45_000];
const WAITS: [usize; 4] = [1, 8, 64, 1_000];
const MOST_LANES: usize = 64;
/// What a round is about, in waits.
const MOST_WAITS: usize = 20_000;
const REGISTRATIONS: usize = 1_000;

pub fn run(bench: &Bench) -> Answer<()> {
    let folder = tempfile::tempdir()?;
    let machine = Machine::find(folder.path())?;
    for waits in WAITS {
        for us in STEPS_US {
            machine.case(bench, waits, us)?;
        }
    }
    machine.case(bench, 10_000, 1_000)?;
    machine.register(bench)
}

/// A round of a subject in this process: what the parent reads.
pub fn child(mut args: impl Iterator<Item = String>) -> Answer<()> {
    let mut word = || args.next().ok_or("a round lacks an argument");
    let (kind, name) = (word()?, word()?);
    let mut number = || -> Answer<usize> {
        let number = word()?;
        number.parse().map_err(|_| format!("`{number}` is no number").into())
    };
    let of = |list: &'static [Entry]| {
        list.iter().find(|entry| entry.name == name).ok_or_else(|| format!("no subject {name}"))
    };
    let measured = match kind.as_str() {
        "register" => (of(REGISTER)?.register)(number()?)?,
        _ => {
            let (waits, us, repeats) = (number()?, number()? as u64, number()?);
            let lanes = waits.min(MOST_LANES);
            (of(SUBJECTS)?.round)(round::Plan { waits, lanes, us, repeats })?
        }
    };
    for value in &measured.values {
        print!("{value} ");
    }
    println!();
    for lag in &measured.lags {
        print!("{lag} ");
    }
    println!();
    Ok(())
}

/// What the rounds run on.
struct Machine<'a> {
    device: String,
    /// Where a simulated driver is.
    simulated: Option<&'a Path>,
}

impl<'a> Machine<'a> {
    fn find(folder: &'a Path) -> Answer<Machine<'a>> {
        if let Ok(api) = Api::open(Path::new("libcuda.so.1"), false)
            && api.device_cpu_ns().is_none()
        {
            return Ok(Machine { device: api.name()?, simulated: None });
        }
        let library = install(folder, Vendor::Cuda, &[])?;
        // cudarc looks for this name first.
        std::os::unix::fs::symlink(library, folder.join("libcuda.so"))?;
        Ok(Machine { device: "driver-sim".into(), simulated: Some(folder) })
    }

    /// Runs a round in a process of its own.
    fn round(&self, entry: &Entry, kind: &str, numbers: &[u64]) -> Answer<Measured> {
        let mut command = Command::new("timeout");
        command.arg("120").arg(std::env::current_exe()?).args(["cuda-child", kind, entry.name]);
        command.args(numbers.iter().map(u64::to_string)).envs(entry.told.iter().copied());
        if let Some(folder) = self.simulated {
            command.env("LD_LIBRARY_PATH", folder);
        }
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {}: {said}", entry.name, output.status).into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines().map(|line| {
            line.split_whitespace().map(|word| word.parse().unwrap_or(f64::NAN)).collect()
        });
        let (values, lags) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        Ok(Measured { values, lags })
    }

    /// Runs subjects in turns: the rounds of each.
    fn rounds(
        &self,
        bench: &Bench,
        (case, entries): (&str, &'static [Entry]),
        (kind, numbers): (&str, &[u64]),
    ) -> Vec<(&'static str, Vec<Measured>)> {
        let wants = |entry: &&Entry| {
            bench.subject.as_ref().is_none_or(|part| entry.name.contains(part.as_str()))
        };
        let wanted: Vec<_> = entries.iter().filter(wants).collect();
        let mut rounds: Vec<_> = wanted.iter().map(|entry| (entry.name, Vec::new())).collect();
        for _ in 0..bench.rounds {
            for (entry, (_, rounds)) in wanted.iter().zip(&mut rounds) {
                match self.round(entry, kind, numbers) {
                    Ok(measured) => rounds.push(measured),
                    Err(what) => eprintln!("{case}: {what}"),
                }
            }
        }
        rounds.retain(|(_, rounds)| !rounds.is_empty());
        rounds
    }

    fn case(&self, bench: &Bench, waits: usize, us: u64) -> Answer<()> {
        let step = match us {
            1_000.. => format!("{} ms", us / 1_000),
            _ => format!("{us} us"),
        };
        let case = format!("{waits} x {step}");
        if !bench.wants(&case) {
            return Ok(());
        }
        // A second a round, or so.
        let deep = waits.div_ceil(MOST_LANES) as u64;
        let repeats = (1_000_000 / (us * deep)).min((MOST_WAITS / waits) as u64) / bench.scale;
        let repeats = repeats.max(if waits > MOST_WAITS / 4 { 1 } else { 2 });
        let numbers = [waits as u64, us, repeats];
        for (subject, rounds) in self.rounds(bench, (&case, SUBJECTS), ("round", &numbers)) {
            let count = rounds.iter().map(|round| round.lags.len() as u64).sum();
            let print = |metric: &str, of: &dyn Fn(&Measured) -> f64| {
                let mut values: Vec<f64> = rounds.iter().map(of).collect();
                let about = (self.device.as_str(), self.simulated.is_some());
                row(("cuda", &case, subject, metric), &mut values, count, about);
            };
            print("lag_p50_us", &|round| round.lag(0.5) / 1e3);
            print("lag_p99_us", &|round| round.lag(0.99) / 1e3);
            print("cpu_cores", &|round| round.values[0] / round.values[1]);
            print("cpu_per_wait_us", &|round| round.values[0] / round.lags.len() as f64 / 1e3);
        }
        Ok(())
    }

    fn register(&self, bench: &Bench) -> Answer<()> {
        const CASE: &str = "register";
        if !bench.wants(CASE) {
            return Ok(());
        }
        let numbers = [REGISTRATIONS as u64];
        for (subject, rounds) in self.rounds(bench, (CASE, REGISTER), ("register", &numbers)) {
            let count = (REGISTRATIONS * rounds.len()) as u64;
            for (index, metric) in ["register_ns", "complete_ns"].into_iter().enumerate() {
                let mut values: Vec<f64> = rounds.iter().map(|round| round.values[index]).collect();
                let about = (self.device.as_str(), self.simulated.is_some());
                row(("cuda", CASE, subject, metric), &mut values, count, about);
            }
        }
        Ok(())
    }
}
