//! What all waits of a watcher share: its clock, its options, and what it has learnt.

use super::WatcherOptions;
use super::early::{Learnt, Plan, Point, plan};
use super::shared::Shared;
use super::spin::Spin;
use crate::MonoNs;
use crate::host::std_host::StdClock;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A line's place, and the slot.
pub(super) type Key = (usize, usize);

pub(super) struct World<'w> {
    pub(super) clock: StdClock,
    pub(super) options: &'w WatcherOptions,
    pub(super) learnt: Learnt,
    pub(super) spin: &'w Spin,
    /// Waits that go on.
    pub(super) waits: usize,
    /// Those of them whose turn is yet to come.
    pub(super) behind: usize,
    /// Places that are to be stepped.
    pub(super) due: Vec<usize>,
    shared: &'w Shared,
    points: HashMap<Key, Point, BuildHasherDefault<AddressHasher>>,
    /// Beyond so many of them those that nobody waits at are forgotten: lines come and go.
    most_points: usize,
}

/// Points kept at least.
const POINTS: usize = 4_096;

impl<'w> World<'w> {
    pub(super) fn new(clock: StdClock, shared: &'w Shared, spin: &'w Spin) -> World<'w> {
        World {
            clock,
            options: shared.options(),
            learnt: Learnt::default(),
            spin,
            waits: 0,
            behind: 0,
            due: Vec::new(),
            shared,
            points: HashMap::default(),
            most_points: POINTS,
        }
    }

    /// What is known of a queue's steps, and who waits for them.
    pub(super) fn point(&mut self, key: Key) -> &mut Point {
        if self.points.len() >= self.most_points && !self.points.contains_key(&key) {
            self.points.retain(|_, point| point.turns.first().is_some());
            self.most_points = (2 * self.points.len()).max(POINTS);
        }
        self.points.entry(key).or_default()
    }

    /// Whether anybody waits there behind the first one.
    pub(super) fn has_followers(&self, key: Key) -> bool {
        self.points.get(&key).is_some_and(|point| point.turns.followers() > 0)
    }

    /// The plan for the work at a point, with so many waits that are watched.
    pub(super) fn plan(&self, key: Key, watched: usize) -> Plan {
        let early = self.options.early.as_ref();
        let known = self.points.get(&key);
        let chosen = known.map_or(Plan::Watch, |p| plan(p, &self.learnt, early, watched));
        self.shared.hint(key, chosen.slept());
        chosen
    }

    /// A wait's next backstop: with others', so that one sleep serves them, and up to a quarter early for
    /// that.
    pub(super) fn backstop_after(&self, at: MonoNs) -> MonoNs {
        let step = (self.options.backstop.0 / 4).max(1);
        MonoNs((at + self.options.backstop).0 / step * step)
    }
}

/// For addresses and small numbers of this process's own, looked up several times a wait: nobody chooses them to
/// collide.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(byte.into()));
    }

    fn write_usize(&mut self, word: usize) {
        self.0 = (self.0.rotate_left(5) ^ word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // The upper bits are the well mixed ones, and the table's place comes from the lower.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_nobody_waits_at_are_forgotten_and_others_kept() {
        let shared = Shared::new(WatcherOptions::default());
        let spin = Spin::new(0, MonoNs(0));
        let mut world = World::new(StdClock::new(), &shared, &spin);
        for line in 0..2 * POINTS {
            let turns = &mut world.point((line * 64, 0)).turns;
            assert!(line % 3 > 0 || turns.arrive(1, line));
        }
        assert!(world.points.len() < 2 * POINTS);
        assert!((0..2 * POINTS).step_by(3).all(|line| world.points.contains_key(&(line * 64, 0))));
    }

    #[test]
    fn neighbours_hash_apart() {
        use std::hash::BuildHasher;
        let hasher = BuildHasherDefault::<AddressHasher>::default();
        let place =
            |line: usize, slot: usize| hasher.hash_one((0x7f00_0000 + 4_096 * line, slot)) % 1_024;
        let mut places: Vec<_> =
            (0..16).flat_map(|line| (0..16).map(move |slot| place(line, slot))).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 200, "{} of 256", places.len());
    }
}
