//! How fast waits are registered behind work that runs on, and how fast they all complete when it ends.

use super::round::{Kernels, Measured, Subject, open, runtime};
use futures_util::future::join_all;
use gpu_async_reactor::Clock;
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor_hardware::api::{Answer, Ptr};
use gpu_async_reactor_hardware::clock::DeviceClock;
use std::pin::Pin;
use std::task::Poll;

const LANES: usize = 8;
/// The work that everyone waits for.
const WORK_US: u64 = 100_000;

pub fn run<S: Subject>(waits: usize) -> Answer<Measured> {
    let api = open()?;
    let (subject, device_clock) = (S::new(LANES)?, DeviceClock::new(api)?);
    let runtime = runtime()?;
    let clock = StdClock::new();
    let mut measured = Measured::default();
    // Once to warm up.
    for _ in 0..2 {
        let offset = device_clock.compare(api)?;
        let kernels = Kernels::new(api, LANES)?;
        let (registering, done) = runtime.block_on(async {
            let mut first = Vec::new();
            for lane in 0..LANES {
                first.push(started(subject.step(lane, kernels.launch(lane, WORK_US))).await?);
            }
            let start = clock.monotonic_ns();
            let mut rest = Vec::with_capacity(waits);
            for wait in 0..waits {
                rest.push(started(subject.step(wait % LANES, |_: Ptr| Ok(()))).await?);
            }
            let registering = clock.monotonic_ns().since(start);
            if (0..LANES).any(|lane| kernels.ended(lane) != 0) {
                return Err("the work ended before all waits were registered".into());
            }
            let (first, rest) = (join_all(first).await, join_all(rest).await);
            let done = clock.monotonic_ns();
            first.into_iter().chain(rest).collect::<Answer<()>>()?;
            Answer::Ok((registering, done))
        })?;
        let ended = (0..LANES).map(|lane| offset.on_host(kernels.ended(lane))).max();
        let completing = done.0 as i64 - ended.unwrap_or_default();
        measured.values =
            vec![registering.0 as f64 / waits as f64, completing as f64 / (waits + LANES) as f64];
    }
    Ok(measured)
}

/// Polls a future once, which must register it.
async fn started<F: Future<Output = Answer<()>>>(future: F) -> Answer<Pin<Box<F>>> {
    let mut future = Box::pin(future);
    let first = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    match first {
        Poll::Pending => Ok(future),
        Poll::Ready(Ok(())) => Err("work that runs on was taken for done".into()),
        Poll::Ready(Err(what)) => Err(what),
    }
}
