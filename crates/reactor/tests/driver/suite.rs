//! What both vendors' backends must do, on the simulated driver.

use super::DriverSim;
use driver_sim::install::Vendor as Library;
use gpu_async_reactor::backend::LineError;
use gpu_async_reactor::backend::mapped::{
    self, Compile, Device, Driver, Load, MappedLine, StepJob, StepKernel, Stream, StreamPort,
    StreamQueue,
};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::conformance::{self, Rig};

pub(crate) const PATIENCE: DurNs = DurNs(30_000_000_000);

/// The vendor's side of a test.
pub(crate) trait Tested: Load + Compile {
    const LIBRARY: Library;
    /// The entry point that allocates host memory, that stores a word, and that waits for one.
    const HOST_ALLOC: &'static str;
    const WRITE: &'static [&'static str];
    const WAIT: &'static [&'static str];
    const NAME_OF_700: &'static str;
    /// Creates a blocking stream in the thread's current context, as another library would.
    fn foreign_stream(sim: &DriverSim, ordinal: i32) -> *mut c_void;
    /// Begins and ends a capture of a stream: the status of its end.
    fn begin_capture(sim: &DriverSim, stream: *mut c_void, mode: i32);
    fn end_capture(sim: &DriverSim, stream: *mut c_void) -> i32;
}

/// A device of a machine of its own.
pub(crate) struct Machine<V: Tested> {
    // Before the library that it uses.
    pub(crate) device: Device<V>,
    pub(crate) sim: DriverSim,
}

pub(crate) fn machine<V: Tested>(script: &str) -> Machine<V> {
    let sim = DriverSim::new(V::LIBRARY, script, &[]);
    let device = Driver::<V>::load_from(sim.path()).unwrap().open(0).unwrap();
    Machine { device, sim }
}

/// A driver that behaves as the script says, without some entry points, and what opening its device gives.
pub(crate) fn open<V: Tested>(script: &str, missing: &[&str]) -> (DriverSim, Result<Device<V>>) {
    let sim = DriverSim::new(V::LIBRARY, script, missing);
    let device = Driver::<V>::load_from(sim.path()).and_then(|driver| driver.open(0));
    (sim, device)
}

pub(crate) struct OnDriver<V: Tested> {
    pub(crate) machine: Machine<V>,
    kernel: StepKernel<V>,
    jobs: Vec<StepJob<V>>,
}

pub(crate) fn rig<V: Tested>(script: &str) -> OnDriver<V> {
    let machine = machine::<V>(script);
    let kernel = StepKernel::new(&machine.device).unwrap();
    OnDriver { machine, kernel, jobs: Vec::new() }
}

impl<V: Tested> Rig for OnDriver<V> {
    type Queue = StreamQueue<V>;
    type Clock = StdClock;
    type Idle = StdIdle;
    fn queue(&mut self) -> StreamQueue<V> {
        self.machine.device.queue().unwrap()
    }
    fn submit(&mut self, queue: &mut StreamQueue<V>, about: DurNs) -> u64 {
        let mut job = self.kernel.job().unwrap();
        let number = job.run(queue, 7, about.0).unwrap();
        self.jobs.push(job);
        number
    }
    fn clock(&self) -> StdClock {
        StdClock::new()
    }
    fn idle(&self) -> StdIdle {
        StdIdle::new(StdClock::new(), None)
    }
    fn depth(&self) -> u64 {
        // A launch, an event and a store each, of about a thousand operations.
        300
    }
}

pub(crate) fn queues_do_their_duties<V: Tested>() {
    conformance::queue(&mut rig::<V>(""));
    conformance::queue(&mut rig::<V>("distinct_addresses"));
}

pub(crate) fn every_plan_waits_as_it_should<V: Tested>() {
    conformance::plans(&mut rig::<V>(""));
}

pub(crate) fn tasks_of_a_reactor_wait_for_several_queues<V: Tested>() {
    conformance::reactor_waits(&mut rig::<V>(""));
}

pub(crate) fn situation_8_a_thousand_and_one_waits_are_pending_on_one_queue<V: Tested>() {
    conformance::pending_waits(&mut rig::<V>(""));
}

/// Waits for all that was submitted, at most so long.
pub(crate) fn wait_for<V: Tested>(
    queue: &mut StreamQueue<V>,
    plan: &str,
    sleep_ns: Option<u64>,
    within: DurNs,
) -> Result<WaitReport> {
    let (clock, line) = (StdClock::new(), queue.line().clone());
    let plan: WaitPlan = plan.parse()?;
    let idle = OnThread(StdIdle::new(clock, None));
    let mut port = QueuePort::new(queue, (*line).as_ref(), idle, clock).within(within);
    run_inline(wait(&plan, sleep_ns, &mut port, &clock, &clock))
}

/// Waits that block, poll, park, and sleep when the fault comes.
const WAYS: [(&str, Option<u64>); 4] = [
    ("block", None),
    ("poll", None),
    ("flag:park_us=100,backstop_us=2000", None),
    (
        "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=10,max_sleep_us=90000,window=2",
        Some(8_000_000),
    ),
];

