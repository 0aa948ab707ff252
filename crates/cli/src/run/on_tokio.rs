//! The steps as tasks of a tokio runtime, each awaiting `queue.completion()`.
//!
//! Upholds invariants 2 (a result is looked at only after its wait said done), 3 and 8 (each wait has a
//! deadline, and its error ends the run with what completed).

use super::devices::StepQueue;
use super::drive::{Shared, spent_since};
use super::stats::Tally;
use crate::sys::{named_threads_cpu_ns, thread_cpu_ns};
use crate::workload::Step;
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::replay::Row;
use gpu_async_reactor::watcher::{CompletionExt, WatcherOptions};
use gpu_async_reactor::{Clock, Result, error};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Worker threads: as many as a small server has.
pub(super) const WORKERS: usize = 2;
const WORKER: &str = "run-on-tokio";

/// A task for each queue; the CPU is that of the workers and of the watcher's thread.
pub(super) fn on_tokio<Q: StepQueue + Send + 'static>(
    queues: Vec<Q>,
    steps: &[Vec<Step>],
    shared: &Shared,
) -> Result<(Tally, Option<u64>)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name(WORKER)
        .build()
        .map_err(|e| error!(System, "starting tokio's runtime", e.to_string()))?;
    let watcher = WatcherOptions::default().name;
    let cpu = || named_threads_cpu_ns(&[WORKER, watcher.as_str()]);
    let before = cpu();
    let tasks: Vec<_> = queues
        .into_iter()
        .zip(steps)
        .map(|(queue, steps)| {
            let (steps, shared): (Arc<[Step]>, Shared) = (steps.as_slice().into(), shared.clone());
            runtime.spawn(async move { one_queue(queue, &steps, &shared).await })
        })
        .collect();
    let mut tally = Tally::default();
    for task in tasks {
        let done = runtime.block_on(task);
        tally.add(done.map_err(|e| error!(System, "a task of tokio's", e.to_string()))?);
    }
    let spent = cpu().zip(before).map(|(now, before)| now - before);
    Ok((tally, spent))
}

async fn one_queue<Q: StepQueue>(mut queue: Q, steps: &[Step], shared: &Shared) -> Tally {
    let mut tally = Tally::with_room(steps.len());
    for (index, step) in steps.iter().enumerate() {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        if let Err(e) = one_step(&mut queue, (index, step), shared, &mut tally).await {
            tally.error = Some(e);
            break;
        }
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
    tally
}

async fn one_step<Q: StepQueue>(
    queue: &mut Q,
    (index, step): (usize, &Step),
    shared: &Shared,
    tally: &mut Tally,
) -> Result<()> {
    let clock = StdClock::new();
    let before = thread_cpu_ns();
    let number = queue.submit_step(index, step)?;
    tally.aside_cpu_ns += spent_since(before).unwrap_or(0);

    let began = clock.monotonic_ns();
    queue.queue().completion().timeout(shared.deadline).await?;
    let woke = clock.monotonic_ns();

    let before = thread_cpu_ns();
    tally.waits += 1;
    let row = Row { point: 0, rows: step.rows + step.prefill, start_ns: began.0, duration_ns: 0 };
    tally.check(queue, (index, number), woke, row, shared.recorder.as_deref())?;
    tally.aside_cpu_ns += spent_since(before).unwrap_or(0);
    Ok(())
}
