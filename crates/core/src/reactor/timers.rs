//! Deadlines: insert, cancel and next, to the nanosecond, with keys that can't go stale.
//!
//! Timers far off lie in a [wheel](super::wheel) without ticks, in no order within a list. Only the
//! first list, when somebody has to know who is next, is put in order: into a small heap of near timers.
//! So a timer that is cancelled long before its time, as most are, is never sorted at all.

use super::wheel::Wheel;
use crate::MonoNs;
use alloc::vec::Vec;

const ARITY: usize = 4;
const NONE: u32 = u32::MAX;
/// The list of those in the heap.
const NEAR: u32 = u32::MAX;
/// A list of no more timers than this goes into the heap as it is; a longer one is spread over
/// lower levels of the wheel first.
const FEW: usize = 24;

/// Names one timer; a key of a timer that fired or was cancelled names nothing, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerKey {
    node: u32,
    generation: u32,
}

impl TimerKey {
    /// Names no timer.
    pub(super) const NONE: TimerKey = TimerKey { node: NONE, generation: 0 };

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self.node != NONE
    }

    /// The key, unless it is that of none.
    #[inline]
    pub(super) fn named(self) -> Option<TimerKey> {
        self.is_some().then_some(self)
    }
}

/// Timers in the order they are due; those due at the same time in the order they were inserted.
pub(super) struct Timers<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    count: usize,
    sequence: u64,
    /// A heap of the timers that are due before `near_end`.
    near: Vec<Due>,
    near_end: u64,
    /// The others.
    far: Wheel,
}

#[derive(Clone, Copy)]
struct Due {
    at: u64,
    sequence: u64,
    node: u32,
}

impl Due {
    fn order(&self) -> (u64, u64) {
        (self.at, self.sequence)
    }
}

struct Node<T> {
    /// The default in a free node.
    payload: T,
    at: u64,
    sequence: u64,
    generation: u32,
    /// Its list of the wheel, or `NEAR`.
    list: u32,
    /// The timer before it in its list, which counts in none that is first; or its place in the heap.
    prev: u32,
    /// The next timer of its list; or the next free node.
    next: u32,
}

impl<T: Default> Timers<T> {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            count: 0,
            sequence: 0,
            near: Vec::new(),
            near_end: 0,
            far: Wheel::new(),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// A time that no timer is due before; `None` without timers.
    #[inline]
    pub(super) fn lower_bound(&self) -> Option<MonoNs> {
        let near = self.near.first().map(|due| due.at);
        near.or_else(|| self.far.lower_bound()).map(MonoNs)
    }

    /// When the earliest timer is due.
    pub(super) fn next(&mut self) -> Option<MonoNs> {
        while self.near.is_empty() && !self.far.is_empty() {
            self.approach();
        }
        self.near.first().map(|due| MonoNs(due.at))
    }

