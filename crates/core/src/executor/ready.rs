//! Which tasks are ready: a tree of bitmaps that any thread may set a bit in.
//!
//! The root has a bit for each of the first 32 tasks, so that waking one of few is one step. The others
//! are three levels down: a leaf has a bit for each of 64 tasks, a branch for each of 64 leaves, the
//! root for each branch. A waker sets its task's bit, and goes up only where it found a word empty.
//!
//! Each place has two words. The executor's own thread sets bits in the `local` one by plain loads
//! and stores, which no other thread touches; others set bits in the `remote` one by
//! read-modify-writes. A round takes both.
//!
//! The remote root is also where a waker and a sleeping executor meet (invariant 4): the executor
//! swaps an empty root for `SLEEPING`, and a waker that finds that bit rings the host's bell. Both
//! are one read-modify-write of one word, so one of them always sees the other.
//!
//! A waker that is suspended between two levels delays, for that long, later wakes of the same 64
//! tasks; none is lost.

use crate::reactor::Early;
use crate::sync::{AtomicU64, AtomicWaker, Ordering};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::Waker;

/// The root's last bit says that the executor sleeps, …
const SLEEPING: u64 = 1 << 63;
/// … its first ones are tasks, …
const DIRECT: usize = 32;
/// … and those between are branches.
const BRANCHES: usize = 63 - DIRECT;

/// The set, as the executor holds it.
pub(super) struct ReadySet {
    root: Arc<Root>,
    branches: Vec<Arc<Branch>>,
    leaves: Vec<Arc<Leaf>>,
}

struct Root {
    word: Word,
    /// Rings the reactor's doorbell.
    host: AtomicWaker,
}

impl Root {
    #[inline]
    fn set(&self, bit: u64) {
        if self.word.set(bit) & SLEEPING != 0 {
            self.ring();
        }
    }

    #[inline]
    fn set_local(&self, bit: u64) {
        // A host may wake tasks while it idles; that has to end its idle, too.
        if self.word.set_local(bit) & SLEEPING != 0 {
            self.ring();
        }
    }

    #[cold]
    #[inline(never)]
    fn ring(&self) {
        self.host.wake();
    }
}

struct Branch {
    word: Word,
    root: Arc<Root>,
    bit: u64,
}

struct Leaf {
    word: Word,
    branch: Arc<Branch>,
    bit: u64,
}

struct Word {
    /// Bits set by any thread.
    remote: Apart<AtomicU64>,
    /// Bits set by the executor's thread, which alone reads and writes this: an atomic only so that
    /// a place can be shared at all.
    local: AtomicU64,
}

/// A cache line of its own: what the executor's thread writes each round would otherwise take the
/// line away from a waker on another thread.
#[repr(align(64))]
struct Apart<T>(T);

impl Word {
    fn new() -> Word {
        Word { remote: Apart(AtomicU64::new(0)), local: AtomicU64::new(0) }
    }

    /// Sets a bit from any thread: the bits before.
    fn set(&self, bit: u64) -> u64 {
        // AcqRel all the way: what the waking thread did is seen by the poll that follows, and the
        // taker's swaps from the root down see every bit set before the one that led them here.
        self.remote.0.fetch_or(bit, Ordering::AcqRel)
    }

    /// Sets a bit from the executor's thread: the bits before.
    #[inline]
    fn set_local(&self, bit: u64) -> u64 {
        let bits = self.local.load(Ordering::Relaxed);
        self.local.store(bits | bit, Ordering::Relaxed);
        bits
    }

    /// Takes every bit, on the executor's thread.
    #[inline]
    fn take(&self) -> u64 {
        let mut bits = self.local.load(Ordering::Relaxed);
        self.local.store(0, Ordering::Relaxed);
        // A swap costs as much as the rest of a wake, so only where there is something to swap.
        if self.remote.0.load(Ordering::Acquire) != 0 {
            bits |= self.remote.0.swap(0, Ordering::AcqRel);
        }
        bits
    }
}

