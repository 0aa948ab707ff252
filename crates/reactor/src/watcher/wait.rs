//! One wait, as the watcher's thread sees it.
//!
//! Upholds invariants 2 (the status ends it), 3 (each backstop asks), 7 (a body leaves its grave only
//! when the status said done) and 8.

use super::early::{Learnt, Plan, Point, Seen, plan};
use super::job::{Entry, Job, Phase, Until};
use super::shared::{Grave, Shared, wake_quietly};
use super::spin::Spin;
use super::{WaitError, WatcherOptions, watcher_gone};
use crate::host::std_host::StdClock;
use crate::{Alarmed, Clock, DurNs, MonoNs, Reactor, Ready};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

/// What all waits of a watcher share: its clock, its options, and what it has learnt.
pub(super) struct World<'w> {
    pub(super) clock: StdClock,
    pub(super) options: &'w WatcherOptions,
    pub(super) shared: &'w Shared,
    pub(super) learnt: Learnt,
    pub(super) spin: &'w Spin,
    pub(super) points: HashMap<(usize, usize), Point>,
    /// Waits that go on.
    pub(super) waits: usize,
}

impl World<'_> {
    /// A wait's next backstop: with others', so that one sleep serves them, and up to a quarter early for
    /// that.
    fn backstop_after(&self, at: MonoNs) -> MonoNs {
        let step = (self.options.backstop.0 / 4).max(1);
        MonoNs((at + self.options.backstop).0 / step * step)
    }
}

/// Points kept before all are forgotten: lines come and go.
const POINTS: usize = 4_096;

enum Owner {
    Future(Arc<Entry>),
    Grave(Option<Grave>),
}

/// What the wait does next.
enum Stage {
    /// Sleep, then as the plan says.
    Sleep { to: MonoNs, then: Then },
    /// Watch the word.
    Watch,
    /// The task was woken early and watches, or it is a grave: only the backstop is left.
    Dormant,
}

#[derive(Clone, Copy)]
enum Then {
    /// Watch the word, first in a spin.
    Watch { spin: DurNs },
    /// Spin until then, and wake the task, which watches for that long.
    Wake { at: MonoNs, watch: DurNs },
}

pub(super) struct Wait<'r> {
    reactor: &'r Reactor<'static, StdClock>,
    owner: Owner,
    job: Job,
    key: (usize, usize),
    stage: Stage,
    backstop_at: MonoNs,
    /// The word said done and the status didn't: asked again then, later each time.
    recheck: Option<(MonoNs, DurNs)>,
    seen: Seen,
    /// It was left to an alarm at least once.
    slept: bool,
    ready: Option<(Ready<'r, 'static, StdClock>, MonoNs)>,
    alarm: Option<(Alarmed<'r, 'static, StdClock>, MonoNs)>,
    until: Option<Ready<'r, 'static, StdClock>>,
}

/// First and longest pause between two looks at a grave.
const GRAVE_LOOKS: (DurNs, DurNs) = (DurNs::from_ms(1), DurNs::from_ms(100));
/// First and longest pause between two questions about a word that came before its data.
const RECHECKS: (DurNs, DurNs) = (DurNs::from_us(20), DurNs::from_ms(1));

