//! An indexed 4-ary heap of deadlines: insert, cancel and next, with keys that can't go stale.

use crate::MonoNs;
use alloc::vec::Vec;

const ARITY: usize = 4;
const NONE: u32 = u32::MAX;

/// Names one timer; a key of a timer that fired or was cancelled names nothing, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerKey {
    node: u32,
    generation: u32,
}

/// Timers in the order they are due; those due at the same time in the order they were inserted.
#[derive(Debug)]
pub(super) struct Timers<T> {
    heap: Vec<Due>,
    nodes: Vec<Node<T>>,
    free: u32,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: MonoNs,
    sequence: u64,
    node: u32,
}

impl Due {
    fn order(&self) -> (MonoNs, u64) {
        (self.at, self.sequence)
    }
}

#[derive(Debug)]
struct Node<T> {
    generation: u32,
    /// Its place in the heap while it is pending, the next free node otherwise.
    place: u32,
    payload: Option<T>,
}

impl<T> Timers<T> {
    pub(super) const fn new() -> Self {
        Self { heap: Vec::new(), nodes: Vec::new(), free: NONE, sequence: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When the earliest timer is due.
    pub(super) fn next(&self) -> Option<MonoNs> {
        self.heap.first().map(|due| due.at)
    }

    pub(super) fn insert(&mut self, at: MonoNs, payload: T) -> TimerKey {
        let place = self.heap.len();
        let node = match self.free {
            NONE => {
                self.nodes.push(Node { generation: 0, place: 0, payload: Some(payload) });
                self.nodes.len() as u32 - 1
            }
            free => {
                let entry = &mut self.nodes[free as usize];
                self.free = entry.place;
                entry.payload = Some(payload);
                free
            }
        };
        self.heap.push(Due { at, sequence: self.sequence, node });
        self.sequence += 1;
        self.sift_up(place);
        TimerKey { node, generation: self.nodes[node as usize].generation }
    }

    /// The payload of a pending timer.
    pub(super) fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        let node = self.nodes.get_mut(key.node as usize)?;
        if node.generation != key.generation { None } else { node.payload.as_mut() }
    }

    /// Takes a pending timer out.
    pub(super) fn cancel(&mut self, key: TimerKey) -> Option<T> {
        self.get_mut(key)?;
        let place = self.nodes[key.node as usize].place as usize;
        Some(self.remove(place))
    }

    /// Takes out the earliest timer if it is due.
    pub(super) fn pop_due(&mut self, now: MonoNs) -> Option<T> {
        if self.next()? <= now { Some(self.remove(0)) } else { None }
    }

    fn remove(&mut self, place: usize) -> T {
        let due = self.heap.swap_remove(place);
        if place < self.heap.len() {
            let settled = self.sift_down(place);
            if settled == place {
                self.sift_up(place);
            }
        }
        let node = &mut self.nodes[due.node as usize];
        node.generation = node.generation.wrapping_add(1);
        node.place = core::mem::replace(&mut self.free, due.node);
        node.payload.take().expect("a timer in the heap has its payload")
    }

    fn sift_up(&mut self, mut place: usize) {
        let due = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].order() <= due.order() {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, due);
    }

    fn sift_down(&mut self, mut place: usize) -> usize {
        let due = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child].order()) else { break };
            if self.heap[least].order() >= due.order() {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, due);
        place
    }

    fn put(&mut self, place: usize, due: Due) {
        self.heap[place] = due;
        self.nodes[due.node as usize].place = place as u32;
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
