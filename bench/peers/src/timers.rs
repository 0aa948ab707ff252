//! Suite `timers`: insert, cancel, next and expire beside what others keep their timers in.

use crate::measure::{Bench, Subject, subject};
use gpu_async_reactor::{Alarmed, Clock, DurNs, ManualClock, Reactor};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Deadlines are spread over the next second, by a fixed rule.
fn spread(n: u64) -> u64 {
    1_000_000 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 1_000_000_000
}

/// What a table of timers can be asked.
trait Table {
    type Key;
    /// Adds a timer that is due so long after `now`, and wakes a waker then.
    fn insert(&mut self, after: u64) -> Self::Key;
    fn cancel(&mut self, key: Self::Key);
    /// Asks whether something is due, with nothing due.
    fn next(&mut self);
    /// Moves the time on and takes out what is due.
    fn expire(&mut self, by: u64);
}

struct Ours {
    clock: ManualClock,
    reactor: &'static Reactor<'static, ManualClock>,
}

impl Ours {
    fn new() -> Ours {
        let clock = ManualClock::new();
        Ours { reactor: Box::leak(Box::new(Reactor::new(clock.handle()))), clock }
    }
}

impl Table for Ours {
    type Key = Alarmed<'static, 'static, ManualClock>;
    fn insert(&mut self, after: u64) -> Self::Key {
        let mut alarm = self.reactor.alarm(self.clock.monotonic_ns() + DurNs(after));
        assert!(Pin::new(&mut alarm).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        alarm
    }
    fn cancel(&mut self, key: Self::Key) {
        drop(key);
    }
    fn next(&mut self) {
        assert!(!self.reactor.fire());
    }
    fn expire(&mut self, by: u64) {
        self.clock.advance(DurNs(by));
        self.reactor.fire();
    }
}

/// A binary heap in which a cancelled timer stays, marked, until it comes up.
#[derive(Default)]
struct Tombstones {
    now: u64,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
}

impl Tombstones {
    fn drop_cancelled(&mut self) {
        while let Some(&Reverse((_, id))) = self.heap.peek()
            && self.wakers[id as usize].is_none()
        {
            self.heap.pop();
            self.free.push(id);
        }
    }
}

impl Table for Tombstones {
    type Key = u32;
    fn insert(&mut self, after: u64) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.wakers.len() as u32 - 1
        });
        self.wakers[id as usize] = Some(Waker::noop().clone());
        self.heap.push(Reverse((self.now + after, id)));
        id
    }
    fn cancel(&mut self, key: u32) {
        self.wakers[key as usize] = None;
    }
    fn next(&mut self) {
        self.drop_cancelled();
        assert!(self.heap.peek().is_none_or(|&Reverse((at, _))| at > black_box(self.now)));
    }
    fn expire(&mut self, by: u64) {
        self.now += by;
        while let Some(&Reverse((at, id))) = self.heap.peek()
            && at <= self.now
        {
            self.heap.pop();
            if let Some(waker) = self.wakers[id as usize].take() {
                waker.wake();
            }
            self.free.push(id);
        }
    }
}

/// What async-io keeps its timers in: an ordered map by time and number, behind a lock.
#[derive(Default)]
struct OrderedMap {
    now: u64,
    number: u64,
    map: std::sync::Mutex<BTreeMap<(u64, u64), Waker>>,
}

impl Table for OrderedMap {
    type Key = (u64, u64);
    fn insert(&mut self, after: u64) -> (u64, u64) {
        self.number += 1;
        let key = (self.now + after, self.number);
        self.map.lock().expect("no panic").insert(key, Waker::noop().clone());
        key
    }
    fn cancel(&mut self, key: (u64, u64)) {
        self.map.lock().expect("no panic").remove(&key);
    }
    fn next(&mut self) {
        let map = self.map.lock().expect("no panic");
        assert!(map.first_key_value().is_none_or(|(&(at, _), _)| at > black_box(self.now)));
    }
    fn expire(&mut self, by: u64) {
        self.now += by;
        let mut map = self.map.lock().expect("no panic");
        let later = map.split_off(&(self.now + 1, 0));
        let due = std::mem::replace(&mut *map, later);
        due.into_values().for_each(Waker::wake);
    }
}

/// tokio's wheel as its users meet it: a `Sleep`, polled and dropped. Its ticks are a millisecond.
struct Tokio {
    runtime: tokio::runtime::Runtime,
}

impl Tokio {
    fn new() -> Tokio {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        Tokio { runtime: runtime.expect("a runtime") }
    }
}

impl Table for Tokio {
    type Key = Pin<Box<tokio::time::Sleep>>;
    fn insert(&mut self, after: u64) -> Self::Key {
        let _inside = self.runtime.enter();
        let mut sleep = Box::pin(tokio::time::sleep(Duration::from_nanos(after)));
        let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        sleep
    }
    fn cancel(&mut self, key: Self::Key) {
        drop(key);
    }
    fn next(&mut self) {}
    fn expire(&mut self, _by: u64) {}
}

/// A hierarchical wheel of hashed slots; its ticks are taken as a microsecond here.
struct HashedWheel {
    wheel: hierarchical_hash_wheel_timer::wheels::cancellable::QuadWheelWithOverflow<Entry>,
    next_id: u64,
}

