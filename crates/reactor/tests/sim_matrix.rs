//! Every fault of the simulated device under every plan, inline and as a task of a reactor, in virtual
//! and in real time: how the wait ends, how soon, and what the host then finds in memory.
//!
//! Invariants 2 (never `Ok` before the work's data is there), 3 (a word that never comes costs at most
//! one backstop) and 8 (loss, hang and refusal are typed errors).

use gpu_async_reactor::backend::sim::{
    Faults, SimDevice, SimOptions, SimQueue, VirtualDevice, VirtualQueue, Work,
};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Two pieces of work of that length; the faults hit the second.
const WORK: DurNs = DurNs::from_us(700);
const DONE: DurNs = DurNs(2 * WORK.0);
const BACKSTOP: DurNs = DurNs::from_ms(2);
const DEADLINE: DurNs = DurNs::from_ms(12);

const PLANS: [&str; 5] = [
    "block",
    "poll",
    "flag:park_us=100,backstop_us=2000",
    "poll+predict:margin_us=100,min_sleep_us=10,max_sleep_us=9000,window=2",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=10,max_sleep_us=9000,window=2",
];

/// A fault, how a wait for the second piece must end, and what the fault may add to its time.
struct Case {
    name: &'static str,
    faults: Faults,
    ends: std::result::Result<(), ErrorCode>,
    adds: DurNs,
    /// The fault comes before the end of the second piece.
    early: bool,
}

/// `now` is the device's time at the start: a loss at a time counts from it.
fn cases(now: MonoNs) -> Vec<Case> {
    let none = Faults::none;
    let case = |name: &'static str, faults, ends, adds| {
        let early = name.contains("before") || name.contains("at a time");
        Case { name, faults, ends, adds, early }
    };
    let lost = Err(ErrorCode::DeviceLost);
    let mid = now + DurNs(DONE.0 - WORK.0 / 2);
    vec![
        case("none", none(), Ok(()), DurNs(0)),
        case("lost store", none().lost_store(2), Ok(()), BACKSTOP),
        case("late store", none().late_store(2, DurNs::from_us(300)), Ok(()), DurNs::from_us(300)),
        case("store after a backstop", none().late_store(2, DurNs::from_ms(60)), Ok(()), BACKSTOP),
        case(
            "word before data",
            none().word_before_data(2, DurNs::from_us(400)),
            Ok(()),
            DurNs::from_us(400),
        ),
        case("hang", none().hang(2), Err(ErrorCode::DeviceHang), DEADLINE),
        case("hang before", none().hang(1), Err(ErrorCode::DeviceHang), DEADLINE),
        case("loss", none().lose_device(2), lost, BACKSTOP),
        case("loss before", none().lose_device(1), lost, BACKSTOP),
        case("loss, and a lie", none().lose_device(2).lie_after_loss(), lost, BACKSTOP),
        case("loss at a time", none().lose_device_at(mid), lost, BACKSTOP),
        case(
            "loss at a time, and a lie",
            none().lose_device_at(mid).lie_after_loss(),
            lost,
            BACKSTOP,
        ),
        case("slow status", none().slow_status(DurNs::from_us(200)), Ok(()), DurNs::from_us(600)),
        case("refusal", none().refuse_store(2), Err(ErrorCode::StoreRefused), DurNs(0)),
    ]
}

/// A device, in its time.
trait World {
    type Queue: Queue;
    type Clock: Clock + Timer + Clone;
    type Idle: Idle;
    /// How much later than exactly a wait may end.
    const SLACK: DurNs;
    fn start(options: SimOptions) -> Self;
    fn queue(&self) -> Self::Queue;
    fn submit_bare(queue: &mut Self::Queue, work: Work) -> Result<()>;
    fn clock(&self) -> Self::Clock;
    fn idle(&self) -> Self::Idle;
    /// The time on the clock of a device that is yet to be made.
    fn time() -> MonoNs;
}

struct Manual(VirtualDevice);

impl World for Manual {
    type Queue = VirtualQueue;
    type Clock = VirtualDevice;
    type Idle = gpu_async_reactor::backend::sim::VirtualIdle;
    // Queries take time here, and nothing else that is not in the case.
    const SLACK: DurNs = DurNs::from_us(10);
    fn start(options: SimOptions) -> Self {
        Manual(VirtualDevice::new(ManualClock::new(), options))
    }
    fn queue(&self) -> VirtualQueue {
        self.0.queue()
    }
    fn submit_bare(queue: &mut VirtualQueue, work: Work) -> Result<()> {
        queue.submit_bare(work)
    }
    fn clock(&self) -> VirtualDevice {
        self.0.clone()
    }
    fn idle(&self) -> Self::Idle {
        self.0.idle()
    }
    fn time() -> MonoNs {
        MonoNs(0)
    }
}

struct Real(SimDevice);

