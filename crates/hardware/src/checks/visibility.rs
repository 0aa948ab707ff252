//! Word, then data: for as long as asked, four streams each run kernels that store data, the host sees the word
//! and looks at the data at once.

use super::Device;
use crate::api::{Answer, Api, result};
use gpu_async_reactor::{Queue, reached};
use gpu_async_reactor_hardware::bad::Bad;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Enough that the last of them are stored long after the first.
const WORDS: usize = 256;
const STREAMS: usize = 4;
/// No kernel of these takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn run(
    api: &'static Api,
    device: &Device,
    copied: bool,
    seconds: u64,
) -> Answer<String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..STREAMS)
            .map(|lane| scope.spawn(move || stream(api, device, copied, lane as u64, until)))
            .collect();
        let mut looks = 0;
        for thread in threads {
            looks += thread.join().map_err(|_| Bad::from("a thread of the check panicked"))??;
        }
        Ok(format!(
            "{looks} kernels of {WORDS} words each, every word right when its number was seen"
        ))
    })
}

fn stream(
    api: &'static Api,
    device: &Device,
    copied: bool,
    lane: u64,
    until: Instant,
) -> Answer<u64> {
    api.enter()?;
    let mut queue = device.queue()?;
    let (data, stamp) = (api.mapped(WORDS)?, api.mapped(1)?);
    let staged = if copied { api.device_memory(WORDS)? } else { data.device };
    let (line, slot) = (queue.line().clone(), queue.slot());
    let mut looks = 0;
    while Instant::now() < until {
        let seed = (lane << 32) | looks;
        let number = queue.submit(|stream| {
            let raw = stream.as_raw();
            api.step(raw, staged, WORDS as u32, seed, 0, stamp.device)?;
            if copied { api.copy(data, staged, raw) } else { Ok(()) }
        })?;
        let begun = Instant::now();
        while !reached((*line).as_ref(), slot, number) {
            if begun.elapsed() > PATIENCE {
                return Err(format!("the word of kernel {looks} never reached {number}").into());
            }
            std::hint::spin_loop();
        }
        for (i, word) in data.words.iter().enumerate() {
            // Relaxed: the look at the completion word acquired what was stored before it.
            let (found, right) = (word.load(Ordering::Relaxed), result(seed, i as u64));
            if found != right {
                let what = format!(
                    "kernel {looks} of stream {lane}: its number was seen, and word {i} is {found:#x}, not {right:#x}"
                );
                return Err(what.into());
            }
        }
        looks += 1;
    }
    Ok(looks)
}
