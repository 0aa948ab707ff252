//! Queues, and the port over them, under every plan.

use gpu_async_reactor_core::{
    Clock, DurNs, DynExecutor, ErrorCode, Idle, MonoNs, OnThread, Outcome, Park, PointTable, Queue,
    QueuePort, Reactor, Result, Slot, Timer, WaitPlan, reached, run_inline, wait,
};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What a suite needs of a device.
pub trait Rig {
    /// The queue under test.
    type Queue: Queue;
    /// The clock, which is the timer of one inline wait too.
    type Clock: Clock + Timer + Clone;
    /// How the thread idles.
    type Idle: Idle;

    /// A new queue with nothing submitted.
    fn queue(&mut self) -> Self::Queue;
    /// Submits work of about that length, with a store behind it: its number.
    fn submit(&mut self, queue: &mut Self::Queue, about: DurNs) -> u64;
    /// The clock.
    fn clock(&self) -> Self::Clock;
    /// An idle of this thread.
    fn idle(&self) -> Self::Idle;
    /// How many pieces of work may be pending on one queue before the driver blocks its caller.
    fn depth(&self) -> u64 {
        u64::MAX
    }
}

/// A hang is a failure and not a test that never ends.
const PATIENCE: DurNs = DurNs(20_000_000_000);

/// The duties of a [`Queue`].
pub fn queue<R: Rig>(rig: &mut R) {
    let mut queue = rig.queue();
    let line = queue.line().clone();
    let word = |queue: &R::Queue, number| reached((*line).as_ref(), queue.slot(), number);

    // Numbers start at 1 and grow by submission; nothing new gives the same number again.
    let first = rig.submit(&mut queue, DurNs(1_000));
    let second = rig.submit(&mut queue, DurNs(1_000));
    assert_eq!((first, second), (1, 2), "numbers");
    assert_eq!(queue.store_next().unwrap(), second, "nothing was submitted since");
    assert!(queue.block(second, PATIENCE).unwrap(), "short work did not end");
    assert!(queue.status(first).unwrap() && queue.status(second).unwrap(), "done in order");
    assert!(!queue.status(second + 1).unwrap(), "a number never given out is not done");
    queue.confirm(second).unwrap();
    let start = rig.clock().monotonic_ns();
    while !word(&queue, second) {
        assert!(rig.clock().monotonic_ns().since(start) < PATIENCE, "the word was never stored");
        queue.block(second, DurNs(1_000)).unwrap();
        std::thread::yield_now();
    }

    // A long one: not done yet, whatever the word says (invariant 2), and a blocking wait is bounded.
    let long = rig.submit(&mut queue, DurNs::from_ms(60));
    (*line).as_ref().store(queue.slot(), long);
    assert!(!queue.status(long).unwrap(), "the status believed a forged word");
    assert!(!queue.block(long, DurNs(100_000)).unwrap(), "a bounded wait said done too soon");
    assert!(queue.block(long, PATIENCE).unwrap());
    assert!(queue.status(long).unwrap());
    assert!(!queue.label().is_empty());
}

/// One wait after another under each plan, predictions included; and a deadline.
pub fn plans<R: Rig>(rig: &mut R) {
    let mut queue = rig.queue();
    let line = queue.line().clone();
    let clock = rig.clock();
    for text in super::PLANS {
        let plan: WaitPlan = text.parse().unwrap();
        let mut points = PointTable::new();
        for round in 0..6 {
            let number = rig.submit(&mut queue, DurNs::from_ms(2));
            let sleep = plan.predict.as_ref().and_then(|p| points.sleep_ns(&"step", p));
            let idle = OnThread(rig.idle());
            let mut port =
                QueuePort::new(&mut queue, (*line).as_ref(), idle, clock.clone()).within(PATIENCE);
            let report = run_inline(wait(&plan, sleep, &mut port, &clock, &clock))
                .unwrap_or_else(|error| panic!("{text}, round {round}: {error}"));
            let immediate = matches!(report.outcome, Outcome::Immediate { .. });
            let sleeps = u32::from(sleep.is_some() && !immediate && plan.park != Park::Block);
            assert_eq!(report.sleeps, sleeps, "{text}, round {round}: {report:?}");
            if let Some(predict) = &plan.predict {
                points.observe(&"step", predict, report.outcome);
            }
            assert!(queue.status(number).unwrap(), "{text}: Ok before the status said done");
        }

        // A wait for what is done is immediate, and for `block` no different.
        let number = queue.store_next().unwrap();
        let mut port =
            QueuePort::new(&mut queue, (*line).as_ref(), OnThread(rig.idle()), clock.clone())
                .number(number);
        let report = run_inline(wait(&plan, None, &mut port, &clock, &clock)).unwrap();
        let immediate = matches!(report.outcome, Outcome::Immediate { .. });
        assert!(immediate || *text == "block", "{text}: {report:?}");

        // Past its deadline a wait ends with a hang; the work goes on and ends later.
        let number = rig.submit(&mut queue, DurNs::from_ms(80));
        let mut port =
            QueuePort::new(&mut queue, (*line).as_ref(), OnThread(rig.idle()), clock.clone())
                .within(DurNs::from_ms(5));
        let error = run_inline(wait(&plan, None, &mut port, &clock, &clock)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceHang, "{text}: {error}");
        assert!(queue.block(number, PATIENCE).unwrap(), "{text}: the late work never ended");
    }
}

