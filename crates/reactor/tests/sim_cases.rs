//! Situations that users reported elsewhere, on the simulated device: each must end as it says.

use gpu_async_reactor::backend::sim::{Faults, SimDevice, SimOptions, SimQueue, Work};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Tells a hang from a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const PLANS: [&str; 4] = [
    "block",
    "poll",
    "flag:park_us=100,backstop_us=2000",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=10,min_sleep_us=10,max_sleep_us=500,window=2",
];

fn device(faults: Faults) -> SimDevice {
    SimDevice::start(SimOptions { faults, ..SimOptions::default() })
}

/// One wait on this thread, with a sleep where the plan has a prediction.
fn wait_for(queue: &mut SimQueue, plan: &str, within: Option<DurNs>) -> Result<WaitReport> {
    let clock = StdClock::new();
    let line = queue.line().clone();
    let plan: WaitPlan = plan.parse()?;
    let sleep = plan.predict.map(|_| 400_000);
    let mut port = QueuePort::new(queue, &line, OnThread(StdIdle::new(clock, None)), clock);
    if let Some(within) = within {
        port = port.within(within);
    }
    run_inline(wait(&plan, sleep, &mut port, &clock, &clock))
}

#[test]
fn situation_3_the_device_faults_and_every_pending_wait_gets_the_loss() {
    for plan in PLANS {
        let device = device(Faults::none().lose_device(3));
        let start = Instant::now();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mut queue = device.queue().unwrap();
                for _ in 0..3 {
                    // Long enough for a busy machine to submit all of it before the first is done.
                    queue.submit(Work::lasting(DurNs::from_ms(50))).unwrap();
                }
                std::thread::spawn(move || wait_for(&mut queue, plan, None))
            })
            .collect();
        for thread in threads {
            let error = thread.join().unwrap().unwrap_err();
            assert_eq!(error.code(), ErrorCode::DeviceLost, "{plan}: {error}");
        }
        assert!(start.elapsed() < PATIENCE);
        // It stays lost for whoever asks later.
    }
}

#[test]
fn situation_3_holds_for_tasks_of_a_reactor() {
    let device = device(Faults::none().lose_device(2));
    let mut queues: Vec<_> = (0..6).map(|_| device.queue().unwrap()).collect();
    let lines: Vec<_> = queues.iter().map(|queue| queue.line().clone()).collect();
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    let plan: WaitPlan = PLANS[2].parse().unwrap();
    let waits: Vec<_> = queues
        .iter_mut()
        .zip(&lines)
        .map(|(queue, line)| {
            queue.submit(Work::lasting(DurNs::from_ms(1))).unwrap();
            queue.submit(Work::lasting(DurNs::from_ms(1))).unwrap();
            let reactor = &reactor;
            executor.spawn_dyn(async move {
                let mut port = QueuePort::new(queue, line, reactor, reactor);
                wait(&plan, None, &mut port, reactor, reactor).await
            })
        })
        .collect();
    let mut idle = StdIdle::new(StdClock::new(), None);
    executor.run(&reactor, &mut idle, DurNs::from_ms(1)).unwrap();
    for wait in waits {
        let error = run_inline(wait).unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceLost);
    }
}

#[test]
fn situation_4_a_device_that_says_success_after_its_loss_is_not_believed() {
    for plan in PLANS {
        let device = device(Faults::none().lose_device(1).lie_after_loss());
        let mut queue = device.queue().unwrap();
        queue.submit(Work::lasting(DurNs::from_ms(2))).unwrap();
        let error = wait_for(&mut queue, plan, None).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceLost, "{plan}: {error}");
        let line = queue.line().clone();
        assert!(!reached(&line, queue.slot(), 1), "the word is old");
    }
}

#[test]
fn situation_5_past_its_deadline_a_wait_ends_and_the_work_goes_on_by_itself() {
    for plan in PLANS {
        let device = device(Faults::none());
        let mut queue = device.queue().unwrap();
        let wrote = Arc::new(AtomicU32::new(0));
        let buffer = wrote.clone();
        queue
            .submit(Work::lasting(DurNs::from_ms(60)).effect(move || {
                buffer.fetch_add(1, Ordering::Relaxed);
            }))
            .unwrap();
        let start = Instant::now();
        let error = wait_for(&mut queue, plan, Some(DurNs::from_ms(5))).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceHang, "{plan}: {error}");
        assert!(start.elapsed() >= Duration::from_millis(5));
        // What the work owns is still there, and is let go once it ended.
        assert_eq!(Arc::strong_count(&wrote), 2, "{plan}: the buffer was freed early");
        assert!(queue.block(1, DurNs::from_ms(20_000)).unwrap());
        assert_eq!((wrote.load(Ordering::Relaxed), Arc::strong_count(&wrote)), (1, 1));
    }
}

