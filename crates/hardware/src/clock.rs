//! The device's clock, told in the host's: the kernel `tick` stores its time as soon as it sees a word of the
//! host's, and the host looks at its own clock before and after. The sample with the shortest way there and
//! back counts; half of that way is its error.

use crate::api::{Answer, Api, Mapped, Stream};
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::{Clock, DurNs};
use std::sync::atomic::Ordering;

/// How far the device's clock is ahead, as far as it is known.
#[derive(Clone, Copy)]
pub struct Offset {
    ns: i64,
    /// Half of the shortest way there and back.
    pub error_ns: u64,
}

impl Offset {
    /// A moment of the device's, in the host's time.
    pub fn on_host(self, device_ns: u64) -> i64 {
        device_ns as i64 - self.ns
    }
}

/// A stream and two words to compare the clocks with.
pub struct DeviceClock {
    stream: Stream,
    words: Mapped,
}

const SAMPLES: usize = 30;
/// For the kernel to start.
const START: DurNs = DurNs::from_us(60);

impl DeviceClock {
    /// Makes ready to compare.
    pub fn new(api: &Api) -> Answer<DeviceClock> {
        // The words are in lines of their own, as far apart as a device's cache lines may be.
        Ok(DeviceClock { stream: api.stream()?, words: api.mapped(64)? })
    }

    /// Compares the clocks, a few milliseconds long.
    pub fn compare(&self, api: &Api) -> Answer<Offset> {
        let clock = StdClock::new();
        let (go, out) = (&self.words.words[0], &self.words.words[32]);
        let mut best: Option<Offset> = None;
        for _ in 0..SAMPLES {
            go.store(0, Ordering::Relaxed);
            out.store(0, Ordering::Relaxed);
            api.tick(self.stream, self.words.device, self.words.device + 8 * 32)?;
            let start = clock.monotonic_ns() + START;
            while clock.monotonic_ns() < start {
                std::hint::spin_loop();
            }
            let before = clock.monotonic_ns();
            go.store(1, Ordering::Release);
            let ticked = loop {
                let ticked = out.load(Ordering::Acquire);
                if ticked != 0 || clock.monotonic_ns().since(before) > DurNs::from_ms(3_000) {
                    break ticked;
                }
                std::hint::spin_loop();
            };
            let after = clock.monotonic_ns();
            api.synchronize(self.stream)?;
            if ticked == 0 {
                return Err("the device saw a word of the host's, and no time came back".into());
            }
            let way = after.since(before).0;
            let middle = before.0 + way / 2;
            let offset = Offset { ns: ticked as i64 - middle as i64, error_ns: way / 2 };
            if best.is_none_or(|best| offset.error_ns < best.error_ns) {
                best = Some(offset);
            }
        }
        best.ok_or_else(|| "no sample of the device's clock".into())
    }
}
