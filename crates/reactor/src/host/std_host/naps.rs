//! The portable park: spins a little, then naps that grow, within a share of a core.
//!
//! Upholds invariants 3 (every park is bounded) and 4 (looked at before each nap and after it). It never
//! yields in a loop: on a core shared with the device's own threads a nap gives them the core, and a
//! yield may not.

use super::StdClock;
use crate::{Clock, DurNs, MonoNs};

/// Spinning at the start of a park: about what a nap's wake-up costs, so that work nearly done is seen
/// at once.
const SPIN: DurNs = DurNs::from_us(5);
/// A nap lasts this share of the time already parked, so that the lag it can add is this share of the
/// wait, …
const NAP_SHARE: u64 = 32;
/// … at least [`Naps::least`]: on 1 ms steps naps of 20 µs took 43 % of a core and of 40 µs 29 %, for the same
/// median lag, …
const NAP_LEAST: DurNs = DurNs::from_us(40);
/// … and at most [`Naps::most`], whatever the wait.
const NAP_MOST: DurNs = DurNs::from_us(250);
/// One park in so many is measured: reading a thread's CPU time is a system call.
const MEASURED: u32 = 8;

/// Bounds of the naps between two looks.
#[derive(Clone, Copy, Debug)]
pub struct Naps {
    /// The shortest nap. Default 40 µs.
    pub least: DurNs,
    /// The longest nap. Default 250 µs.
    pub most: DurNs,
    /// The most of a core that parks may use, in thousandths: where they are measured to use more, the
    /// shortest nap gets longer, up to `most`. Default 300.
    pub share_permille: u64,
}

impl Default for Naps {
    fn default() -> Naps {
        Naps { least: NAP_LEAST, most: NAP_MOST, share_permille: 300 }
    }
}

/// The naps of one thread.
#[derive(Debug)]
pub(crate) struct Napper {
    naps: Naps,
    /// The shortest nap for now: [`Naps::least`], or more to keep to the share.
    least: DurNs,
    /// When the parking that goes on began: naps go on growing from one bound to the next, as long as
    /// nothing was ready in between.
    since: MonoNs,
    /// When the last bound ended with nothing ready.
    ended: MonoNs,
    parks: u32,
}

impl Napper {
    /// A `most` below `least` is taken as `least`.
    pub(crate) fn new(naps: Naps) -> Napper {
        let naps = Naps { most: naps.most.max(naps.least), ..naps };
        Napper { naps, least: naps.least, since: MonoNs(0), ended: MonoNs(0), parks: 0 }
    }

    /// Spins, then naps, until `ready` or the end of the bound. `nap` sleeps for at most that long from
    /// that time on.
    pub(crate) fn park(
        &mut self,
        clock: StdClock,
        ready: impl Fn() -> bool,
        bound: DurNs,
        mut nap: impl FnMut(MonoNs, DurNs),
    ) -> bool {
        if ready() {
            return true;
        }
        let start = clock.monotonic_ns();
        let end = start + bound;
        if start.since(self.ended) > SPIN {
            self.since = start;
        }
        self.ended = MonoNs(0);
        let mut measured = None;
        let mut now = start;
        let mut seen = false;
        while !seen && now < end {
            let parked = now.since(self.since);
            if parked < SPIN {
                core::hint::spin_loop();
            } else {
                if measured.is_none() {
                    self.parks = self.parks.wrapping_add(1);
                    measured = Some(self.parks.is_multiple_of(MEASURED).then(thread_cpu));
                }
                let length = DurNs(parked.0 / NAP_SHARE).clamp(self.least, self.naps.most);
                nap(now, length.min(end.since(now)));
            }
            seen = ready();
            now = clock.monotonic_ns();
        }
        if let Some(Some(Some(before))) = measured {
            self.keep_to_the_share(before, now.since(start));
        }
        if !seen {
            self.ended = now;
        }
        seen
    }

    /// Changes the shortest nap by what a park took of a core.
    fn keep_to_the_share(&mut self, cpu_before: DurNs, wall: DurNs) {
        let Some(cpu) = thread_cpu() else { return };
        let used = cpu.0.saturating_sub(cpu_before.0);
        let allowed = wall.0.saturating_mul(self.naps.share_permille) / 1_000;
        let Naps { least, most, .. } = self.naps;
        // At least a nanosecond longer, for a nap of 0 would never grow.
        if used > allowed {
            self.least = DurNs(self.least.0 + self.least.0 / 2 + 1_000).min(most);
        } else if used < allowed / 2 {
            self.least = DurNs(self.least.0 - self.least.0 / 8).max(least);
        }
    }
}

/// CPU time of this thread, where the system tells.
fn thread_cpu() -> Option<DurNs> {
    #[cfg(target_os = "linux")]
    {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Some(DurNs((used.tv_sec as u64).wrapping_mul(1_000_000_000) + used.tv_nsec as u64))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Parks on a silent word for that long: the share of a core used in the second half, in thousandths.
    fn share(share_permille: u64) -> u64 {
        let naps = Naps { least: DurNs(1_000), most: DurNs::from_ms(5), share_permille };
        let (clock, mut napper) = (StdClock::new(), Napper::new(naps));
        let park = |napper: &mut Napper| {
            for _ in 0..250 {
                let nap = |_, length: DurNs| std::thread::sleep(length.into());
                // As a new park each: naps don't grow with the time parked.
                napper.ended = MonoNs(0);
                assert!(!napper.park(clock, || false, DurNs::from_ms(1), nap));
                napper.since = MonoNs(0);
            }
        };
        park(&mut napper);
        let (start, before) = (clock.monotonic_ns(), thread_cpu().unwrap());
        park(&mut napper);
        let used = thread_cpu().unwrap().0 - before.0;
        used * 1_000 / clock.monotonic_ns().since(start).0
    }

    #[test]
    fn parks_keep_to_their_share_of_a_core() {
        crate::host::std_host::least_timer_slack();
        let (bounded, free) = (share(50), share(1_000));
        println!("bounded to 50 ‰: {bounded} ‰; unbounded: {free} ‰");
        assert!(bounded < 150 && bounded < free, "{bounded} ‰ of a core, unbounded {free} ‰");
    }

    #[test]
    fn the_shortest_nap_grows_and_comes_back() {
        let mut napper = Napper::new(Naps::default());
        for _ in 0..100 {
            napper.keep_to_the_share(DurNs(0), DurNs(1)); // all of the thread's CPU in a nanosecond
        }
        assert_eq!(napper.least, NAP_MOST);
        for _ in 0..100 {
            napper.keep_to_the_share(thread_cpu().unwrap(), DurNs::from_ms(1_000));
        }
        assert_eq!(napper.least, NAP_LEAST);
    }
}
