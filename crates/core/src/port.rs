//! Level 1: one wait for one piece of a queue's work.
//!
//! Upholds invariants 2 (only the port's status ends a wait with `Ok`) and 3 (every park is bounded,
//! every silent word is asked about each backstop).

use crate::{Clock, DurNs, Ending, MonoNs, Outcome, Park, Schedule, Step, Timer, WaitPlan};
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

/// One piece of a queue's work, as a wait sees it. Duties of an implementer:
///
/// 1. `query`, `block` and `poll` say done only when the device's own status does, however the word
///    reads;
/// 2. `query` and `arm` answer at once; `park` returns within its bound;
/// 3. a lost device, a refused store or a hang is an error, from then on, of every call;
/// 4. `arm` stores a number behind the work that `query` asks about, and at most once.
#[allow(async_fn_in_trait)] // Level 1 serves one thread; a Send bound would exclude it.
pub trait CompletionPort {
    /// What can go wrong with the device.
    type Error;

    /// Whether the work is done, at once.
    ///
    /// # Errors
    ///
    /// The port's own.
    fn query(&mut self) -> Result<bool, Self::Error>;

    /// The vendor's blocking wait.
    ///
    /// # Errors
    ///
    /// The port's own.
    async fn block(&mut self) -> Result<(), Self::Error>;

    /// Queries until the work is done.
    ///
    /// # Errors
    ///
    /// The port's own.
    async fn poll(&mut self) -> Result<(), Self::Error>;

    /// Stores the next number behind the work.
    ///
    /// # Errors
    ///
    /// The port's own.
    fn arm(&mut self) -> Result<(), Self::Error>;

    /// Watches the word for at most `bound`: whether it reached its number.
    ///
    /// # Errors
    ///
    /// The port's own.
    async fn park(&mut self, bound: DurNs) -> Result<bool, Self::Error>;

    /// Watches the word for at most `bound` without sleeping: whether it reached its number.
    ///
    /// Provided: queries the status, and lets other tasks run, until the bound has passed. A port
    /// that can watch its word for less overrides it.
    ///
    /// # Errors
    ///
    /// The port's own.
    async fn watch<C: Clock>(&mut self, bound: DurNs, clock: &C) -> Result<bool, Self::Error> {
        query_for(self, bound, clock).await
    }
}

/// Queries until the work is done or the bound has passed: whether it was.
async fn query_for<P, C>(port: &mut P, bound: DurNs, clock: &C) -> Result<bool, P::Error>
where
    P: CompletionPort + ?Sized,
    C: Clock,
{
    let end = clock.monotonic_ns() + bound;
    while clock.monotonic_ns() < end {
        if port.query()? {
            return Ok(true);
        }
        yield_now().await;
    }
    Ok(false)
}

/// What one wait did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// How it ended, for the estimator.
    pub outcome: Outcome,
    /// Time spent in the sleep to the predicted completion.
    pub slept_ns: u64,
    /// Time spent parked on the word.
    pub parked_ns: u64,
    /// How many sleeps: of [`wait`] at most 1.
    pub sleeps: u32,
    /// How many parks.
    pub parks: u32,
    /// How often `wait` itself asked the status; a port's own polling is not in it.
    pub queries: u32,
}

impl WaitReport {
    fn new() -> Self {
        let outcome = Outcome::Exact { residual_ns: 0 };
        Self { outcome, slept_ns: 0, parked_ns: 0, sleeps: 0, parks: 0, queries: 0 }
    }
}

/// Waits for one piece of work as the plan says, sleeping `sleep_ns` first if it isn't done.
///
/// `Block` is the port's blocking wait and nothing else. Otherwise the status is asked first: done is
/// [`Outcome::Immediate`]. A flag plan then arms. After the sleep, if any, done is
/// [`Outcome::Late`]. Then `QueryPoll` polls to done, and `FlagWait` parks in bounds of `park_ns`,
/// asks the status every `backstop_ns`, and when the word says done polls the status to done:
/// [`Outcome::Exact`].
///
/// # Errors
///
/// The port's error, unchanged, from whichever call met it.
pub async fn wait<P, C, T>(
    plan: &WaitPlan,
    sleep_ns: Option<u64>,
    port: &mut P,
    clock: &C,
    timer: &T,
) -> Result<WaitReport, P::Error>
where
    P: CompletionPort,
    C: Clock,
    T: Timer,
{
    let mut once = Once { sleep_ns };
    wait_steps(plan.park, &mut once, 0, port, clock, timer).await
}

/// One sleep that somebody else has decided on, then watch.
struct Once {
    /// `None` once it was slept.
    sleep_ns: Option<u64>,
}

impl Schedule for Once {
    fn begin(&mut self, _rows: u64) {}

    fn step(&self, _elapsed_ns: u64) -> Step {
        self.sleep_ns.map_or(Step::Watch(u64::MAX), Step::Sleep)
    }