#[test]
fn situation_7_a_refused_store_resolves_with_the_refusal() {
    let device = device(Faults::none().refuse_store(2));
    let mut queue = device.queue().unwrap();
    queue.submit(Work::lasting(DurNs::from_us(100))).unwrap();
    let refused = queue.submit(Work::lasting(DurNs::from_us(100))).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::StoreRefused);
    // Work without a store: a wait for it would have to store, and says so.
    queue.submit_bare(Work::lasting(DurNs::from_us(100))).unwrap();
    for plan in PLANS {
        let error = wait_for(&mut queue, plan, None).unwrap_err();
        assert_eq!(error.code(), ErrorCode::StoreRefused, "{plan}: {error}");
    }
}

#[test]
fn situation_12_two_waits_on_one_slot_resolve_as_their_numbers_come() {
    let line = CompletionLine::new();
    let reactor = Reactor::new(StdClock::new());
    let order = std::cell::RefCell::new(Vec::new());
    let mut executor = DynExecutor::new();
    let slot = Slot::ALL[6];
    for target in [5, 3] {
        let (reactor, order) = (&reactor, &order);
        let work = MemoryDescriptor::new(&line, slot, target);
        executor.spawn_dyn(async move {
            assert!(reactor.ready(work, None).await);
            order.borrow_mut().push((target, work.line().load(slot)));
        });
    }
    executor.spawn_dyn(async {
        for number in [4, 5] {
            line.store(slot, number);
            yield_now().await;
            yield_now().await;
        }
    });
    let mut idle = StdIdle::new(StdClock::new(), None);
    executor.run(&reactor, &mut idle, DurNs::from_ms(1)).unwrap();
    drop(executor);
    assert_eq!(*order.borrow(), [(3, 4), (5, 5)]);
}

#[test]
fn situation_13_a_store_between_the_check_and_the_park_is_not_slept_on() {
    // The device stores at the moment that the host's idle is entered.
    struct Racing<'l>(StdIdle, &'l CompletionLine);
    impl Idle for Racing<'_> {
        fn sleep_until(&mut self, at: MonoNs) {
            self.0.sleep_until(at);
        }
        fn park_line<R: Fn(&CompletionLine) -> bool>(
            &mut self,
            line: &CompletionLine,
            ready: R,
            bound: DurNs,
        ) -> bool {
            self.1.store(Slot::ALL[0], 1);
            self.0.park_line(line, ready, bound)
        }
    }
    let line = CompletionLine::new();
    let reactor = Reactor::new(StdClock::new());
    let work = MemoryDescriptor::new(&line, Slot::ALL[0], 1);
    let mut executor = DynExecutor::new();
    executor.spawn_dyn(async {
        reactor.ready(work, None).await;
    });
    let start = Instant::now();
    let mut idle = Racing(StdIdle::new(StdClock::new(), None), &line);
    executor.run(&reactor, &mut idle, DurNs::from_ms(600_000)).unwrap();
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn dropping_a_queue_waits_for_nothing_and_runs_nothing_more() {
    let start = Instant::now();
    let ran = Arc::new(AtomicBool::new(false));
    for faults in [Faults::none(), Faults::none().hang(1)] {
        let device = device(faults);
        let mut queue = device.queue().unwrap();
        let flag = ran.clone();
        let work = Work::lasting(DurNs::from_ms(3_600_000));
        queue.submit(work.effect(move || flag.store(true, Ordering::Relaxed))).unwrap();
        let line = queue.line().clone();
        drop(queue);
        drop(device);
        assert_eq!(line.load(Slot::ALL[0]), 0);
    }
    assert!(start.elapsed() < PATIENCE);
    let freed = Instant::now();
    while Arc::strong_count(&ran) > 1 {
        assert!(freed.elapsed() < PATIENCE, "the work's closure was kept");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!ran.load(Ordering::Relaxed));
}

#[test]
fn a_panic_in_the_work_is_the_devices_loss() {
    let device = device(Faults::none());
    let mut queue = device.queue().unwrap();
    queue.submit(Work::running(|| std::panic::resume_unwind(Box::new("fault")))).unwrap();
    let error = wait_for(&mut queue, PLANS[2], None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DeviceLost);
    assert_eq!(queue.submit(Work::lasting(DurNs(1))).unwrap_err().code(), ErrorCode::DeviceLost);
}

#[test]
fn loss_reaches_a_wait_wherever_it_is() {
    // While it sleeps, while it parks, while it blocks, while it polls.
    for plan in PLANS {
        let device = device(Faults::none());
        let mut queue = device.queue().unwrap();
        queue.submit(Work::lasting(DurNs::from_ms(3_600_000))).unwrap();
        let waiter = std::thread::spawn(move || wait_for(&mut queue, plan, None));
        std::thread::sleep(Duration::from_millis(10));
        let lost = Instant::now();
        device.lose();
        let error = waiter.join().unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceLost, "{plan}");
        assert!(lost.elapsed() < PATIENCE);
    }
}