impl World for Real {
    type Queue = SimQueue;
    type Clock = StdClock;
    type Idle = StdIdle;
    // Tells a hang from a busy machine.
    const SLACK: DurNs = DurNs::from_ms(20_000);
    fn start(options: SimOptions) -> Self {
        Real(SimDevice::start(options))
    }
    fn queue(&self) -> SimQueue {
        self.0.queue().unwrap()
    }
    fn submit_bare(queue: &mut SimQueue, work: Work) -> Result<()> {
        queue.submit_bare(work)
    }
    fn clock(&self) -> StdClock {
        StdClock::new()
    }
    fn idle(&self) -> StdIdle {
        StdIdle::new(StdClock::new(), None)
    }
    fn time() -> MonoNs {
        StdClock::new().monotonic_ns()
    }
}

fn matrix<W: World>() {
    for plan in PLANS {
        for task in [false, true] {
            // One thread: a blocking wait would hold up every other task, and is for none of them.
            if task && plan == "block" {
                continue;
            }
            for index in 0..cases(MonoNs(0)).len() {
                // Made now: some losses are at a time.
                let case = cases(W::time()).swap_remove(index);
                let what =
                    format!("{}, {plan}, {}", case.name, if task { "task" } else { "inline" });
                one::<W>(&what, plan, task, case);
            }
        }
    }
}

/// One wait for two pieces of work, submitted bare so that the wait itself stores the second number.
fn one<W: World>(what: &str, plan: &str, task: bool, case: Case) {
    let plan: WaitPlan = plan.parse().unwrap();
    let world = W::start(SimOptions { faults: case.faults, ..SimOptions::default() });
    let (mut queue, clock) = (world.queue(), world.clock());
    let line = queue.line().clone();
    let written = Arc::new(AtomicU64::new(0));
    let start = clock.monotonic_ns();
    for number in 1..=2 {
        let written = written.clone();
        let effect = move || written.store(number, Ordering::Relaxed);
        let work = Work::lasting(WORK).effect(effect);
        let submitted = W::submit_bare(&mut queue, work).and_then(|()| match number {
            1 => queue.store_next(),
            _ => Ok(0),
        });
        if let Err(error) = submitted {
            // A busy machine came to it after the time of the loss.
            assert_eq!(Err(error.code()), case.ends, "{what}: {error}");
            assert!(case.name.contains("at a time"), "{what}: {error}");
            return;
        }
    }
    // Only a hang is to meet its deadline, however busy the machine is.
    let hangs = case.ends == Err(ErrorCode::DeviceHang);
    let within = if hangs { DEADLINE } else { DurNs::from_ms(20_000) };
    let sleep = plan.predict.map(|_| 900_000);
    let report = if task {
        let reactor = Reactor::new(clock.clone());
        let mut executor = DynExecutor::new();
        let (on, word) = (&reactor, (*line).as_ref());
        let queue = &mut queue;
        let wait = executor.spawn_dyn(async move {
            let mut port = QueuePort::new(queue, word, on, on).within(within);
            wait(&plan, sleep, &mut port, on, on).await
        });
        executor.run(&reactor, &mut world.idle(), DurNs::from_us(200)).unwrap();
        drop(executor);
        assert_eq!(reactor.pending(), (0, 0), "{what}: left registered");
        run_inline(wait).unwrap()
    } else {
        let idle = OnThread(world.idle());
        let mut port =
            QueuePort::new(&mut queue, (*line).as_ref(), idle, clock.clone()).within(within);
        run_inline(wait(&plan, sleep, &mut port, &clock, &clock))
    };
    let took = clock.monotonic_ns().since(start);
    let data = written.load(Ordering::Relaxed);
    match (report, case.ends) {
        (Ok(_), Ok(())) => {
            assert_eq!(data, 2, "{what}: Ok before the data");
            assert!(took >= DONE, "{what}: Ok after {took}");
            assert!(queue.status(2).unwrap(), "{what}: Ok before the status");
        }
        (Err(error), Err(code)) => assert_eq!(error.code(), code, "{what}: {error}"),
        (found, _) => panic!("{what}: ended with {found:?}"),
    }
    // A loss that lies is found out by asking; what it was asked for is what it says from then on.
    if case.ends == Err(ErrorCode::DeviceLost) {
        assert_eq!(queue.confirm(2).unwrap_err().code(), ErrorCode::DeviceLost, "{what}");
        assert_eq!(queue.store_next().unwrap_err().code(), ErrorCode::DeviceLost, "{what}");
        // Lost in place of the store, what the work wrote may be there; lost before that, it may not.
        assert!(data < 2 || !case.early, "{what}: work went on after the loss");
    }
    let most = DurNs(DONE.0 + case.adds.0 + W::SLACK.0);
    assert!(took <= most, "{what}: took {took}, at most {most}");
    drop(queue);
}

#[test]
fn every_fault_under_every_plan_in_virtual_time() {
    matrix::<Manual>();
}

#[test]
fn every_fault_under_every_plan_in_real_time() {
    matrix::<Real>();
}