/// How a wait for two steps of 5 ms ends under a script of faults: done, or an error with the driver's status.
type Ends = std::result::Result<(), (ErrorCode, Option<i32>)>;

fn faults() -> Vec<(&'static str, Ends)> {
    let lost = |status| Err((ErrorCode::DeviceLost, Some(status)));
    vec![
        ("", Ok(())),
        ("fault=2", lost(700)),
        ("fault=1", lost(700)),
        ("fault=2,fault_code=719", lost(719)),
        ("fault=2,callback_after_fault", lost(700)),
        ("fault=2,lie_after_loss", lost(700)),
        ("lost_store=2", Ok(())),
        ("late_data=2:3000", Ok(())),
        ("hang=2", Err((ErrorCode::DeviceHang, None))),
        ("hang=1", Err((ErrorCode::DeviceHang, None))),
        ("query_us=200", Ok(())),
    ]
}

/// Loss during a block, a poll, a park and a sleep; a lost store; late data; a hang: how each wait ends, and
/// that `Ok` finds the data.
pub(crate) fn every_fault_ends_every_wait_as_it_must<V: Tested>() {
    for (script, ends) in faults() {
        for (plan, sleep) in WAYS {
            let rig = rig::<V>("");
            let device = &rig.machine.device;
            rig.machine.sim.script(script);
            let mut queue = device.queue().unwrap();
            let mut jobs = [rig.kernel.job().unwrap(), rig.kernel.job().unwrap()];
            jobs[0].run(&mut queue, 1, 5_000_000).unwrap();
            jobs[1].run(&mut queue, 2, 5_000_000).unwrap();
            let begun = Instant::now();
            let ended = wait_for(&mut queue, plan, sleep, DurNs::from_ms(200));
            let said = format!("`{script}` under {plan}: {ended:?}");
            assert!(begun.elapsed() < Duration::from_secs(10), "{said}");
            match (ended, ends) {
                (Ok(_), Ok(())) => {
                    assert!(jobs[0].verify(1) && jobs[1].verify(2), "no data yet: {said}");
                }
                (Err(error), Err((code, status))) => {
                    assert_eq!((error.code(), error.driver_status()), (code, status), "{said}");
                    if status == Some(700) {
                        assert!(error.to_string().contains(V::NAME_OF_700), "{said}");
                    }
                    if code == ErrorCode::DeviceLost {
                        // Invariant 8: for ever, and of every call.
                        assert_eq!(queue.store_next().unwrap_err().code(), code, "{said}");
                        assert_eq!(queue.status(2).unwrap_err().code(), code, "{said}");
                        assert_eq!(queue.block(2, PATIENCE).unwrap_err().code(), code, "{said}");
                        assert_eq!(device.queue().map(drop).unwrap_err().code(), code, "{said}");
                    }
                }
                _ => panic!("{said}"),
            }
        }
    }
}

/// Situation 3: each wait pending in the context ends with the vendor's number and name within a backstop.
pub(crate) fn situation_3_a_kernel_faults_and_every_wait_of_the_context_is_told<V: Tested>() {
    let rig = rig::<V>("");
    rig.machine.sim.script("fault=1");
    let mut queues: Vec<_> = (0..8).map(|_| rig.machine.device.queue().unwrap()).collect();
    let mut jobs: Vec<_> = (0..8).map(|_| rig.kernel.job().unwrap()).collect();
    for (i, (queue, job)) in queues.iter_mut().zip(&mut jobs).enumerate() {
        // The first one's kernel ends first, and faults.
        job.run(queue, 1, if i == 0 { 60_000_000 } else { 900_000_000 }).unwrap();
    }
    let reactor = Reactor::new(StdClock::new());
    let lines: Vec<_> = queues.iter().map(|queue| queue.line().clone()).collect();
    let mut executor = DynExecutor::new();
    let told = std::cell::Cell::new(0);
    let begun = Instant::now();
    for (queue, line) in queues.iter_mut().zip(&lines) {
        let (reactor, told) = (&reactor, &told);
        executor.spawn_dyn(async move {
            let mut port = QueuePort::new(queue, (**line).as_ref(), reactor, reactor);
            let plan: WaitPlan = "flag:park_us=100,backstop_us=5000".parse().unwrap();
            let error = wait(&plan, None, &mut port, reactor, reactor).await.unwrap_err();
            assert_eq!((error.code(), error.driver_status()), (ErrorCode::DeviceLost, Some(700)));
            assert!(error.to_string().contains(V::NAME_OF_700), "{error}");
            told.set(told.get() + 1);
        });
    }
    let mut idle = StdIdle::new(StdClock::new(), None);
    executor.run(&reactor, &mut idle, DurNs::from_us(200)).unwrap();
    drop(executor);
    assert_eq!(told.get(), 8);
    assert!(begun.elapsed() < Duration::from_millis(700), "waited for the work of the others");
}

