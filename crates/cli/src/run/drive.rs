//! Runs every queue's steps under one plan, or as a host waits that finds its own.
//!
//! Upholds invariants 2 (a result is looked at only after its wait said done), 3 and 8 (each wait has a
//! deadline, and its error ends the run with what completed).

use super::devices::{StepDevice, StepQueue};
use super::on_tokio::{self, on_tokio};
use super::stats::{Lag, PlanResult, Tally};
use crate::args::Host;
use crate::sys::{process_cpu_ns, thread_cpu_ns};
use crate::workload::Step;
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
#[cfg(target_os = "linux")]
use gpu_async_reactor::host::{compio::CompioIdle, uring::UringIdle};
use gpu_async_reactor::replay::{Recorder, Row};
use gpu_async_reactor::{
    AnySchedule, Clock, CompletionLine, DurNs, DynExecutor, EstimatorKind, OnThread, Park,
    ParkWord, Queue, QueuePort, Reactor, Result, StepBands, Timer, error, run_inline, wait_steps,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The longest that the reactor's thread parks without a look around.
const PARK_BOUND: DurNs = DurNs::from_ms(1);

/// What carries the waits, and the plan.
#[derive(Clone)]
pub(super) enum Way {
    /// One of the hosts that take a plan.
    Plan(Host, StepBands),
    Completions,
}

impl Way {
    pub(super) fn host(&self) -> Host {
        match self {
            Way::Plan(host, _) => *host,
            Way::Completions => Host::Tokio,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Plan(_, bands) => bands.fmt(f),
            Way::Completions => f.write_str("completion"),
        }
    }
}

/// What the queues of one plan share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) deadline: DurNs,
    /// Set by Ctrl-C.
    pub(super) stop: Arc<AtomicBool>,
    /// Waits done so far, for the progress shown.
    pub(super) done: Arc<AtomicU64>,
}

/// A plan, and what its queues share.
struct Planned<'a> {
    bands: &'a StepBands,
    shared: &'a Shared,
}

/// Runs the steps of all queues, and counts.
pub(super) fn drive<D: StepDevice>(
    device: &D,
    steps: &[Vec<Step>],
    (way, name): (&Way, &str),
    shared: &Shared,
) -> Result<PlanResult> {
    let queues = steps.iter().enumerate().map(|(index, steps)| device.queue(index, steps.len()));
    let queues = queues.collect::<Result<Vec<D::Queue>>>()?;
    let clock = StdClock::new();
    let start = clock.monotonic_ns();
    let before = device.device_cpu_ns().zip(process_cpu_ns());
    let (threads, (mut tally, waited_ns)) = match way {
        Way::Completions => (on_tokio::WORKERS, on_tokio(queues, steps, shared)?),
        // A blocking wait blocks its thread, so each queue gets one.
        Way::Plan(_, bands) if blocks(bands) => {
            (steps.len(), on_threads(queues, steps, &Planned { bands, shared }))
        }
        Way::Plan(host, bands) => {
            (1, on_a_reactor(queues, steps, &Planned { bands, shared }, *host)?)
        }
    };
    // All of the process that is not the device, where that can be told: helpers and the driver's threads
    // work for a wait, too.
    let after = device.device_cpu_ns().zip(process_cpu_ns());
    let spent = before.zip(after).map(|((device, all), (device_now, all_now))| {
        (all_now - all).saturating_sub(device_now - device)
    });
    let cpu_ns = spent.or(waited_ns);
    let wall_ns = clock.monotonic_ns().since(start).0;
    tally.lags_ns.sort_unstable();
    Ok(PlanResult {
        plan: way.to_string(),
        host: way.host(),
        name: name.to_owned(),
        threads,
        asked: steps.iter().map(|steps| steps.len() as u64).sum(),
        wall_ns,
        cpu_ns: cpu_ns.map(|cpu| cpu.saturating_sub(tally.aside_cpu_ns)),
        lag: Lag::of(&tally.lags_ns),
        tally,
    })
}

/// Whether a wait under that plan blocks its thread.
pub(super) fn blocks(bands: &StepBands) -> bool {
    bands.bands().iter().any(|band| band.plan.park == Park::Block)
}

/// One thread: a task for each queue, a reactor that watches all their words.
fn on_a_reactor<Q: StepQueue>(
    mut queues: Vec<Q>,
    steps: &[Vec<Step>],
    shared: &Planned<'_>,
    host: Host,
) -> Result<(Tally, Option<u64>)> {
    let lines: Vec<_> = queues.iter_mut().map(|queue| queue.queue().line().clone()).collect();
    let total = Mutex::new(Tally::default());
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    let before = thread_cpu_ns();
    for ((queue, steps), line) in queues.into_iter().zip(steps).zip(&lines) {
        let (reactor, total, line) = (&reactor, &total, (**line).as_ref());
        executor.spawn_dyn(async move {
            let tally = one_queue(queue, line, steps, shared, reactor, reactor).await;
            total.lock().unwrap_or_else(PoisonError::into_inner).add(tally);
        });
    }
    run_on(host, &mut executor, &reactor)?;
    let cpu = spent_since(before);
    drop(executor);
    Ok((total.into_inner().unwrap_or_else(PoisonError::into_inner), cpu))
}

