//! The watcher's thread: takes in, turns the reactor, steps what it woke.
//!
//! Upholds invariants 5, 8 (it ends no wait in silence), 11 and 12.

use super::inbox::Posted;
use super::shared::Shared;
use super::spin::Spin;
use super::wait::Wait;
use super::world::World;
use crate::host::std_host::{Naps, StdClock, StdIdle};
use crate::{Bell, Clock, CompletionLine, DurNs, Idle, LineSet, MonoNs, Reactor};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Places that the reactor woke.
#[derive(Default)]
struct Woken(Mutex<Vec<usize>>);

impl Woken {
    fn swap(&self, with: &mut Vec<usize>) {
        std::mem::swap(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), with);
    }
}

struct PlaceWaker {
    place: usize,
    woken: Arc<Woken>,
}

impl Wake for PlaceWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
    }
}

/// Places and their waits; a place and its waker are used again.
#[derive(Default)]
struct Table<'r> {
    places: Vec<(Option<Wait<'r>>, Waker)>,
    vacant: Vec<usize>,
}

impl<'r> Table<'r> {
    fn vacancy(&mut self, woken: &Arc<Woken>) -> usize {
        if let Some(place) = self.vacant.pop() {
            return place;
        }
        let place = self.places.len();
        let waker = Waker::from(Arc::new(PlaceWaker { place, woken: woken.clone() }));
        self.places.push((None, waker));
        place
    }

    /// Steps a wait; its entry is handed back when it is over.
    fn step(&mut self, place: usize, world: &mut World<'_>) -> Option<Wait<'r>> {
        let (wait, waker) = self.places.get_mut(place)?;
        if !wait.as_mut()?.step(&mut Context::from_waker(waker), world) {
            return None;
        }
        self.vacant.push(place);
        world.waits -= 1;
        let wait = wait.take()?;
        wait.give_turn(world);
        Some(wait)
    }
}

/// The thread's idle: says when it sleeps where only a system call wakes it.
struct WatcherIdle<'s> {
    inner: StdIdle,
    clock: StdClock,
    shared: &'s Shared,
    spin: &'s Spin,
    /// The wake word as it was before the inbox was last emptied.
    seen: u64,
}

impl Idle for WatcherIdle<'_> {
    fn sleep_until(&mut self, at: MonoNs) {
        if self.shared.about_to_sleep(self.seen, at) {
            self.inner.sleep_until(at);
        }
        self.shared.awake();
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        let (seen, bound) = self.spin.spin(&self.clock, || ready(line), bound);
        seen || self.inner.park_line(line, ready, bound)
    }

    fn park_lines(&mut self, set: &LineSet<'_>, bound: DurNs) -> bool {
        let (seen, bound) = self.spin.spin(&self.clock, || set.any_ready(), bound);
        seen || self.inner.park_lines(set, bound)
    }

    fn unparker(&self) -> Option<&Waker> {
        self.inner.unparker()
    }
}

pub(super) fn run(shared: &Shared) {
    let options = shared.options();
    set_up(options);
    let clock = StdClock::new();
    let reactor = Reactor::with_bell(clock, shared.bell().clone());
    let ((least, most), share_permille) = (options.naps, options.share_permille);
    let inner = StdIdle::with_naps(clock, options.word_wait, Naps { least, most, share_permille });
    let share = options.early.map_or(0, |early| early.spin_permille);
    let spin = &Spin::new(share, clock.monotonic_ns());
    let mut idle = WatcherIdle { inner, clock, shared, spin, seen: 0 };
    let mut world = World::new(clock, shared, spin);
    let woken = Arc::new(Woken::default());
    let mut table = Table::default();
    let mut taken = Posted::new();
    let mut due = Vec::new();
    // Whoever holds a handle may register: that is no stall.
    let _outside = reactor.outside();
    loop {
        // Before the inbox is emptied: what is posted later changes the word again (invariant 4).
        idle.seen = shared.bell().line().load(Bell::HOST);
        let end = shared.no_handles();
        shared.inbox().empty(&mut taken, end);
        let Posted { arrivals, graves, nudged, free: retired, .. } = &mut taken;
        for entry in arrivals.drain(..) {
            let place = table.vacancy(&woken);
            let adopted = Wait::adopt(&reactor, entry.clone(), place, &mut world);
            if adopted.is_none() {
                table.vacant.push(place);
                retired.push_back(entry);
                continue;
            }
            world.waits += 1;
            table.places[place].0 = adopted;
            due.push(place);
        }
        for grave in graves.drain(..) {
            let place = table.vacancy(&woken);
            world.waits += 1;
            table.places[place].0 = Some(Wait::bury(&reactor, grave, clock.monotonic_ns()));
            due.push(place);
        }
        if end {
            let waits = table.places.iter_mut().filter_map(|(wait, _)| wait.take());
            waits.for_each(|wait| wait.abandon(&mut world));
            return;
        }
        due.append(nudged);
        due.append(&mut world.due);
        while !due.is_empty() {
            for place in due.drain(..) {
                retired.extend(table.step(place, &mut world).and_then(Wait::entry));
            }
            // Whose turn it is now.
            due.append(&mut world.due);
        }
        woken.swap(&mut due);
        if due.is_empty() && retired.is_empty() {
            // Can't stall, for `_outside` lives.
            let _ = reactor.turn(&mut idle, options.park_bound, world.waits);
            woken.swap(&mut due);
        }
    }
}

/// What the system refuses changes nothing but timing.
fn set_up(options: &super::WatcherOptions) {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, gettid, sched_setaffinity};
        if !options.cpus.is_empty() {
            let mut set = CpuSet::new();
            let known = options.cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU);
            known.for_each(|&cpu| set.set(cpu));
            let _ = sched_setaffinity(None, &set);
        }
        if let Some(nice) = options.nice {
            // Linux keeps it for each thread, whatever the call's name says.
            let _ = rustix::process::setpriority_process(Some(gettid()), nice);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = options;
}
