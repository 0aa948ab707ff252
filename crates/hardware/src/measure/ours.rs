//! This crate's ways: plans on a reactor or on threads, and the watcher's completions.

use super::{Length, Place, Sample, Way};
use crate::api::{Answer, Api, Stream};
use gpu_async_reactor::backend::cuda::{CudaDriver, CudaQueue};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::watcher::CompletionExt;
use gpu_async_reactor::{
    Clock, CompletionLine, DurNs, DynExecutor, OnThread, ParkWord, Queue, QueuePort, Reactor,
    StepPlan, Timer, run_inline, wait_steps,
};
use std::cell::RefCell;
use std::path::Path;

/// No wait is longer: what would hang fails.
const PATIENCE: DurNs = DurNs::from_ms(10_000);
const PARK_BOUND: DurNs = DurNs::from_ms(1);

struct Lane {
    queue: CudaQueue,
    place: Place,
}

pub(super) struct Lanes {
    api: &'static Api,
    lanes: Vec<Lane>,
    /// Two threads, as a small server has.
    runtime: tokio::runtime::Runtime,
}

impl Lanes {
    pub(super) fn new(api: &'static Api, driver: &Path, streams: usize) -> Answer<Lanes> {
        let device = CudaDriver::load_from(driver)?.open(0)?;
        let lane = |_| Ok(Lane { queue: device.queue()?, place: Place::new(api)? });
        let lanes = (0..streams).map(lane).collect::<Answer<_>>()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
        Ok(Lanes { api, lanes, runtime })
    }

    pub(super) fn run(&mut self, way: Way, length: Length) -> Answer<Vec<Sample>> {
        let plan = match way {
            Way::Completion => return self.completions(length),
            Way::PlanBlock => return self.on_threads("block", length),
            Way::PlanPoll => "poll",
            Way::PlanFlag => "flag:park_us=1000,backstop_us=20000",
            _ => "flag:park_us=1000,backstop_us=20000+hazard:lag=5,cpu=1",
        };
        self.on_a_reactor(plan, length)
    }

    fn on_a_reactor(&mut self, plan: &str, length: Length) -> Answer<Vec<Sample>> {
        let (api, plan): (_, StepPlan) = (self.api, plan.parse()?);
        let lines: Vec<_> = self.lanes.iter().map(|lane| lane.queue.line().clone()).collect();
        let results = RefCell::new(Vec::new());
        let reactor = Reactor::new(StdClock::new());
        let mut executor = DynExecutor::new();
        for (lane, line) in self.lanes.iter_mut().zip(&lines) {
            let (results, plan, reactor, line) = (&results, &plan, &reactor, (**line).as_ref());
            executor.spawn_dyn(async move {
                let samples = waits(api, lane, line, plan, length, (|| reactor, reactor)).await;
                results.borrow_mut().push(samples);
            });
        }
        executor.run(&reactor, &mut StdIdle::new(StdClock::new(), None), PARK_BOUND)?;
        drop(executor);
        all(results.into_inner())
    }

    fn on_threads(&mut self, plan: &str, length: Length) -> Answer<Vec<Sample>> {
        let (api, plan): (_, StepPlan) = (self.api, plan.parse()?);
        let one = |lane: &mut Lane| {
            let (clock, line) = (StdClock::new(), lane.queue.line().clone());
            let idle = || OnThread(StdIdle::new(clock, None));
            let waits = waits(api, lane, (*line).as_ref(), &plan, length, (idle, &clock));
            run_inline(waits)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.lanes.iter_mut().map(|lane| scope.spawn(|| one(lane))).collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(samples) => samples,
                Err(_) => Err("a waiting thread panicked".into()),
            });
            all(joined.collect())
        })
    }

    fn completions(&mut self, length: Length) -> Answer<Vec<Sample>> {
        // Each lane goes with its task and comes back.
        let (api, lanes) = (self.api, std::mem::take(&mut self.lanes));
        let tasks: Vec<_> = lanes
            .into_iter()
            .map(|mut lane| {
                self.runtime.spawn(async move {
                    let clock = StdClock::new();
                    let mut samples = Vec::with_capacity(length.rounds);
                    for _ in 0..length.rounds {
                        api.enter()?;
                        let stream = Stream(lane.queue.stream().as_raw());
                        lane.place.submit(api, stream, length.ns)?;
                        lane.queue.completion().timeout(PATIENCE).await?;
                        let woke = clock.monotonic_ns();
                        samples.push((lane.place.stamp(), woke));
                    }
                    Ok((lane, samples))
                })
            })
            .collect();
        let mut samples = Vec::new();
        for task in tasks {
            let done: Answer<_> = self.runtime.block_on(task).map_err(|e| e.to_string())?;
            let (lane, of_lane) = done?;
            self.lanes.push(lane);
            samples.extend(of_lane);
        }
        Ok(samples)
    }
}

/// The waits of one stream.
async fn waits<'l, W: ParkWord<'l>, T: Timer>(
    api: &Api,
    lane: &mut Lane,
    line: &'l CompletionLine,
    plan: &StepPlan,
    length: Length,
    (words, timer): (impl Fn() -> W, &T),
) -> Answer<Vec<Sample>> {
    api.enter()?;
    let clock = StdClock::new();
    let mut schedule = plan.schedule();
    let mut samples = Vec::with_capacity(length.rounds);
    for _ in 0..length.rounds {
        let place = lane.place;
        let number =
            lane.queue.submit(|stream| place.submit(api, Stream(stream.as_raw()), length.ns))?;
        let mut port =
            QueuePort::new(&mut lane.queue, line, words(), clock).number(number).within(PATIENCE);
        wait_steps(plan.park, &mut schedule, 1, &mut port, &clock, timer).await?;
        samples.push((lane.place.stamp(), clock.monotonic_ns()));
    }
    Ok(samples)
}

fn all(results: Vec<Answer<Vec<Sample>>>) -> Answer<Vec<Sample>> {
    let results = results.into_iter().collect::<Answer<Vec<_>>>()?;
    Ok(results.into_iter().flatten().collect())
}
