//! One way to wait, over kernels of several lengths on several streams: wake lag and CPU per wait.
//!
//! Wake lag is from the device's own time at the kernel's end to the first instruction behind the wait. A way
//! has a process of its own, so that all its CPU time is its own, the driver's threads included.

mod ours;
mod theirs;

use crate::api::{Answer, Api, Mapped, Stream};
use crate::clock::{DeviceClock, Offset};
use clap::ValueEnum;
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::{Clock, DurNs, MonoNs};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::Ordering;

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// A thread that asks `cuStreamQuery` without a pause.
    Spin,
    /// A thread for each stream in `cuStreamSynchronize`, scheduled as the driver likes.
    Synchronize,
    /// The same in a context whose calls block.
    BlockingSync,
    /// A thread for each stream in `cuEventSynchronize`, the event with blocking sync.
    EventSync,
    /// `cuLaunchHostFunc` into a channel.
    HostCallback,
    /// The plan `block`.
    PlanBlock,
    /// The plan `poll`, on a reactor.
    PlanPoll,
    /// The plan `flag`, on a reactor.
    PlanFlag,
    /// The plan `flag` with the estimator `hazard`, on a reactor.
    PlanHazard,
    /// The watcher's completions, awaited by tokio tasks.
    Completion,
}

impl Way {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// How long a kernel is, and how many of them a stream runs one after another.
#[derive(Clone, Copy)]
pub(crate) struct Length {
    pub(crate) ns: u64,
    pub(crate) rounds: usize,
}

fn lengths(quick: bool) -> [Length; 5] {
    let share = if quick { 5 } else { 1 };
    let of = |us: u64, rounds: usize| Length { ns: us * 1_000, rounds: rounds / share };
    [of(10, 300), of(100, 300), of(1_000, 150), of(10_000, 40), of(45_000, 20)]
}

fn streams(quick: bool) -> &'static [usize] {
    if quick { &[1, 8] } else { &[1, 8, 64] }
}

/// The numbers that an answer was right on. Its kernel computes so much.
const WORDS: u32 = 8;

/// Where the kernels of one stream leave their results and their time.
#[derive(Clone, Copy)]
struct Place {
    /// Results first, the stamp in a line of its own.
    memory: Mapped,
}

impl Place {
    fn new(api: &Api) -> Answer<Place> {
        Ok(Place { memory: api.mapped(64)? })
    }

    fn submit(&self, api: &Api, stream: Stream, ns: u64) -> Answer<()> {
        let memory = &self.memory;
        api.step(stream.0, memory.device, WORDS, 1, ns, memory.device + 8 * 32)
    }

    /// When the last kernel ended, in the device's time.
    fn stamp(&self) -> u64 {
        self.memory.words[32].load(Ordering::Acquire)
    }
}

/// Of one wait: when its kernel ended by the device's clock, and when who waited went on.
type Sample = (u64, MonoNs);

/// Runs a way over everything, and prints a line of JSON for each value.
pub(crate) fn measure(driver: &Path, way: Way, quick: bool) -> Answer<()> {
    let api = Api::open(driver, way == Way::BlockingSync)?;
    let device_clock = DeviceClock::new(api)?;
    let about = About { device: api.name()?, simulated: api.device_cpu_ns().is_some() };
    for &count in streams(quick) {
        let mut run = Run::new(api, driver, way, count)?;
        for length in lengths(quick) {
            run.run(Length { rounds: 3, ..length })?; // warm
            let before = device_clock.compare(api)?;
            let (cpu, start) = (host_cpu_ns(api), StdClock::new().monotonic_ns());
            let samples = run.run(length)?;
            let cpu = host_cpu_ns(api) - cpu;
            let wall = StdClock::new().monotonic_ns().since(start);
            let after = device_clock.compare(api)?;
            about.print(way, (count, length), &samples, &[before, after], cpu, wall);
        }
    }
    Ok(())
}

/// A way, ready for a number of streams.
enum Run {
    Theirs(theirs::Lanes, Way),
    Ours(ours::Lanes, Way),
}

impl Run {
    fn new(api: &'static Api, driver: &Path, way: Way, streams: usize) -> Answer<Run> {
        Ok(match way {
            Way::Spin
            | Way::Synchronize
            | Way::BlockingSync
            | Way::EventSync
            | Way::HostCallback => Run::Theirs(theirs::Lanes::new(api, streams)?, way),
            _ => Run::Ours(ours::Lanes::new(api, driver, streams)?, way),
        })
    }

    fn run(&mut self, length: Length) -> Answer<Vec<Sample>> {
        match self {
            Run::Theirs(lanes, way) => lanes.run(*way, length),
            Run::Ours(lanes, way) => lanes.run(*way, length),
        }
    }
}

/// CPU time of this process without that of a simulated device.
fn host_cpu_ns(api: &Api) -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let all = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    all.saturating_sub(api.device_cpu_ns().unwrap_or(0))
}

struct About {
    device: String,
    simulated: bool,
}

impl About {
    fn print(
        &self,
        way: Way,
        (streams, length): (usize, Length),
        samples: &[Sample],
        offsets: &[Offset],
        cpu_ns: u64,
        wall: DurNs,
    ) {
        let count = samples.len();
        let shift = |ended| {
            offsets.iter().map(|offset| offset.on_host(ended)).sum::<i64>() / offsets.len() as i64
        };
        let mut lags: Vec<i64> =
            samples.iter().map(|&(ended, woke)| woke.0 as i64 - shift(ended)).collect();
        lags.sort_unstable();
        let quantile = |share: usize| lags.get(count * share / 100).map(|&lag| json!(lag));
        let error = offsets.iter().map(|offset| offset.error_ns).max();
        let row = |metric: &str, value: Value| {
            let line = json!({
                "suite": "hardware", "case": format!("{} us x {streams}", length.ns / 1_000),
                "subject": way.name(), "metric": metric, "value": value, "n": count,
                "device": self.device, "simulated": self.simulated,
            });
            println!("{line}");
        };
        row("lag_p50_ns", quantile(50).unwrap_or_default());
        row("lag_p99_ns", quantile(99).unwrap_or_default());
        row("cpu_per_wait_ns", json!(cpu_ns / count.max(1) as u64));
        row("cpu_share", json!(cpu_ns as f64 / wall.0 as f64));
        row("clock_error_ns", json!(error));
    }
}
