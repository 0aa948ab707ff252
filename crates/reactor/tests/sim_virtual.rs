//! The simulated device in virtual time: against a naive model, and races brought about to the
//! nanosecond.

use gpu_async_reactor::backend::sim::{
    Faults, SimOptions, VirtualDevice, VirtualIdle, VirtualQueue, Work,
};
use gpu_async_reactor::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn manual(options: SimOptions) -> VirtualDevice {
    VirtualDevice::new(ManualClock::new(), options)
}

fn with(faults: Faults) -> SimOptions {
    SimOptions { faults, ..SimOptions::default() }
}

const FLAG: &str = "flag:park_us=100,backstop_us=1000";

fn wait_inline(device: &VirtualDevice, queue: &mut VirtualQueue, plan: &str) -> Result<WaitReport> {
    let line = queue.line().clone();
    let plan: WaitPlan = plan.parse()?;
    let idle = OnThread(device.idle());
    let mut port = QueuePort::new(queue, &line, idle, device.clone()).within(DurNs::from_ms(50));
    run_inline(wait(&plan, None, &mut port, device, device))
}

#[derive(Clone, Debug)]
enum Act {
    Submit { queue: usize, length: u64 },
    SubmitBare { queue: usize, length: u64 },
    StoreNext { queue: usize },
    Pass { span: u64 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let queue = 0..3usize;
    let act = prop_oneof![
        4 => (queue.clone(), 0..5_000u64).prop_map(|(queue, length)| Act::Submit { queue, length }),
        2 => (queue.clone(), 0..5_000u64)
            .prop_map(|(queue, length)| Act::SubmitBare { queue, length }),
        1 => queue.prop_map(|queue| Act::StoreNext { queue }),
        3 => (0..4_000u64).prop_map(|span| Act::Pass { span }),
    ];
    prop::collection::vec(act, 0..60)
}

/// A queue as one would write it on a napkin.
#[derive(Default)]
struct Naive {
    free_at: u64,
    bare: bool,
    stores: Vec<u64>,
}

impl Naive {
    fn work(&mut self, now: u64, length: u64) {
        self.free_at = self.free_at.max(now) + length;
        self.bare = true;
    }
    fn store_next(&mut self, now: u64) -> u64 {
        if self.bare || self.stores.is_empty() {
            self.free_at = self.free_at.max(now);
            self.stores.push(self.free_at);
            self.bare = false;
        }
        self.stores.len() as u64
    }
    fn done(&self, now: u64) -> u64 {
        self.stores.iter().filter(|&&at| at <= now).count() as u64
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Each store happens when the sum of the lengths says, and word and status agree with it.
    #[test]
    fn queues_keep_the_times_of_a_naive_model(acts in acts()) {
        let device = manual(SimOptions::default());
        let mut queues: Vec<_> = (0..3).map(|_| device.queue()).collect();
        let mut naive: Vec<_> = (0..3).map(|_| Naive::default()).collect();
        for act in acts {
            let now = device.monotonic_ns().0;
            match act {
                Act::Submit { queue, length } => {
                    naive[queue].work(now, length);
                    let number = queues[queue].submit(Work::lasting(DurNs(length))).unwrap();
                    prop_assert_eq!(number, naive[queue].store_next(now));
                }
                Act::SubmitBare { queue, length } => {
                    naive[queue].work(now, length);
                    queues[queue].submit_bare(Work::lasting(DurNs(length))).unwrap();
                }
                Act::StoreNext { queue } => {
                    let number = queues[queue].store_next().unwrap();
                    prop_assert_eq!(number, naive[queue].store_next(now));
                }
                Act::Pass { span } => device.advance_to(MonoNs(now + span)),
            }
            // What is due now has happened, as after any waiting.
            let now = device.monotonic_ns();
            device.advance_to(now);
            for (queue, naive) in queues.iter_mut().zip(&naive) {
                let word = queue.line().load(queue.slot());
                prop_assert_eq!(word, naive.done(now.0));
            }
        }
        device.advance_to(MonoNs(u64::MAX / 2));
        for (queue, naive) in queues.iter_mut().zip(&naive) {
            for (number, &at) in (1..).zip(&naive.stores) {
                prop_assert_eq!(queue.stored_at(number), Some(MonoNs(at)));
                prop_assert!(queue.status(number).unwrap());
            }
            prop_assert!(!queue.status(naive.stores.len() as u64 + 1).unwrap());
        }
    }
}

#[test]
fn situation_12_two_waits_on_one_slot_while_the_store_between_them_is_lost() {
    // The store of 3 is lost, so that the word goes from 2 to 4, then to 5.
    let device = manual(with(Faults::none().lost_store(3)));
    let mut queue = device.queue();
    for _ in 0..5 {
        queue.submit(Work::lasting(DurNs::from_ms(1))).unwrap();
    }
    let (line, slot) = (queue.line().clone(), queue.slot());
    let reactor = Reactor::new(device.clone());
    let order = RefCell::new(Vec::new());
    let mut executor = DynExecutor::new();
    for target in [5, 3] {
        let (reactor, order, line) = (&reactor, &order, &line);
        executor.spawn_dyn(async move {
            assert!(reactor.ready(MemoryDescriptor::new(line, slot, target), None).await);
            order.borrow_mut().push((target, line.load(slot), reactor.monotonic_ns()));
        });
    }
    executor.run(&reactor, &mut device.idle(), DurNs::from_ms(100)).unwrap();
    drop(executor);
    assert_eq!(*order.borrow(), [(3, 4, MonoNs(4_000_000)), (5, 5, MonoNs(5_000_000))]);
}

#[test]
fn situation_13_a_store_between_the_check_and_the_park_costs_no_time() {
    /// Lets the device run on between the caller's last look and the park.
    struct Racing(VirtualDevice, VirtualIdle, RefCell<Vec<(MonoNs, MonoNs)>>);
    impl Idle for Racing {
        fn sleep_until(&mut self, at: MonoNs) {
            self.1.sleep_until(at);
        }
        fn park_line<R: Fn(&CompletionLine) -> bool>(
            &mut self,
            line: &CompletionLine,
            ready: R,
            bound: DurNs,
        ) -> bool {
            assert!(!ready(line), "the race is only one if the word is still old");
            self.0.advance_to(MonoNs(1_000_000));
            let before = self.0.monotonic_ns();
            let seen = self.1.park_line(line, ready, bound);
            self.2.borrow_mut().push((before, self.0.monotonic_ns()));
            assert!(seen);
            seen
        }
    }
    // Inline, and through a reactor.
    for task in [false, true] {
        let device = manual(SimOptions::default());
        let mut queue = device.queue();
        let line = queue.line().clone();
        queue.submit(Work::lasting(DurNs(1_000_000))).unwrap();
        let plan: WaitPlan = "flag:park_us=9000,backstop_us=90000".parse().unwrap();
        let mut idle = Racing(device.clone(), device.idle(), RefCell::default());
        if task {
            let reactor = Reactor::new(device.clone());
            let mut executor = DynExecutor::new();
            let (on, line) = (&reactor, &line);
            executor.spawn_dyn(async move {
                let mut port = QueuePort::new(&mut queue, line, on, on);
                wait(&plan, None, &mut port, on, on).await.unwrap();
            });
            executor.run(&reactor, &mut idle, DurNs::from_ms(900)).unwrap();
        } else {
            let mut port = QueuePort::new(&mut queue, &line, OnThread(&mut idle), device.clone());
            run_inline(wait(&plan, None, &mut port, &device, &device)).unwrap();
        }
        let parks = idle.2.into_inner();
        assert_eq!(parks, [(MonoNs(1_000_000), MonoNs(1_000_000))], "task: {task}");
        assert_eq!(device.monotonic_ns(), MonoNs(1_000_100), "one query of 100 ns, task: {task}");
    }
}

#[test]
fn the_scripts_numbers_are_those_of_stores_whenever_they_are_asked_for() {
    // Work submitted bare, its store asked for before, while and after it runs.
    for asked_at in [0, 400_000, 2_000_000] {
        let hang = manual(with(Faults::none().hang(1)));
        let early = manual(with(Faults::none().word_before_data(1, DurNs(300_000))));
        for (device, hangs) in [(hang, true), (early, false)] {
            let mut queue = device.queue();
            queue.submit_bare(Work::lasting(DurNs(1_000_000))).unwrap();
            device.advance_to(MonoNs(asked_at));
            let ended = wait_inline(&device, &mut queue, FLAG);
            let word = queue.line().load(queue.slot());
            if hangs {
                assert_eq!(ended.unwrap_err().code(), ErrorCode::DeviceHang, "{asked_at}");
                assert_eq!(word, 0, "{asked_at}");
            } else {
                ended.unwrap();
                assert_eq!(word, 1, "{asked_at}: a word is early or on time, and never lost");
            }
        }
    }
}

#[test]
fn a_panic_in_the_work_is_the_devices_loss_here_too() {
    let device = manual(SimOptions::default());
    let mut queue = device.queue();
    let fault = || std::panic::resume_unwind(Box::new("fault"));
    queue.submit(Work::lasting(DurNs(1_000)).effect(fault)).unwrap();
    let error = wait_inline(&device, &mut queue, FLAG).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DeviceLost);
    assert_eq!(queue.submit(Work::lasting(DurNs(1))).unwrap_err().code(), ErrorCode::DeviceLost);
}

#[test]
fn a_prediction_wakes_exactly_its_margin_before_the_store() {
    let device = manual(SimOptions::default());
    let mut queue = device.queue();
    let line = queue.line().clone();
    let text = "flag:park_us=500,backstop_us=9000+predict:margin_us=60,min_sleep_us=50,max_sleep_us=5000,window=4";
    let plan: WaitPlan = text.parse().unwrap();
    let predict = plan.predict.unwrap();
    let mut points = PointTable::new();
    for round in 0..4 {
        queue.submit(Work::lasting(DurNs(1_000_000))).unwrap();
        let sleep = points.sleep_ns(&"step", &predict);
        let mut port = QueuePort::new(&mut queue, &line, OnThread(device.idle()), device.clone());
        let report = run_inline(wait(&plan, sleep, &mut port, &device, &device)).unwrap();
        points.observe(&"step", &predict, report.outcome);
        // The residual is the work's length and the query behind it.
        assert_eq!(report.outcome, Outcome::Exact { residual_ns: 1_000_100 }, "round {round}");
        match round {
            0 => assert_eq!((report.sleeps, report.parks), (0, 2)),
            // Queried at 0, asleep from 0.1 to 940.1 µs, queried, parked from 940.2 µs to the store.
            _ => {
                assert_eq!((report.sleeps, report.parks), (1, 1), "round {round}");
                assert_eq!((report.slept_ns, report.parked_ns), (940_000, 59_800));
            }
        }
    }
}

#[test]
fn effects_are_seen_in_the_order_of_their_work() {
    let device = manual(SimOptions { jitter: DurNs(70_000), seed: 3, ..SimOptions::default() });
    let mut queue = device.queue();
    let seen = Arc::new(AtomicU64::new(0));
    for number in 1..=100 {
        let seen = seen.clone();
        let check = move || assert_eq!(seen.swap(number, Ordering::Relaxed), number - 1);
        assert_eq!(queue.submit(Work::lasting(DurNs(500)).effect(check)).unwrap(), number);
    }
    assert!(queue.block(100, DurNs::from_ms(100)).unwrap(), "an effect out of order is a loss");
    assert_eq!(seen.load(Ordering::Relaxed), 100);
}
