//! Level 2: many waits and timers on one thread.
//!
//! A turn fires what is due, and idles only when nothing was. Upholds invariants 3 (every park is
//! bounded), 4 (registered, then looked at again, then idle), 5 (no table is borrowed while a waker
//! runs or the thread idles) and 11 (no allocation once warm).

mod addresses;
mod lines;
mod timers;
mod watch;
mod wheel;

pub(crate) use watch::Early;
pub use watch::{Idle, LineSet, SharedLine, WatchedLine};

use crate::{
    Bell, Clock, CompletionLine, DurNs, LINE_WORDS, MemoryDescriptor, MonoNs, Result, Slot, Timer,
    error, reached,
};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use lines::{Lines, WaiterKey};
use timers::{TimerKey, Timers};
use watch::LineRef;

/// What one turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Something was due, and was woken.
    Woke,
    /// Only timers were registered: slept until the earliest, or until another thread's wake.
    Slept,
    /// Parked on the lines, until a store, another thread's wake, or the bound.
    Parked,
}

/// Watches completion words and timers for the tasks of one thread.
///
/// ```
/// use gpu_async_reactor_core::*;
/// let line = CompletionLine::new();
/// let clock = ManualClock::new();
/// let reactor = Reactor::new(clock.handle());
/// let mut executor = DynExecutor::new();
/// executor.spawn_dyn(async {
///     let work = MemoryDescriptor::new(&line, Slot::ALL[0], 1);
///     assert!(!reactor.ready(work, Some(MonoNs(500))).await); // nothing was stored in time
///     line.store(Slot::ALL[0], 1);
///     assert!(reactor.ready(work, None).await);
/// });
/// executor.run(&reactor, &mut ManualIdle::new(clock), DurNs(100))?;
/// # Ok::<(), Error>(())
/// ```
pub struct Reactor<'l, C> {
    clock: C,
    bell: Arc<Bell>,
    tables: RefCell<Tables<'l>>,
    /// The host's wake word as it was at the end of the last turn.
    rung: Cell<u64>,
    /// A park timed out: the next pass looks at every group, whatever its doorbell says.
    look_at_all: Cell<bool>,
    outside: Cell<usize>,
    // Kept between passes so that neither allocates (invariant 11).
    timed: Cell<Vec<Timed<'l>>>,
    watched: Cell<Vec<WatchedLine<'l>>>,
}

struct Tables<'l> {
    lines: Lines<'l>,
    timers: Timers<Due>,
    alarms: usize,
    /// Those whose time a pass found to have come, until their wakers run.
    timed: Vec<Timed<'l>>,
}

impl Tables<'_> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.lines.len() == 0 && self.timers.is_empty()
    }
}

/// A waker to wake, and a shared line to let go, once the tables are released.
type Timed<'l> = (Waker, Option<LineRef<'l>>);

enum Due {
    Alarm(Waker),
    Bound(WaiterKey),
}

impl Default for Due {
    fn default() -> Self {
        Due::Bound(WaiterKey::NONE)
    }
}

impl<'l, C: Clock> Reactor<'l, C> {
    /// A reactor with nothing registered and a doorbell in ordinary memory.
    pub fn new(clock: C) -> Self {
        Self::with_bell(clock, Arc::new(Bell::new()))
    }

    /// A reactor over a doorbell that a device can ring.
    pub fn with_bell(clock: C, bell: Arc<Bell>) -> Self {
        let rung = Cell::new(bell.line().load(Bell::HOST));
        let tables =
            Tables { lines: Lines::new(), timers: Timers::new(), alarms: 0, timed: Vec::new() };
        Self {
            clock,
            bell,
            tables: RefCell::new(tables),
            rung,
            look_at_all: Cell::new(false),
            outside: Cell::new(0),
            timed: Cell::default(),
            watched: Cell::default(),
        }
    }

    /// The clock that deadlines are read against.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The doorbell: rung from any thread, it ends a park.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Says that every store to `line` is followed by a ring of the doorbell's word `group`, so that
    /// the line is looked at only then, and a park on the doorbell watches it.
    ///
    /// A ring that gets lost costs one park bound.
    ///
    /// # Errors
    ///
    /// `DoorbellSlot` for slot 7, which is the host's.
    pub fn bind(&self, line: &'l CompletionLine, group: Slot) -> Result<()> {
        if group == Bell::HOST {
            return Err(error!(DoorbellSlot, group.index()));
        }
        self.tables.borrow_mut().lines.bind(line, group.index());
        self.look_at_all.set(true);
        Ok(())
    }