    fn overslept(&mut self, _by_ns: u64) {
        self.sleep_ns = None;
    }

    fn ended(&mut self, _ending: Ending) {}
}

/// Waits for one piece of work in steps: sleeps and watches as the schedule says, until it has no more
/// to say, and from there on as the plan's park does.
///
/// The schedule begins with `rows` and is told how the wait ended. `Block` is the port's blocking wait and
/// nothing else. Otherwise the status is asked first, a flag plan arms, and after each sleep the status is
/// asked again. The status is asked at least each backstop, if the schedule sleeps that long or not.
///
/// # Errors
///
/// The port's error, unchanged, from whichever call met it.
pub async fn wait_steps<P, C, T, S>(
    park: Park,
    schedule: &mut S,
    rows: u64,
    port: &mut P,
    clock: &C,
    timer: &T,
) -> Result<WaitReport, P::Error>
where
    P: CompletionPort,
    C: Clock,
    T: Timer,
    S: Schedule,
{
    let start = clock.monotonic_ns();
    let since_start = || clock.monotonic_ns().since(start).0;
    let mut report = WaitReport::new();
    schedule.begin(rows);
    if park == Park::Block {
        port.block().await?;
        report.outcome = Outcome::Exact { residual_ns: since_start() };
        return Ok(report);
    }
    report.queries += 1;
    if port.query()? {
        let residual_ns = since_start();
        schedule.ended(Ending::At(residual_ns));
        report.outcome = Outcome::Immediate { residual_ns };
        return Ok(report);
    }
    if let Park::FlagWait { .. } = park {
        port.arm()?;
    }
    let (mut now, mut watched) = (since_start(), false);
    loop {
        match schedule.step(now) {
            Step::Sleep(until) => {
                timer.sleep_until(start + DurNs(until)).await;
                let woke = since_start();
                schedule.overslept(woke.saturating_sub(until));
                report.sleeps += 1;
                report.slept_ns += woke - now;
                report.queries += 1;
                if port.query()? {
                    schedule.ended(Ending::Between(now, woke));
                    report.outcome = Outcome::Late { woke_ns: woke };
                    return Ok(report);
                }
                now = woke;
            }
            Step::Watch(u64::MAX) => {
                match park {
                    Park::FlagWait { park_ns, backstop_ns } => {
                        let (park, backstop) = (DurNs(park_ns), DurNs(backstop_ns));
                        watch(park, backstop, port, clock, &mut report).await?;
                    }
                    _ => port.poll().await?,
                }
                watched = true;
            }
            Step::Watch(until) => {
                let from = since_start();
                let bound = DurNs(until.saturating_sub(from));
                watched = match park {
                    // Invariant 2: the word is a hint, the status decides.
                    Park::FlagWait { .. } if port.watch(bound, clock).await? => {
                        port.poll().await?;
                        true
                    }
                    Park::FlagWait { .. } => false,
                    _ => query_for(port, bound, clock).await?,
                };
                report.parks += 1;
                now = since_start();
                report.parked_ns += now - from;
            }
        }
        if watched {
            let residual_ns = since_start();
            schedule.ended(Ending::At(residual_ns));
            report.outcome = Outcome::Exact { residual_ns };
            return Ok(report);
        }
    }
}

/// Parks on the word, asks the status each backstop, and returns once the status said done.
async fn watch<P: CompletionPort, C: Clock>(
    park: DurNs,
    backstop: DurNs,
    port: &mut P,
    clock: &C,
    report: &mut WaitReport,
) -> Result<(), P::Error> {
    let mut now = clock.monotonic_ns();
    let mut ask_at = now + backstop;
    loop {
        let bound = park.min(ask_at.since(now));
        let seen = port.park(bound).await?;
        let after = clock.monotonic_ns();
        report.parks += 1;
        report.parked_ns += after.since(now).0;
        now = after;
        if seen {
            // Invariant 2: the word is a hint, the status decides.
            return port.poll().await;
        }
        if now >= ask_at {
            report.queries += 1;
            if port.query()? {
                return Ok(());
            }
            now = clock.monotonic_ns();
            ask_at = now + backstop;
        }
    }
}

/// Drives a future on the calling thread with no executor: polls it until it is ready.
///
/// For waits whose port, clock and timer do their own idling on this thread. A future that needs to
/// be woken from elsewhere is polled in a spin.
pub fn run_inline<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        core::hint::spin_loop();
    }
}

/// Lets the other ready tasks run once.
pub fn yield_now() -> impl Future<Output = ()> {
    struct Yield(bool);
    impl Future for Yield {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if core::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
    Yield(false)
}

/// Whether a deadline has passed; no deadline never does.
pub(crate) fn past(deadline: Option<MonoNs>, now: MonoNs) -> bool {
    deadline.is_some_and(|at| now >= at)
}
