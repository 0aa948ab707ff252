//! The simulated device: the suites in real and in virtual time, and exact times under the latter.

use gpu_async_reactor::backend::sim::{
    Faults, SimDevice, SimOptions, SimQueue, VirtualDevice, VirtualIdle, VirtualQueue, Work,
};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::conformance::{self, Rig};

struct Threads(SimDevice);

impl Rig for Threads {
    type Queue = SimQueue;
    type Clock = StdClock;
    type Idle = StdIdle;
    fn queue(&mut self) -> SimQueue {
        self.0.queue().unwrap()
    }
    fn submit(&mut self, queue: &mut SimQueue, about: DurNs) -> u64 {
        queue.submit(Work::lasting(about)).unwrap()
    }
    fn clock(&self) -> StdClock {
        StdClock::new()
    }
    fn idle(&self) -> StdIdle {
        StdIdle::new(StdClock::new(), None)
    }
}

struct Virtual(VirtualDevice);

impl Rig for Virtual {
    type Queue = VirtualQueue;
    type Clock = VirtualDevice;
    type Idle = VirtualIdle;
    fn queue(&mut self) -> VirtualQueue {
        self.0.queue()
    }
    fn submit(&mut self, queue: &mut VirtualQueue, about: DurNs) -> u64 {
        queue.submit(Work::lasting(about)).unwrap()
    }
    fn clock(&self) -> VirtualDevice {
        self.0.clone()
    }
    fn idle(&self) -> VirtualIdle {
        self.0.idle()
    }
}

fn threads() -> Threads {
    Threads(SimDevice::start(SimOptions::default()))
}

fn manual(options: SimOptions) -> VirtualDevice {
    VirtualDevice::new(ManualClock::new(), options)
}

fn with(faults: Faults) -> SimOptions {
    SimOptions { faults, ..SimOptions::default() }
}

#[test]
fn queues_do_their_duties() {
    conformance::queue(&mut threads());
    conformance::queue(&mut Virtual(manual(SimOptions::default())));
}

#[test]
fn every_plan_waits_as_it_should() {
    conformance::plans(&mut threads());
    conformance::plans(&mut Virtual(manual(SimOptions::default())));
}

#[test]
fn tasks_of_a_reactor_wait_for_several_queues() {
    conformance::reactor_waits(&mut threads());
    conformance::reactor_waits(&mut Virtual(manual(SimOptions::default())));
}

#[test]
fn situation_8_a_thousand_and_one_waits_are_pending_on_one_queue() {
    conformance::pending_waits(&mut threads());
    conformance::pending_waits(&mut Virtual(manual(SimOptions::default())));
}

#[test]
fn the_virtual_idle_and_timer_do_their_duties() {
    let device = manual(SimOptions::default());
    conformance::clock(&device, &device.clone());
    conformance::idle(&device, &mut device.idle());
    conformance::timer(&device, &device, |sleep| run_inline(sleep));
}

/// One wait under virtual time: what it did, and when it ended.
fn one(
    options: SimOptions,
    plan: &str,
    sleep_ns: Option<u64>,
    length: u64,
) -> (Result<WaitReport>, u64) {
    let device = manual(options);
    let mut queue = device.queue();
    let line = queue.line().clone();
    queue.submit(Work::lasting(DurNs(length))).unwrap();
    let plan: WaitPlan = plan.parse().unwrap();
    let mut port = QueuePort::new(&mut queue, &line, OnThread(device.idle()), device.clone());
    let report = run_inline(wait(&plan, sleep_ns, &mut port, &device, &device));
    (report, device.monotonic_ns().0)
}

const FLAG: &str = "flag:park_us=100,backstop_us=1000";

#[test]
fn virtual_times_are_exact() {
    // A query costs 100 ns: one before, one after the word is seen at 1,000,000.
    let (report, ended) = one(SimOptions::default(), FLAG, None, 1_000_000);
    let report = report.unwrap();
    assert_eq!(ended, 1_000_100);
    assert_eq!((report.parks, report.queries), (10, 1));
    assert_eq!(report.outcome, Outcome::Exact { residual_ns: 1_000_100 });
    // A sleep to 900 µs, a query, one park to the store.
    let (report, ended) = one(SimOptions::default(), FLAG, Some(900_000), 1_000_000);
    let report = report.unwrap();
    assert_eq!((ended, report.parks, report.sleeps, report.queries), (1_000_100, 1, 1, 2));
    assert_eq!((report.slept_ns, report.parked_ns), (899_900, 99_900));
    // A blocking wait ends with the work.
    assert_eq!(one(SimOptions::default(), "block", None, 1_000_000).1, 1_000_000);
    // Polling ends with the first query past it.
    assert_eq!(one(SimOptions::default(), "poll", None, 1_000_050).1, 1_000_100);
}