    /// Resolves `true` when the word has reached its target, `false` when the clock reads `until`
    /// first. When both hold, completion wins.
    pub fn ready(&self, work: MemoryDescriptor<'l>, until: Option<MonoNs>) -> Ready<'_, 'l, C> {
        let line = LineRef::Borrowed(work.line());
        Ready {
            reactor: self,
            line,
            slot: work.slot(),
            target: work.target(),
            until,
            key: WaiterKey::NONE,
        }
    }

    /// As [`ready`](Reactor::ready), over a line that the future and its registration keep alive.
    pub fn ready_shared(
        &self,
        line: SharedLine,
        slot: Slot,
        target: u64,
        until: Option<MonoNs>,
    ) -> Ready<'_, 'l, C> {
        Ready {
            reactor: self,
            line: LineRef::Shared(line),
            slot,
            target,
            until,
            key: WaiterKey::NONE,
        }
    }

    /// Resolves when the clock reads `at`.
    pub fn alarm(&self, at: MonoNs) -> Alarmed<'_, 'l, C> {
        Alarmed { reactor: self, at, key: TimerKey::NONE }
    }

    /// A promise that something outside, such as another thread, will wake a task: while it lives,
    /// a turn with nothing registered parks on the doorbell and doesn't stall.
    pub fn outside(&self) -> Outside<'_> {
        self.outside.set(self.outside.get() + 1);
        Outside { count: &self.outside }
    }

    /// Registered descriptors and timers. A descriptor's bound is no timer of its own.
    pub fn pending(&self) -> (usize, usize) {
        let tables = self.tables.borrow();
        (tables.lines.len(), tables.alarms)
    }

    /// Wakes what is due, without idling: whether there was anything.
    #[inline]
    pub fn fire(&self) -> bool {
        // An executor asks after each poll.
        if self.tables.borrow().is_empty() { false } else { self.pass() }
    }

    fn pass(&self) -> bool {
        let (due, next) = {
            let Tables { lines, timers, .. } = &mut *self.tables.borrow_mut();
            if lines.len() > 0 {
                let all = self.look_at_all.take();
                lines.scan(&self.bell, all, &mut |bound| drop(timers.cancel(bound)));
            }
            (lines.any_due(), timers.lower_bound())
        };
        // Read with nothing borrowed, and not at all while nothing is timed.
        let timed = next.is_some_and(|next| {
            let now = self.clock.monotonic_ns();
            next <= now && self.take_timed(now)
        });
        // Invariant 5: the tables are released; a waker may register, cancel or spawn.
        if due {
            self.wake_reached();
        }
        if timed {
            self.wake_timed();
        }
        due || timed
    }

    /// Wakes those whose numbers are reached.
    #[inline]
    fn wake_reached(&self) {
        loop {
            let (waker, let_go) = {
                let Tables { lines, .. } = &mut *self.tables.borrow_mut();
                (lines.next_due(), lines.any_let_go())
            };
            let Some(waker) = waker else {
                if let_go {
                    self.let_go();
                }
                return;
            };
            waker.wake();
        }
    }

    #[cold]
    fn let_go(&self) {
        // Taken with the tables borrowed, and dropped without.
        let next = || self.tables.borrow_mut().lines.next_let_go();
        core::iter::from_fn(next).for_each(drop);
    }

    /// Takes those whose time has come out of the tables, before any waker runs that could change who
    /// they are: whether there is one.
    fn take_timed(&self, now: MonoNs) -> bool {
        let Tables { lines, timers, alarms, timed } = &mut *self.tables.borrow_mut();
        while let Some(timer) = timers.pop_due(now) {
            match timer {
                Due::Alarm(waker) => {
                    *alarms -= 1;
                    timed.push((waker, None));
                }
                Due::Bound(key) => {
                    timed.extend(lines.forget(key).map(|left| (left.waker, left.line)));
                }
            }
        }
        !timed.is_empty()
    }

    fn wake_timed(&self) {
        let spare = self.timed.take();
        let mut timed = core::mem::replace(&mut self.tables.borrow_mut().timed, spare);
        timed.drain(..).for_each(|(waker, _line)| waker.wake());
        self.timed.set(timed);
    }

    /// One turn: wakes what is due, or else idles once.
    ///
    /// Something due: woken, [`Turn::Woke`]. No descriptor: sleeps to the earliest timer, or with
    /// none until the promised outside wake, [`Turn::Slept`]. Otherwise parks, for at most `park_bound` and to the earliest deadline at the latest,
    /// [`Turn::Parked`].
    ///
    /// # Errors
    ///
    /// `Stalled`, naming `tasks_left`, when nothing is registered.
    pub fn turn<I: Idle>(
        &self,
        idle: &mut I,
        park_bound: DurNs,
        tasks_left: usize,
    ) -> Result<Turn> {
        self.turn_unless(idle, park_bound, tasks_left, None)
    }

    /// A turn whose park an executor's own word ends, too.
    pub(crate) fn turn_unless<I: Idle>(
        &self,
        idle: &mut I,
        park_bound: DurNs,
        tasks_left: usize,
        early: Option<Early<'_>>,
    ) -> Result<Turn> {
        if self.fire() {
            return Ok(Turn::Woke);
        }
        let (waiting, next) = {
            let Tables { lines, timers, .. } = &mut *self.tables.borrow_mut();
            (lines.len() > 0, timers.next())
        };
        let outside = self.outside.get() > 0;
        if !waiting && !outside && next.is_none() {
            return Err(error!(Stalled, tasks_left));
        }
        // Invariant 4: what ends a sleep in the kernel is in place before the words are looked at
        // for the last time, which a park does first.
        let unparkable = idle.unparker().map(|unparker| self.bell.register(unparker)).is_some();
        let turn = if waiting || (outside && !unparkable) {
            let now = self.clock.monotonic_ns();
            let bound = next.map_or(park_bound, |at| park_bound.min(at.since(now)));
            self.park(idle, bound, early);
            Turn::Parked
        } else {
            // Invariant 12: nothing to watch, so nothing is spent until a timer or a ring.
            if self.bell.line().load(Bell::HOST) == self.rung.get() {
                idle.sleep_until(next.unwrap_or(MonoNs::MAX));
            }
            Turn::Slept
        };
        // Only here: a ring during the turn, before the park included, has to end that park. What
        // the ringer did before is seen by whoever looks after this turn.
        self.rung.set(self.bell.line().load(Bell::HOST));
        Ok(turn)
    }

    /// A registered waiter is polled again: whether it is still registered, to be woken through
    /// `waker`.
    fn waits_again(&self, key: WaiterKey, waker: &Waker) -> bool {
        let known =
            |tables: &mut Tables<'l>| tables.lines.waker(key).map(|known| known.will_wake(waker));
        match known(&mut self.tables.borrow_mut()) {
            None => return false,
            Some(true) => return true,
            Some(false) => {}
        }
        // Cloned and dropped with nothing borrowed: both may run user code (invariant 5).
        let mut waker = waker.clone();
        let known = self
            .tables
            .borrow_mut()
            .lines
            .waker(key)
            .map(|known| core::mem::swap(known, &mut waker));
        known.is_some()
    }

    /// An alarm is polled again: whether it is still registered, now with `waker`, which is swapped
    /// for the one before.
    fn waits_on(&self, key: TimerKey, waker: &mut Waker) -> bool {
        match self.tables.borrow_mut().timers.get_mut(key) {
            Some(Due::Alarm(known)) => {
                core::mem::swap(known, waker);
                true
            }
            _ => false,
        }
    }

    /// Forgets a registered waiter.
    #[inline(never)]
    fn forget(&self, key: WaiterKey) {
        let left = {
            let Tables { lines, timers, .. } = &mut *self.tables.borrow_mut();
            let left = lines.forget(key);
            if let Some(bound) = left.as_ref().and_then(|left| left.bound) {
                timers.cancel(bound);
            }
            left
        };
        drop(left); // a waker's or a line's drop may run user code (invariant 5)
    }

    /// Parks with nothing borrowed, on a copy of what is watched (invariant 5).
    fn park<I: Idle>(&self, idle: &mut I, bound: DurNs, early: Option<Early<'_>>) {
        let mut watched = self.watched.take();
        let (rings, seen) = {
            let lines = &self.tables.borrow().lines;
            (lines.watched(&mut watched), lines.seen(self.bell.line()))
        };
        // With no other handle nobody can ring, unless a device does.
        let bell = (rings || Arc::strong_count(&self.bell) > 1).then(|| {
            let mut words = [self.rung.get(); LINE_WORDS];
            words[..seen.len()].copy_from_slice(&seen);
            WatchedLine::changing(self.bell.line(), words)
        });
        if !idle.park_lines(&LineSet::with_bell(&watched, bell, early), bound) {
            self.look_at_all.set(rings);
        }
        watched.clear(); // lets go of shared lines, with nothing borrowed
        self.watched.set(watched);
    }
}