impl<'r> Wait<'r> {
    /// Takes up what a future asked for; `None` if it has left already.
    pub(super) fn adopt(
        reactor: &'r Reactor<'static, StdClock>,
        entry: Arc<Entry>,
        place: usize,
        world: &World<'_>,
    ) -> Option<Wait<'r>> {
        let job = {
            let mut state = entry.hold();
            state.place = Some(place);
            state.job.take().filter(|_| matches!(state.phase, Phase::Waiting))?
        };
        let key = job.point();
        // A word that may cancel the wait is watched from the start.
        let point = world.points.get(&key).filter(|_| job.until.is_none());
        let early = world.options.early.as_ref();
        let chosen = point.map_or(Plan::Watch, |p| plan(p, &world.learnt, early, world.waits + 1));
        if job.until.is_none() && !job.timer {
            world.shared.hint(key, chosen.slept());
        }
        let stage = match chosen {
            Plan::Watch => Stage::Watch,
            Plan::Sleep { to, spin } => {
                Stage::Sleep { to: job.start + to, then: Then::Watch { spin } }
            }
            Plan::Early { to, wake, watch } => {
                let then = Then::Wake { at: job.start + wake, watch };
                Stage::Sleep { to: job.start + to, then }
            }
        };
        let (stage, backstop_at) = match job.timer {
            true => (Stage::Dormant, MonoNs::MAX),
            false => (stage, world.backstop_after(job.start)),
        };
        Some(Wait::new(reactor, Owner::Future(entry), job, key, stage, backstop_at))
    }

    /// Keeps a body until its number is reached.
    pub(super) fn bury(
        reactor: &'r Reactor<'static, StdClock>,
        grave: Grave,
        now: MonoNs,
    ) -> Wait<'r> {
        let job = Job {
            ticket: grave.ticket.clone(),
            start: now,
            deadline: None,
            until: None,
            timer: false,
        };
        Wait::new(reactor, Owner::Grave(Some(grave)), job, (0, 0), Stage::Dormant, now)
    }

    fn new(
        reactor: &'r Reactor<'static, StdClock>,
        owner: Owner,
        job: Job,
        key: (usize, usize),
        stage: Stage,
        backstop_at: MonoNs,
    ) -> Wait<'r> {
        Wait {
            reactor,
            owner,
            job,
            key,
            stage,
            backstop_at,
            recheck: None,
            seen: Seen::InTime,
            slept: false,
            ready: None,
            alarm: None,
            until: None,
        }
    }

    /// Does what is due, and sees to it that the reactor wakes `cx` for the next thing: whether the wait
    /// is over.
    pub(super) fn step(&mut self, cx: &mut Context<'_>, world: &mut World<'_>) -> bool {
        loop {
            if self.left(world) {
                return true;
            }
            let now = world.clock.monotonic_ns();
            // Before the end is looked at: it may have come while this slept on.
            if let Stage::Sleep { to, then } = self.stage
                && now >= to
            {
                // One that was taken up later than that hasn't slept.
                if self.slept {
                    world.learnt.sleep_took(to.since(self.job.start), now.since(to));
                }
                self.wake_or_watch(then, now, world);
                continue;
            }
            if let Some(result) = self.ended(now, world) {
                self.finish(result, now, world);
                return true;
            }
            if !self.wait_for_next(cx, world) {
                return false;
            }
        }
    }

    /// Ends the wait because its watcher ends.
    pub(super) fn abandon(mut self, world: &mut World<'_>) {
        let now = world.clock.monotonic_ns();
        let waited = now.since(self.job.start);
        let result = match self.job.ticket.verdict(waited) {
            Some(result) => result,
            None => Err(WaitError::Refused(self.job.ticket.awaited(waited), watcher_gone())),
        };
        self.finish(result, now, world);
    }

    /// The entry, for another wait.
    pub(super) fn entry(self) -> Option<Arc<Entry>> {
        match self.owner {
            Owner::Future(entry) => Some(entry),
            Owner::Grave(_) => None,
        }
    }

    /// What the future did since: left, or gave up its early watch.
    fn left(&mut self, world: &mut World<'_>) -> bool {
        let Owner::Future(entry) = &self.owner else { return false };
        let (left, seen_at, wake_took) = {
            let mut state = entry.hold();
            if let (Phase::Waiting, Stage::Dormant, false) =
                (&state.phase, &self.stage, self.job.timer)
            {
                self.stage = Stage::Watch;
            }
            if state.late {
                self.seen = Seen::LateByTask;
            }
            let left = matches!(state.phase, Phase::Left | Phase::Done(_));
            (left, state.seen_at.take(), state.wake_took.take())
        };
        let idled = |at: MonoNs| at.since(self.job.start);
        if let Some(took) = wake_took {
            world.learnt.wake_took(idled(world.clock.monotonic_ns()), took);
        }
        if let Some(at) = seen_at {
            let length = idled(at);
            self.observe(length, world);
        }
        left
    }

    fn observe(&self, length: DurNs, world: &mut World<'_>) {
        if world.points.len() >= POINTS && !world.points.contains_key(&self.key) {
            world.points.clear();
        }
        // Nobody had begun to look.
        let seen = if let Stage::Sleep { .. } = self.stage { Seen::LateBySleep } else { self.seen };
        world.points.entry(self.key).or_default().observe(length, seen);
    }

    /// How the wait ended, if it has.
    fn ended(&mut self, now: MonoNs, world: &World<'_>) -> Option<Result<(), WaitError>> {
        let (ticket, waited) = (&self.job.ticket, now.since(self.job.start));
        let grave = matches!(self.owner, Owner::Grave(_));
        if ticket.word_reached() {
            if self.recheck.is_none_or(|(at, _)| now >= at) {
                if let Some(result) = ticket.verdict(waited) {
                    return Some(result);
                }
                let pause = self.recheck.map_or(RECHECKS.0, |(_, last)| DurNs(last.0 * 2));
                let pause = pause.min(RECHECKS.1);
                self.recheck = Some((now + pause, pause));
            }
        } else if now >= self.backstop_at {
            if let Some(result) = ticket.verdict(waited) {
                return Some(result);
            }
            self.backstop_at = match grave {
                true => now + DurNs(waited.0 / 4).clamp(GRAVE_LOOKS.0, GRAVE_LOOKS.1),
                false => world.backstop_after(now),
            };
        }
        if self.job.deadline.is_some_and(|at| now >= at) {
            // A last question: a word may have been lost.
            let timeout = || Err(WaitError::Timeout(ticket.awaited(waited)));
            return Some(ticket.verdict(waited).unwrap_or_else(timeout));
        }
        if self.job.until.as_ref().is_some_and(Until::reached) {
            return Some(Err(WaitError::Cancelled(ticket.awaited(waited))));
        }
        if !grave
            && !self.job.timer
            && world.options.hang_after.is_some_and(|limit| waited >= limit)
        {
            let hang = || Err(WaitError::Hang(ticket.awaited(waited)));
            return Some(ticket.verdict(waited).unwrap_or_else(hang));
        }
        None
    }

    /// The sleep is over: watch, or spin to the moment at which the task is woken early.
    fn wake_or_watch(&mut self, then: Then, now: MonoNs, world: &World<'_>) {
        self.stage = Stage::Watch;
        if self.job.ticket.word_reached() {
            self.seen = Seen::LateBySleep;
        }
        let (at, watch) = match then {
            Then::Watch { spin } => return world.spin.expect(now + spin),
            Then::Wake { at, watch } => (at, watch),
        };
        while !self.job.ticket.word_reached() {
            let now = world.clock.monotonic_ns();
            if now < at {
                std::hint::spin_loop();
                continue;
            }
            let Owner::Future(entry) = &self.owner else { return };
            let waker = {
                let mut state = entry.hold();
                if !matches!(state.phase, Phase::Waiting) {
                    return;
                }
                state.phase = Phase::Early { woken: now, watch };
                state.waker.take()
            };
            self.stage = Stage::Dormant;
            waker.into_iter().for_each(wake_quietly);
            return;
        }
    }

    fn finish(&mut self, result: Result<(), WaitError>, now: MonoNs, world: &mut World<'_>) {
        let done = result.is_ok();
        match &mut self.owner {
            Owner::Future(entry) => {
                let waker = entry.finish(result);
                waker.into_iter().for_each(wake_quietly);
            }
            Owner::Grave(grave) => match (grave.take(), done) {
                (Some(grave), true) => grave.free(),
                (Some(grave), false) => grave.give_up(),
                (None, _) => {}
            },
        }
        if done && matches!(self.owner, Owner::Future(_)) {
            self.observe(now.since(self.job.start), world);
        }
    }

    /// Registers with the reactor for whatever comes next: whether that has come already.
    fn wait_for_next(&mut self, cx: &mut Context<'_>, world: &World<'_>) -> bool {
        let mut next = self.backstop_at;
        let hang = world
            .options
            .hang_after
            .filter(|_| !self.job.timer)
            .map(|limit| self.job.start + limit);
        let reached = self.job.ticket.word_reached();
        if reached && self.recheck.is_none() && matches!(self.stage, Stage::Watch) {
            return true; // since it was last looked at
        }
        let recheck = self.recheck.filter(|_| reached).map(|(at, _)| at);
        for other in [self.job.deadline, hang, recheck].into_iter().flatten() {
            next = next.min(other);
        }
        if let Stage::Sleep { to, .. } = self.stage {
            self.slept = true;
            next = next.min(to);
        }
        if let Some(until) = &self.job.until {
            let (line, slot, target) = (until.line.clone(), until.slot, until.target);
            let watch = || self.reactor.ready_shared(line, slot, target, None);
            if Pin::new(self.until.get_or_insert_with(watch)).poll(cx).is_ready() {
                self.until = None;
                return true;
            }
        }
        let (ticket, reactor) = (&self.job.ticket, self.reactor);
        if matches!(self.stage, Stage::Watch) && !reached {
            self.alarm = None;
            if self.ready.as_ref().is_none_or(|&(_, at)| at != next) {
                let (line, slot) = (ticket.shared_line(), ticket.slot());
                let ready = reactor.ready_shared(line, slot, ticket.number(), Some(next));
                self.ready = Some((ready, next));
            }
            let Some((ready, _)) = &mut self.ready else { return true };
            let due = Pin::new(ready).poll(cx).is_ready();
            if due {
                self.ready = None;
            }
            return due;
        }
        self.ready = None;
        if self.alarm.as_ref().is_none_or(|&(_, at)| at != next) {
            self.alarm = Some((reactor.alarm(next), next));
        }
        let Some((alarm, _)) = &mut self.alarm else { return true };
        let due = Pin::new(alarm).poll(cx).is_ready();
        if due {
            self.alarm = None;
        }
        due
    }
}
