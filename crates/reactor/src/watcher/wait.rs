//! One wait, as the watcher's thread sees it.
//!
//! Upholds invariants 2 (the status ends it), 3 (each backstop asks), 7 (a body leaves its grave only
//! when the status said done) and 8.

use super::early::{Plan, Seen};
use super::job::{Entry, Job, Phase, Until};
use super::shared::{Grave, wake_quietly};
use super::turns::Ended;
use super::world::World;
use super::{WaitError, watcher_gone};
use crate::host::std_host::StdClock;
use crate::{Alarmed, Clock, DurNs, MonoNs, Reactor, Ready, reached};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

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
    /// The wait ahead of it at the same queue is watched; its end is this one's turn.
    Behind,
}

impl Stage {
    fn of(plan: Plan, began: MonoNs) -> Stage {
        match plan {
            Plan::Watch => Stage::Watch,
            Plan::Sleep { to, spin } => Stage::Sleep { to: began + to, then: Then::Watch { spin } },
            Plan::Early { to, wake, watch } => {
                Stage::Sleep { to: began + to, then: Then::Wake { at: began + wake, watch } }
            }
        }
    }
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
    /// In the table; for one that takes turns with others.
    place: Option<usize>,
    /// When its work began, if that is known.
    began: Option<MonoNs>,
    /// When its number was reached, if that is known.
    done: Option<MonoNs>,
    failed: bool,
    stage: Stage,
    /// The task, woken early, will have given up its watch then.
    watched_until: MonoNs,
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
        world: &mut World<'_>,
    ) -> Option<Wait<'r>> {
        let job = {
            let mut state = entry.hold();
            state.place = Some(place);
            state.job.take().filter(|_| matches!(state.phase, Phase::Waiting))?
        };
        let key = job.point();
        let (number, backstop_at) = (job.ticket.number(), world.backstop_after(job.start));
        let takes_turns = job.until.is_none() && !job.timer;
        let stage = if job.timer {
            Stage::Dormant
        } else if !takes_turns {
            // A word that may cancel the wait is watched from the start.
            Stage::Watch
        } else if world.point(key).turns.arrive(number, place) {
            Stage::of(world.plan(key, world.waits + 1 - world.behind), job.start)
        } else {
            world.behind += 1;
            let turns = &world.point(key).turns;
            // The first one may have been left to its task, which tells nobody when it is done.
            let first = turns.first().filter(|_| turns.followers() == 1);
            world.due.extend(first);
            Stage::Behind
        };
        let backstop_at = if job.timer { MonoNs::MAX } else { backstop_at };
        let began = Some(job.start).filter(|_| !matches!(stage, Stage::Behind));
        let wait = Wait::new(reactor, Owner::Future(entry), job, key, stage, backstop_at);
        Some(Wait { place: takes_turns.then_some(place), began, ..wait })
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
            place: None,
            began: None,
            done: None,
            failed: false,
            stage,
            watched_until: MonoNs::MAX,
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
            self.take_turn(now, world);
            // Before the end is looked at: it may have come while this slept on.
            if let Stage::Sleep { to, then } = self.stage
                && now >= to
            {
                // One that was taken up later than that hasn't slept.
                if self.slept {
                    world.learnt.sleep_took(to.since(self.began()), now.since(to));
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

    /// When its work began, as far as that is known.
    fn began(&self) -> MonoNs {
        self.began.unwrap_or(self.job.start)
    }

    /// The one ahead of it is over: it is watched from now on. So is one whose task, woken early, may have left it
    /// with others behind it, who wait for its end.
    fn take_turn(&mut self, now: MonoNs, world: &mut World<'_>) {
        let Some(place) = self.place else { return };
        match self.stage {
            Stage::Behind => {}
            Stage::Dormant if now >= self.watched_until => {
                self.stage = Stage::Watch;
                return;
            }
            _ => return,
        }
        let turns = &world.point(self.key).turns;
        if turns.first() != Some(place) {
            return;
        }
        self.began = turns.began().map(|at| at.max(self.job.start));
        let failed = turns.failed();
        world.behind -= 1;
        // Whatever ended the one ahead of it may end this one, too.
        self.backstop_at = if failed { now } else { world.backstop_after(now) };
        self.stage = match self.began {
            Some(began) => Stage::of(world.plan(self.key, world.waits - world.behind), began),
            None => Stage::Watch,
        };
    }

    /// It is over: whoever waits behind it at the same queue has the next turn.
    pub(super) fn give_turn(&self, world: &mut World<'_>) {
        let Some(place) = self.place else { return };
        if let Stage::Behind = self.stage {
            world.behind -= 1;
        }
        let mut due = std::mem::take(&mut world.due);
        let (ticket, me) = (&self.job.ticket, (self.job.ticket.number(), place));
        let ended = Ended { done: self.done, failed: self.failed };
        world.point(self.key).turns.leave(
            me,
            ended,
            |number| reached(ticket.line(), ticket.slot(), number),
            &mut due,
        );
        world.due = due;
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
        let began = self.began();
        let idled = |at: MonoNs| at.since(began);
        if let Some(took) = wake_took {
            world.learnt.wake_took(idled(world.clock.monotonic_ns()), took);
        }
        if let Some(at) = seen_at {
            self.done = Some(at);
            self.observe(at, world);
        }
        left
    }

    /// Learns from how long the work took, if it is known when it began.
    fn observe(&self, done: MonoNs, world: &mut World<'_>) {
        let Some(began) = self.began else { return };
        // Nobody had begun to look.
        let seen = if let Stage::Sleep { .. } = self.stage { Seen::LateBySleep } else { self.seen };
        world.point(self.key).observe(done.since(began), seen);
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
        } else if now >= self.backstop_at && !matches!(self.stage, Stage::Behind) {
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
            self.watched_until = now + watch;
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
        self.failed = !done;
        if done && matches!(self.owner, Owner::Future(_)) {
            self.done = Some(now);
            self.observe(now, world);
        }
    }

    /// Registers with the reactor for whatever comes next: whether that has come already.
    fn wait_for_next(&mut self, cx: &mut Context<'_>, world: &World<'_>) -> bool {
        let mut next = match self.stage {
            Stage::Behind => MonoNs::MAX,
            Stage::Dormant if self.place.is_some() && world.has_followers(self.key) => {
                self.backstop_at.min(self.watched_until)
            }
            _ => self.backstop_at,
        };
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
        if next == MonoNs::MAX {
            self.alarm = None;
            return false;
        }
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
