//! The simulated device under manual time: one thread, deterministic to the nanosecond.
//!
//! Whatever waits moves the time: an idle to the next thing that happens, a status query by what it
//! costs, a blocking wait to its end. Nothing else does.

use super::engine::{Deed, Engine};
use super::{SimOptions, Work, lost};
use crate::{
    Bell, Clock, CompletionLine, DurNs, Error, Idle, LINE_WORDS, LineSet, ManualClock, MonoNs,
    Queue, Result, Slot, Timer,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// What a status query costs where the options say nothing.
const QUERY_COST: DurNs = DurNs(100);

/// A simulated device that lives in a [`ManualClock`]'s time. Clones are the same device.
///
/// It is a [`Clock`], and a [`Timer`] that moves the time itself, for one wait driven by
/// [`run_inline`](crate::run_inline).
///
/// ```
/// use gpu_async_reactor::backend::sim::{SimOptions, VirtualDevice, Work};
/// use gpu_async_reactor::{Clock, DurNs, ManualClock, MonoNs, Queue};
/// let device = VirtualDevice::new(ManualClock::new(), SimOptions::default());
/// let mut queue = device.queue();
/// let number = queue.submit(Work::lasting(DurNs::from_ms(3)))?;
/// assert!(queue.block(number, DurNs::from_ms(9))?);
/// assert_eq!(device.monotonic_ns(), MonoNs(3_000_000));
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
#[derive(Clone)]
pub struct VirtualDevice {
    shared: Rc<Shared>,
}

struct Shared {
    clock: ManualClock,
    options: SimOptions,
    lost: Cell<bool>,
    rings: Cell<u64>,
    queues: RefCell<Vec<Rc<State>>>,
}

struct State {
    engine: RefCell<Engine>,
    line: Arc<CompletionLine>,
    slot: Slot,
    bell: RefCell<Option<(Arc<Bell>, Slot)>>,
    label: String,
}

impl VirtualDevice {
    /// A device that behaves as the options say, in that clock's time.
    pub fn new(clock: ManualClock, options: SimOptions) -> VirtualDevice {
        let (lost, rings) = (Cell::new(false), Cell::new(0));
        let shared = Shared { clock, options, lost, rings, queues: RefCell::default() };
        VirtualDevice { shared: Rc::new(shared) }
    }

    /// Another queue. Eight share a line.
    pub fn queue(&self) -> VirtualQueue {
        let mut queues = self.shared.queues.borrow_mut();
        let count = queues.len();
        let slot = Slot::ALL[count % LINE_WORDS];
        let line = match queues.last() {
            Some(last) if slot.index() > 0 => last.line.clone(),
            _ => Arc::default(),
        };
        let engine = RefCell::new(Engine::new(self.shared.options.clone(), count as u64));
        let label = format!("simulated queue {count}");
        let state = Rc::new(State { engine, line, slot, bell: RefCell::default(), label });
        queues.push(state.clone());
        VirtualQueue { device: self.clone(), state }
    }

    /// An idle that moves this device's time.
    pub fn idle(&self) -> VirtualIdle {
        VirtualIdle(self.clone())
    }

    /// Moves the time to `to`, and lets happen what happens until then, in the order of its time;
    /// at one time, in the order of the queues.
    pub fn advance_to(&self, to: MonoNs) {
        while self.step(to) {}
        self.shared.clock.set_monotonic(to);
    }

    /// Loses the device now.
    pub fn lose(&self) {
        self.shared.lost.set(true);
        let queues: Vec<_> = self.shared.queues.borrow().clone();
        for queue in queues {
            let remains = queue.engine.borrow_mut().stop();
            drop(remains);
        }
    }

    /// Lets the next thing happen, if it does by `to`: whether one did.
    fn step(&self, to: MonoNs) -> bool {
        let next = {
            let queues = self.shared.queues.borrow();
            let due =
                |queue: &Rc<State>| Some((queue.engine.borrow().next_event()?, queue.clone()));
            // The first of several at one time: `min_by_key` keeps it.
            queues.iter().filter_map(due).min_by_key(|&(at, _)| at)
        };
        let Some((at, queue)) = next.filter(|&(at, _)| at <= to) else { return false };
        self.shared.clock.set_monotonic(at);
        let deed = queue.engine.borrow_mut().step(at);
        match deed {
            None => {}
            Some(Deed::Effect(effect)) => {
                // As with threads: a panic in the work is a fault of the device.
                let run = std::panic::AssertUnwindSafe(effect);
                if std::panic::catch_unwind(run).is_err() {
                    self.lose();
                }
            }
            Some(Deed::Word(number)) => {
                queue.engine.borrow_mut().note_store(number, self.monotonic_ns());
                queue.line.store(queue.slot, number);
                let bell = queue.bell.borrow().clone();
                if let Some((bell, group)) = bell {
                    self.shared.rings.set(self.shared.rings.get() + 1);
                    bell.ring_group(group, self.shared.rings.get());
                }
            }
            Some(Deed::Status(number)) => queue.engine.borrow_mut().set_done(number),
            Some(Deed::Lose) => self.lose(),
        }
        true
    }

    /// Lets things happen until `done` holds or the time is `to`: whether it held.
    fn run_until(&self, to: MonoNs, mut done: impl FnMut() -> bool) -> bool {
        loop {
            if done() {
                return true;
            }
            if !self.step(to) {
                self.shared.clock.set_monotonic(to);
                return done();
            }
        }
    }
}

impl Clock for VirtualDevice {
    fn monotonic_ns(&self) -> MonoNs {
        self.shared.clock.monotonic_ns()
    }
}

impl Timer for VirtualDevice {
    async fn sleep_until(&self, at: MonoNs) {
        self.advance_to(at);
    }
}

impl std::fmt::Debug for VirtualDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualDevice").field("now", &self.monotonic_ns()).finish_non_exhaustive()
    }
}

