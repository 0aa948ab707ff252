//! A queue's status: an event behind the work of each number, used again once it was reached.
//!
//! Upholds invariants 2 (the event decides, whatever the word says), 5 (no lock is held around a driver
//! call), 8 (a loss is told for ever) and 11 (events are recycled).

use super::device::{Inner, hold};
use super::{Handle, Owner, Raw, Vendor};
use crate::{Error, QueueStatus, Result, error};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What a queue and those who ask about it share.
pub(super) struct Events<V: Vendor> {
    pub(super) inner: Arc<Inner<V>>,
    stream: Handle,
    label: String,
    ring: Mutex<Ring>,
    /// All numbers to this one are done.
    done: AtomicU64,
    /// The greatest number given out.
    last: AtomicU64,
    lost: OnceLock<Error>,
    /// The queue is gone, and with it its stream, if that was its own.
    closed: AtomicBool,
    /// Keeps the stream, where it is somebody else's: last, for what is above may still ask it.
    _owner: Option<Owner>,
}

#[derive(Default)]
struct Ring {
    /// In the order of their numbers.
    pending: VecDeque<(u64, Handle)>,
    free: Vec<Handle>,
}

impl<V: Vendor> Events<V> {
    pub(super) fn new(
        inner: Arc<Inner<V>>,
        stream: Handle,
        label: String,
        last: u64,
        owner: Option<Owner>,
    ) -> Self {
        Events {
            inner,
            stream,
            label,
            ring: Mutex::default(),
            done: AtomicU64::new(last),
            last: AtomicU64::new(last),
            lost: OnceLock::new(),
            closed: AtomicBool::new(false),
            _owner: owner,
        }
    }

    /// An event that nobody uses; to be called in the device's context.
    pub(super) fn take(&self, driver: &V) -> Raw<Handle> {
        let free = hold(&self.ring).free.pop();
        free.map_or_else(|| driver.create_event(false), Ok)
    }

    /// Gives back an event that was not recorded after all.
    pub(super) fn give_back(&self, event: Handle) {
        hold(&self.ring).free.push(event);
    }

    /// Takes note of the event behind a number's work. The number is about to be given out.
    pub(super) fn push(&self, number: u64, event: Handle) {
        hold(&self.ring).pending.push_back((number, event));
        self.last.store(number, Ordering::Release);
    }

    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Fails if the device is known to be lost.
    pub(super) fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |lost| Err(lost.clone()))
    }

    /// The error of a failed call; a loss is remembered.
    pub(super) fn failed(&self, doing: &str, failure: super::Failure) -> Error {
        let error = self.inner.driver.error(doing, failure);
        if error.code() == crate::ErrorCode::DeviceLost {
            return self.lost.get_or_init(|| error).clone();
        }
        error
    }

    fn reached(&self, number: u64) {
        self.done.fetch_max(number, Ordering::AcqRel);
        let mut ring = hold(&self.ring);
        while ring.pending.front().is_some_and(|&(pending, _)| pending <= number) {
            let Some((_, event)) = ring.pending.pop_front() else { break };
            ring.free.push(event);
        }
    }

    /// The event behind the work of a number, or of the first one after it.
    fn event(&self, number: u64) -> Option<(u64, Handle)> {
        let ring = hold(&self.ring);
        let index = ring.pending.partition_point(|&(pending, _)| pending < number);
        ring.pending.get(index).copied()
    }
}

impl<V: Vendor> QueueStatus for Events<V> {
    fn status(&self, number: u64) -> Result<bool> {
        self.check()?;
        if number <= self.done() {
            return Ok(true);
        }
        let doing = || format!("asking about number {number} of {}", self.label);
        if number > self.last() {
            return match self.closed.load(Ordering::Acquire) {
                true => Err(error!(Misuse, doing(), "the queue is gone and never gave it out")),
                false => Ok(false),
            };
        }
        // Nobody gave it back in between, or the number is done. An event that was recorded anew meanwhile
        // answers for a later number of the same queue: "done" is then true of this one too.
        let Some((covers, event)) = self.event(number) else {
            return Ok(number <= self.done());
        };
        let done = self.inner.within(|driver| driver.query_event(event));
        match done {
            Ok(true) => self.reached(covers),
            Ok(false) => {}
            Err(failure) => return Err(self.failed(&doing(), failure)),
        }
        Ok(number <= self.done())
    }

    fn confirm(&self, number: u64) -> Result<()> {
        self.check()?;
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let doing = || format!("making sure of number {number} of {}", self.label);
        let asked = self.inner.within(|driver| {
            // Invariant 10: a query would break a capture, and what is captured was not lost.
            match driver.is_capturing(self.stream)? {
                true => Ok(()),
                false => driver.query_stream(self.stream).map(|_| ()),
            }
        });
        asked.map_err(|failure| self.failed(&doing(), failure))
    }

    fn label(&self) -> &str {
        &self.label
    }
}

impl<V: Vendor> Drop for Events<V> {
    fn drop(&mut self) {
        let ring = self.ring.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let events: Vec<_> =
            ring.pending.drain(..).map(|(_, event)| event).chain(ring.free.drain(..)).collect();
        // Pending ones are destroyed by the driver when they are reached; a lost device has none.
        let _: Raw<()> = self.inner.within(|driver| {
            for event in events {
                let _ = driver.destroy_event(event);
            }
            Ok(())
        });
    }
}