/// Situation 4: events and synchronisation say success after the loss, and the word is old.
pub(crate) fn situation_4_success_after_a_loss_is_not_believed<V: Tested>() {
    let rig = rig::<V>("");
    rig.machine.sim.script("fault=1,lie_after_loss");
    let mut queue = rig.machine.device.queue().unwrap();
    let mut job = rig.kernel.job().unwrap();
    let number = job.run(&mut queue, 1, 2_000_000).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(queue.status(number).unwrap(), "the script's driver lies");
    for (plan, sleep) in WAYS {
        let error = wait_for(&mut queue, plan, sleep, PATIENCE).unwrap_err();
        assert_eq!(
            (error.code(), error.driver_status()),
            (ErrorCode::DeviceLost, Some(700)),
            "{plan}"
        );
    }
}

/// Situation 5: a deadline passes, the work ends later, and its line is kept and then freed.
pub(crate) fn situation_5_work_ends_after_its_deadline<V: Tested>() {
    let rig = rig::<V>("");
    let mut queue = rig.machine.device.queue().unwrap();
    let mut job = rig.kernel.job().unwrap();
    let number = job.run(&mut queue, 5, 60_000_000).unwrap();
    for (plan, sleep) in WAYS {
        let error = wait_for(&mut queue, plan, sleep, DurNs::from_ms(10)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceHang, "{plan}");
    }
    assert!(queue.block(number, PATIENCE).unwrap() && job.verify(5));
}

/// Situation 6: a stream in capture is refused before anything is asked of it, and the capture stays valid.
pub(crate) fn situation_6_a_stream_in_capture_is_refused_and_not_broken<V: Tested>() {
    let Machine { device, sim } = machine::<V>("");
    for mode in 0..3 {
        let mut queue = device.queue().unwrap();
        let raw = queue.stream().as_raw();
        let before = queue.store_next().unwrap();
        assert!(queue.block(before, PATIENCE).unwrap());
        V::begin_capture(&sim, raw, mode);
        let code = |error: Error| error.code();
        assert_eq!(queue.store_next().map_err(code), Err(ErrorCode::StreamCapturing));
        assert_eq!(queue.gate().map(drop).map_err(code), Err(ErrorCode::StreamCapturing));
        // What was before the capture is done, and asking about it breaks nothing.
        assert!(queue.status(before).unwrap());
        queue.confirm(before).unwrap();
        for (plan, sleep) in WAYS {
            let error = wait_for(&mut queue, plan, sleep, PATIENCE).unwrap_err();
            assert_eq!(error.code(), ErrorCode::StreamCapturing, "{plan}");
        }
        // SAFETY: the stream lives as long as the queue.
        let stream = unsafe { Stream::<V>::from_raw(raw) };
        let line = device.line().unwrap();
        assert_eq!(line.enqueue_store(stream, Slot::ALL[3], 1), Err(LineError::Capturing));
        assert_eq!(
            device.queue_on(stream).map(drop).map_err(code),
            Err(ErrorCode::StreamCapturing)
        );
        let port = StreamPort::new(stream, &line, Slot::ALL[0], None);
        assert_eq!(port.map(drop).map_err(code), Err(ErrorCode::StreamCapturing));
        assert_eq!(V::end_capture(&sim, raw), 0, "the capture was broken in mode {mode}");
        let after = queue.store_next().unwrap();
        assert!(after > before && queue.block(after, PATIENCE).unwrap());
    }
}

/// A capture in global mode forbids other threads to query and allocate, unless they say that they are
/// relaxed: waits for other streams go on, and the capture isn't broken.
pub(crate) fn another_threads_capture_is_not_broken_by_waits<V: Tested>() {
    let rig = rig::<V>("");
    let mut captured = rig.machine.device.queue().unwrap();
    let raw = captured.stream().as_raw();
    V::begin_capture(&rig.machine.sim, raw, 0);
    std::thread::scope(|scope| {
        for (plan, sleep) in WAYS {
            let rig = &rig;
            scope.spawn(move || {
                let mut queue = rig.machine.device.queue().unwrap();
                let mut job = rig.kernel.job().unwrap();
                job.run(&mut queue, 3, 4_000_000).unwrap();
                wait_for(&mut queue, plan, sleep, PATIENCE).unwrap();
                assert!(job.verify(3));
            });
        }
    });
    assert_eq!(V::end_capture(&rig.machine.sim, raw), 0, "a wait broke the capture");
}

/// Situation 7 is a refusal: the store behind the work is refused when it is asked for.
pub(crate) fn situation_7_a_refused_store_is_told_at_once<V: Tested>() {
    let Machine { device, sim } = machine::<V>("");
    let mut queue = device.queue().unwrap();
    let refusals: Vec<_> = V::WRITE.iter().map(|name| format!("refuse={name}:801")).collect();
    sim.script(&refusals.join(","));
    for (plan, sleep) in WAYS {
        let error = wait_for(&mut queue, plan, sleep, PATIENCE).unwrap_err();
        assert_eq!(
            (error.code(), error.driver_status()),
            (ErrorCode::StoreRefused, Some(801)),
            "{plan}"
        );
    }
    // Nothing is lost with it: once stores are taken again, numbers go on.
    sim.script("");
    assert_eq!(queue.store_next().unwrap(), 1);
    assert!(queue.block(1, PATIENCE).unwrap());
}

