//! A stream that captures is refused before anything is asked of it, and the capture stays whole, also while
//! another stream of ours is used by another thread.

use super::{Device, wait};
use crate::api::{Answer, Api};
use gpu_async_reactor::backend::cuda::CuStream;
use gpu_async_reactor::{ErrorCode, Queue};
use gpu_async_reactor_hardware::bad::Bad;

pub(super) fn run(api: &'static Api, device: &Device) -> Answer<String> {
    let (stream, memory) = (api.stream()?, api.mapped(64)?);
    // SAFETY: a live stream, for the rest of the process.
    let mut queue = device.queue_on(unsafe { CuStream::from_raw(stream.0) })?;
    let step = |raw| api.step(raw, memory.device, 8, 1, 100_000, memory.device + 256);
    step(stream.0)?;
    queue.store_next()?;
    wait(&mut queue, "poll")?;

    api.begin_capture(stream.0)?;
    let refused = match queue.store_next() {
        Ok(_) => Err("a number was stored in a capture".to_owned()),
        Err(e) if e.code() == ErrorCode::StreamCapturing => Ok(e.to_string()),
        Err(e) => Err(format!("a stream in a capture was refused as something else: {e}")),
    };
    let beside = std::thread::scope(|scope| {
        let beside = scope.spawn(|| -> Answer<()> {
            api.enter()?;
            let mut other = device.queue()?;
            other.submit(|stream| step(stream.as_raw()))?;
            Ok(wait(&mut other, "flag:park_us=100,backstop_us=2000")?)
        });
        beside.join().map_err(|_| Bad::from("the thread beside panicked"))?
    });
    let ended = api.end_capture(stream.0);
    let refused = refused?;
    beside.map_err(|e| format!("a stream beside the capture: {e}"))?;
    ended.map_err(|e| format!("the capture was broken: {e}"))?;

    step(stream.0)?;
    queue.store_next()?;
    wait(&mut queue, "poll").map_err(|e| format!("after the capture: {e}"))?;
    Ok(format!("refused ({refused}); the capture ended whole with another stream in use"))
}
