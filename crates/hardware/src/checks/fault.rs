//! A kernel stores to an address that nobody has: every wait of the context ends with the driver's code.

use super::{Device, wait};
use crate::api::{Answer, Api};
use gpu_async_reactor::backend::cuda::CudaQueue;
use gpu_async_reactor::watcher::{CompletionExt, WaitError};
use gpu_async_reactor::{Error, ErrorCode};
use gpu_async_reactor_hardware::bad::Bad;

/// The longest kernel: it is running when the other one faults.
const LONG_NS: u64 = 30_000_000;
/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
const ILLEGAL_ADDRESS: i32 = 700;

pub(super) fn run(api: &'static Api, device: &Device) -> Answer<String> {
    let plans = ["block", "poll", "flag:park_us=100,backstop_us=2000"];
    let memory = api.mapped(64)?;
    let submit = |ns| -> Answer<CudaQueue> {
        let mut queue = device.queue()?;
        queue.submit(|stream| {
            api.step(stream.as_raw(), memory.device, 8, 1, ns, memory.device + 256)
        })?;
        Ok(queue)
    };
    let waiting = plans.map(|plan| submit(LONG_NS).map(|queue| (plan, queue)));
    let mut completions = Vec::new();
    for _ in 0..4 {
        completions.push(submit(LONG_NS)?.completion());
    }
    let mut faulty = device.queue()?;
    faulty.submit(|stream| api.fault(stream.as_raw()))?;

    let ends = std::thread::scope(|scope| -> Answer<Vec<(String, Option<Error>)>> {
        let mut threads = Vec::new();
        for waiting in waiting.into_iter().chain([Ok(("poll", faulty))]) {
            let (plan, mut queue) = waiting?;
            threads.push((plan, scope.spawn(move || wait(&mut queue, plan).err())));
        }
        let mut ends = Vec::new();
        for (plan, thread) in threads {
            let end = thread.join().map_err(|_| Bad::from("a waiting thread panicked"))?;
            ends.push((format!("the plan {plan}"), end));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        for completion in completions {
            let end: Result<(), WaitError> = runtime.block_on(completion);
            ends.push(("a completion".into(), end.err().and_then(|e| e.cause().cloned())));
        }
        Ok(ends)
    })?;
    let mut told = 0;
    for (who, end) in &ends {
        match end {
            Some(e) if e.code() == ErrorCode::DeviceLost => {
                if e.driver_status() != Some(ILLEGAL_ADDRESS) {
                    let what =
                        format!("{who} was told of another status than {ILLEGAL_ADDRESS}: {e}");
                    return Err(what.into());
                }
                told += 1;
            }
            Some(e) => return Err(format!("{who} ended with another error: {e}").into()),
            None => return Err(format!("{who} was not told that the context is lost").into()),
        }
    }
    let first = ends.iter().find_map(|(_, end)| end.as_ref()).map(Error::to_string);
    Ok(format!("{told} waits told: {}", first.unwrap_or_default()))
}