/// A device that can't store words is told by doing, says why, and waits by its status.
pub(crate) fn a_device_that_cannot_store_waits_by_its_status<V: Tested>() {
    let refusals: Vec<_> = V::WRITE.iter().map(|name| format!("refuse={name}:801")).collect();
    let memory = format!("refuse={}:2", V::HOST_ALLOC);
    let cases: [(&str, &[&str], &str); 4] = [
        ("dead_stores", &[], "never changed"),
        (&refusals.join(","), &[], "801"),
        (&memory, &[], "returned 2"),
        ("", V::WRITE, V::WRITE[0]),
    ];
    for (script, missing, why) in cases {
        let (_sim, device) = open::<V>(script, missing);
        let device = device.unwrap();
        let reason = device.caps().flag_wait.unwrap_err();
        assert!(reason.contains(why), "`{script}`: {reason}");
        let plan: WaitPlan = "flag:park_us=100,backstop_us=2000".parse().unwrap();
        let resolved = plan.resolve(&device.caps(), Strictness::Lenient).unwrap();
        assert_eq!(resolved.plan.park, Park::QueryPoll, "`{script}`");
        assert!(plan.resolve(&device.caps(), Strictness::Strict).is_err(), "`{script}`");
        let mut queue = device.queue().unwrap();
        for plan in ["block", "poll", "flag:park_us=100,backstop_us=2000"] {
            let number = queue.submit(|_| Ok::<(), Error>(())).unwrap();
            wait_for(&mut queue, plan, None, PATIENCE).unwrap();
            assert!(queue.status(number).unwrap(), "{plan}");
        }
    }
    // The memory of the line is refused later than the probe: a typed error.
    let Machine { device, sim } = machine::<V>("");
    let lines: Vec<_> = (0..64).map_while(|_| device.line().ok()).collect();
    sim.script(&memory);
    let refused = (0..64).find_map(|_| device.line().map(std::mem::forget).err());
    assert_eq!(refused, Some(LineError::Status(2)));
    drop(lines);
}

/// Attributes lie: whatever they say, the probe decides.
pub(crate) fn attributes_are_not_believed<V: Tested>() {
    let (_sim, device) = open::<V>("attribute=92:0,attribute=122:0,attribute=10013:0", &[]);
    assert_eq!(device.unwrap().caps().flag_wait, Ok(()));
}

/// Situation 11: no library, no device, a missing entry point.
pub(crate) fn situation_11_three_reasons_three_errors<V: Tested>() {
    let absent = Driver::<V>::load_from(std::path::Path::new("libnowhere.so.1")).unwrap_err();
    assert_eq!(absent.code(), ErrorCode::LibraryMissing, "{absent}");
    let (_sim, none) = open::<V>("devices=0", &[]);
    let none = none.unwrap_err();
    assert_eq!((none.code(), none.driver_status()), (ErrorCode::NoDevice, Some(100)), "{none}");
    let (sim, two) = open::<V>("devices=2", &[]);
    drop(two.unwrap());
    let driver = Driver::<V>::load_from(sim.path()).unwrap();
    assert_eq!(driver.devices().unwrap().len(), 2);
    assert_eq!(driver.open(2).unwrap_err().code(), ErrorCode::NoDevice);
    assert!(driver.version().unwrap() > 0);
}

/// Situation 2: what the device still writes is kept when its owner is dropped, and freed afterwards.
pub(crate) fn situation_2_what_the_device_writes_outlives_its_owner<V: Tested>() {
    let rig = rig::<V>("");
    let Machine { device, sim } = &rig.machine;
    let mut queue = device.queue().unwrap();
    let gate = queue.gate().unwrap();
    let mut job = rig.kernel.job().unwrap();
    job.run(&mut queue, 9, 1_000_000).unwrap();
    let line = device.line().unwrap();
    line.enqueue_store(queue.stream(), Slot::ALL[2], 7).unwrap();
    drop(job);
    drop(line);
    drop(queue);
    device.sweep();
    assert!(device.kept() > 0 && mapped::kept() > 0, "what the device may write was not kept");
    gate.open();
    let begun = Instant::now();
    while device.kept() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "kept for ever");
        std::thread::sleep(Duration::from_millis(1));
        device.sweep();
    }
    assert!(sim.tally("pages") <= 2, "pages pile up");
    // And it is used again: no page is added for as many lines as were freed.
    let pages = sim.tally("pages");
    for _ in 0..200 {
        let line = device.line().unwrap();
        assert!(
            line.line().words.iter().all(|w| w.load(std::sync::atomic::Ordering::Acquire) == 0)
        );
    }
    assert_eq!(sim.tally("pages"), pages);
}

