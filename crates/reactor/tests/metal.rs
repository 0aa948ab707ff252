//! The Metal port and queue on a simulated event and command queue: no Metal, no GPU, on any machine.

use gpu_async_reactor::backend::metal::{
    BufferError, BufferStatus, CommandBuffer, Commands, MetalQueue, Places, Report, SharedEvent,
    SharedEventPort,
};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::watcher::CompletionExt;
use gpu_async_reactor::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use testkit::conformance::{self, Rig};

/// Metal lets so many buffers pend on a queue before it blocks whoever makes another.
const DEPTH: usize = 64;
const PATIENCE: DurNs = DurNs(30_000_000_000);
const PLANS: [&str; 3] = ["block", "poll", "flag:park_us=100,backstop_us=2000"];

/// What goes wrong with the buffer of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It ends with this error and signals nothing; so does all behind it when the code says the device is
    /// removed.
    Error(i32),
    /// It completes and never signals.
    LostSignal,
    /// It signals that long before it completes.
    SignalFirst(Duration),
    /// It ends after the one behind it.
    Overtaken,
    /// It never ends, and nothing behind it runs.
    Hang,
    /// The queue gives no buffer for it.
    Refused,
}

const PAGE_FAULT: i32 = 3;
const DEVICE_REMOVED: i32 = 11;

#[derive(Clone, Default)]
struct SimEvent(Arc<(Mutex<u64>, Condvar)>);

impl SimEvent {
    /// A smaller value has no effect.
    fn signal(&self, value: u64) {
        let mut signaled = self.0.0.lock().unwrap();
        *signaled = value.max(*signaled);
        self.0.1.notify_all();
    }
}

impl SharedEvent for SimEvent {
    /// Whether the device has events.
    type Device = bool;

    fn new(device: &bool) -> Result<SimEvent> {
        if *device {
            Ok(SimEvent::default())
        } else {
            Err(error!(DeviceUnfit, "sim", "shared events"))
        }
    }

    fn signaled(&self) -> u64 {
        *self.0.0.lock().unwrap()
    }

    fn wait(&self, value: u64, bound: DurNs) -> bool {
        // As the vendor's: whole milliseconds.
        let bound = Duration::from_millis(bound.0.div_ceil(1_000_000));
        let signaled = self.0.0.lock().unwrap();
        let (signaled, _) =
            self.0.1.wait_timeout_while(signaled, bound, |signaled| *signaled < value).unwrap();
        *signaled >= value
    }
}

/// What is encoded into a simulated buffer: how long it takes.
#[derive(Default)]
struct Encoded(Cell<Duration>);

struct Job {
    takes: Duration,
    value: u64,
    told: Box<dyn Fn(BufferStatus) + Send>,
}

/// A simulated command queue: a thread.
struct SimCommands {
    event: SimEvent,
    jobs: SyncSender<Job>,
    faults: HashMap<u64, Fault>,
}

impl SimCommands {
    fn new(faults: &[(u64, Fault)]) -> SimCommands {
        let (jobs, received) = sync_channel(DEPTH);
        let (event, faults): (_, HashMap<u64, Fault>) =
            (SimEvent::default(), faults.iter().copied().collect());
        let (signals, script) = (event.clone(), faults.clone());
        std::thread::spawn(move || run(&received, &signals, &script));
        SimCommands { event, jobs, faults }
    }

    /// Commits work that tells a buffer how it ended.
    fn commit_raw(&self, value: u64, takes: Duration) -> SimBuffer {
        let status = Arc::new(Mutex::new(BufferStatus::Pending));
        let told = status.clone();
        let told = Box::new(move |ended| *told.lock().unwrap() = ended);
        self.jobs.send(Job { takes, value, told }).unwrap();
        SimBuffer(status)
    }
}