/// A task's bit.
pub(super) struct Spot {
    word: SpotWord,
    bit: u64,
}

enum SpotWord {
    Root(Arc<Root>),
    Leaf(Arc<Leaf>),
}

impl Spot {
    /// Marks the task ready, from any thread.
    #[inline(never)]
    pub(super) fn set(&self) {
        match &self.word {
            SpotWord::Root(root) => root.set(self.bit),
            SpotWord::Leaf(leaf) => {
                if leaf.word.set(self.bit) == 0 && leaf.branch.word.set(leaf.bit) == 0 {
                    leaf.branch.root.set(leaf.branch.bit);
                }
            }
        }
    }

    /// Marks the task ready, from the executor's thread.
    #[inline]
    pub(super) fn set_local(&self) {
        match &self.word {
            SpotWord::Root(root) => root.set_local(self.bit),
            SpotWord::Leaf(leaf) => {
                if leaf.word.set_local(self.bit) == 0 && leaf.branch.word.set_local(leaf.bit) == 0 {
                    leaf.branch.root.set_local(leaf.branch.bit);
                }
            }
        }
    }
}

impl ReadySet {
    pub(super) fn new() -> Self {
        let root = Root { word: Word::new(), host: AtomicWaker::new() };
        Self { root: Arc::new(root), branches: Vec::new(), leaves: Vec::new() }
    }

    /// The bit of a task.
    pub(super) fn spot(&mut self, task: usize) -> Spot {
        let Some(task) = task.checked_sub(DIRECT) else {
            return Spot { word: SpotWord::Root(self.root.clone()), bit: 1 << task };
        };
        let (leaf, bit) = (task / 64, 1 << (task % 64));
        while self.leaves.len() <= leaf {
            let next = self.leaves.len();
            if next.is_multiple_of(64) {
                let bit = 1 << (DIRECT + next / 64 % BRANCHES);
                let root = self.root.clone();
                self.branches.push(Arc::new(Branch { word: Word::new(), root, bit }));
            }
            let branch = self.branches[next / 64].clone();
            self.leaves.push(Arc::new(Leaf { word: Word::new(), branch, bit: 1 << (next % 64) }));
        }
        Spot { word: SpotWord::Leaf(self.leaves[leaf].clone()), bit }
    }

    /// One round: each ready task once. A task that gets ready again after it was taken is for the
    /// next round.
    #[inline]
    pub(super) fn round(&self, mut each: impl FnMut(usize)) {
        let root = self.root.word.take();
        let mut branches = (root & !SLEEPING) >> DIRECT;
        let (mut branch, mut leaves, mut first_leaf) = (usize::MAX, 0, 0);
        let (mut tasks, mut first_task) = (root & ((1 << DIRECT) - 1), 0);
        // One loop with one call, so that a poll is compiled into it.
        loop {
            while tasks != 0 {
                each(first_task + take_lowest(&mut tasks));
            }
            while leaves == 0 {
                let Some(Branch { word, .. }) = self.branches.get(branch).map(|found| &**found)
                else {
                    if branches == 0 {
                        return;
                    }
                    branch = take_lowest(&mut branches);
                    continue;
                };
                (leaves, first_leaf) = (word.take(), branch * 64);
                // Beyond as many branches as there are bits several share one.
                branch += BRANCHES;
            }
            let leaf = first_leaf + take_lowest(&mut leaves);
            (tasks, first_task) = (self.leaves[leaf].word.take(), DIRECT + leaf * 64);
        }
    }

