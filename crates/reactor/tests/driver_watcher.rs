//! Completions of CUDA and HIP queues on tokio, on the simulated driver. Nothing here runs on a GPU.

mod driver;

use driver::suite::{Machine, PATIENCE, Tested, machine};
use gpu_async_reactor::backend::cuda::Cuda;
use gpu_async_reactor::backend::hip::Hip;
use gpu_async_reactor::backend::mapped::StepKernel;
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::watcher::{CompletionExt, WaitError, Watcher, WatcherOptions};
use gpu_async_reactor::*;
use std::time::{Duration, Instant};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn cpu_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Situation 1: 45 ms steps, 16 streams in flight, one host thread: the host's CPU is at most a tenth of a core.
/// The best of three, for other work of the machine makes everybody's time cost more.
fn situation_1_sixteen_streams_of_long_steps_take_little_cpu<V: Tested>() {
    let mut shares = Vec::new();
    while shares.len() < 3 && shares.iter().all(|&share| share > 0.10) {
        shares.push(share_of_a_core::<V>());
    }
    println!("16 streams of 45 ms steps: {shares:.3?} of a core");
    assert!(shares.iter().any(|&share| share <= 0.10), "{shares:.3?} of a core");
}

fn share_of_a_core<V: Tested>() -> f64 {
    let Machine { device, sim } = machine::<V>("");
    let kernel = StepKernel::new(&device).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let watcher = Watcher::start(WatcherOptions::default()).unwrap();
    let streams: Vec<_> =
        (0..16).map(|_| (device.queue().unwrap(), kernel.job().unwrap())).collect();
    let local = tokio::task::LocalSet::new();
    let clock = StdClock::new();
    let used = || cpu_ns(rustix::time::ClockId::ProcessCPUTime) - sim.device_cpu();
    let (begun, before) = (clock.monotonic_ns(), used());
    local.block_on(&runtime, async {
        let tasks: Vec<_> = streams
            .into_iter()
            .map(|(mut queue, mut job)| {
                let watcher = watcher.clone();
                tokio::task::spawn_local(async move {
                    for step in 0..40 {
                        job.run(&mut queue, step, 45_000_000).unwrap();
                        queue.completion().on(&watcher).timeout(PATIENCE).await.unwrap();
                        assert!(job.verify(step), "the data was not there");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let (wall, cpu) = (clock.monotonic_ns().since(begun).0, used() - before);
    cpu as f64 / wall as f64
}

/// Situations 3 and 4, and a hang: how a completion ends.
fn faults_reach_completions<V: Tested>() {
    for script in ["fault=1", "fault=1,lie_after_loss", "fault=1,callback_after_fault"] {
        let Machine { device, sim } = machine::<V>("");
        sim.script(script);
        let kernel = StepKernel::new(&device).unwrap();
        let (mut queue, mut job) = (device.queue().unwrap(), kernel.job().unwrap());
        job.run(&mut queue, 1, 3_000_000).unwrap();
        let ended = runtime().block_on(queue.completion().timeout(PATIENCE));
        let Err(error @ WaitError::DeviceLost(..)) = ended else { panic!("`{script}`: {ended:?}") };
        assert!(error.to_string().contains(V::NAME_OF_700), "{error}");
    }
    let Machine { device, sim } = machine::<V>("");
    sim.script("hang=1");
    let kernel = StepKernel::new(&device).unwrap();
    let (mut queue, mut job) = (device.queue().unwrap(), kernel.job().unwrap());
    job.run(&mut queue, 1, 1_000).unwrap();
    let ended = runtime().block_on(queue.completion().timeout(DurNs::from_ms(20)));
    assert!(matches!(ended, Err(WaitError::Timeout(_))), "{ended:?}");
}

/// Situation 2 and 5: what is in flight is kept past a deadline, comes to the graveyard, and is freed.
fn what_is_in_flight_is_kept_past_its_deadline<V: Tested>() {
    let Machine { device, .. } = machine::<V>("");
    let kernel = StepKernel::new(&device).unwrap();
    let (mut queue, mut job) = (device.queue().unwrap(), kernel.job().unwrap());
    struct Told(std::sync::Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Release);
        }
    }
    let freed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_freed = || freed.load(std::sync::atomic::Ordering::Acquire);
    let number = job.run(&mut queue, 6, 60_000_000).unwrap();
    let owned = queue.in_flight((job, Told(freed.clone()))).timeout(DurNs::from_ms(5));
    let (back, ended) = runtime().block_on(owned);
    assert!(back.is_none() && matches!(ended, Err(WaitError::Timeout(_))), "{ended:?}");
    assert!(!is_freed(), "freed while the device writes it");
    assert!(queue.block(number, PATIENCE).unwrap());
    let begun = Instant::now();
    while !is_freed() {
        assert!(begun.elapsed() < Duration::from_secs(20), "kept for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Situation 6 for a completion, and no harm to the capture by the waits of others.
fn situation_6_a_completion_in_capture_is_refused<V: Tested>() {
    let Machine { device, sim } = machine::<V>("");
    let mut queue = device.queue().unwrap();
    let mut other = device.queue().unwrap();
    let raw = queue.stream().as_raw();
    V::begin_capture(&sim, raw, 0);
    let ended = runtime().block_on(queue.completion().timeout(PATIENCE));
    assert!(matches!(&ended, Err(error) if error.to_string().contains("captured")), "{ended:?}");
    runtime().block_on(async {
        for _ in 0..20 {
            other.submit(|_| Ok::<(), Error>(())).unwrap();
            other.completion().timeout(PATIENCE).await.unwrap();
        }
    });
    assert_eq!(V::end_capture(&sim, raw), 0, "the capture was broken");
}

/// Situation 9: the runtime's workers are busy when the device finishes; waits still resolve, in order.
fn situation_9_busy_workers_delay_and_lose_nothing<V: Tested>() {
    let Machine { device, .. } = machine::<V>("");
    let kernel = StepKernel::new(&device).unwrap();
    let (mut queue, mut job) = (device.queue().unwrap(), kernel.job().unwrap());
    let runtime = runtime();
    let busy: Vec<_> = (0..2)
        .map(|_| {
            runtime.spawn(async {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(50) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let waits: Vec<_> = (0..5)
        .map(|step| {
            job.run(&mut queue, step, 1_000_000).unwrap();
            let (done, order) = (queue.completion().timeout(PATIENCE), order.clone());
            runtime.spawn(async move {
                done.await.unwrap();
                order.lock().unwrap().push(step);
            })
        })
        .collect();
    runtime.block_on(async {
        for task in busy.into_iter().chain(waits) {
            task.await.unwrap();
        }
    });
    assert_eq!(order.lock().unwrap().len(), 5);
}

macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod cuda { $(#[test] fn $name() { super::$name::<super::Cuda>(); })* }
        mod hip { $(#[test] fn $name() { super::$name::<super::Hip>(); })* }
    };
}

both! {
    situation_1_sixteen_streams_of_long_steps_take_little_cpu,
    faults_reach_completions,
    what_is_in_flight_is_kept_past_its_deadline,
    situation_6_a_completion_in_capture_is_refused,
    situation_9_busy_workers_delay_and_lose_nothing,
}
