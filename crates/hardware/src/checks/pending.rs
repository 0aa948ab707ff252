//! Two thousand waits, on eight streams that are all busy.

use super::Device;
use crate::api::{Answer, Api};
use gpu_async_reactor::DurNs;
use gpu_async_reactor::watcher::CompletionExt;
use std::time::Instant;

const STREAMS: usize = 8;
const EACH: usize = 250;
const FIRST_NS: u64 = 300_000_000;

pub(super) fn run(api: &'static Api, device: &Device) -> Answer<String> {
    let memory = api.mapped(64)?;
    let begun = Instant::now();
    let mut queues = Vec::new();
    let mut completions = Vec::new();
    for _ in 0..STREAMS {
        let mut queue = device.queue()?;
        let mut number = 0;
        for i in 0..EACH {
            let ns = if i == 0 { FIRST_NS } else { 10_000 };
            number = queue.submit(|stream| {
                api.step(stream.as_raw(), memory.device, 8, 1, ns, memory.device + 256)
            })?;
            completions.push(queue.completion().timeout(DurNs::from_ms(20_000)));
        }
        queues.push((queue, number));
    }
    let submitted = begun.elapsed();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let tasks: Vec<_> = completions.into_iter().map(|wait| runtime.spawn(wait)).collect();
    let mut done = 0;
    for task in tasks {
        runtime.block_on(task).map_err(|e| e.to_string())??;
        done += 1;
    }
    Ok(format!(
        "{done} waits on {STREAMS} streams, submitted in {} ms, done after {} ms",
        submitted.as_millis(),
        begun.elapsed().as_millis()
    ))
}