/// A famous fault of 0.1: the word says done, by whoever stored it, and the device doesn't.
pub(crate) fn a_forged_word_ends_no_wait<V: Tested>() {
    let rig = rig::<V>("");
    let mut queue = rig.machine.device.queue().unwrap();
    for (plan, sleep) in WAYS {
        let mut job = rig.kernel.job().unwrap();
        let number = job.run(&mut queue, 4, 20_000_000).unwrap();
        let line = queue.line().clone();
        (*line).as_ref().store(queue.slot(), number + 100);
        wait_for(&mut queue, plan, sleep, PATIENCE).unwrap();
        assert!(job.verify(4), "{plan}: Ok before the data was there");
    }
}

/// The other: a line's page is freed with a context that the line did not keep alive.
pub(crate) fn a_line_keeps_its_context_alive<V: Tested>() {
    let Machine { device, sim } = machine::<V>("");
    let line = device.line().unwrap();
    let mut queue = device.queue().unwrap();
    drop(device);
    assert_eq!(sim.tally("references"), 1, "the context went with the device's handle");
    let stream = queue.stream();
    line.enqueue_store(stream, Slot::ALL[1], 3).unwrap();
    let number = queue.store_next().unwrap();
    assert!(queue.block(number, PATIENCE).unwrap());
    let begun = Instant::now();
    while !reached(line.line(), Slot::ALL[1], 3) {
        assert!(begun.elapsed() < Duration::from_secs(20), "never stored");
    }
    drop(queue);
    assert_eq!(line.line().load(Slot::ALL[1]), 3, "the page is gone");
    drop(line);
    gone(&sim);
}