impl<C: Clock> Clock for Reactor<'_, C> {
    fn monotonic_ns(&self) -> MonoNs {
        self.clock.monotonic_ns()
    }
}

impl<C: Clock> Timer for Reactor<'_, C> {
    async fn sleep_until(&self, at: MonoNs) {
        self.alarm(at).await;
    }
}

impl<C> fmt::Debug for Reactor<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables.borrow();
        f.debug_struct("Reactor")
            .field("descriptors", &tables.lines.len())
            .field("timers", &tables.alarms)
            .finish_non_exhaustive()
    }
}

/// A future of [`Reactor::ready`]. Dropping it forgets its registration.
#[must_use = "futures do nothing unless polled"]
pub struct Ready<'r, 'l, C: Clock> {
    reactor: &'r Reactor<'l, C>,
    line: LineRef<'l>,
    slot: Slot,
    target: u64,
    until: Option<MonoNs>,
    key: WaiterKey,
}

impl<C: Clock> Ready<'_, '_, C> {
    #[inline]
    fn forget(&mut self) {
        let key = core::mem::replace(&mut self.key, WaiterKey::NONE);
        // A waiter that was woken is forgotten already.
        if key.is_some() && self.reactor.tables.borrow().lines.knows(key) {
            self.reactor.forget(key);
        }
    }
}