#[test]
fn a_lost_store_costs_at_most_one_backstop() {
    // Invariant 3: done at 2,300 µs; asked at 1,000.2 and so on each millisecond.
    let (report, ended) = one(with(Faults::none().lost_store(1)), FLAG, None, 2_300_000);
    assert!(matches!(report.unwrap().outcome, Outcome::Exact { .. }));
    assert!((2_300_000..=3_300_000).contains(&ended), "ended at {ended}");
    assert_eq!(ended, 3_000_400);
}

#[test]
fn a_store_seen_late_is_waited_for_no_longer_than_a_backstop() {
    let faults = Faults::none().late_store(1, DurNs(150_000));
    let (report, ended) = one(with(faults), FLAG, None, 2_300_000);
    report.unwrap();
    assert_eq!(ended, 2_450_100);
    let faults = Faults::none().late_store(1, DurNs(9_000_000));
    assert_eq!(one(with(faults), FLAG, None, 2_300_000).1, 3_000_400);
}

#[test]
fn a_word_before_its_data_is_not_believed() {
    // Invariant 2: the word comes at 1 ms, the data and the status 300 µs later.
    let device = manual(with(Faults::none().word_before_data(1, DurNs(300_000))));
    let data = Arc::new(AtomicU64::new(0));
    for plan in ["block", "poll", FLAG] {
        let mut queue = device.queue();
        let line = queue.line().clone();
        let start = device.monotonic_ns();
        data.store(0, Ordering::Relaxed);
        let written = data.clone();
        let work =
            Work::lasting(DurNs(1_000_000)).effect(move || written.store(7, Ordering::Relaxed));
        queue.submit(work).unwrap();
        let plan: WaitPlan = plan.parse().unwrap();
        let mut port = QueuePort::new(&mut queue, &line, OnThread(device.idle()), device.clone());
        run_inline(wait(&plan, None, &mut port, &device, &device)).unwrap();
        assert_eq!(data.load(Ordering::Relaxed), 7, "{plan}: data not there");
        assert!(device.monotonic_ns().since(start) >= DurNs(1_300_000));
        assert_eq!(queue.stored_at(1), Some(start + DurNs(1_000_000)));
    }
}

#[test]
fn a_slow_status_slows_only_who_asks() {
    let faults = || with(Faults::none().slow_status(DurNs(50_000)));
    // The flag plan asks twice, before and when the word is seen.
    assert_eq!(one(faults(), FLAG, None, 500_000).1, 500_000 + 50_100);
    assert_eq!(one(faults(), "block", None, 500_000).1, 500_000);
}

#[test]
fn a_hang_ends_at_the_deadline_and_nothing_else_does() {
    for plan in ["block", "poll", FLAG] {
        let device = manual(with(Faults::none().hang(1)));
        let mut queue = device.queue();
        let line = queue.line().clone();
        queue.submit(Work::lasting(DurNs(1_000))).unwrap();
        let plan: WaitPlan = plan.parse().unwrap();
        let mut port = QueuePort::new(&mut queue, &line, OnThread(device.idle()), device.clone())
            .within(DurNs::from_ms(50));
        let error = run_inline(wait(&plan, None, &mut port, &device, &device)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceHang);
        let text = error.to_string();
        assert!(text.contains("simulated queue 0") && text.contains("50.00 ms"), "{text}");
        let ended = device.monotonic_ns().0;
        assert!((50_000_000..50_100_000).contains(&ended), "{plan}: {ended}");
    }
}

#[test]
fn the_same_seed_gives_the_same_nanoseconds() {
    let trace = |seed| {
        let options = SimOptions { jitter: DurNs(200_000), seed, ..SimOptions::default() };
        let device = manual(options);
        let reactor = Reactor::new(device.clone());
        let mut queues: Vec<_> = (0..3).map(|_| device.queue()).collect();
        let lines: Vec<_> = queues.iter().map(|queue| queue.line().clone()).collect();
        let ends = std::cell::RefCell::new(Vec::new());
        let plan: WaitPlan = "flag:park_us=50,backstop_us=2000".parse().unwrap();
        let mut executor = DynExecutor::new();
        for (i, (queue, line)) in queues.iter_mut().zip(&lines).enumerate() {
            let (reactor, ends, device) = (&reactor, &ends, &device);
            executor.spawn_dyn(async move {
                for _ in 0..20 {
                    queue.submit(Work::lasting(DurNs::from_us(300 + 70 * i as u64))).unwrap();
                    let mut port = QueuePort::new(&mut *queue, line, reactor, reactor);
                    wait(&plan, None, &mut port, reactor, reactor).await.unwrap();
                    ends.borrow_mut().push((i, device.monotonic_ns().0));
                }
            });
        }
        executor.run(&reactor, &mut device.idle(), DurNs::from_us(100)).unwrap();
        drop(executor);
        ends.into_inner()
    };
    let first = trace(7);
    assert_eq!(first.len(), 60);
    assert_eq!(first, trace(7));
    assert_ne!(first, trace(8));
}

