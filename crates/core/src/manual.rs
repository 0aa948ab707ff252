//! Time that moves only when told: a clock, its timer, and an idle that moves it.

use crate::{Clock, CompletionLine, DurNs, Idle, MonoNs, Timer};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// A clock that moves only when told. Clones share the time.
///
/// ```
/// use gpu_async_reactor_core::{Clock, DurNs, ManualClock, MonoNs};
/// let clock = ManualClock::new();
/// let shared = clock.handle();
/// clock.advance(DurNs(5));
/// assert_eq!(shared.monotonic_ns(), MonoNs(5));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Rc<Time>);

#[derive(Debug, Default)]
struct Time {
    now: Cell<MonoNs>,
    next_key: Cell<u64>,
    sleepers: RefCell<Vec<Sleeper>>,
}

#[derive(Debug)]
struct Sleeper {
    key: u64,
    at: MonoNs,
    waker: Waker,
}

impl ManualClock {
    /// A clock that reads 0.
    pub fn new() -> ManualClock {
        ManualClock::default()
    }

    /// Another handle to the same time.
    pub fn handle(&self) -> ManualClock {
        self.clone()
    }

    /// The timer that goes with this clock.
    pub fn timer(&self) -> ManualTimer {
        ManualTimer(self.clone())
    }

    /// Moves the time to `to` and wakes the timers that are due, earliest first. Time never goes
    /// back: an earlier instant changes nothing.
    pub fn set_monotonic(&self, to: MonoNs) {
        self.0.now.set(self.0.now.get().max(to));
        loop {
            let due = {
                let mut sleepers = self.0.sleepers.borrow_mut();
                let now = self.0.now.get();
                let earliest = sleepers
                    .iter()
                    .enumerate()
                    .filter(|(_, s)| s.at <= now)
                    .min_by_key(|(_, s)| (s.at, s.key));
                let Some((index, _)) = earliest else { return };
                sleepers.swap_remove(index)
            };
            // Invariant 5: nothing is borrowed here.
            due.waker.wake();
        }
    }

    /// Moves the time on by a span and wakes the timers that are due.
    pub fn advance(&self, span: DurNs) {
        self.set_monotonic(self.0.now.get() + span);
    }
}

impl Clock for ManualClock {
    fn monotonic_ns(&self) -> MonoNs {
        self.0.now.get()
    }
}

/// The timer of a [`ManualClock`]: fires when the clock is told to move past it.
#[derive(Clone, Debug)]
pub struct ManualTimer(ManualClock);

impl Timer for ManualTimer {
    async fn sleep_until(&self, at: MonoNs) {
        let time = &self.0.0;
        let key = time.next_key.get();
        time.next_key.set(key + 1);
        let forget = Forget { time, key };
        poll_fn(|cx| {
            if time.now.get() >= at {
                return Poll::Ready(());
            }
            let sleeper = Sleeper { key, at, waker: cx.waker().clone() };
            let old = {
                let mut sleepers = time.sleepers.borrow_mut();
                match sleepers.iter_mut().find(|s| s.key == key) {
                    Some(mine) => Some(core::mem::replace(mine, sleeper)),
                    None => {
                        sleepers.push(sleeper);
                        None
                    }
                }
            };
            drop(old); // a waker's drop may run user code (invariant 5)
            Poll::Pending
        })
        .await;
        drop(forget);
    }
}

/// Takes a sleep off the list when it is dropped.
struct Forget<'t> {
    time: &'t Time,
    key: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mine = {
            let mut sleepers = self.time.sleepers.borrow_mut();
            let index = sleepers.iter().position(|s| s.key == self.key);
            index.map(|i| sleepers.swap_remove(i))
        };
        drop(mine);
    }
}

/// An [`Idle`] under manual time: idling moves the clock, and nothing else does.
#[derive(Clone, Debug)]
pub struct ManualIdle(ManualClock);

impl ManualIdle {
    /// An idle that moves that clock.
    pub fn new(clock: ManualClock) -> ManualIdle {
        ManualIdle(clock)
    }
}

impl Idle for ManualIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        self.0.set_monotonic(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        if ready(line) {
            return true;
        }
        self.0.advance(bound);
        ready(line)
    }
}
