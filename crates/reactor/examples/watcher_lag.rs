//! What waking a tokio task costs, beside a thread that blocks for each wait: lag from the simulated
//! device's store to the waiter's next instruction, and CPU without the device's own threads.
//!
//! One JSON object a line. `watcher_lag [rounds]`.

use gpu_async_reactor::backend::sim::{SimDevice, SimOptions, SimQueue, Work};
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::watcher::{CompletionExt, Watcher, WatcherOptions};
use gpu_async_reactor::*;
use rustix::time::{ClockId, clock_gettime};

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn process_cpu() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Step lengths in µs: steady, or log-normal with σ = 0.5 from a fixed seed.
fn lengths(ms: u64, steps: usize, irregular: bool) -> Vec<u64> {
    let mut state = 7_u64;
    let mut even = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 33) as f64 + 0.5) / (1_u64 << 31) as f64
    };
    let mut normal = || (-2.0 * even().ln()).sqrt() * (std::f64::consts::TAU * even()).cos();
    let scale = |sigma: f64, z: f64| (ms as f64 * 1_000.0 * (sigma * z).exp()) as u64;
    (0..steps).map(|_| scale(if irregular { 0.5 } else { 0.0 }, normal())).collect()
}

struct Run {
    lags: Vec<u64>,
    cpu_percent: f64,
}

/// Measures a closure that gives lags.
fn measured(
    device: &SimDevice,
    run: impl FnOnce() -> Result<Vec<u64>, Failed>,
) -> Result<Run, Failed> {
    let clock = StdClock::new();
    let (start, cpu, device_cpu) = (clock.monotonic_ns(), process_cpu(), device.cpu_time());
    let mut lags = run()?;
    let host = process_cpu() - cpu - (device.cpu_time().0 - device_cpu.0);
    let wall = clock.monotonic_ns().since(start).0;
    lags.sort_unstable();
    Ok(Run { lags, cpu_percent: host as f64 * 100.0 / wall as f64 })
}

fn lag(queue: &SimQueue, number: u64, now: MonoNs) -> u64 {
    queue.stored_at(number).map_or(0, |at| now.since(at).0)
}

async fn ours(
    mut queue: SimQueue,
    watcher: Watcher,
    steps: Vec<u64>,
    after: DurNs,
) -> Result<Vec<u64>, Failed> {
    let clock = StdClock::new();
    watcher.sleep(after).await;
    let mut lags = Vec::with_capacity(steps.len());
    for us in steps {
        let number = queue.submit(Work::lasting(DurNs::from_us(us)))?;
        queue.completion().on(&watcher).await?;
        lags.push(lag(&queue, number, clock.monotonic_ns()));
    }
    Ok(lags)
}

fn blocking(mut queue: SimQueue, steps: Vec<u64>, after: DurNs) -> Result<Vec<u64>, Failed> {
    let clock = StdClock::new();
    std::thread::sleep(after.into());
    let mut lags = Vec::with_capacity(steps.len());
    for us in steps {
        let number = queue.submit(Work::lasting(DurNs::from_us(us)))?;
        while !queue.block(number, DurNs::from_ms(1_000))? {}
        lags.push(lag(&queue, number, clock.monotonic_ns()));
    }
    Ok(lags)
}

fn print(case: &str, subject: &str, run: &Run) {
    let at = |permille: usize| run.lags[(run.lags.len() - 1) * permille / 1_000];
    for (metric, value) in [
        ("lag_p50_ns", at(500) as f64),
        ("lag_p90_ns", at(900) as f64),
        ("lag_p99_ns", at(990) as f64),
        ("cpu_percent", run.cpu_percent),
    ] {
        println!(
            "{{\"suite\":\"wake\",\"case\":\"{case}\",\"subject\":\"{subject}\",\"metric\":\"{metric}\",\
             \"value\":{value:.1},\"n\":{},\"device\":\"simulated\",\"simulated\":true}}",
            run.lags.len()
        );
    }
}

fn main() -> Result<(), Failed> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let watcher = Watcher::start(WatcherOptions::default())?;
    let cases = [
        ("steady_1ms", 1, 1, 1_000, false, false),
        ("steady_10ms", 10, 1, 200, false, false),
        ("steady_45ms", 45, 1, 60, false, false),
        ("lognormal_8ms", 8, 1, 200, true, false),
        ("64_streams_45ms_together", 45, 64, 40, false, false),
        ("64_streams_45ms_apart", 45, 64, 40, false, true),
    ];
    for _ in 0..rounds {
        for (case, ms, streams, steps, irregular, apart) in cases {
            let device = SimDevice::start(SimOptions::default());
            let after = |i: u64| DurNs::from_us(if apart { i * ms * 1_000 / streams } else { 0 });
            let run = measured(&device, || {
                let tasks: Vec<_> = (0..streams)
                    .map(|i| {
                        let steps = lengths(ms, steps, irregular);
                        let queue = device.queue()?;
                        Ok(runtime.spawn(ours(queue, watcher.clone(), steps, after(i))))
                    })
                    .collect::<Result<_, Failed>>()?;
                let mut all = Vec::new();
                for task in tasks {
                    all.extend(runtime.block_on(task)??);
                }
                Ok(all)
            })?;
            print(case, "ours", &run);
            let device = SimDevice::start(SimOptions::default());
            let run = measured(&device, || {
                let threads: Vec<_> = (0..streams)
                    .map(|i| {
                        let steps = lengths(ms, steps, irregular);
                        let (queue, after) = (device.queue()?, after(i));
                        Ok(std::thread::spawn(move || blocking(queue, steps, after)))
                    })
                    .collect::<Result<_, Failed>>()?;
                let mut all = Vec::new();
                for thread in threads {
                    all.extend(thread.join().map_err(|_| "a thread panicked")??);
                }
                Ok(all)
            })?;
            print(case, "blocking-thread", &run);
        }
    }
    Ok(())
}