fn run(jobs: &Receiver<Job>, event: &SimEvent, faults: &HashMap<u64, Fault>) {
    let (mut removed, mut overtaken): (Option<BufferStatus>, Option<Job>) = (None, None);
    while let Ok(job) = jobs.recv() {
        if let Some(removed) = &removed {
            (job.told)(removed.clone());
            continue;
        }
        std::thread::sleep(job.takes);
        let fault = faults.get(&job.value);
        match fault {
            Some(Fault::Hang) => {
                // Kept until the queue goes, so that nobody is told.
                let _held: Vec<Job> = std::iter::once(job).chain(jobs.iter()).collect();
                return;
            }
            Some(&Fault::Error(code)) => {
                let text = if code == DEVICE_REMOVED { "device removed" } else { "page fault" };
                let failed = BufferStatus::Failed(BufferError { code, text: text.into() });
                removed = (code == DEVICE_REMOVED).then(|| failed.clone());
                (job.told)(failed);
                continue;
            }
            Some(Fault::Overtaken) => {
                overtaken = Some(job);
                continue;
            }
            Some(Fault::LostSignal) => {}
            Some(&Fault::SignalFirst(by)) => {
                event.signal(job.value);
                std::thread::sleep(by);
            }
            _ => event.signal(job.value),
        }
        (job.told)(BufferStatus::Completed);
        if let Some(job) = overtaken.take() {
            std::thread::sleep(Duration::from_millis(30));
            event.signal(job.value);
            (job.told)(BufferStatus::Completed);
        }
    }
}

impl Commands for SimCommands {
    type Event = SimEvent;
    type Buffer = Encoded;

    fn event(&self) -> &SimEvent {
        &self.event
    }

    fn commit(
        &mut self,
        value: u64,
        encode: impl FnOnce(&Encoded) -> Result<()>,
        report: Report,
    ) -> Result<()> {
        if self.faults.get(&value) == Some(&Fault::Refused) {
            let doing = format!("committing number {value} to simulated Metal queue 0");
            return Err(error!(StoreRefused, doing, "the queue gave no command buffer"));
        }
        let buffer = Encoded::default();
        encode(&buffer)?;
        let told = Box::new(move |ended| report.ended(ended));
        self.jobs.send(Job { takes: buffer.0.get(), value, told }).unwrap();
        Ok(())
    }
}

struct SimBuffer(Arc<Mutex<BufferStatus>>);

impl CommandBuffer for SimBuffer {
    fn status(&self) -> BufferStatus {
        self.0.lock().unwrap().clone()
    }
}

type SimQueue = MetalQueue<SimCommands>;

fn queue(faults: &[(u64, Fault)]) -> SimQueue {
    let label = "simulated Metal queue 0".to_owned();
    MetalQueue::new(SimCommands::new(faults), Places::default().next_place(), label)
}

fn submit(queue: &mut SimQueue, takes: Duration) -> Result<u64> {
    queue.submit(|buffer| {
        buffer.0.set(takes);
        Ok(())
    })
}

const MS: Duration = Duration::from_millis(1);

fn wait_for(
    queue: &mut SimQueue,
    plan: &str,
    sleep: Option<u64>,
    within: DurNs,
) -> Result<WaitReport> {
    let (clock, line) = (StdClock::new(), queue.line().clone());
    let plan: WaitPlan = plan.parse()?;
    let idle = OnThread(StdIdle::new(clock, None));
    let mut port = QueuePort::new(queue, &line, idle, clock).within(within);
    run_inline(wait(&plan, sleep, &mut port, &clock, &clock))
}

#[derive(Default)]
struct OnSim(Places);

impl Rig for OnSim {
    type Queue = SimQueue;
    type Clock = StdClock;
    type Idle = StdIdle;
    fn queue(&mut self) -> SimQueue {
        MetalQueue::new(SimCommands::new(&[]), self.0.next_place(), "simulated Metal queue".into())
    }
    fn submit(&mut self, queue: &mut SimQueue, about: DurNs) -> u64 {
        submit(queue, about.into()).unwrap()
    }
    fn clock(&self) -> StdClock {
        StdClock::new()
    }
    fn idle(&self) -> StdIdle {
        StdIdle::new(StdClock::new(), None)
    }
    fn depth(&self) -> u64 {
        DEPTH as u64
    }
}