/// Runs the tasks in the host's way of being idle.
fn run_on(
    host: Host,
    executor: &mut DynExecutor<'_>,
    reactor: &Reactor<'_, StdClock>,
) -> Result<()> {
    let clock = StdClock::new();
    match host {
        #[cfg(target_os = "linux")]
        Host::Uring => executor.run(reactor, &mut UringIdle::new(clock, None)?, PARK_BOUND)?,
        #[cfg(target_os = "linux")]
        Host::Compio => {
            let runtime = compio::runtime::Runtime::new()
                .map_err(|e| error!(System, "starting compio's runtime", e.to_string()))?;
            CompioIdle::new(runtime, clock).run(executor, reactor, PARK_BOUND)?
        }
        #[cfg(not(target_os = "linux"))]
        Host::Uring | Host::Compio => {
            return Err(error!(Misuse, "choosing a host", "io_uring is Linux's"));
        }
        Host::Std | Host::Tokio => {
            executor.run(reactor, &mut StdIdle::new(clock, None), PARK_BOUND)?
        }
    };
    Ok(())
}

/// A thread for each queue.
fn on_threads<Q: StepQueue + Send>(
    queues: Vec<Q>,
    steps: &[Vec<Step>],
    shared: &Planned<'_>,
) -> (Tally, Option<u64>) {
    let total = Mutex::new((Tally::default(), Some(0u64)));
    std::thread::scope(|scope| {
        for (mut queue, steps) in queues.into_iter().zip(steps) {
            let total = &total;
            scope.spawn(move || {
                let (before, clock) = (thread_cpu_ns(), StdClock::new());
                let line = queue.queue().line().clone();
                let idle = OnThread(StdIdle::new(clock, None));
                let waits = one_queue(queue, (*line).as_ref(), steps, shared, idle, &clock);
                let tally = run_inline(waits);
                let cpu = spent_since(before);
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                total.0.add(tally);
                total.1 = total.1.zip(cpu).map(|(sum, cpu)| sum + cpu);
            });
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn spent_since(before: Option<u64>) -> Option<u64> {
    thread_cpu_ns().zip(before).map(|(now, before)| now - before)
}

/// The steps of one queue, each awaited and its result checked before the next.
async fn one_queue<'l, Q: StepQueue, W: ParkWord<'l>, T: Timer>(
    mut queue: Q,
    line: &'l CompletionLine,
    steps: &[Step],
    shared: &Planned<'_>,
    mut words: W,
    timer: &T,
) -> Tally {
    let mut tally = Tally::with_room(steps.len());
    let mut points = Points::new();
    for (index, step) in steps.iter().enumerate() {
        if shared.shared.stop.load(Ordering::Relaxed) {
            break;
        }
        let shares = (&mut tally, &mut points, &mut words);
        let done = one_step(&mut queue, line, (index, step), shared, shares, timer).await;
        if let Err(e) = done {
            tally.error = Some(e);
            break;
        }
        shared.shared.done.fetch_add(1, Ordering::Relaxed);
    }
    tally
}

/// Where a program waits: the plan's band, and steps with about as many rows and prompt tokens, which
/// take about as long.
type Point = (u64, u64, u64);
type Points = BTreeMap<Point, AnySchedule>;

async fn one_step<'l, Q: StepQueue, W: ParkWord<'l>, T: Timer>(
    queue: &mut Q,
    line: &'l CompletionLine,
    (index, step): (usize, &Step),
    shared: &Planned<'_>,
    (tally, points, words): (&mut Tally, &mut Points, &mut W),
    timer: &T,
) -> Result<()> {
    let clock = StdClock::new();
    let bands = shared.bands.bands();
    let band = bands.partition_point(|band| band.from_rows <= step.rows).max(1) - 1;
    let plan = &bands[band].plan;
    let size = step.rows + step.prefill;
    let point = match plan.estimator {
        // It takes the size into account by itself.
        Some(EstimatorKind::Hazard(_)) => (band as u64, 0, 0),
        _ => (band as u64, step.rows / 4, step.prefill.div_ceil(64)),
    };
    let before = thread_cpu_ns();
    let number = queue.submit_step(index, step)?;
    tally.aside_cpu_ns += spent_since(before).unwrap_or(0);

    let began = clock.monotonic_ns();
    let schedule = points.entry(point).or_insert_with(|| plan.schedule());
    let mut port = QueuePort::new(queue.queue(), line, Borrowed(words), clock);
    port = port.number(number).within(shared.shared.deadline);
    let report = wait_steps(plan.park, schedule, size, &mut port, &clock, timer).await?;
    let woke = clock.monotonic_ns();

    let before = thread_cpu_ns();
    tally.count(&report, port.queries());
    let row = Row { point: 0, rows: size, start_ns: began.0, duration_ns: 0 };
    tally.check(queue, (index, number), woke, row, shared.shared.recorder.as_deref())?;
    tally.aside_cpu_ns += spent_since(before).unwrap_or(0);
    Ok(())
}

/// Watches words for one port after another.
struct Borrowed<'w, W>(&'w mut W);

impl<'l, W: ParkWord<'l>> ParkWord<'l> for Borrowed<'_, W> {
    async fn park_word(
        &mut self,
        work: gpu_async_reactor::MemoryDescriptor<'l>,
        bound: DurNs,
    ) -> bool {
        self.0.park_word(work, bound).await
    }
}
