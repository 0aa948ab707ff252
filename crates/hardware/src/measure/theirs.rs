//! The ways that the driver itself offers.

use super::{Length, Place, Sample, Way};
use crate::api::{Answer, Api, Ptr, Stream};
use gpu_async_reactor::Clock;
use gpu_async_reactor::host::std_host::StdClock;
use std::sync::mpsc::{Receiver, Sender, channel};

#[derive(Clone, Copy)]
struct Lane {
    stream: Stream,
    event: Stream,
    place: Place,
}

pub(super) struct Lanes {
    api: &'static Api,
    lanes: Vec<Lane>,
}

/// What a host function is called with.
struct Call {
    lane: usize,
    done: Sender<usize>,
}

unsafe extern "C" fn called(call: Ptr) {
    // SAFETY: each stream's own, alive until all its functions were called.
    let call = unsafe { &*call.cast::<Call>() };
    let _ = call.done.send(call.lane);
}

impl Lanes {
    pub(super) fn new(api: &'static Api, streams: usize) -> Answer<Lanes> {
        let lane =
            |_| Ok(Lane { stream: api.stream()?, event: api.event()?, place: Place::new(api)? });
        Ok(Lanes { api, lanes: (0..streams).map(lane).collect::<Answer<_>>()? })
    }

    pub(super) fn run(&self, way: Way, length: Length) -> Answer<Vec<Sample>> {
        match way {
            Way::Spin => self.spin(length),
            Way::HostCallback => self.callback(length),
            Way::EventSync => self.threads(length, |api, lane| api.block(lane.event, lane.stream)),
            _ => self.threads(length, |api, lane| api.synchronize(lane.stream)),
        }
    }

    fn submit(&self, lane: &Lane, length: Length) -> Answer<()> {
        lane.place.submit(self.api, lane.stream, length.ns)
    }

    fn spin(&self, length: Length) -> Answer<Vec<Sample>> {
        let clock = StdClock::new();
        let mut left = vec![length.rounds; self.lanes.len()];
        let mut samples = Vec::with_capacity(length.rounds * self.lanes.len());
        for lane in &self.lanes {
            self.submit(lane, length)?;
        }
        while left.iter().any(|&left| left > 0) {
            for (lane, left) in self.lanes.iter().zip(&mut left).filter(|(_, left)| **left > 0) {
                if self.api.is_done(lane.stream)? {
                    samples.push((lane.place.stamp(), clock.monotonic_ns()));
                    *left -= 1;
                    if *left > 0 {
                        self.submit(lane, length)?;
                    }
                }
            }
        }
        Ok(samples)
    }

    fn threads(
        &self,
        length: Length,
        wait: impl Fn(&Api, &Lane) -> Answer<()> + Sync,
    ) -> Answer<Vec<Sample>> {
        let one = |lane: &Lane| {
            let clock = StdClock::new();
            self.api.enter()?;
            let rounds = (0..length.rounds).map(|_| {
                self.submit(lane, length)?;
                wait(self.api, lane)?;
                let woke = clock.monotonic_ns();
                Ok((lane.place.stamp(), woke))
            });
            rounds.collect::<Answer<Vec<_>>>()
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = self.lanes.iter().map(|lane| scope.spawn(|| one(lane))).collect();
            let mut samples = Vec::new();
            for thread in threads {
                samples.extend(thread.join().map_err(|_| "a waiting thread panicked")??);
            }
            Ok(samples)
        })
    }

    fn callback(&self, length: Length) -> Answer<Vec<Sample>> {
        let clock = StdClock::new();
        let (done, finished): (_, Receiver<usize>) = channel();
        let calls: Vec<_> =
            (0..self.lanes.len()).map(|lane| Call { lane, done: done.clone() }).collect();
        let submit = |index: usize| {
            let lane = &self.lanes[index];
            self.submit(lane, length)?;
            let data = std::ptr::from_ref(&calls[index]).cast_mut().cast();
            // SAFETY: `calls` stays until each call was received.
            unsafe { self.api.call_behind(lane.stream, called, data) }
        };
        let mut left = vec![length.rounds; self.lanes.len()];
        let mut samples = Vec::with_capacity(length.rounds * self.lanes.len());
        (0..self.lanes.len()).try_for_each(submit)?;
        while left.iter().any(|&left| left > 0) {
            let index = finished.recv().map_err(|e| e.to_string())?;
            let woke = clock.monotonic_ns();
            samples.push((self.lanes[index].place.stamp(), woke));
            left[index] -= 1;
            if left[index] > 0 {
                submit(index)?;
            }
        }
        // The last function may still be on its way out.
        self.lanes.iter().try_for_each(|lane| self.api.synchronize(lane.stream))?;
        Ok(samples)
    }
}