#[test]
fn queues_do_their_duties() {
    conformance::queue(&mut OnSim::default());
}

#[test]
fn every_plan_waits_as_it_should() {
    conformance::plans(&mut OnSim::default());
}

#[test]
fn tasks_of_a_reactor_wait_for_several_queues() {
    conformance::reactor_waits(&mut OnSim::default());
}

#[test]
fn many_waits_are_pending_on_one_queue() {
    conformance::pending_waits(&mut OnSim::default());
}

/// The fault matrix: each fault under each plan, with its exact end.
#[test]
fn every_fault_ends_as_it_should_under_every_plan() {
    let lost = |code, text| {
        format!(
            "asking about number 2 of simulated Metal queue 0: the device is lost (its command buffer ended with \
             error {code} ({text})); nothing more completes on it, open it anew [E032]"
        )
    };
    let cases = [
        (Fault::Error(PAGE_FAULT), Some(lost(PAGE_FAULT, "page fault"))),
        (Fault::Error(DEVICE_REMOVED), Some(lost(DEVICE_REMOVED, "device removed"))),
        (Fault::LostSignal, None),
        (Fault::SignalFirst(20 * MS), None),
    ];
    for (fault, wanted) in cases {
        for plan in PLANS {
            let mut queue = queue(&[(2, fault)]);
            submit(&mut queue, MS).unwrap();
            submit(&mut queue, 5 * MS).unwrap();
            let ended = wait_for(&mut queue, plan, None, PATIENCE);
            let found = ended.as_ref().err().map(Error::to_string);
            assert_eq!(found, wanted, "{fault:?} under {plan}");
            if let Err(error) = ended {
                assert!(error.driver_status().is_some());
                // For ever, of every call.
                assert_eq!(queue.status(1).unwrap_err().code(), ErrorCode::DeviceLost);
                assert_eq!(queue.confirm(2).unwrap_err().code(), ErrorCode::DeviceLost);
                assert_eq!(queue.store_next().unwrap_err().code(), ErrorCode::DeviceLost);
                assert_eq!(submit(&mut queue, MS).unwrap_err().code(), ErrorCode::DeviceLost);
            }
        }
    }
}

#[test]
fn a_hang_is_told_at_the_deadline_under_every_plan() {
    for plan in PLANS {
        let mut queue = queue(&[(1, Fault::Hang)]);
        submit(&mut queue, MS).unwrap();
        let hang = wait_for(&mut queue, plan, None, DurNs::from_ms(50)).unwrap_err();
        assert_eq!(hang.code(), ErrorCode::DeviceHang, "{plan}");
        assert!(hang.to_string().starts_with("waiting for number 1 of simulated Metal queue 0"));
    }
}

/// The buffer fails while the wait sleeps to its prediction, and while it parks.
#[test]
fn a_loss_during_a_sleep_or_a_park_is_told() {
    let flag = "flag:park_us=10000,backstop_us=1000000";
    for sleep in [None, Some(60_000_000)] {
        let mut queue = queue(&[(1, Fault::Error(DEVICE_REMOVED))]);
        submit(&mut queue, 20 * MS).unwrap();
        let plan = if sleep.is_some() { "poll" } else { flag };
        let lost = wait_for(&mut queue, plan, sleep, PATIENCE).unwrap_err();
        assert_eq!((lost.code(), lost.driver_status()), (ErrorCode::DeviceLost, Some(11)));
    }
}

