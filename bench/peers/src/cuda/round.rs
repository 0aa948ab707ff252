//! A round: tasks of one tokio thread that each submit a kernel and await it, again and again.

use gpu_async_reactor::Clock;
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor_hardware::api::{Answer, Api, Mapped, Ptr};
use gpu_async_reactor_hardware::clock::DeviceClock;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A way to await work of a stream.
pub trait Subject: Send + Sync + Sized + 'static {
    /// Makes streams.
    fn new(lanes: usize) -> Answer<Self>;

    /// Submits work to a stream and awaits it.
    fn step<L>(&self, lane: usize, launch: L) -> impl Future<Output = Answer<()>> + Send
    where
        L: FnOnce(Ptr) -> Answer<()> + Send;
}

#[derive(Clone, Copy)]
pub struct Plan {
    /// Tasks.
    pub waits: usize,
    /// Streams, which the tasks share.
    pub lanes: usize,
    /// How long a kernel is.
    pub us: u64,
    /// Steps of a task, one behind the other.
    pub repeats: usize,
}

/// What a round found.
#[derive(Default)]
pub struct Measured {
    /// CPU time and time, or what a registration and a completion took; in nanoseconds.
    pub values: Vec<f64>,
    /// In nanoseconds.
    pub lags: Vec<f64>,
}

impl Measured {
    pub fn lag(&self, share: f64) -> f64 {
        let mut lags = self.lags.clone();
        lags.sort_by(f64::total_cmp);
        lags[((lags.len() - 1) as f64 * share).round() as usize]
    }
}

pub fn open() -> Answer<&'static Api> {
    Api::open(Path::new("libcuda.so.1"), false)
}

pub fn runtime() -> Answer<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Ok(builder.enable_time().max_blocking_threads(1_024).build()?)
}

/// Kernels whose ends the device notes, each at a place of its own.
#[derive(Clone, Copy)]
pub struct Kernels {
    api: &'static Api,
    stamps: Mapped,
    /// Where results go that nobody looks at.
    out: Mapped,
}

impl Kernels {
    pub fn new(api: &'static Api, count: usize) -> Answer<Kernels> {
        Ok(Kernels { api, stamps: api.mapped(count)?, out: api.mapped(64)? })
    }

    pub fn launch(&self, index: usize, us: u64) -> impl FnOnce(Ptr) -> Answer<()> + Send + use<> {
        let (api, out, stamp) = (self.api, self.out.device, self.stamps.device + 8 * index as u64);
        move |stream| api.step(stream, out, 1, 1, us * 1_000, stamp)
    }

    /// When that kernel ended, in the device's time; 0 before it did.
    pub fn ended(&self, index: usize) -> u64 {
        self.stamps.words[index].load(Ordering::Acquire)
    }
}

pub fn run<S: Subject>(plan: Plan) -> Answer<Measured> {
    let api = open()?;
    let (subject, device_clock) = (Arc::new(S::new(plan.lanes)?), DeviceClock::new(api)?);
    let runtime = runtime()?;
    // An estimator sees a few, a pool fills.
    let warm =
        Plan { repeats: if plan.waits > 64 { 1 } else { plan.repeats.clamp(2, 16) }, ..plan };
    runtime.block_on(steps(&subject, Kernels::new(api, warm.waits * warm.repeats)?, warm))?;
    let kernels = Kernels::new(api, plan.waits * plan.repeats)?;
    let before = device_clock.compare(api)?;
    let (cpu, start) = (cpu_ns(api), StdClock::new().monotonic_ns());
    let woken = runtime.block_on(steps(&subject, kernels, plan))?;
    let cpu = (cpu_ns(api) - cpu) as f64;
    let wall = StdClock::new().monotonic_ns().since(start);
    let after = device_clock.compare(api)?;
    let lag = |(index, woke): (usize, u64)| {
        let ended = kernels.ended(index);
        let on_host = (before.on_host(ended) + after.on_host(ended)) / 2;
        (woke as i64 - on_host) as f64
    };
    Ok(Measured { values: vec![cpu, wall.0 as f64], lags: woken.into_iter().map(lag).collect() })
}

/// Of each step: its kernel, and when its task went on.
async fn steps<S: Subject>(
    subject: &Arc<S>,
    kernels: Kernels,
    plan: Plan,
) -> Answer<Vec<(usize, u64)>> {
    let tasks: Vec<_> = (0..plan.waits)
        .map(|task| {
            let subject = subject.clone();
            tokio::spawn(async move {
                let clock = StdClock::new();
                let mut woken = Vec::with_capacity(plan.repeats);
                for index in task * plan.repeats..(task + 1) * plan.repeats {
                    subject.step(task % plan.lanes, kernels.launch(index, plan.us)).await?;
                    woken.push((index, clock.monotonic_ns().0));
                }
                Answer::Ok(woken)
            })
        })
        .collect();
    let mut woken = Vec::with_capacity(plan.waits * plan.repeats);
    for task in tasks {
        woken.extend(task.await.map_err(|panic| panic.to_string())??);
    }
    Ok(woken)
}

/// CPU time of this process without that of a simulated device.
fn cpu_ns(api: &Api) -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let all = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    all.saturating_sub(api.device_cpu_ns().unwrap_or(0))
}
