//! Waits for numbers of one queue, one behind the other: what a queue does it does in order, so only the first
//! is watched, and its end gives the next its turn.

use crate::MonoNs;
use std::collections::VecDeque;

/// A number, and the place of its wait in the watcher's table.
type Waiting = (u64, usize);

#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    first: Option<Waiting>,
    /// By number, and those of one number as they came.
    behind: VecDeque<Waiting>,
    last: Ended,
}

/// How the last of them ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    /// When its number was reached, if that is known: the next one's work began then.
    pub(super) done: Option<MonoNs>,
    /// With an error, which may be the next one's, too.
    pub(super) failed: bool,
}

impl Turns {
    /// A wait came: whether it is watched from now on. One that is ahead of all others is, and is left out here.
    pub(super) fn arrive(&mut self, number: u64, place: usize) -> bool {
        match self.first {
            None => {
                self.first = Some((number, place));
                true
            }
            Some((first, _)) if number < first => true,
            Some(_) => {
                // Mostly behind all others.
                let at = match self.behind.back() {
                    Some(&(last, _)) if last > number => {
                        self.behind.partition_point(|&(other, _)| other <= number)
                    }
                    _ => self.behind.len(),
                };
                self.behind.insert(at, (number, place));
                false
            }
        }
    }

    /// A wait is over. Whoever is to look next is added to `due`:
    /// all whose numbers are reached, and the first whose isn't.
    pub(super) fn leave(
        &mut self,
        (number, place): (u64, usize),
        ended: Ended,
        reached: impl Fn(u64) -> bool,
        due: &mut Vec<usize>,
    ) {
        if self.first != Some((number, place)) {
            let from = self.behind.partition_point(|&(other, _)| other < number);
            let same = self.behind.iter().skip(from).take_while(|(other, _)| *other == number);
            let at = same.into_iter().position(|&(_, other)| other == place);
            at.and_then(|at| self.behind.remove(from + at));
            return;
        }
        self.last = ended;
        self.first = None;
        while let Some(next) = self.behind.pop_front() {
            due.push(next.1);
            if !reached(next.0) {
                self.first = Some(next);
                return;
            }
            // When it was isn't known.
            self.last.done = None;
        }
    }

    /// The place of the one that is watched.
    pub(super) fn first(&self) -> Option<usize> {
        self.first.map(|(_, place)| place)
    }

    /// How many wait behind it.
    pub(super) fn followers(&self) -> usize {
        self.behind.len()
    }

    /// When the work of the first one began, if the end of the one before it is known.
    pub(super) fn began(&self) -> Option<MonoNs> {
        self.last.done
    }

    /// Whether the one before it ended with an error.
    pub(super) fn failed(&self) -> bool {
        self.last.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Option<MonoNs> = Some(MonoNs(7));

    fn left(turns: &mut Turns, who: (u64, usize), word: u64) -> Vec<usize> {
        let mut due = Vec::new();
        let ended = Ended { done: AT, failed: false };
        turns.leave(who, ended, |number| number <= word, &mut due);
        due
    }

    #[test]
    fn the_next_has_its_turn_when_the_first_is_over() {
        let mut turns = Turns::default();
        assert!(turns.arrive(5, 50));
        assert!(!turns.arrive(7, 70) && !turns.arrive(6, 60) && !turns.arrive(7, 71));
        assert_eq!((turns.first(), turns.followers()), (Some(50), 3));
        assert_eq!(left(&mut turns, (5, 50), 5), [60]);
        assert_eq!((turns.first(), turns.began()), (Some(60), AT));
        assert_eq!(left(&mut turns, (6, 60), 6), [70]);
        assert_eq!(left(&mut turns, (7, 70), 7), [71]);
        assert_eq!((turns.first(), turns.began()), (None, None));
        assert!(turns.arrive(3, 30));
    }

    #[test]
    fn all_that_are_reached_look_at_once() {
        let mut turns = Turns::default();
        (1..=5).for_each(|n| _ = turns.arrive(n, n as usize));
        assert_eq!(left(&mut turns, (1, 1), 3), [2, 3, 4]);
        // Theirs are ends that nobody saw.
        assert_eq!((turns.first(), turns.began()), (Some(4), None));
        assert_eq!(left(&mut turns, (2, 2), 3), []);
        assert_eq!(left(&mut turns, (4, 4), 4), [5]);
    }

    #[test]
    fn one_that_leaves_from_behind_changes_nothing_else() {
        let mut turns = Turns::default();
        (1..=3).for_each(|n| _ = turns.arrive(n, n as usize));
        assert!(!turns.arrive(2, 22));
        assert_eq!(left(&mut turns, (2, 22), 0), []);
        assert_eq!(left(&mut turns, (9, 9), 0), []);
        assert_eq!(left(&mut turns, (3, 3), 0), []);
        assert_eq!((turns.first(), turns.followers()), (Some(1), 1));
        assert_eq!(left(&mut turns, (1, 1), 0), [2]);
    }

    #[test]
    fn one_ahead_of_the_first_is_watched_too_and_gives_no_turn() {
        let mut turns = Turns::default();
        assert!(turns.arrive(5, 5) && turns.arrive(4, 4) && !turns.arrive(6, 6));
        assert_eq!(left(&mut turns, (4, 4), 4), []);
        assert_eq!(turns.first(), Some(5));
    }
}