#[test]
fn a_refused_buffer_takes_no_number() {
    let mut queue = queue(&[(2, Fault::Refused)]);
    assert_eq!(submit(&mut queue, MS).unwrap(), 1);
    let refused = submit(&mut queue, MS).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "committing number 2 to simulated Metal queue 0: the completion store was refused (the queue gave no \
         command buffer) [E034]"
    );
    let bad = queue.submit(|_| Err(error!(Misuse, "encoding", "no pipeline"))).unwrap_err();
    assert_eq!(
        bad.code(),
        ErrorCode::StoreRefused,
        "the queue refuses number 2 before it is encoded"
    );
    assert_eq!(queue.store_next().unwrap(), 1, "nothing was committed since");
    assert!(queue.block(1, PATIENCE).unwrap());
}

#[test]
fn work_that_was_not_encoded_is_not_committed() {
    let mut queue = queue(&[]);
    let bad = queue.submit(|_| Err(error!(Misuse, "encoding", "no pipeline"))).unwrap_err();
    assert_eq!(bad.code(), ErrorCode::Misuse);
    assert_eq!(submit(&mut queue, MS).unwrap(), 1);
}

/// Buffers of one queue begin in order and may end out of it: a number is done once all before it are.
#[test]
fn a_number_is_done_once_all_before_it_are() {
    let mut queue = queue(&[(1, Fault::Overtaken)]);
    submit(&mut queue, Duration::ZERO).unwrap();
    submit(&mut queue, Duration::ZERO).unwrap();
    // The event says 2 while number 1 is not done.
    assert!(queue.commands().event().wait(2, PATIENCE));
    assert!(queue.block(2, PATIENCE).unwrap());
    assert!(queue.status(1).unwrap());
    let line = queue.line().clone();
    assert!(reached(&line, queue.slot(), 2));
    assert_eq!(
        queue.commands().event().signaled(),
        2,
        "the signal of 1 behind that of 2 had no effect"
    );
}