#[derive(Debug)]
struct Entry(u64, Duration);

impl hierarchical_hash_wheel_timer::wheels::cancellable::CancellableTimerEntry for Entry {
    type Id = u64;
    fn id(&self) -> &u64 {
        &self.0
    }
}

impl hierarchical_hash_wheel_timer::wheels::TimerEntryWithDelay for Entry {
    fn delay(&self) -> Duration {
        self.1
    }
}

impl Table for HashedWheel {
    type Key = u64;
    fn insert(&mut self, after: u64) -> u64 {
        self.next_id += 1;
        // Its tick stands for a millisecond; here for a microsecond, a thousand times as fine.
        let entry = Rc::new(Entry(self.next_id, Duration::from_nanos(after * 1_000)));
        self.wheel.insert_ref(entry).expect("a delay in range");
        self.next_id
    }
    fn cancel(&mut self, key: u64) {
        self.wheel.cancel(&key).expect("it is there");
    }
    fn next(&mut self) {
        black_box(self.wheel.can_skip());
    }
    fn expire(&mut self, by: u64) {
        for _ in 0..by / 1_000 {
            self.wheel.tick().into_iter().for_each(drop);
        }
    }
}

/// Inserts a timer and cancels it, among `pending` others.
fn insert_cancel<'a, T: Table + 'a>(
    name: &'static str,
    mut table: T,
    pending: u64,
    n: u64,
) -> Subject<'a> {
    let kept: Vec<T::Key> = (0..pending).map(|at| table.insert(spread(at))).collect();
    let mut at = pending;
    subject(name, move || {
        let _kept = &kept;
        let start = Instant::now();
        for _ in 0..n {
            at += 1;
            let key = table.insert(spread(at));
            table.cancel(black_box(key));
        }
        // What was put off is done now: cancelled timers that were left in place come out.
        table.next();
        (start.elapsed(), n)
    })
}

/// Inserts timers behind those that are there, and cancels the one inserted longest ago.
fn rolling<'a, T: Table + 'a>(
    name: &'static str,
    mut table: T,
    pending: u64,
    n: u64,
) -> Subject<'a> {
    let mut kept: std::collections::VecDeque<T::Key> =
        (0..pending).map(|at| table.insert(spread(at))).collect();
    let mut at = pending;
    subject(name, move || {
        let start = Instant::now();
        for _ in 0..n {
            at += 1;
            kept.push_back(table.insert(spread(at)));
            table.cancel(kept.pop_front().expect("as many as before"));
        }
        table.next();
        (start.elapsed(), n)
    })
}

/// Asks for what is next, with nothing due.
fn next<'a, T: Table + 'a>(name: &'static str, mut table: T, pending: u64, n: u64) -> Subject<'a> {
    let kept: Vec<T::Key> = (0..pending).map(|at| table.insert(spread(at))).collect();
    subject(name, move || {
        let _kept = &kept;
        let start = Instant::now();
        (0..n).for_each(|_| table.next());
        (start.elapsed(), n)
    })
}

/// Inserts `pending` timers and lets all of them expire, in a thousand steps of time or as many as
/// there are timers.
fn expire<'a, T: Table + 'a>(name: &'static str, mut table: T, pending: u64) -> Subject<'a> {
    subject(name, move || {
        let keys: Vec<T::Key> = (0..pending).map(|at| table.insert(spread(at))).collect();
        let start = Instant::now();
        let steps = pending.min(1_000);
        (0..=steps).for_each(|_| table.expire(1_001_000_000 / steps));
        let took = start.elapsed();
        drop(keys);
        (took, pending)
    })
}

pub fn run(bench: &Bench) {
    let n = 100_000 / bench.scale;
    let wheel = || HashedWheel { wheel: Default::default(), next_id: 0 };
    for pending in [10, 1_000, 10_000, 100_000] {
        bench.compare(
            "timers",
            &format!("insert_cancel_{pending}"),
            vec![
                insert_cancel("ours", Ours::new(), pending, n),
                insert_cancel("heap-tombstones", Tombstones::default(), pending, n),
                insert_cancel("tokio-wheel", Tokio::new(), pending, n),
                insert_cancel("async-io-map", OrderedMap::default(), pending, n),
                insert_cancel("hashed-wheel", wheel(), pending, n),
            ],
        );
        bench.compare(
            "timers",
            &format!("rolling_{pending}"),
            vec![
                rolling("ours", Ours::new(), pending, n),
                rolling("heap-tombstones", Tombstones::default(), pending, n),
                rolling("tokio-wheel", Tokio::new(), pending, n),
                rolling("async-io-map", OrderedMap::default(), pending, n),
                rolling("hashed-wheel", wheel(), pending, n),
            ],
        );
        bench.compare(
            "timers",
            &format!("next_{pending}"),
            vec![
                next("ours", Ours::new(), pending, n),
                next("heap-tombstones", Tombstones::default(), pending, n),
                next("async-io-map", OrderedMap::default(), pending, n),
            ],
        );
        bench.compare(
            "timers",
            &format!("expire_{pending}"),
            vec![
                expire("ours", Ours::new(), pending),
                expire("heap-tombstones", Tombstones::default(), pending),
                expire("async-io-map", OrderedMap::default(), pending),
            ],
        );
    }
}