impl<C: Clock> Future for Ready<'_, '_, C> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        if reached(this.line.get(), this.slot, this.target) {
            this.forget();
            return Poll::Ready(true);
        }
        if this.until.is_some_and(|at| this.reactor.clock.monotonic_ns() >= at) {
            this.forget();
            return Poll::Ready(false);
        }
        if this.key.is_some() && this.reactor.waits_again(this.key, cx.waker()) {
            return Poll::Pending;
        }
        let waker = cx.waker().clone();
        let Tables { lines, timers, .. } = &mut *this.reactor.tables.borrow_mut();
        this.key = lines.register(&this.line, this.slot, this.target, waker);
        if let Some(at) = this.until {
            lines.bound(this.key, timers.insert(at, Due::Bound(this.key)));
        }
        Poll::Pending
    }
}

impl<C: Clock> Drop for Ready<'_, '_, C> {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A future of [`Reactor::alarm`]. Dropping it forgets its registration.
#[must_use = "futures do nothing unless polled"]
pub struct Alarmed<'r, 'l, C: Clock> {
    reactor: &'r Reactor<'l, C>,
    at: MonoNs,
    key: TimerKey,
}

impl<C: Clock> Alarmed<'_, '_, C> {
    #[inline]
    fn forget(&mut self) {
        let key = core::mem::replace(&mut self.key, TimerKey::NONE);
        if !key.is_some() {
            return;
        }
        let due = {
            let Tables { timers, alarms, .. } = &mut *self.reactor.tables.borrow_mut();
            let due = timers.cancel(key);
            *alarms -= usize::from(due.is_some());
            due
        };
        drop(due);
    }
}

impl<C: Clock> Future for Alarmed<'_, '_, C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.reactor.clock.monotonic_ns() >= this.at {
            this.forget();
            return Poll::Ready(());
        }
        let mut waker = cx.waker().clone();
        if this.key.is_some() && this.reactor.waits_on(this.key, &mut waker) {
            return Poll::Pending; // the old waker is dropped with nothing borrowed (invariant 5)
        }
        let Tables { timers, alarms, .. } = &mut *this.reactor.tables.borrow_mut();
        *alarms += 1;
        this.key = timers.insert(this.at, Due::Alarm(waker));
        Poll::Pending
    }
}

impl<C: Clock> Drop for Alarmed<'_, '_, C> {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A promise of [`Reactor::outside`], kept until it is dropped.
#[derive(Debug)]
#[must_use = "the promise ends when this is dropped"]
pub struct Outside<'r> {
    count: &'r Cell<usize>,
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}