#[test]
fn a_dropped_queue_still_reaches_what_was_committed() {
    let mut queue = queue(&[]);
    let number = submit(&mut queue, 20 * MS).unwrap();
    let status = queue.shared_status();
    drop(queue);
    let never = status.status(number + 1).unwrap_err();
    assert!(never.to_string().contains("dropped before it gave that number"), "{never}");
    let clock = StdClock::new();
    let start = clock.monotonic_ns();
    while !status.status(number).unwrap() {
        assert!(clock.monotonic_ns().since(start) < PATIENCE);
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watcher_serves_tokio_tasks() {
    let mut good = queue(&[]);
    submit(&mut good, 5 * MS).unwrap();
    good.completion().timeout(PATIENCE).await.unwrap();
    let mut bad = queue(&[(1, Fault::Error(PAGE_FAULT))]);
    submit(&mut bad, 5 * MS).unwrap();
    let lost = bad.completion().timeout(PATIENCE).await.unwrap_err();
    assert!(lost.to_string().contains("error 3 (page fault)"), "{lost}");
}

type Port = SharedEventPort<SimEvent, SimBuffer>;

/// A port over a simulated queue's event, and the queue.
fn port(faults: &[(u64, Fault)]) -> (Port, SimCommands) {
    let commands = SimCommands::new(faults);
    (SharedEventPort::over(commands.event.clone()), commands)
}

fn run_port(port: &mut Port, plan: &str, sleep: Option<u64>) -> Result<WaitReport> {
    let (clock, plan) = (StdClock::new(), plan.parse::<WaitPlan>()?);
    run_inline(wait(&plan, sleep, port, &clock, &clock))
}

#[test]
fn a_port_waits_for_the_value_it_gave_out() {
    assert_eq!(Port::new(&false).unwrap_err().code(), ErrorCode::DeviceUnfit);
    assert_eq!(Port::new(&true).unwrap().event().signaled(), 0);
    for plan in PLANS {
        for hand_over in [true, false] {
            let (mut port, commands) = port(&[(2, Fault::SignalFirst(10 * MS))]);
            for round in 1..=3 {
                let value = port.next_value();
                assert_eq!(value, round);
                let buffer = commands.commit_raw(value, 3 * MS);
                let status = buffer.0.clone();
                if hand_over {
                    port.committed(buffer);
                }
                run_port(&mut port, plan, None).unwrap();
                assert!(port.event().signaled() >= value);
                let completed = *status.lock().unwrap() == BufferStatus::Completed;
                assert!(completed || !hand_over, "the buffer decides");
            }
        }
    }
}

#[test]
fn a_port_tells_a_failed_buffer_under_every_plan() {
    for plan in PLANS {
        let (mut port, commands) = port(&[(2, Fault::Error(PAGE_FAULT))]);
        for takes in [MS, 5 * MS, MS] {
            let value = port.next_value();
            port.committed(commands.commit_raw(value, takes));
        }
        let lost = run_port(&mut port, plan, None).unwrap_err();
        assert_eq!(
            lost.to_string(),
            "awaiting value 2 of a shared event: the device is lost (its command buffer ended with error 3 (page \
             fault)); nothing more completes on it, open it anew [E032]",
            "{plan}"
        );
        assert_eq!(port.query().unwrap_err(), lost, "from then on");
    }
}

#[test]
fn a_port_without_a_buffer_needs_its_bound() {
    for plan in PLANS {
        let (port, commands) = port(&[(1, Fault::Error(PAGE_FAULT))]);
        let mut port = port.within(DurNs::from_ms(40));
        let value = port.next_value();
        commands.commit_raw(value, MS);
        let hang = run_port(&mut port, plan, None).unwrap_err();
        assert_eq!(hang.code(), ErrorCode::DeviceHang, "{plan}");
    }
}

#[test]
fn a_completed_buffer_that_never_signalled_is_done() {
    for plan in PLANS {
        let (mut port, commands) = port(&[(1, Fault::LostSignal)]);
        let value = port.next_value();
        port.committed(commands.commit_raw(value, 3 * MS));
        run_port(&mut port, plan, None).unwrap();
        assert_eq!(port.event().signaled(), 0);
    }
}

/// Handlers run on any thread: reports from several at once leave one status and one word.
#[test]
fn reports_from_several_threads_agree() {
    struct Collect(SimEvent, Arc<Mutex<Vec<Report>>>);
    impl Commands for Collect {
        type Event = SimEvent;
        type Buffer = ();
        fn event(&self) -> &SimEvent {
            &self.0
        }
        fn commit(
            &mut self,
            _: u64,
            encode: impl FnOnce(&()) -> Result<()>,
            report: Report,
        ) -> Result<()> {
            encode(&())?;
            self.1.lock().unwrap().push(report);
            Ok(())
        }
    }
    for _ in 0..200 {
        let collected = Arc::default();
        let commands = Collect(SimEvent::default(), Arc::clone(&collected));
        let mut queue = MetalQueue::new(commands, Places::default().next_place(), "several".into());
        for _ in 0..8 {
            queue.submit(|()| Ok(())).unwrap();
        }
        let (line, slot) = (queue.line().clone(), queue.slot());
        let status = queue.shared_status();
        let reports: Vec<Report> = std::mem::take(&mut *collected.lock().unwrap());
        let watching = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while watching.load(Ordering::Relaxed) {
                    let word = line.load(slot);
                    assert!(word == 0 || status.status(word).unwrap(), "a word before its status");
                }
            });
            let told: Vec<_> = reports
                .rchunks(2)
                .map(|reports| {
                    scope.spawn(move || {
                        reports.iter().for_each(|report| report.ended(BufferStatus::Completed));
                    })
                })
                .collect();
            told.into_iter().for_each(|thread| thread.join().unwrap());
            watching.store(false, Ordering::Relaxed);
        });
        assert!(status.status(8).unwrap() && reached(&line, slot, 8));
    }
}