    /// Declares the executor asleep, unless a task is ready; `bell` is rung by the next wake from
    /// then on, until [`awake`](ReadySet::awake).
    pub(super) fn sleep(&self, bell: &Waker) -> bool {
        self.root.host.register(bell);
        let Word { remote, local } = &self.root.word;
        let asleep = local.load(Ordering::Relaxed) == 0
            && remote.0.compare_exchange(0, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if asleep {
            local.store(SLEEPING, Ordering::Relaxed);
        }
        asleep
    }

    /// Declares the executor awake. What others set in the root is taken at the same time: one
    /// crossing of its line and not two.
    pub(super) fn awake(&self) {
        let Word { remote, local } = &self.root.word;
        let bits = local.load(Ordering::Relaxed) | remote.0.swap(0, Ordering::AcqRel);
        local.store(bits & !SLEEPING, Ordering::Relaxed);
    }

    /// What changes as soon as another thread wakes a task of a sleeping executor.
    pub(super) fn early(&self) -> Early<'_> {
        Early::new(&self.root.word.remote.0, SLEEPING)
    }

    /// Whether a task may be ready.
    #[inline]
    pub(super) fn any(&self) -> bool {
        let Word { remote, local } = &self.root.word;
        let bits = local.load(Ordering::Relaxed) | remote.0.load(Ordering::Acquire);
        bits & !SLEEPING != 0
    }
}

