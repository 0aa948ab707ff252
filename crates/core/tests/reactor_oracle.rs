//! The reactor against a linear scan, under random interleavings of everything a task, a device and
//! time can do, wakers that do something included.

#![cfg(not(loom))]

use gpu_async_reactor_core::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use testkit::oracle::{Expected, LinearScan, Wanted};

const LINES: usize = 4;
/// This line rings doorbell word 2 behind each store, this one is held by the future alone.
const BELLED: usize = 1;
const SHARED: usize = 2;
const GROUP: Slot = Slot::ALL[2];
const PARK_BOUND: u64 = 7;

#[derive(Clone, Debug)]
enum Op {
    Wait { wanted: Wanted, when_woken: Option<Box<Op>> },
    Poll { any: usize, again_as: Option<usize> },
    Drop { any: usize },
    Store { line: usize, slot: usize, more: u64 },
    Advance { by: u64 },
    Fire,
    Turn,
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let word = (0..LINES, 0..3usize, 0..12u64, prop::option::of(0..60u64));
    prop_oneof![
        4 => word.prop_map(|(line, slot, target, until)| Wanted::Word { line, slot, target, until }),
        1 => (0..60u64).prop_map(|at| Wanted::Time { at }),
    ]
}

fn simple() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => wanted().prop_map(|wanted| Op::Wait { wanted, when_woken: None }),
        3 => (any::<usize>(), prop::option::of(any::<usize>()))
            .prop_map(|(any, again_as)| Op::Poll { any, again_as }),
        2 => any::<usize>().prop_map(|any| Op::Drop { any }),
        6 => (0..LINES, 0..3usize, 0..4u64)
            .prop_map(|(line, slot, more)| Op::Store { line, slot, more }),
        2 => (0..9u64).prop_map(|by| Op::Advance { by }),
        4 => Just(Op::Fire),
        2 => Just(Op::Turn),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let hooked = (wanted(), simple()).prop_map(|(wanted, then)| Op::Wait {
        wanted,
        // A waker that fires or turns would have to know which futures are being woken: left out.
        when_woken: (!matches!(then, Op::Fire | Op::Turn)).then(|| Box::new(then)),
    });
    prop_oneof![5 => simple(), 1 => hooked]
}

type Future_ = Pin<Box<dyn Future<Output = bool>>>;

struct Entry {
    wanted: Wanted,
    future: Option<Future_>,
    waker_id: usize,
}

/// One case: the real reactor and the oracle, told the same things.
struct Case {
    reactor: &'static Reactor<'static, ManualClock>,
    clock: ManualClock,
    lines: &'static [CompletionLine; LINES],
    shared: Arc<CompletionLine>,
    rings: u64,
    oracle: LinearScan,
    entries: Vec<Entry>,
    hooks: Vec<(usize, Op)>,
    woken: Vec<usize>,
}

thread_local! {
    static CASE: RefCell<Option<Case>> = const { RefCell::new(None) };
}

fn with<R>(act: impl FnOnce(&mut Case) -> R) -> R {
    CASE.with_borrow_mut(|case| act(case.as_mut().unwrap()))
}

struct Mark(usize);

impl Wake for Mark {
    fn wake(self: Arc<Self>) {
        let hook = with(|case| {
            case.woken.push(self.0);
            let at = case.hooks.iter().position(|&(id, _)| id == self.0)?;
            Some(case.hooks.swap_remove(at).1)
        });
        if let Some(op) = hook {
            apply(&op);
        }
    }
}

/// Polls entry `id` for real and in the oracle, and compares.
fn poll_entry(id: usize) {
    let Some((mut future, wanted, waker)) = with(|case| {
        let entry = &mut case.entries[id];
        let waker = Waker::from(Arc::new(Mark(entry.waker_id)));
        entry.future.take().map(|future| (future, entry.wanted, waker))
    }) else {
        return;
    };
    let real = future.as_mut().poll(&mut Context::from_waker(&waker));
    let expected = with(|case| case.oracle.poll(id, wanted));
    assert_eq!(real, expected.map_or(Poll::Pending, Poll::Ready), "poll of {id}: {wanted:?}");
    if real.is_pending() {
        with(|case| case.entries[id].future = Some(future));
    }
}

fn apply(op: &Op) {
    match *op {
        Op::Wait { wanted, ref when_woken } => {
            let id = with(|case| {
                let reactor = case.reactor;
                let future: Future_ = match wanted {
                    Wanted::Word { line, slot, target, until } => {
                        let (slot, until) = (Slot::ALL[slot], until.map(MonoNs));
                        match line {
                            SHARED => {
                                let line = case.shared.clone();
                                Box::pin(reactor.ready_shared(line, slot, target, until))
                            }
                            _ => {
                                let work = MemoryDescriptor::new(&case.lines[line], slot, target);
                                Box::pin(reactor.ready(work, until))
                            }
                        }
                    }
                    Wanted::Time { at } => Box::pin(async move {
                        reactor.alarm(MonoNs(at)).await;
                        true
                    }),
                };
                let id = case.entries.len();
                case.entries.push(Entry { wanted, future: Some(future), waker_id: id });
                case.hooks.extend(when_woken.as_ref().map(|op| (id, (**op).clone())));
                id
            });
            poll_entry(id);
        }
        Op::Poll { any, again_as } => {
            let id = with(|case| {
                let count = case.entries.len();
                let id = any.checked_rem(count)?;
                if again_as.is_some() {
                    // Another waker: wakes are marked under a new name from here on.
                    case.entries[id].waker_id += 1_000;
                }
                Some(id)
            });
            id.into_iter().for_each(poll_entry);
        }
        Op::Drop { any } => {
            let dropped = with(|case| {
                let id = any.checked_rem(case.entries.len())?;
                case.oracle.forget(id);
                case.entries[id].future.take()
            });
            drop(dropped);
        }
        Op::Store { line, slot, more } => with(|case| {
            let number = case.oracle.word(line, slot) + more;
            case.oracle.store(line, slot, number);
            let real = if line == SHARED { &case.shared } else { &case.lines[line] };
            real.store(Slot::ALL[slot], number);
            if line == BELLED {
                case.rings += 1;
                case.reactor.bell().ring_group(GROUP, case.rings);
            }
        }),
        Op::Advance { by } => with(|case| {
            case.oracle.set_now(case.oracle.now() + by);
            case.clock.advance(DurNs(by));
        }),
        Op::Fire => {
            let (reactor, before, expected) = with(|case| {
                case.woken.clear();
                (case.reactor, case.oracle.clone(), case.oracle.fire())
            });
            let woke = reactor.fire();
            assert_eq!(woke, !expected.is_empty());
            check_woken(&before, &expected);
        }
        Op::Turn => turn(),
    }
}

