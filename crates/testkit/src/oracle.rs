//! The reactor as anyone would write it first: a list of registrations, scanned from end to end.
//!
//! Slow and plainly right. Property tests hold the reactor against it.

/// What a registration waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A word reaching a number, or the time reaching `until`.
    Word {
        /// Which line, by index.
        line: usize,
        /// Which word of it.
        slot: usize,
        /// The number to reach.
        target: u64,
        /// The latest time.
        until: Option<u64>,
    },
    /// The time reaching a number.
    Time {
        /// That number.
        at: u64,
    },
}

/// What a turn must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Wake something, and not idle.
    Woke,
    /// Sleep until that time.
    SleptTo(u64),
    /// Park until that time at the latest.
    ParkedTo(u64),
    /// Refuse: nothing is registered.
    Stalled,
}

/// Words, a time, and who is registered for what.
#[derive(Clone, Debug, Default)]
pub struct LinearScan {
    words: Vec<[u64; 8]>,
    now: u64,
    registered: Vec<(usize, Wanted)>,
}

impl LinearScan {
    /// So many lines of zeros, at time 0.
    pub fn new(lines: usize) -> Self {
        Self { words: vec![[0; 8]; lines], now: 0, registered: Vec::new() }
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Moves the time.
    pub fn set_now(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// A word.
    pub fn word(&self, line: usize, slot: usize) -> u64 {
        self.words[line][slot]
    }

    /// Stores a word.
    pub fn store(&mut self, line: usize, slot: usize, number: u64) {
        self.words[line][slot] = number;
    }

    /// Polls a future: its output, or `None` and it is registered.
    pub fn poll(&mut self, id: usize, wanted: Wanted) -> Option<bool> {
        let output = match wanted {
            Wanted::Word { line, slot, target, .. } if self.words[line][slot] >= target => {
                Some(true)
            }
            Wanted::Word { until, .. } => until.is_some_and(|at| self.now >= at).then_some(false),
            Wanted::Time { at } => (self.now >= at).then_some(true),
        };
        match output {
            Some(_) => self.forget(id),
            None if self.registered.iter().any(|&(other, _)| other == id) => {}
            None => self.registered.push((id, wanted)),
        }
        output
    }

    /// Drops a future.
    pub fn forget(&mut self, id: usize) {
        self.registered.retain(|&(other, _)| other != id);
    }

    /// Takes out whoever is due, in the order of registration.
    pub fn fire(&mut self) -> Vec<(usize, Wanted)> {
        let due = |wanted: &Wanted| match *wanted {
            Wanted::Word { line, slot, target, until } => {
                self.words[line][slot] >= target || until.is_some_and(|at| self.now >= at)
            }
            Wanted::Time { at } => self.now >= at,
        };
        let (fired, kept) = self.registered.iter().partition(|(_, wanted)| due(wanted));
        self.registered = kept;
        fired
    }

    /// Registered words and times.
    pub fn pending(&self) -> (usize, usize) {
        let words =
            self.registered.iter().filter(|(_, w)| matches!(w, Wanted::Word { .. })).count();
        (words, self.registered.len() - words)
    }

    /// What a turn must do after a [`fire`](LinearScan::fire) that took out nobody.
    pub fn idle(&self, park_bound: u64) -> Expected {
        let time = |wanted: &Wanted| match *wanted {
            Wanted::Word { until, .. } => until,
            Wanted::Time { at } => Some(at),
        };
        let next = self.registered.iter().filter_map(|(_, wanted)| time(wanted)).min();
        match (self.pending(), next) {
            ((0, 0), _) => Expected::Stalled,
            ((0, _), Some(at)) => Expected::SleptTo(at),
            (_, next) => {
                let bound = self.now + park_bound;
                Expected::ParkedTo(next.map_or(bound, |at| at.min(bound)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_waits_on_one_slot_fire_as_their_numbers_come() {
        let mut oracle = LinearScan::new(1);
        let word = |target| Wanted::Word { line: 0, slot: 0, target, until: None };
        assert_eq!((oracle.poll(1, word(5)), oracle.poll(2, word(3))), (None, None));
        oracle.store(0, 0, 4);
        assert_eq!(oracle.fire(), [(2, word(3))]);
        oracle.store(0, 0, 5);
        assert_eq!(oracle.fire(), [(1, word(5))]);
        assert_eq!(oracle.idle(10), Expected::Stalled);
    }
}