/// Idles by moving a [`VirtualDevice`]'s time, to the store that ends a park and no further.
#[derive(Clone, Debug)]
pub struct VirtualIdle(VirtualDevice);

impl Idle for VirtualIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        self.0.advance_to(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.0.run_until(self.0.monotonic_ns() + bound, || ready(line))
    }

    fn park_lines(&mut self, set: &LineSet<'_>, bound: DurNs) -> bool {
        self.0.run_until(self.0.monotonic_ns() + bound, || set.any_ready())
    }
}

/// An in-order queue of a [`VirtualDevice`].
#[derive(Clone)]
pub struct VirtualQueue {
    device: VirtualDevice,
    state: Rc<State>,
}

impl VirtualQueue {
    /// Submits work with the store of the next number behind it: that number.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or `StoreRefused`: then nothing was submitted.
    pub fn submit(&mut self, work: Work) -> Result<u64> {
        self.check()?;
        let (now, label) = (self.device.monotonic_ns(), &self.state.label);
        let mut engine = self.state.engine.borrow_mut();
        let number = engine.next_number(label)?;
        engine.submit(work, now, Some(number));
        engine.store_next(now, label)
    }

    /// Submits work with no store behind it.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn submit_bare(&mut self, work: Work) -> Result<()> {
        self.check()?;
        self.state.engine.borrow_mut().submit(work, self.device.monotonic_ns(), None);
        Ok(())
    }

    /// Rings that doorbell word behind each store from now on.
    pub fn ring(&mut self, bell: Arc<Bell>, group: Slot) {
        *self.state.bell.borrow_mut() = Some((bell, group));
    }

    /// When the store of a number happened.
    pub fn stored_at(&self, number: u64) -> Option<MonoNs> {
        self.state.engine.borrow().stored_at(number)
    }

    fn check(&self) -> Result<()> {
        if self.device.shared.lost.get() { Err(self.loss()) } else { Ok(()) }
    }

    fn loss(&self) -> Error {
        lost(&self.state.label)
    }

    fn answer(&self, number: u64) -> Result<bool> {
        match self.device.shared.lost.get() {
            true if self.device.shared.options.faults.lie_after_loss => Ok(true),
            true => Err(self.loss()),
            false => Ok(self.state.engine.borrow().done() >= number),
        }
    }
}

impl Queue for VirtualQueue {
    type Line = CompletionLine;

    fn line(&self) -> &Arc<CompletionLine> {
        &self.state.line
    }

    fn slot(&self) -> Slot {
        self.state.slot
    }

    fn store_next(&mut self) -> Result<u64> {
        self.check()?;
        let now = self.device.monotonic_ns();
        self.state.engine.borrow_mut().store_next(now, &self.state.label)
    }

    fn status(&mut self, number: u64) -> Result<bool> {
        let options = &self.device.shared.options;
        let query = if options.query_cost == DurNs(0) { QUERY_COST } else { options.query_cost };
        let cost = DurNs(query.0 + options.faults.slow_status.0);
        self.device.advance_to(self.device.monotonic_ns() + cost);
        self.answer(number)
    }

    fn block(&mut self, number: u64, bound: DurNs) -> Result<bool> {
        let end = self.device.monotonic_ns() + bound;
        self.device.run_until(end, || self.answer(number).unwrap_or(true));
        self.answer(number)
    }

    fn confirm(&mut self, _number: u64) -> Result<()> {
        self.check()
    }

    fn label(&self) -> &str {
        &self.state.label
    }
}

impl std::fmt::Debug for VirtualQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualQueue").field("label", &self.state.label).finish_non_exhaustive()
    }
}