/// The place of the lowest bit that is set, which is cleared.
#[inline]
fn take_lowest(bits: &mut u64) -> usize {
    let lowest = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    lowest
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec;
    use core::sync::atomic::AtomicUsize;

    fn drain(set: &ReadySet) -> Vec<usize> {
        let mut found = Vec::new();
        set.round(|task| found.push(task));
        found
    }

    #[test]
    fn every_task_is_found_once_beyond_the_root_too() {
        let mut set = ReadySet::new();
        let mut tasks = vec![0, 1, 31, 32, 33, 63, 64, 95, 96, 4_127, 4_128];
        tasks.extend([31 * 4_096 + 31, 31 * 4_096 + 32, 64 * 4_096 + 7]);
        for &task in tasks.iter().rev() {
            let spot = set.spot(task);
            spot.set();
            spot.set();
        }
        assert!(set.any());
        let mut found = drain(&set);
        found.sort_unstable();
        assert_eq!(found, tasks);
        assert!(!set.any() && drain(&set).is_empty());
    }

    #[test]
    fn a_task_taken_and_woken_again_is_for_the_next_round() {
        let mut set = ReadySet::new();
        let spot = set.spot(5);
        spot.set();
        let mut found = Vec::new();
        set.round(|task| {
            found.push(task);
            spot.set();
        });
        assert_eq!(found, [5]);
        assert_eq!(drain(&set), [5]);
    }

    struct Count(AtomicUsize);
    impl alloc::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A host may wake tasks while it idles, on the executor's own thread.
    #[test]
    fn a_local_wake_rings_a_sleeping_executor_too() {
        let mut set = ReadySet::new();
        let spot = set.spot(0);
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let bell = Waker::from(count.clone());
        spot.set_local();
        assert!(!set.sleep(&bell));
        assert_eq!(drain(&set), [0]);
        assert!(set.sleep(&bell));
        spot.set_local();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        set.awake();
        assert_eq!(drain(&set), [0]);
        assert!(!set.any());
    }

    #[test]
    fn only_a_sleeping_executor_is_rung_and_none_sleeps_over_a_ready_task() {
        let mut set = ReadySet::new();
        let spot = set.spot(0);
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let bell = Waker::from(count.clone());
        spot.set();
        assert!(!set.sleep(&bell));
        drain(&set);
        assert!(set.sleep(&bell));
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        spot.set();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        set.awake();
        assert_eq!(drain(&set), [0]);
        spot.set();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}

/// Run by `cargo xtask loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::Bell;
    use loom::thread;

    fn drain(set: &ReadySet) -> Vec<usize> {
        let mut found = Vec::new();
        set.round(|task| found.push(task));
        found
    }

    /// Tasks that have their bits in the root, in one leaf, and one in each.
    const PAIRS: [[usize; 2]; 3] = [[0, 1], [DIRECT, DIRECT + 1], [0, DIRECT]];

    /// Invariant 4: an executor that went to sleep either finds its task ready or finds its bell
    /// rung; it never parks on a silent word with a task ready.
    #[test]
    fn a_wake_from_another_thread_ends_the_park() {
        for (task, spins) in [(0, false), (0, true), (DIRECT, false), (DIRECT, true)] {
            loom::model(move || a_wake_ends_the_park(task, spins));
        }
    }

    fn a_wake_ends_the_park(task: usize, spins: bool) {
        let mut set = ReadySet::new();
        let spot = set.spot(task);
        let bell = Arc::new(Bell::new());
        let ringer = thread::spawn(move || spot.set());
        let rung_before = bell.line().load(Bell::HOST);
        if set.sleep(&Waker::from(bell.clone())) {
            // The park: a store to the wake word ends it, or to the root where it spins, and nothing
            // else.
            while bell.line().load(Bell::HOST) == rung_before && !(spins && set.early().is_seen()) {
                thread::yield_now();
            }
            set.awake();
        }
        assert_eq!(drain(&set), [task]);
        ringer.join().unwrap();
    }

    /// Two wakers of one word, racing with a round: each task is found, at the latest once both
    /// wakers are done, and what its waker wrote before is seen by then, also where the other waker
    /// went up the tree for both.
    #[test]
    fn two_wakers_lose_no_wake_and_no_data() {
        for pair in PAIRS {
            loom::model(move || two_wakers(pair));
        }
    }

    fn two_wakers(pair: [usize; 2]) {
        let mut set = ReadySet::new();
        let data: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let wakers = [0, 1].map(|at| {
            let spot = set.spot(pair[at]);
            let data = data.clone();
            thread::spawn(move || {
                data[at].store(7, Ordering::Relaxed);
                spot.set();
            })
        });
        let check = |found: &[usize]| {
            for &task in found {
                assert_eq!(data[usize::from(task == pair[1])].load(Ordering::Relaxed), 7);
            }
        };
        let mut found = drain(&set);
        check(&found);
        for waker in wakers {
            waker.join().unwrap();
        }
        found.extend(drain(&set));
        found.sort_unstable();
        assert_eq!(found, pair);
    }

    /// The executor's own wakes beside another thread's: each task is found, and the
    /// executor doesn't sleep over either.
    #[test]
    fn local_and_remote_wakes_are_both_found() {
        for pair in PAIRS {
            loom::model(move || local_and_remote(pair));
        }
    }

    fn local_and_remote([local, remote_task]: [usize; 2]) {
        let mut set = ReadySet::new();
        let spot = set.spot(remote_task);
        let remote = thread::spawn(move || spot.set());
        let spot = set.spot(local);
        spot.set_local();
        assert!(!set.sleep(Waker::noop()));
        let mut found = drain(&set);
        spot.set_local();
        found.extend(drain(&set));
        remote.join().unwrap();
        found.extend(drain(&set));
        found.sort_unstable();
        assert_eq!(found, [local, local, remote_task]);
        assert!(set.sleep(Waker::noop()));
    }

    /// A doorbell's sleeper: registers what ends its sleep, looks again, then sleeps.
    #[test]
    fn a_ring_is_seen_by_the_last_look_or_ends_the_sleep() {
        struct Token(AtomicU64);
        impl alloc::task::Wake for Token {
            fn wake(self: Arc<Self>) {
                self.0.store(1, Ordering::Release);
            }
        }
        loom::model(|| {
            let bell = Arc::new(Bell::new());
            let token = Arc::new(Token(AtomicU64::new(0)));
            let ringer = {
                let bell = bell.clone();
                thread::spawn(move || bell.ring())
            };
            bell.register(&Waker::from(token.clone()));
            if bell.line().load(Bell::HOST) == 0 {
                while token.0.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
            }
            assert_eq!(bell.line().load(Bell::HOST), 1);
            ringer.join().unwrap();
        });
    }
}