fn turn() {
    let (reactor, clock, before, expected, idle) = with(|case| {
        case.woken.clear();
        let before = case.oracle.clone();
        let fired = case.oracle.fire();
        let idle = match fired.is_empty() {
            false => Expected::Woke,
            true => case.oracle.idle(PARK_BOUND),
        };
        if let Expected::SleptTo(at) | Expected::ParkedTo(at) = idle {
            case.oracle.set_now(at);
        }
        (case.reactor, case.clock.clone(), before, fired, idle)
    });
    let mut manual = ManualIdle::new(clock);
    let real = reactor.turn(&mut manual, DurNs(PARK_BOUND), 3);
    match (real, idle) {
        (Ok(Turn::Woke), Expected::Woke)
        | (Ok(Turn::Slept), Expected::SleptTo(_))
        | (Ok(Turn::Parked), Expected::ParkedTo(_)) => {}
        (Err(error), Expected::Stalled) => assert_eq!(error.code(), ErrorCode::Stalled),
        (real, idle) => panic!("a turn did {real:?}, expected {idle:?}"),
    }
    check_woken(&before, &expected);
    with(|case| assert_eq!(case.clock.monotonic_ns(), MonoNs(case.oracle.now())));
}

/// The same were woken, each once; on one slot in the order of their targets, and the earlier
/// registration first where targets are equal. Who is due by a number and not by the time is settled
/// `before` the pass: a waker may store.
fn check_woken(before: &LinearScan, expected: &[(usize, Wanted)]) {
    let woken = with(|case| case.woken.clone());
    let mut sorted: Vec<_> = woken.iter().map(|id| id % 1_000).collect();
    let mut wanted: Vec<_> = expected.iter().map(|&(id, _)| id).collect();
    sorted.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(sorted, wanted, "who was woken");
    for line in 0..LINES {
        for slot in 0..3 {
            let reached = |&(id, want): &(usize, Wanted)| match want {
                Wanted::Word { line: l, slot: s, target, .. } if (l, s) == (line, slot) => {
                    (before.word(l, s) >= target).then_some((target, id))
                }
                _ => None,
            };
            let mut order: Vec<_> = expected.iter().filter_map(reached).collect();
            order.sort_by_key(|&(target, _)| target); // stable: registration order within
            let order: Vec<_> = order.into_iter().map(|(_, id)| id).collect();
            let real: Vec<_> =
                woken.iter().map(|id| id % 1_000).filter(|id| order.contains(id)).collect();
            assert_eq!(real, order, "order on line {line}, slot {slot}");
        }
    }
}

fn run(ops: &[Op]) {
    let clock = ManualClock::new();
    // Futures are kept in a thread local, so what they borrow lives for ever.
    let lines: &'static _ = Box::leak(Box::new([const { CompletionLine::new() }; LINES]));
    let reactor: &'static _ = Box::leak(Box::new(Reactor::new(clock.handle())));
    reactor.bind(&lines[BELLED], GROUP).unwrap();
    CASE.set(Some(Case {
        reactor,
        clock,
        lines,
        shared: Arc::new(CompletionLine::new()),
        rings: 0,
        oracle: LinearScan::new(LINES),
        entries: Vec::new(),
        hooks: Vec::new(),
        woken: Vec::new(),
    }));
    for op in ops {
        apply(op);
        with(|case| assert_eq!(case.reactor.pending(), case.oracle.pending(), "pending"));
    }
    // Dropping every future forgets every registration, and lets go of the shared line.
    let entries = with(|case| std::mem::take(&mut case.entries));
    drop(entries);
    with(|case| {
        assert_eq!(case.reactor.pending(), (0, 0));
        assert_eq!(Arc::strong_count(&case.shared), 1);
    });
    CASE.set(None);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn the_reactor_does_what_a_linear_scan_does(ops in prop::collection::vec(op(), 1..60)) {
        run(&ops);
    }
}

/// Found by the test above: the words that decide an order are those of the pass's start.
#[test]
fn a_waker_that_stores_changes_nothing_for_those_already_due() {
    let wait = |target, until, when_woken: Option<Op>| Op::Wait {
        wanted: Wanted::Word { line: 0, slot: 0, target, until: Some(until) },
        when_woken: when_woken.map(Box::new),
    };
    let store = Op::Store { line: 0, slot: 0, more: 3 };
    run(&[
        wait(3, 42, None),
        wait(3, 33, None),
        wait(2, 29, Some(store)),
        Op::Advance { by: 50 },
        Op::Fire,
    ]);
}
