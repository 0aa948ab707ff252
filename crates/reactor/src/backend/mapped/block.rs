//! The vendor's blocking wait, bounded: a helper thread waits for an event that sleeps, and the caller waits
//! for the helper.
//!
//! Upholds invariants 3 and 5 (the lock is not held while the driver blocks).

use super::device::{Inner, hold};
use super::events::Events;
use super::{Failure, Handle, Raw, Vendor};
use crate::{DurNs, QueueStatus, Result, error};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two queries for a number that no sleeping event can be placed behind any more.
const NAP_LEAST: Duration = Duration::from_micros(50);
const NAP_MOST: Duration = Duration::from_millis(1);

/// A queue's helper, started by the first blocking wait.
pub(super) struct Blocker<V: Vendor> {
    shared: Arc<Shared>,
    inner: Arc<Inner<V>>,
    /// The sleeping event, and the number that it is behind.
    placed: Option<(u64, Handle)>,
    started: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// An event to wait for, for that number.
    job: Option<(u64, Handle)>,
    /// The last number that was waited for, and how it ended.
    ended: Option<(u64, Raw<()>)>,
    /// The queue is gone; what the helper waits for is the helper's to destroy.
    closed: bool,
}

impl<V: Vendor> Blocker<V> {
    pub(super) fn new(inner: Arc<Inner<V>>) -> Blocker<V> {
        Blocker { shared: Arc::default(), inner, placed: None, started: false }
    }

    /// Waits for a number, at most so long: whether it is done. `newest` says that nothing was submitted
    /// behind it.
    pub(super) fn block(
        &mut self,
        events: &Events<V>,
        stream: Handle,
        number: u64,
        newest: bool,
        bound: DurNs,
    ) -> Result<bool> {
        let until = Instant::now() + Duration::from(bound);
        // First: a child of a fork has no helper, and learns here that it has no driver either.
        if events.status(number)? {
            return Ok(true);
        }
        if bound == DurNs(0) {
            return Ok(false);
        }
        let placed = match self.placed {
            Some((placed, _)) if placed == number => true,
            _ if newest => self.place(events, stream, number)?,
            _ => false,
        };
        if placed { self.sleep(events, number, until) } else { nap(events, number, until) }
    }

    /// Records the sleeping event behind all that was submitted and gives it to the helper; `false` while the
    /// helper still waits for an earlier number.
    fn place(&mut self, events: &Events<V>, stream: Handle, number: u64) -> Result<bool> {
        if hold(&self.shared.state).job.is_some() {
            return Ok(false);
        }
        let doing = || format!("blocking for number {number} of {}", events.label());
        self.start().map_err(|e| error!(System, doing(), e.to_string()))?;
        let last = self.placed.map(|(_, event)| event);
        let recorded = self.inner.within(|driver| {
            let event = last.map_or_else(|| driver.create_event(true), Ok)?;
            driver.record(event, stream).map(|()| event)
        });
        let event = recorded.map_err(|failure| events.failed(&doing(), failure))?;
        self.placed = Some((number, event));
        let mut state = hold(&self.shared.state);
        state.ended = None;
        state.job = Some((number, event));
        drop(state);
        self.shared.changed.notify_all();
        Ok(true)
    }

    fn sleep(&self, events: &Events<V>, number: u64, until: Instant) -> Result<bool> {
        let mut state = hold(&self.shared.state);
        loop {
            if let Some((ended, result)) = state.ended
                && ended == number
            {
                drop(state);
                let doing = || format!("blocking for number {number} of {}", events.label());
                result.map_err(|failure| events.failed(&doing(), failure))?;
                return events.status(number);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                return events.status(number);
            }
            let wait = self.shared.changed.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn start(&mut self) -> std::io::Result<()> {
        if self.started {
            return Ok(());
        }
        let (shared, inner) = (self.shared.clone(), self.inner.clone());
        let thread = std::thread::Builder::new().name("gpu-reactor-block".to_owned());
        thread.spawn(move || help(&shared, &inner))?;
        self.started = true;
        Ok(())
    }
}

/// The helper: one driver call at a time, for as long as it takes.
fn help<V: Vendor>(shared: &Shared, inner: &Inner<V>) {
    let mut state = hold(&shared.state);
    while !state.closed {
        let Some((number, event)) = state.job else {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        let result = inner.within::<_, Failure>(|driver| driver.synchronize_event(event));
        state = hold(&shared.state);
        if state.closed {
            let _ = inner.within::<_, Failure>(|driver| driver.destroy_event(event));
        }
        state.job = None;
        state.ended = Some((number, result));
        shared.changed.notify_all();
    }
}

/// Asks, with naps that grow.
fn nap<V: Vendor>(events: &Events<V>, number: u64, until: Instant) -> Result<bool> {
    let begun = Instant::now();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep((begun.elapsed() / 32).clamp(NAP_LEAST, NAP_MOST).min(left));
        if events.status(number)? {
            return Ok(true);
        }
    }
}

impl<V: Vendor> Drop for Blocker<V> {
    fn drop(&mut self) {
        let mut state = hold(&self.shared.state);
        state.closed = true;
        // A helper that is in the driver ends when its event is reached; nobody waits for it (invariant 7).
        let busy = state.job.is_some();
        drop(state);
        self.shared.changed.notify_all();
        if let Some((_, event)) = self.placed.filter(|_| !busy) {
            let _ = self.inner.within::<_, Failure>(|driver| driver.destroy_event(event));
        }
    }
}
