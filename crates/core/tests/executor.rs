//! The executor: when tasks are polled, who may wake them, and what is left behind.

#![cfg(not(loom))]

use gpu_async_reactor_core::*;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

const BOUND: DurNs = DurNs(1_000);

fn manual() -> (ManualClock, Reactor<'static, ManualClock>, ManualIdle) {
    let clock = ManualClock::new();
    (clock.clone(), Reactor::new(clock.clone()), ManualIdle::new(clock))
}

#[test]
fn a_task_is_polled_once_at_spawn_and_then_only_when_woken() {
    let (_, reactor, mut idle) = manual();
    let polls = Cell::new(0);
    let mut executor = DynExecutor::new();
    executor.spawn_dyn(async {
        let mut alarm = Box::pin(reactor.alarm(MonoNs(500)));
        poll_fn(|cx| {
            polls.set(polls.get() + 1);
            alarm.as_mut().poll(cx)
        })
        .await;
    });
    // Another task keeps the executor busy for many rounds meanwhile.
    executor.spawn_dyn(async {
        for _ in 0..50 {
            yield_now().await;
        }
    });
    let stats = executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert_eq!(polls.get(), 2);
    assert_eq!(stats.polls, 2 + 51);
    assert_eq!((stats.slept, stats.parked, stats.idle_ns), (1, 0, 500));
}

#[test]
fn each_round_polls_every_ready_task_once() {
    let (_, reactor, mut idle) = manual();
    let trace = RefCell::new(Vec::new());
    let mut executor = DynExecutor::new();
    for task in 0..3 {
        let trace = &trace;
        executor.spawn_dyn(async move {
            for turn in 0..3 {
                trace.borrow_mut().push((turn, task));
                yield_now().await;
            }
        });
    }
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    let rounds: Vec<_> = (0..3).flat_map(|turn| (0..3).map(move |task| (turn, task))).collect();
    assert_eq!(*trace.borrow(), rounds);
}

#[test]
fn a_word_is_seen_between_polls_of_other_tasks() {
    let (_, reactor, mut idle) = manual();
    let line = CompletionLine::new();
    let order = RefCell::new(Vec::new());
    // The line lives shorter than the reactor of `manual`, so one of its own is made here.
    let clock = reactor.clock().handle();
    let reactor = Reactor::new(clock);
    {
        let mut executor = DynExecutor::new();
        executor.spawn_dyn(async {
            let work = MemoryDescriptor::new(&line, Slot::ALL[0], 1);
            assert!(reactor.ready(work, None).await);
            order.borrow_mut().push("seen");
        });
        executor.spawn_dyn(async {
            line.store(Slot::ALL[0], 1);
            yield_now().await;
            order.borrow_mut().push("slice");
        });
        executor.run(&reactor, &mut idle, BOUND).unwrap();
    }
    assert_eq!(*order.borrow(), ["seen", "slice"]);
}