/// Waits until everything was given back to the driver, which a thread of its own does.
pub(crate) fn gone(sim: &DriverSim) {
    let begun = Instant::now();
    let left = || ["references", "pages", "events", "contexts"].map(|what| sim.tally(what));
    while left() != [0; 4] {
        assert!(begun.elapsed() < Duration::from_secs(20), "never given back: {:?}", left());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Line, port, stream and device are dropped in every order, with work pending and without.
pub(crate) fn every_drop_order_is_right<V: Tested>() {
    for pending in [false, true] {
        for order in permutations(4) {
            let Machine { device, sim } = machine::<V>("");
            let mut queue = device.queue().unwrap();
            let raw = queue.stream();
            let gate = pending.then(|| queue.gate().unwrap());
            // The port borrows the line, so the line that is dropped on its own is another handle of it.
            let line = device.line().unwrap();
            let held = line.clone();
            let port = StreamPort::new(raw, &held, Slot::ALL[4], None).unwrap();
            let mut port = Some(port);
            port.as_mut().unwrap().arm().unwrap();
            line.enqueue_store(raw, Slot::ALL[5], 1).unwrap();
            let (mut line, mut queue, mut device) = (Some(line), Some(queue), Some(device));
            for which in order {
                match which {
                    0 => drop(line.take()),
                    1 => drop(port.take()),
                    2 => drop(queue.take()),
                    _ => drop(device.take()),
                }
            }
            drop(port);
            let kept = held;
            drop(gate);
            let begun = Instant::now();
            while !reached(kept.line(), Slot::ALL[5], 1) || !reached(kept.line(), Slot::ALL[4], 1) {
                assert!(begun.elapsed() < Duration::from_secs(20), "never stored");
                std::thread::yield_now();
            }
            // A last handle sweeps what the gate left.
            let device = kept.device();
            while {
                device.sweep();
                sim.tally("events") > 0
            } && begun.elapsed() < Duration::from_secs(5)
            {
                std::thread::yield_now();
            }
            drop((kept, device));
            gone(&sim);
        }
    }
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(n - 1);
    let insert = |p: &Vec<usize>, at: usize| {
        let mut p = p.clone();
        p.insert(at, n - 1);
        p
    };
    shorter.iter().flat_map(|p| (0..n).map(move |at| insert(p, at))).collect()
}

/// A gate holds work back until it is opened, and dropping it opens it.
pub(crate) fn a_gate_opens_when_it_is_dropped<V: Tested>() {
    let rig = rig::<V>("");
    let mut queue = rig.machine.device.queue().unwrap();
    for open in [true, false] {
        let gate = queue.gate().unwrap();
        let mut job = rig.kernel.job().unwrap();
        let number = job.run(&mut queue, 3, 1_000).unwrap();
        assert!(!queue.block(number, DurNs::from_ms(20)).unwrap(), "the gate was open");
        assert!(!gate.has_passed());
        if open {
            gate.open()
        } else {
            drop(gate)
        }
        assert!(queue.block(number, PATIENCE).unwrap() && job.verify(3));
    }
}

/// Work of one stream waits on the device for a number of another.
pub(crate) fn one_stream_waits_for_another<V: Tested>() {
    let rig = rig::<V>("");
    let device = &rig.machine.device;
    let (mut first, mut second) = (device.queue().unwrap(), device.queue().unwrap());
    let gate = first.gate().unwrap();
    let mut job = rig.kernel.job().unwrap();
    let number = job.run(&mut first, 3, 1_000).unwrap();
    assert_eq!(second.after(&first, number + 1).unwrap_err().code(), ErrorCode::Misuse);
    second.after(&first, number).unwrap();
    let behind = second.store_next().unwrap();
    assert!(!second.block(behind, DurNs::from_ms(20)).unwrap(), "it did not wait");
    // The first queue may go: its line is kept for the second one's wait.
    drop(first);
    gate.open();
    assert!(second.block(behind, PATIENCE).unwrap());
    assert!(job.verify(3), "the second stream passed before the first one's work");
    let other = machine::<V>("");
    let mut foreign = other.device.queue().unwrap();
    assert_eq!(foreign.after(&second, behind).unwrap_err().code(), ErrorCode::Misuse);
}

/// A reactor that parks on one doorbell line sees the stores of many lines.
pub(crate) fn doorbells_ring_behind_the_words<V: Tested>() {
    let rig = rig::<V>("");
    let device = &rig.machine.device;
    let bell_line = device.line().unwrap();
    let bell = Arc::new(Bell::over(Arc::new(bell_line.clone())));
    let mut queues: Vec<_> = (0..4).map(|_| device.queue().unwrap()).collect();
    let lines: Vec<_> = queues.iter().map(|queue| queue.line().clone()).collect();
    assert_eq!(queues[0].ring(&bell_line, Bell::HOST).unwrap_err().code(), ErrorCode::DoorbellSlot);
    let foreign = machine::<V>("");
    let foreign_line = foreign.device.line().unwrap();
    let refused = queues[0].ring(&foreign_line, Slot::ALL[0]).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Misuse);
    let reactor = Reactor::with_bell(StdClock::new(), bell);
    let mut jobs = Vec::new();
    let mut numbers = Vec::new();
    for (i, queue) in queues.iter_mut().enumerate() {
        let group = Slot::ALL[i % 2];
        queue.ring(&bell_line, group).unwrap();
        reactor.bind((*lines[i]).as_ref(), group).unwrap();
        let mut job = rig.kernel.job().unwrap();
        numbers.push(job.run(queue, 8, 2_000_000 + 700_000 * i as u64).unwrap());
        jobs.push(job);
    }
    let mut executor = DynExecutor::new();
    for (i, queue) in queues.iter().enumerate() {
        let (reactor, word) = (&reactor, (*lines[i]).as_ref());
        let work = MemoryDescriptor::new(word, queue.slot(), numbers[i]);
        executor.spawn_dyn(async move { assert!(reactor.ready(work, None).await) });
    }
    let mut idle = StdIdle::new(StdClock::new(), None);
    executor.run(&reactor, &mut idle, DurNs::from_ms(100)).unwrap();
    drop(executor);
    assert_eq!(reactor.pending(), (0, 0));
    drop((reactor, queues, bell_line));
    device.sweep();
}

/// Streams that others made: of another context, of the default kinds, and of another runtime.
pub(crate) fn streams_of_others_are_used_with_care<V: Tested>() {
    let Machine { device, sim } = machine::<V>("devices=2");
    let second = Driver::<V>::load_from(sim.path()).unwrap().open(1).unwrap();
    // Keep the other device's context alive as its library would.
    let (here, there) = (V::foreign_stream(&sim, 0), V::foreign_stream(&sim, 1));
    // SAFETY: both live until the end of the test.
    let (here, there) = unsafe { (Stream::<V>::from_raw(here), Stream::<V>::from_raw(there)) };
    let line = device.line().unwrap();
    assert_eq!(line.enqueue_store(there, Slot::ALL[0], 1), Err(LineError::ForeignStream));
    assert_eq!(device.queue_on(there).map(drop).unwrap_err().code(), ErrorCode::Misuse);
    let mut elsewhere = second.queue_on(there).unwrap();
    let number = elsewhere.store_next().unwrap();
    assert!(elsewhere.block(number, PATIENCE).unwrap());

    // On a stream that others submit to each number is stored anew.
    let mut queue = device.queue_on(here).unwrap();
    let first = queue.store_next().unwrap();
    assert_eq!(queue.store_next().unwrap(), first + 1);
    assert!(queue.block(first + 1, PATIENCE).unwrap());
    drop(queue);

    // The default streams, and a thread that isn't the one whose stream it is.
    for stream in [Stream::<V>::LEGACY, Stream::<V>::PER_THREAD] {
        let mut queue = device.queue_on(stream).unwrap();
        let number = queue.store_next().unwrap();
        assert!(queue.block(number, PATIENCE).unwrap());
        let per_thread = stream.as_raw() == Stream::<V>::PER_THREAD.as_raw();
        let other = std::thread::scope(|scope| scope.spawn(|| queue.store_next()).join().unwrap());
        match other {
            Err(error) if per_thread => assert_eq!(error.code(), ErrorCode::Misuse),
            other => assert!(!per_thread && other.is_ok(), "{other:?}"),
        }
    }
    // The legacy stream would have to wait for a blocking stream that is being captured.
    V::begin_capture(&sim, here.as_raw(), 2);
    let refused = device.queue_on(Stream::<V>::LEGACY).map(drop).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::StreamCapturing);
    assert_eq!(V::end_capture(&sim, here.as_raw()), 0);

    // Numbers of a word grow, whoever stores them, and one word is numbered by one at a time.
    line.enqueue_store(here, Slot::ALL[6], 5).unwrap();
    assert_eq!(line.enqueue_store(here, Slot::ALL[6], 5), Err(LineError::NotIncreasing));
    let mut port = StreamPort::new(here, &line, Slot::ALL[6], None).unwrap();
    assert_eq!(line.enqueue_store(here, Slot::ALL[6], 9), Err(LineError::Taken));
    assert_eq!(
        StreamPort::new(here, &line, Slot::ALL[6], None).unwrap_err().code(),
        ErrorCode::Misuse
    );
    let (clock, plan) = (StdClock::new(), "flag:park_us=100,backstop_us=2000".parse().unwrap());
    run_inline(wait(&plan, None, &mut port, &clock, &clock)).unwrap();
    drop(port);
    assert_eq!(line.line().load(Slot::ALL[6]), 6);
    line.enqueue_store(here, Slot::ALL[6], 9).unwrap();
}