#[test]
fn doorbells_are_rung_behind_the_store() {
    let device = manual(SimOptions::default());
    let reactor = Reactor::new(device.clone());
    let mut queues = [device.queue(), device.queue()];
    let line = queues[0].line().clone();
    let line: &'static CompletionLine = Box::leak(Box::new(line));
    reactor.bind(line, Slot::ALL[4]).unwrap();
    assert_eq!(reactor.bind(line, Slot::ALL[7]).unwrap_err().code(), ErrorCode::DoorbellSlot);
    for queue in &mut queues {
        queue.ring(reactor.bell().clone(), Slot::ALL[4]);
        queue.submit(Work::lasting(DurNs(70_000))).unwrap();
        queue.submit(Work::lasting(DurNs(50_000))).unwrap();
    }
    let mut executor = DynExecutor::new();
    for queue in &queues {
        let work = MemoryDescriptor::new(line, queue.slot(), 2);
        let reactor = &reactor;
        executor.spawn_dyn(async move { assert!(reactor.ready(work, None).await) });
    }
    // One park, for as long as it takes: only the doorbell ends it.
    let stats = executor.run(&reactor, &mut device.idle(), DurNs::from_ms(900)).unwrap();
    drop(executor);
    assert_eq!(device.monotonic_ns(), MonoNs(120_000));
    assert!(stats.parked <= 4, "{stats:?}");
}

/// Queues over two lines, each line's doorbell behind its stores: the park watches the doorbell alone.
#[test]
fn a_doorbell_rung_by_the_devices_threads_ends_the_park() {
    let device = SimDevice::start(SimOptions::default());
    let mut queues: Vec<_> = (0..10).map(|_| device.queue().unwrap()).collect();
    let lines = [queues[0].line().clone(), queues[9].line().clone()];
    assert!(!Arc::ptr_eq(&lines[0], &lines[1]), "eight queues to a line");
    let reactor = Reactor::new(StdClock::new());
    for (line, group) in lines.iter().zip([Slot::ALL[0], Slot::ALL[6]]) {
        reactor.bind(line, group).unwrap();
    }
    let ended = AtomicU64::new(0);
    let mut executor = DynExecutor::new();
    for (i, queue) in queues.iter_mut().enumerate() {
        queue.ring(reactor.bell().clone(), if i < 8 { Slot::ALL[0] } else { Slot::ALL[6] });
        for _ in 0..4 {
            queue.submit(Work::lasting(DurNs::from_us(300 + 100 * i as u64))).unwrap();
        }
        let work = MemoryDescriptor::new(&lines[i / 8], queue.slot(), 4);
        let (reactor, ended) = (&reactor, &ended);
        executor.spawn_dyn(async move {
            assert!(reactor.ready(work, None).await);
            ended.fetch_add(1, Ordering::Relaxed);
        });
    }
    // A bound far beyond the work: what isn't rung is only found after ten seconds.
    let start = std::time::Instant::now();
    let mut idle = StdIdle::new(StdClock::new(), None);
    executor.run(&reactor, &mut idle, DurNs::from_ms(10_000)).unwrap();
    drop(executor);
    assert_eq!(ended.load(Ordering::Relaxed), 10);
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "a doorbell was not heard");
}

#[test]
fn true_store_times_are_kept_and_no_wait_sees_a_word_sooner() {
    let device = SimDevice::start(SimOptions::default());
    let mut queue = device.queue().unwrap();
    let clock = StdClock::new();
    for round in 1..=20 {
        let submitted = clock.monotonic_ns();
        let number = queue.submit(Work::lasting(DurNs::from_us(500))).unwrap();
        assert_eq!(number, round);
        let line = queue.line().clone();
        while !reached(&line, queue.slot(), number) {
            std::thread::yield_now();
        }
        let seen = clock.monotonic_ns();
        let stored = queue.stored_at(number).expect("a word that was seen has its time");
        assert!(submitted + DurNs::from_us(500) <= stored && stored <= seen);
    }
    assert_eq!(queue.stored_at(21), None);
    assert!(device.cpu_time() > DurNs(0));
}