    #[inline(always)] // a payload that is passed in memory is waited for
    pub(super) fn insert(&mut self, at: MonoNs, payload: T) -> TimerKey {
        let id = if self.free == NONE { self.another() } else { self.free };
        let far = at.0 >= self.near_end;
        let (mut list, mut next) = (NEAR, NONE);
        if far {
            list = self.far.list(at.0);
            next = self.far.push(list, id);
        }
        let node = &mut self.nodes[id as usize];
        self.free = node.next;
        (node.payload, node.at, node.sequence) = (payload, at.0, self.sequence);
        (node.list, node.next) = (list, next);
        let key = TimerKey { node: id, generation: node.generation };
        self.sequence += 1;
        self.count += 1;
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.prev = id;
        }
        if !far {
            self.push_near(id);
        }
        key
    }

    #[cold]
    fn another(&mut self) -> u32 {
        self.nodes.push(Node {
            payload: T::default(),
            at: 0,
            sequence: 0,
            generation: 0,
            list: NEAR,
            prev: NONE,
            next: NONE,
        });
        self.nodes.len() as u32 - 1
    }

    /// The payload of a pending timer.
    #[inline]
    pub(super) fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        let node = self.nodes.get_mut(key.node as usize)?;
        if node.generation != key.generation { None } else { Some(&mut node.payload) }
    }

    /// Takes a pending timer out.
    #[inline]
    pub(super) fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let node = self.nodes.get(key.node as usize)?;
        if node.generation != key.generation {
            return None;
        }
        let (list, prev, next) = (node.list, node.prev, node.next);
        if list == NEAR {
            self.remove_near(prev as usize);
            return Some(self.release(key.node));
        }
        if self.far.is_first(list, key.node) {
            self.far.set_first(list, next);
        } else {
            self.nodes[prev as usize].next = next;
            if let Some(next) = self.nodes.get_mut(next as usize) {
                next.prev = prev;
            }
        }
        Some(self.release(key.node))
    }

    /// Takes out the earliest timer if it is due.
    pub(super) fn pop_due(&mut self, now: MonoNs) -> Option<T> {
        while self.near.is_empty() && self.far.lower_bound()? <= now.0 {
            self.approach();
        }
        let Due { at, node, .. } = *self.near.first()?;
        if at > now.0 {
            return None;
        }
        self.remove_near(0);
        Some(self.release(node))
    }

    #[inline]
    fn release(&mut self, id: u32) -> T {
        let node = &mut self.nodes[id as usize];
        node.generation = node.generation.wrapping_add(1);
        node.next = core::mem::replace(&mut self.free, id);
        self.count -= 1;
        core::mem::take(&mut node.payload)
    }

    #[inline]
    fn push_far(&mut self, id: u32, at: u64) {
        let list = self.far.list(at);
        let next = self.far.push(list, id);
        let node = &mut self.nodes[id as usize];
        (node.list, node.next) = (list, next);
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.prev = id;
        }
    }

    /// Brings the first timers of the wheel nearer: into the heap, or into lower levels. Only with an
    /// empty heap, for what comes from the wheel is due after what was in it.
    fn approach(&mut self) {
        let Some((first, same_time)) = self.far.take_first() else { return };
        let (mut at, mut few, mut last) = (first, 0, 0);
        while let Some(node) = self.nodes.get(at as usize)
            && few <= FEW
        {
            few += 1;
            last = last.max(node.at);
            at = node.next;
        }
        let near = same_time || at == NONE;
        if near {
            self.near_end = last.saturating_add(1);
        }
        at = first;
        while let Some(node) = self.nodes.get(at as usize) {
            let (id, time) = (at, node.at);
            at = node.next;
            if near { self.push_near(id) } else { self.push_far(id, time) }
        }
    }

    #[inline]
    fn push_near(&mut self, id: u32) {
        let place = self.near.len();
        let node = &mut self.nodes[id as usize];
        (node.list, node.prev) = (NEAR, place as u32);
        self.near.push(Due { at: node.at, sequence: node.sequence, node: id });
        self.rise(place);
    }

    fn remove_near(&mut self, place: usize) {
        self.near.swap_remove(place);
        if place < self.near.len() && self.sink(place) == place {
            self.rise(place);
        }
    }

    fn rise(&mut self, mut place: usize) {
        let due = self.near[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.near[parent].order() <= due.order() {
                break;
            }
            self.put(place, self.near[parent]);
            place = parent;
        }
        self.put(place, due);
    }

    fn sink(&mut self, mut place: usize) -> usize {
        let due = self.near[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.near.len());
            let Some(least) = children.min_by_key(|&child| self.near[child].order()) else { break };
            if self.near[least].order() >= due.order() {
                break;
            }
            self.put(place, self.near[least]);
            place = least;
        }
        self.put(place, due);
        place
    }

    fn put(&mut self, place: usize, due: Due) {
        self.near[place] = due;
        self.nodes[due.node as usize].prev = place as u32;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn same_time_fires_in_the_order_of_insertion() {
        let mut timers = Timers::new();
        for i in 0..50 {
            timers.insert(MonoNs(7), i);
        }
        let fired: Vec<i32> = core::iter::from_fn(|| timers.pop_due(MonoNs(7))).collect();
        assert_eq!(fired, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_stale_key_names_nothing() {
        let mut timers = Timers::new();
        let first = timers.insert(MonoNs(1), 'a');
        assert_eq!(timers.cancel(first), Some('a'));
        let second = timers.insert(MonoNs(2), 'b');
        assert_eq!((timers.cancel(first), timers.get_mut(first)), (None, None));
        assert_eq!(timers.pop_due(MonoNs(2)), Some('b'));
        assert_eq!(timers.cancel(second), None);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64),
        Cancel(usize),
        Expire(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (0u64..40).prop_map(Op::Insert),
            1 => any::<usize>().prop_map(Op::Cancel),
            1 => (0u64..40).prop_map(Op::Expire),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Against a sorted list: the same timers, in the same order, whatever is done.
        #[test]
        fn behaves_as_a_sorted_list(ops in prop::collection::vec(op(), 1..120)) {
            let mut timers = Timers::new();
            let mut oracle: Vec<(u64, usize, TimerKey)> = Vec::new();
            let mut dead = Vec::new();
            for (id, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Insert(at) => oracle.push((at, id, timers.insert(MonoNs(at), id))),
                    Op::Cancel(any) if !oracle.is_empty() => {
                        let (_, id, key) = oracle.remove(any % oracle.len());
                        prop_assert_eq!(timers.cancel(key), Some(id));
                        dead.push(key);
                    }
                    Op::Cancel(_) => {}
                    Op::Expire(now) => loop {
                        oracle.sort_by_key(|&(at, id, _)| (at, id));
                        let due = oracle.first().is_some_and(|&(at, ..)| at <= now);
                        let expected = due.then(|| oracle.remove(0));
                        dead.extend(expected.map(|(.., key)| key));
                        prop_assert_eq!(timers.pop_due(MonoNs(now)), expected.map(|(_, id, _)| id));
                        if expected.is_none() { break }
                    },
                }
                prop_assert_eq!(timers.len(), oracle.len());
                prop_assert_eq!(timers.next(), oracle.iter().map(|&(at, ..)| MonoNs(at)).min());
                prop_assert!(dead.iter().all(|&key| timers.get_mut(key).is_none()));
            }
        }
    }
}