/// Two devices, each with its own context, waited for from one thread.
pub(crate) fn two_devices_are_waited_for_at_once<V: Tested>() {
    let sim = DriverSim::new(V::LIBRARY, "devices=2", &[]);
    let driver = Driver::<V>::load_from(sim.path()).unwrap();
    let devices = [driver.open(0).unwrap(), driver.open(1).unwrap()];
    assert_eq!(sim.tally("references"), 2);
    let mut queues = devices.each_ref().map(|device| device.queue().unwrap());
    let kernels = devices.each_ref().map(|device| StepKernel::new(device).unwrap());
    let mut jobs = kernels.each_ref().map(|kernel| kernel.job().unwrap());
    for round in 1..20 {
        for (queue, job) in queues.iter_mut().zip(&mut jobs) {
            job.run(queue, round, 300_000).unwrap();
        }
        for (queue, job) in queues.iter_mut().zip(&jobs) {
            wait_for(queue, "flag:park_us=100,backstop_us=2000", None, PATIENCE).unwrap();
            assert!(job.verify(round));
        }
    }
    assert_eq!(jobs[0].run(&mut queues[1], 1, 1).unwrap_err().code(), ErrorCode::Misuse);
    drop((queues, jobs, kernels, devices));
    gone(&sim);
}

/// 10,000 waits on 64 streams, all outstanding at once.
pub(crate) fn ten_thousand_waits_are_outstanding<V: Tested>() {
    const STREAMS: usize = 64;
    const WAITS: usize = 10_000;
    let rig = rig::<V>("");
    let mut queues: Vec<_> = (0..STREAMS).map(|_| rig.machine.device.queue().unwrap()).collect();
    let gates: Vec<_> = queues.iter_mut().map(|queue| queue.gate().unwrap()).collect();
    let lines: Vec<_> = queues.iter().map(|queue| queue.line().clone()).collect();
    let reactor = Reactor::new(StdClock::new());
    let ended = std::cell::Cell::new(0);
    let mut executor = DynExecutor::new();
    for wait in 0..WAITS {
        let queue = &mut queues[wait % STREAMS];
        let number = queue.submit(|_| Ok::<(), Error>(())).unwrap();
        let work = MemoryDescriptor::new((*lines[wait % STREAMS]).as_ref(), queue.slot(), number);
        let (reactor, ended) = (&reactor, &ended);
        executor.spawn_dyn(async move {
            assert!(reactor.ready(work, None).await);
            ended.set(ended.get() + 1);
        });
    }
    let seen = &reactor;
    executor.spawn_dyn(async move {
        yield_now().await;
        assert_eq!(seen.pending().0, WAITS, "outstanding");
        drop(gates);
    });
    let mut idle = StdIdle::new(StdClock::new(), None);
    executor.run(&reactor, &mut idle, DurNs::from_us(500)).unwrap();
    drop(executor);
    assert_eq!(ended.get(), WAITS);
}

/// A child of a fork has no driver: its calls are errors, and none hangs.
pub(crate) fn a_forked_child_gets_errors_and_no_hang<V: Tested>() {
    let Machine { device, sim: _sim } = machine::<V>("");
    let mut queue = device.queue().unwrap();
    let number = queue.store_next().unwrap();
    assert!(queue.block(number, PATIENCE).unwrap());
    // SAFETY: the child only makes calls that take no lock of the parent's other threads, and ends at once.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let status = |error: Error| error.driver_status();
        let stored = queue.submit(|_| Ok::<(), Error>(())).map_err(status);
        let right = stored == Err(Some(3)) && queue.confirm(number).map_err(status) == Err(Some(3));
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let begun = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: our own child.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if ended == child {
            assert_eq!(status, 0, "the child's calls did not fail as they must");
            break;
        }
        if begun.elapsed() > Duration::from_secs(20) {
            // SAFETY: our own child.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(queue.block(number, PATIENCE).unwrap(), "the parent goes on");
}

/// A line by hand, a port by hand: the published surface.
pub(crate) fn the_published_surface_does_its_work<V: Tested>() {
    let Machine { device, sim } = machine::<V>("distinct_addresses");
    let line: MappedLine<V> = device.line().unwrap();
    assert_ne!(line.device_address(), line.line() as *const _ as u64, "the script says so");
    // SAFETY: lives until the end of the test.
    let stream = unsafe { Stream::<V>::from_raw(V::foreign_stream(&sim, 0)) };
    let clock = StdClock::new();
    for plan in conformance::PLANS {
        let plan: WaitPlan = plan.parse().unwrap();
        let mut port = StreamPort::new(stream, &line, Slot::ALL[0], None).unwrap();
        run_inline(wait(&plan, None, &mut port, &clock, &clock)).unwrap();
        assert!(port.query().unwrap() && port.queries() > 0);
    }
    assert_eq!(line.line().load(Slot::ALL[0]), conformance::PLANS.len() as u64);
}

/// What happens without an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// The driver is refused, by the name of what it lacks.
    Nothing,
    /// The device opens, and words can't be stored.
    Words,
    /// Only the plan `block` fails.
    Block,
    /// Only gates fail.
    Gates,
    /// Only compiling or launching a kernel fails.
    Kernels,
    /// Everything works, some of it in another way.
    Everything,
}