#[test]
fn a_stall_names_the_tasks_left_and_a_later_run_goes_on() {
    let (_, reactor, mut idle) = manual();
    let waker: RefCell<Option<Waker>> = RefCell::default();
    let open = Cell::new(false);
    let mut executor = DynExecutor::new();
    let gate = || {
        poll_fn(|cx| {
            *waker.borrow_mut() = Some(cx.waker().clone());
            if open.get() { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    executor.spawn_dyn(gate());
    executor.spawn_dyn(std::future::pending::<()>());
    let stalled = executor.run(&reactor, &mut idle, BOUND).unwrap_err();
    assert_eq!(stalled.code(), ErrorCode::Stalled);
    assert!(stalled.to_string().contains("left (2)"), "{stalled}");
    open.set(true);
    waker.take().unwrap().wake();
    let stalled = executor.run(&reactor, &mut idle, BOUND).unwrap_err();
    assert!(stalled.to_string().contains("left (1)"), "{stalled}");
    assert_eq!(executor.unfinished(), 1);
}

#[test]
fn join_handles_give_outputs_and_tasks_spawn_tasks() {
    let (_, reactor, mut idle) = manual();
    let mut executor = DynExecutor::new();
    let spawner = executor.spawner();
    let root = executor.spawn_dyn(async move {
        let children: Vec<_> = (0..5u64).map(|n| spawner.spawn_dyn(async move { n * n })).collect();
        let mut sum = 0;
        for child in children {
            sum += child.await.unwrap();
        }
        sum
    });
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert!(root.is_finished());
    assert_eq!(run_inline(root), Ok(30));
}

#[test]
fn a_waker_that_outlives_its_task_wakes_nobody_else() {
    let (_, reactor, mut idle) = manual();
    let kept: RefCell<Option<Waker>> = RefCell::default();
    let polls = Cell::new(0);
    let mut executor = DynExecutor::new();
    executor.spawn_dyn(poll_fn(|cx| {
        *kept.borrow_mut() = Some(cx.waker().clone());
        Poll::Ready(())
    }));
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    // The next task takes the same place.
    executor.spawn_dyn(async {
        let mut alarm = Box::pin(reactor.alarm(MonoNs(50)));
        poll_fn(|cx| {
            polls.set(polls.get() + 1);
            kept.borrow().as_ref().unwrap().wake_by_ref();
            alarm.as_mut().poll(cx)
        })
        .await;
    });
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert_eq!(polls.get(), 2);
}

#[test]
fn dropping_an_unfinished_executor_drops_its_tasks_and_tells_who_joined() {
    let (_, reactor, mut idle) = manual();
    struct Flag(Rc<Cell<u32>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let mut executor = DynExecutor::new();
    let flag = Flag(dropped.clone());
    let placed = executor.spawn_dyn(async {
        let _flag = flag;
        std::future::pending::<()>().await;
    });
    executor.run(&reactor, &mut idle, BOUND).unwrap_err();
    let flag = Flag(dropped.clone());
    let waiting = executor.spawn_dyn(async { drop(flag) });
    let spawner = executor.spawner();
    drop(executor);
    assert_eq!(dropped.get(), 2);
    for handle in [placed, waiting, spawner.spawn_dyn(async {})] {
        assert_eq!(run_inline(handle).unwrap_err().code(), ErrorCode::TaskDropped);
    }
}

#[test]
fn a_task_that_drops_registers_and_spawns_in_its_own_drop_is_fine() {
    let (_, reactor, mut idle) = manual();
    let reactor = &reactor;
    struct SpawnOnDrop<'t>(Spawner<DynTask<'t>>, Rc<Cell<bool>>);
    impl Drop for SpawnOnDrop<'_> {
        fn drop(&mut self) {
            let ran = self.1.clone();
            drop(self.0.spawn_dyn(async move { ran.set(true) }));
        }
    }
    let ran = Rc::new(Cell::new(false));
    let mut executor = DynExecutor::new();
    let guard = SpawnOnDrop(executor.spawner(), ran.clone());
    executor.spawn_dyn(async move {
        let _guard = guard;
        reactor.alarm(MonoNs(10)).await;
    });
    executor.run(reactor, &mut idle, BOUND).unwrap();
    assert!(ran.get());
}

#[test]
fn tasks_of_one_type_run_without_boxes_across_chunks() {
    let (_, reactor, mut idle) = manual();
    let done = Cell::new(0);
    let mut executor = Executor::new();
    for n in 0..1_000u64 {
        let (reactor, done) = (&reactor, &done);
        executor.spawn(async move {
            reactor.alarm(MonoNs(n % 7)).await;
            done.set(done.get() + 1);
        });
    }
    executor.run(&reactor, &mut idle, BOUND).unwrap();
    assert_eq!((done.get(), executor.unfinished()), (1_000, 0));
}

/// An idle that sleeps in the kernel until it is unparked, and says how often it was asked to.
struct ParkIdle {
    waker: Waker,
    sleeps: u32,
}

struct Unpark(std::thread::Thread);
impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Idle for ParkIdle {
    fn sleep_until(&mut self, _at: MonoNs) {
        self.sleeps += 1;
        std::thread::park();
    }
    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        _bound: DurNs,
    ) -> bool {
        self.sleeps += 1;
        while !ready(line) {
            std::thread::park();
        }
        true
    }
    fn unparker(&self) -> Option<&Waker> {
        Some(&self.waker)
    }
}

#[test]
fn a_wake_from_another_thread_ends_a_sleep_and_a_park() {
    // Neither sleep nor park ever ends here but by the bell: a lost wake hangs the test.
    for with_descriptor in [false, true] {
        let clock = ManualClock::new();
        let line = CompletionLine::new();
        let reactor = Reactor::new(clock);
        let mut idle =
            ParkIdle { waker: Waker::from(Arc::new(Unpark(std::thread::current()))), sleeps: 0 };
        let slot: Arc<Mutex<(u32, Option<Waker>)>> = Arc::default();
        let mut executor = DynExecutor::new();
        const WAKES: u32 = 2_000;
        let seen = Rc::new(Cell::new(0));
        let main = executor.spawn_dyn({
            let (slot, seen, reactor) = (slot.clone(), seen.clone(), &reactor);
            async move {
                let _outside = reactor.outside();
                poll_fn(|cx| {
                    let mut slot = slot.lock().unwrap();
                    seen.set(slot.0);
                    slot.1 = Some(cx.waker().clone());
                    if slot.0 == WAKES { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        });
        if with_descriptor {
            let (reactor, line) = (&reactor, &line);
            executor.spawn_dyn(async move {
                let work = MemoryDescriptor::new(line, Slot::ALL[1], 1);
                let mut ready = Box::pin(reactor.ready(work, None));
                let mut main = Box::pin(main);
                // Keeps a descriptor registered for as long as the other task runs.
                poll_fn(|cx| {
                    let _ = ready.as_mut().poll(cx).is_ready();
                    main.as_mut().poll(cx).map(|_| ())
                })
                .await;
            });
        }
        let other = std::thread::spawn(move || {
            for n in 1..=WAKES {
                let waker = {
                    let mut slot = slot.lock().unwrap();
                    slot.0 = n;
                    slot.1.take()
                };
                waker.into_iter().for_each(Waker::wake);
                if n % 64 == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
            }
        });
        executor.run(&reactor, &mut idle, BOUND).unwrap();
        other.join().unwrap();
        assert_eq!(seen.get(), WAKES);
        assert!(idle.sleeps > 0, "the executor never slept, so nothing was tested");
    }
}
