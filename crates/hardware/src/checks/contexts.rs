//! Two contexts: another library's own on the same device, current on the thread, and that of a second device
//! where there is one.

use super::{Device, wait};
use crate::api::{Answer, Api};
use gpu_async_reactor::backend::cuda::{CuStream, CudaDriver};
use gpu_async_reactor::{ErrorCode, Queue};
use std::time::Instant;

const STEP_NS: u64 = 20_000_000;

pub(super) fn run(api: &'static Api, driver: &CudaDriver, device: &Device) -> Answer<String> {
    let memory = api.mapped(64)?;
    let second = api.second_context()?;
    let theirs = api.stream()?;
    let mut queue = device.queue()?;
    // The kernels belong to the first context.
    api.enter()?;
    let begun = Instant::now();
    queue.submit(|stream| {
        api.step(stream.as_raw(), memory.device, 8, 1, STEP_NS, memory.device + 256)
    })?;
    api.set_current(second)?;
    wait(&mut queue, "flag:park_us=100,backstop_us=2000")?;
    let took = begun.elapsed();
    if api.current()? != second {
        return Err("a wait left another context current than it found".into());
    }
    // SAFETY: a live stream, for the rest of the process.
    let refused = match device.queue_on(unsafe { CuStream::from_raw(theirs.0) }) {
        Ok(_) => return Err("a stream of another context was taken".into()),
        Err(e) if e.code() == ErrorCode::Misuse => e.to_string(),
        Err(e) => return Err(format!("a stream of another context: {e}").into()),
    };
    if api.current()? != second {
        return Err("a refusal left another context current than it found".into());
    }
    let beside = match driver.devices()?.len() {
        0 | 1 => "there is no second device".to_owned(),
        count => {
            let mut other = driver.open(1)?.queue()?;
            other.store_next()?;
            queue.store_next()?;
            wait(&mut other, "flag:park_us=100,backstop_us=2000")?;
            wait(&mut queue, "flag:park_us=100,backstop_us=2000")?;
            format!("waited for two of {count} devices at once")
        }
    };
    let took = took.as_millis();
    Ok(format!("a wait of {took} ms with another context current; its stream: {refused}; {beside}"))
}