/// A thousand and one waits pending on one queue, before any of their work is submitted: all end, and
/// the submitter is not held up by them. Where the driver itself would block at so much work, several wait
/// for each piece.
pub fn pending_waits<R: Rig>(rig: &mut R) {
    const WAITS: u64 = 1_001;
    let mut queue = rig.queue();
    let (line, slot, label) = (queue.line().clone(), queue.slot(), queue.label().to_owned());
    let word = (*line).as_ref();
    // Something long in front: a submitter that waited for the device would find it done.
    rig.submit(&mut queue, DurNs::from_ms(400));
    let queue = RefCell::new(queue);
    let reactor = Reactor::new(rig.clock());
    let plan: WaitPlan = "flag:park_us=5000,backstop_us=50000".parse().unwrap();
    let pieces = WAITS.min(rig.depth() - 1);
    let (begun, ended) = (Cell::new(0), Cell::new(0));
    let mut idle = rig.idle();
    let mut executor = DynExecutor::new();
    for number in (0..WAITS).map(|wait| 2 + wait % pieces) {
        let (queue, line, label) = (&queue, line.clone(), &*label);
        let shared = SharedQueue { queue, line, slot, label };
        let (reactor, begun, ended, plan) = (&reactor, &begun, &ended, &plan);
        executor.spawn_dyn(async move {
            begun.set(begun.get() + 1);
            let port = QueuePort::new(shared, word, reactor, reactor);
            let mut port = port.number(number).within(PATIENCE);
            wait(plan, None, &mut port, reactor, reactor)
                .await
                .unwrap_or_else(|error| panic!("wait for {number}: {error}"));
            let done = port.queue().status(number).unwrap();
            assert!(done, "{number}: Ok before the status said done");
            ended.set(ended.get() + 1);
        });
    }
    let (rig, queue, reactor, begun, ended) = (&mut *rig, &queue, &reactor, &begun, &ended);
    executor.spawn_dyn(async move {
        // Not the reactor's count: on a busy machine a park may have ended, to be begun again.
        assert_eq!(begun.get() - ended.get(), WAITS, "waits pending");
        for number in 2..pieces + 2 {
            assert_eq!(rig.submit(&mut queue.borrow_mut(), DurNs(1_000)), number);
        }
        assert!(!queue.borrow_mut().status(1).unwrap(), "submitting waited for the device");
    });
    executor.run(reactor, &mut idle, DurNs::from_us(200)).unwrap();
    drop(executor);
    assert_eq!(ended.get(), WAITS, "waits ended");
    assert_eq!(reactor.pending(), (0, 0), "left registered");
}

/// One queue for many ports of a thread.
struct SharedQueue<'q, Q: Queue> {
    queue: &'q RefCell<Q>,
    line: Arc<Q::Line>,
    slot: Slot,
    label: &'q str,
}

impl<Q: Queue> Queue for SharedQueue<'_, Q> {
    type Line = Q::Line;
    fn line(&self) -> &Arc<Q::Line> {
        &self.line
    }
    fn slot(&self) -> Slot {
        self.slot
    }
    fn store_next(&mut self) -> Result<u64> {
        self.queue.borrow_mut().store_next()
    }
    fn status(&mut self, number: u64) -> Result<bool> {
        self.queue.borrow_mut().status(number)
    }
    fn block(&mut self, number: u64, bound: DurNs) -> Result<bool> {
        self.queue.borrow_mut().block(number, bound)
    }
    fn confirm(&mut self, number: u64) -> Result<()> {
        self.queue.borrow_mut().confirm(number)
    }
    fn label(&self) -> &str {
        self.label
    }
}

/// Several queues awaited by tasks of one reactor, each by every plan that doesn't block the thread.
pub fn reactor_waits<R: Rig>(rig: &mut R) {
    const QUEUES: usize = 4;
    let mut queues: Vec<_> = (0..QUEUES).map(|_| rig.queue()).collect();
    let lines: Vec<_> = queues.iter().map(|queue| queue.line().clone()).collect();
    let clock = rig.clock();
    let reactor = Reactor::new(clock.clone());
    for text in super::PLANS.iter().filter(|text| **text != "block") {
        let plan: WaitPlan = text.parse().unwrap();
        let mut numbers = Vec::new();
        for (i, queue) in queues.iter_mut().enumerate() {
            let span = DurNs::from_ms(1 + (QUEUES - i) as u64);
            (0..3).for_each(|_| {
                rig.submit(queue, span);
            });
            numbers.push(queue.store_next().unwrap());
        }
        let ended = Cell::new(0);
        let mut executor = DynExecutor::new();
        for (queue, line) in queues.iter_mut().zip(&lines) {
            let (reactor, ended) = (&reactor, &ended);
            executor.spawn_dyn(async move {
                // Polling alone would keep the thread from ever idling, and time with it.
                let sleep = plan.predict.map(|_| 500_000);
                let mut port =
                    QueuePort::new(queue, (**line).as_ref(), reactor, reactor).within(PATIENCE);
                let report = wait(&plan, sleep, &mut port, reactor, reactor).await;
                report.unwrap_or_else(|error| panic!("{text}: {error}"));
                ended.set(ended.get() + 1);
            });
        }
        executor.run(&reactor, &mut rig.idle(), DurNs::from_us(200)).unwrap();
        drop(executor);
        assert_eq!(ended.get(), QUEUES, "{text}");
        assert_eq!(reactor.pending(), (0, 0), "{text}");
        for (queue, &number) in queues.iter_mut().zip(&numbers) {
            assert!(queue.status(number).unwrap(), "{text}: Ok before the status said done");
        }
    }
    let _: MonoNs = clock.monotonic_ns();
}
