//! One queue as a state machine: no thread, no clock, no lock. What runs it supplies the time and does
//! the deeds.

use super::faults::{Draw, SimOptions};
use super::work::{Effect, Work};
use crate::{DurNs, Error, MonoNs, Result, error};
use std::collections::VecDeque;

/// Store times kept for each queue.
const LOG: usize = 4_096;

/// Something that happens on the device, now.
pub(super) enum Deed {
    /// Run this.
    Effect(Effect),
    /// Store this number to the word.
    Word(u64),
    /// Let the status say that this number is done.
    Status(u64),
    /// Lose the device.
    Lose,
}

enum Op {
    Work { length: DurNs, effect: Option<Effect>, number: Option<u64>, submitted: MonoNs },
    Store { number: u64, submitted: MonoNs },
}

/// A queue's work, in order, and what it has come to.
pub(super) struct Engine {
    options: SimOptions,
    draw: Draw,
    ops: VecDeque<Op>,
    /// When the head of the queue ends.
    head_due: Option<MonoNs>,
    /// When what ran last ended.
    free_at: MonoNs,
    /// Deeds put off by a fault, in the order they were put off.
    delayed: Vec<(MonoNs, Deed)>,
    /// Deeds that are due at once.
    at_once: VecDeque<Deed>,
    hung: bool,
    /// The last number given out, and whether work was submitted behind it.
    number: u64,
    bare: bool,
    done: u64,
    /// The last number whose word was stored before its work ended.
    early: u64,
    log: VecDeque<(u64, MonoNs)>,
}

impl Engine {
    pub(super) fn new(options: SimOptions, queue: u64) -> Engine {
        let mut delayed = Vec::new();
        if let Some(at) = options.faults.lose_at {
            delayed.push((at, Deed::Lose));
        }
        Engine {
            draw: Draw::new(options.seed, queue),
            options,
            ops: VecDeque::new(),
            head_due: None,
            free_at: MonoNs(0),
            delayed,
            at_once: VecDeque::new(),
            hung: false,
            number: 0,
            bare: false,
            done: 0,
            early: 0,
            log: VecDeque::with_capacity(LOG),
        }
    }

    /// Submits work with nothing behind it.
    pub(super) fn submit(&mut self, work: Work, now: MonoNs, number: Option<u64>) {
        let jitter = self.draw.up_to(self.options.jitter.0);
        let length = DurNs(work.length.0.saturating_add(jitter));
        self.ops.push_back(Op::Work { length, effect: work.effect, number, submitted: now });
        self.bare = true;
        self.begin();
    }

    /// Stores the next number behind what was submitted; the last one again if nothing was since.
    pub(super) fn store_next(&mut self, now: MonoNs, label: &str) -> Result<u64> {
        if !self.bare && self.number > 0 {
            return Ok(self.number);
        }
        let number = self.next_number(label)?;
        self.number = number;
        self.bare = false;
        // The script's numbers are those of stores: work submitted bare gets its own here, if it has
        // not ended by now.
        if let Some(Op::Work { number: unnamed @ None, .. }) = self.ops.back_mut() {
            *unnamed = Some(number);
        }
        self.ops.push_back(Op::Store { number, submitted: now });
        self.begin();
        Ok(number)
    }

    /// The number that the next store would get.
    pub(super) fn next_number(&self, label: &str) -> Result<u64> {
        let number = self.number + 1;
        match self.options.faults.refuse {
            Some(refused) if refused == number => Err(refusal(label, number)),
            _ => Ok(number),
        }
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn set_done(&mut self, number: u64) {
        self.done = self.done.max(number);
    }

    /// Notes when a word was stored; to be called just before it is.
    pub(super) fn note_store(&mut self, number: u64, at: MonoNs) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back((number, at));
    }

    pub(super) fn stored_at(&self, number: u64) -> Option<MonoNs> {
        self.log.iter().rev().find(|&&(stored, _)| stored == number).map(|&(_, at)| at)
    }

    /// Takes everything away: what was not done never will be. The closures are handed out, for
    /// their drop is user code and belongs outside any lock.
    pub(super) fn stop(&mut self) -> impl Sized + use<> {
        self.hung = true;
        self.head_due = None;
        let (ops, delayed) = (std::mem::take(&mut self.ops), std::mem::take(&mut self.delayed));
        (ops, delayed, std::mem::take(&mut self.at_once))
    }

    /// Closures that took longer than nothing put off what is behind them.
    pub(super) fn ran_until(&mut self, now: MonoNs) {
        self.free_at = self.free_at.max(now);
        self.head_due = None;
        self.begin();
    }

    /// When something happens next.
    pub(super) fn next_event(&self) -> Option<MonoNs> {
        if !self.at_once.is_empty() {
            return Some(self.free_at);
        }
        let delayed = self.delayed.iter().map(|&(at, _)| at).min();
        match (self.head_due, delayed) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next thing that has happened by `now`.
    pub(super) fn step(&mut self, now: MonoNs) -> Option<Deed> {
        loop {
            if let Some(deed) = self.at_once.pop_front() {
                return Some(deed);
            }
            let at = self.next_event().filter(|&at| at <= now)?;
            if let Some(index) = self.delayed.iter().position(|&(due, _)| due == at) {
                return Some(self.delayed.remove(index).1);
            }
            self.finish_head(at);
        }
    }

    /// Starts the head of the queue, if there is one that has not started.
    fn begin(&mut self) {
        if self.head_due.is_some() || self.hung {
            return;
        }
        self.head_due = match self.ops.front() {
            None => None,
            // A store too: bare work may have begun before it was known which number is behind it.
            Some(Op::Work { number: Some(number), .. } | Op::Store { number, .. })
                if Some(*number) == self.options.faults.hang =>
            {
                self.hung = true;
                None
            }
            Some(Op::Store { submitted, .. }) => Some(self.free_at.max(*submitted)),
            Some(Op::Work { length, submitted, .. }) => {
                Some(self.free_at.max(*submitted) + *length)
            }
        };
    }

    fn finish_head(&mut self, at: MonoNs) {
        self.head_due = None;
        self.free_at = self.free_at.max(at);
        let faults = &self.options.faults;
        let hit =
            |fault: Option<(u64, DurNs)>, n| fault.filter(|&(hit, _)| hit == n).map(|(_, by)| by);
        match self.ops.pop_front() {
            None => {}
            Some(Op::Work { effect, number, .. }) => {
                let early = number.and_then(|n| Some((n, hit(faults.early_word, n)?)));
                if let Some((number, by)) = early {
                    self.early = number;
                    self.at_once.push_back(Deed::Word(number));
                    self.free_at = at + by;
                    self.delayed.extend(effect.map(|effect| (self.free_at, Deed::Effect(effect))));
                } else {
                    self.at_once.extend(effect.map(Deed::Effect));
                }
            }
            Some(Op::Store { number, .. }) => {
                let early = self.early == number;
                if faults.lose_at_number == Some(number) {
                    self.at_once.push_back(Deed::Lose);
                } else if let Some(by) = hit(faults.late_store, number) {
                    self.at_once.push_back(Deed::Status(number));
                    self.delayed.push((at + by, Deed::Word(number)));
                } else if early || faults.lost_store == Some(number) {
                    self.at_once.push_back(Deed::Status(number));
                } else {
                    self.at_once.push_back(Deed::Word(number));
                    self.at_once.push_back(Deed::Status(number));
                }
            }
        }
        self.begin();
    }
}

fn refusal(label: &str, number: u64) -> Error {
    let what = format!("storing number {number} of {label}");
    error!(StoreRefused, what, "the simulation's script refuses it")
}
