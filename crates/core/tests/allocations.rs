//! Invariant 11: once warm, no wait, wake, timer, turn or spawn touches the allocator.

#![cfg(not(loom))]

use gpu_async_reactor_core::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing, for the
// thread local is constant and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's duties are the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `alloc` above, which is the system's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() -> u64 {
    COUNT.with(Cell::get)
}

const WARM: u64 = 200;
const COUNTED: u64 = 1_000;

#[test]
fn the_counter_counts() {
    let before = count();
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(count() - before, 1);
}

/// Tasks that await words on borrowed, shared and belled lines with bounds and alarms in between,
/// against one that plays the device; the allocations of the counted rounds.
#[test]
fn waits_wakes_timers_and_turns_allocate_nothing() {
    let clock = ManualClock::new();
    let lines: [CompletionLine; 4] = std::array::from_fn(|_| CompletionLine::new());
    let shared: SharedLine = Arc::new(CompletionLine::new());
    let reactor = Reactor::new(clock.handle());
    reactor.bind(&lines[3], Slot::ALL[0]).unwrap();
    let counted = Cell::new(None);
    let mut executor = DynExecutor::new();
    for task in 0..32usize {
        let (reactor, lines, shared) = (&reactor, &lines, &shared);
        executor.spawn_dyn(async move {
            let slot = Slot::ALL[task / 4];
            for round in 1..=WARM + COUNTED {
                let work = MemoryDescriptor::new(&lines[task % 4], slot, round);
                let late = reactor.clock().monotonic_ns() + DurNs(3);
                while !reactor.ready(work, Some(late)).await {
                    reactor.alarm(reactor.clock().monotonic_ns() + DurNs(2)).await;
                }
                if task == 0 {
                    assert!(reactor.ready_shared(shared.clone(), slot, round, None).await);
                }
            }
        });
    }
    executor.spawn_dyn(async {
        let mut start = 0;
        for round in 1..=WARM + COUNTED {
            reactor.alarm(reactor.clock().monotonic_ns() + DurNs(11)).await;
            if round == WARM {
                start = count();
            }
            for line in &lines {
                Slot::ALL.iter().for_each(|&slot| line.store(slot, round));
            }
            reactor.bell().ring_group(Slot::ALL[0], round);
            yield_now().await;
            (*shared).as_ref().store(Slot::ALL[0], round);
        }
        counted.set(Some(count() - start));
    });
    executor.run(&reactor, &mut ManualIdle::new(clock), DurNs(5)).unwrap();
    drop(executor);
    assert_eq!(counted.get(), Some(0));
}

#[test]
fn a_steady_spawn_allocates_nothing() {
    let clock = ManualClock::new();
    let reactor = Reactor::new(clock.handle());
    let mut idle = ManualIdle::new(clock);
    let mut executor = Executor::new();
    let mut round = |tasks: u64| {
        for n in 0..tasks {
            let reactor = &reactor;
            executor.spawn(async move {
                yield_now().await;
                reactor.alarm(MonoNs(reactor.clock().monotonic_ns().0 + n)).await;
            });
        }
        executor.run(&reactor, &mut idle, DurNs(5)).unwrap();
    };
    (0..10).for_each(|_| round(100));
    let before = count();
    (0..100).for_each(|_| round(100));
    // One waker a run, made from the reactor's bell, is a count and no allocation.
    assert_eq!(count() - before, 0);
}

#[test]
fn known_points_are_observed_without_allocating() {
    let plan = DeadlinePlan { margin_ns: 1, min_sleep_ns: 1, max_sleep_ns: 99, window: 8 };
    let mut table = PointTable::new();
    (0..64u32).for_each(|key| table.observe(&key, &plan, Outcome::Exact { residual_ns: 9 }));
    let before = count();
    for n in 0..10_000u32 {
        let key = n % 64;
        std::hint::black_box(table.sleep_ns(&key, &plan));
        table.observe(&key, &plan, Outcome::Late { woke_ns: u64::from(n) });
    }
    assert_eq!(count() - before, 0);
}
