//! Events: which recording of each was reached, and when.

use super::code::*;
use super::context::Context;
use super::{Result, hold, machine, now};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

pub(crate) struct Event {
    context: Arc<Context>,
    /// A wait for it sleeps rather than spins.
    blocking: bool,
    timed: bool,
    recorded: AtomicU64,
    done: AtomicU64,
    at: AtomicU64,
    lock: Mutex<()>,
    reached: Condvar,
}

impl Event {
    pub(crate) fn new(context: Arc<Context>, flags: u32) -> Event {
        const BLOCKING_SYNC: u32 = 1;
        const DISABLE_TIMING: u32 = 2;
        Event {
            context,
            blocking: flags & BLOCKING_SYNC != 0,
            timed: flags & DISABLE_TIMING == 0,
            recorded: AtomicU64::new(0),
            done: AtomicU64::new(0),
            at: AtomicU64::new(0),
            lock: Mutex::new(()),
            reached: Condvar::new(),
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// A new recording; the last one is forgotten.
    pub(crate) fn record(&self) -> u64 {
        self.recorded.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn recording(&self) -> u64 {
        self.recorded.load(Ordering::Acquire)
    }

    pub(crate) fn reach(&self, recording: u64) {
        self.at.store(now(), Ordering::Relaxed);
        let _held = hold(&self.lock);
        self.done.fetch_max(recording, Ordering::AcqRel);
        self.reached.notify_all();
    }

    pub(crate) fn is_reached(&self, recording: u64) -> bool {
        self.done.load(Ordering::Acquire) >= recording
    }

    /// Wakes whoever waits, for the context has died.
    pub(crate) fn stir(&self) {
        let _held = hold(&self.lock);
        self.reached.notify_all();
    }

    pub(crate) fn query(&self) -> Result<()> {
        self.alive()?;
        if self.is_reached(self.recording()) || self.lies() { Ok(()) } else { Err(NOT_READY) }
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        let recording = self.recording();
        loop {
            self.alive()?;
            if self.is_reached(recording) || self.lies() {
                return Ok(());
            }
            if !self.blocking {
                std::hint::spin_loop();
                continue;
            }
            let held = hold(&self.lock);
            if !self.is_reached(recording) && !self.context.is_dead() {
                // The bound is for a death that was told before this thread listened.
                let bound = std::time::Duration::from_millis(5);
                let _ = self.reached.wait_timeout(held, bound);
            }
        }
    }

    pub(crate) fn elapsed(&self, from: &Event) -> Result<f32> {
        if !self.timed || !from.timed || self.recording() == 0 || from.recording() == 0 {
            return Err(INVALID_HANDLE);
        }
        self.query()?;
        from.query()?;
        let span = self.at.load(Ordering::Relaxed) as f64 - from.at.load(Ordering::Relaxed) as f64;
        Ok((span / 1e6) as f32)
    }

    fn alive(&self) -> Result<()> {
        if self.lies() { Ok(()) } else { self.context.check() }
    }

    fn lies(&self) -> bool {
        machine().script().lie_after_loss && self.context.is_dead()
    }
}