/// Each entry point that is used, missing: what needs it fails with its name, and nothing else does.
pub(crate) fn each_missing_entry_point_fails_what_needs_it<V: Tested>(
    cases: &[(&[&str], Without)],
) {
    for (names, without) in cases {
        let said = format!("{names:?}");
        let (_sim, device) = open::<V>("", names);
        if *without == Without::Nothing {
            let error = device.map(drop).unwrap_err();
            assert_eq!(error.code(), ErrorCode::SymbolMissing, "{said}: {error}");
            assert!(error.to_string().contains(names[0]), "{said}: {error}");
            continue;
        }
        let device = device.unwrap_or_else(|error| panic!("{said}: {error}"));
        assert_eq!(device.caps().flag_wait.is_err(), *without == Without::Words, "{said}");
        if let Err(reason) = device.caps().flag_wait {
            assert!(reason.contains(names[0]), "{said}: {reason}");
        }
        let missing = |error: Error| {
            assert_eq!(error.code(), ErrorCode::SymbolMissing, "{said}: {error}");
            assert!(error.to_string().contains(names[0]), "{said}: {error}");
        };
        let mut queue = device.queue().unwrap();
        for (plan, sleep) in WAYS {
            // Long enough that a blocking wait has something to wait for.
            let gate = queue.gate();
            let opens = gate.is_ok();
            queue.submit(|_| Ok::<(), Error>(())).unwrap();
            let waited = std::thread::scope(|scope| {
                let opener = scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(5));
                    drop(gate);
                });
                let waited = wait_for(&mut queue, plan, sleep, PATIENCE);
                opener.join().unwrap();
                waited
            });
            match waited {
                Ok(_) => assert!(*without != Without::Block || plan != "block", "{said}"),
                Err(error) => {
                    assert!(*without == Without::Block && plan == "block", "{said}: {error}");
                    missing(error);
                }
            }
            assert_eq!(opens, !matches!(without, Without::Gates | Without::Words), "{said}");
        }
        match StepKernel::new(&device).and_then(|kernel| kernel.job()?.run(&mut queue, 1, 1_000)) {
            Ok(_) => assert!(!matches!(without, Without::Kernels | Without::Words), "{said}"),
            Err(error) if *without == Without::Kernels => missing(error),
            Err(error) => assert_eq!(*without, Without::Words, "{said}: {error}"),
        }
    }
}

/// A test of each function of the suite.
macro_rules! suite {
    ($vendor:ty: $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            driver::suite::$name::<$vendor>();
        })*
    };
}
pub(crate) use suite;

/// Every function of the suite.
macro_rules! whole_suite {
    ($vendor:ty) => {
        driver::suite::suite! { $vendor:
            queues_do_their_duties,
            every_plan_waits_as_it_should,
            tasks_of_a_reactor_wait_for_several_queues,
            situation_8_a_thousand_and_one_waits_are_pending_on_one_queue,
            every_fault_ends_every_wait_as_it_must,
            situation_2_what_the_device_writes_outlives_its_owner,
            situation_3_a_kernel_faults_and_every_wait_of_the_context_is_told,
            situation_4_success_after_a_loss_is_not_believed,
            situation_5_work_ends_after_its_deadline,
            situation_6_a_stream_in_capture_is_refused_and_not_broken,
            another_threads_capture_is_not_broken_by_waits,
            situation_7_a_refused_store_is_told_at_once,
            a_device_that_cannot_store_waits_by_its_status,
            attributes_are_not_believed,
            situation_11_three_reasons_three_errors,
            a_forged_word_ends_no_wait,
            a_line_keeps_its_context_alive,
            every_drop_order_is_right,
            a_gate_opens_when_it_is_dropped,
            one_stream_waits_for_another,
            doorbells_ring_behind_the_words,
            streams_of_others_are_used_with_care,
            two_devices_are_waited_for_at_once,
            ten_thousand_waits_are_outstanding,
            a_forked_child_gets_errors_and_no_hang,
            the_published_surface_does_its_work,
        }
    };
}
pub(crate) use whole_suite;
