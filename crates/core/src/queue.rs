//! A device queue that stores numbers, and the port over it that every backend shares.
//!
//! Upholds invariants 2 (a status decides), 8 (loss, hang and refusal are typed errors) and 13
//! (numbers only grow).

use crate::port::past;
use crate::{
    Clock, CompletionLine, CompletionPort, DurNs, Error, Idle, MemoryDescriptor, MonoNs, Reactor,
    Result, Slot, error, reached, yield_now,
};
use alloc::sync::Arc;

/// A device queue whose completions are numbers in one slot. Duties of an implementer:
///
/// 1. numbers start at 1 and only grow (invariant 13); the store of a number is ordered behind all
///    work submitted before it, and makes that work's host-visible writes visible first;
/// 2. `status` answers at once from the device's own state and never from the word (invariant 2);
/// 3. once the device is lost, every call says so, for ever (invariant 8);
/// 4. `block` returns within its bound, whatever happens to the device;
/// 5. the line outlives every store that is still to come (invariant 7).
pub trait Queue {
    /// What keeps the line's memory alive.
    type Line: AsRef<CompletionLine> + Send + Sync + 'static;

    /// The line that this queue's numbers are stored to.
    fn line(&self) -> &Arc<Self::Line>;

    /// The word of the line.
    fn slot(&self) -> Slot;

    /// Stores the next number behind everything submitted so far, and says which it is. Where the
    /// last store is already behind all of it, that number is given again and nothing is stored.
    ///
    /// # Errors
    ///
    /// `StoreRefused` when the device can't store, `DeviceLost`, or a failed driver call.
    fn store_next(&mut self) -> Result<u64>;

    /// Whether the device's status says that all work up to `number` is done.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or a failed driver call.
    fn status(&mut self, number: u64) -> Result<bool>;

    /// The vendor's blocking wait for `number`, for at most `bound`: whether it is done.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or a failed driver call.
    fn block(&mut self, number: u64, bound: DurNs) -> Result<bool>;

    /// Asked when the status says done and the word doesn't: is the device lost? Some drivers say
    /// success for work that never ran, and only another call tells the truth.
    ///
    /// # Errors
    ///
    /// `DeviceLost` when it is.
    fn confirm(&mut self, number: u64) -> Result<()>;

    /// What to call the queue in an error, with its device.
    fn label(&self) -> &str;
}

impl<Q: Queue + ?Sized> Queue for &mut Q {
    type Line = Q::Line;
    fn line(&self) -> &Arc<Q::Line> {
        (**self).line()
    }
    fn slot(&self) -> Slot {
        (**self).slot()
    }
    fn store_next(&mut self) -> Result<u64> {
        (**self).store_next()
    }
    fn status(&mut self, number: u64) -> Result<bool> {
        (**self).status(number)
    }
    fn block(&mut self, number: u64, bound: DurNs) -> Result<bool> {
        (**self).block(number, bound)
    }
    fn confirm(&mut self, number: u64) -> Result<()> {
        (**self).confirm(number)
    }
    fn label(&self) -> &str {
        (**self).label()
    }
}

/// How a port watches its word: on its own thread, or through a reactor.
#[allow(async_fn_in_trait)] // Level 1 serves one thread; a Send bound would exclude it.
pub trait ParkWord<'l> {
    /// Watches the descriptor for at most `bound`: whether it completed.
    async fn park_word(&mut self, work: MemoryDescriptor<'l>, bound: DurNs) -> bool;
}

/// Watches words by idling the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct OnThread<I>(pub I);

impl<'l, I: Idle> ParkWord<'l> for OnThread<I> {
    async fn park_word(&mut self, work: MemoryDescriptor<'l>, bound: DurNs) -> bool {
        let ready = |line: &CompletionLine| reached(line, work.slot(), work.target());
        self.0.park_line(work.line(), ready, bound)
    }
}

impl<'l, C: Clock> ParkWord<'l> for &Reactor<'l, C> {
    async fn park_word(&mut self, work: MemoryDescriptor<'l>, bound: DurNs) -> bool {
        let until = self.clock().monotonic_ns() + bound;
        self.ready(work, Some(until)).await
    }
}

/// The longest single blocking call: a driver that forgets its waiters at a device's loss is asked
/// again after this.
const BLOCK_SLICE: DurNs = DurNs::from_ms(20);

/// Once the word was seen the status follows at once, or the device's own threads have yet to run: after
/// this many queries in vain the port gives way between them.
const QUERIES_IN_A_ROW: u32 = 8;
/// For how long it gives way.
const GIVE_WAY: DurNs = DurNs::from_us(10);

/// A [`CompletionPort`] over a [`Queue`]: waits for everything submitted when it is first asked, or
/// for one number.
///
/// ```no_run
/// # use gpu_async_reactor_core::*;
/// # fn example<Q: Queue, C: Clock + Timer + Copy, I: Idle>(queue: &mut Q, clock: C, idle: I) -> Result<()> {
/// let line = queue.line().clone();
/// let mut port = QueuePort::new(queue, (*line).as_ref(), OnThread(idle), clock);
/// let plan: WaitPlan = "flag:park_us=100,backstop_us=2000".parse()?;
/// run_inline(wait(&plan, None, &mut port, &clock, &clock))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct QueuePort<'l, Q, W, C> {
    queue: Q,
    line: &'l CompletionLine,
    words: W,
    clock: C,
    number: Option<u64>,
    start: MonoNs,
    deadline: Option<MonoNs>,
    queries: u64,
    /// The word was seen to reach the number.
    seen: bool,
}

impl<'l, Q: Queue, W, C: Clock> QueuePort<'l, Q, W, C> {
    /// A port for everything submitted to the queue when the port is first asked. `line` is the
    /// queue's own line, kept alive by the caller.
    pub fn new(queue: Q, line: &'l CompletionLine, words: W, clock: C) -> Self {
        let start = clock.monotonic_ns();
        let (number, deadline) = (None, None);
        Self { queue, line, words, clock, number, start, deadline, queries: 0, seen: false }
    }

    /// Waits for that number of the queue, and for nothing behind it.
    pub fn number(mut self, number: u64) -> Self {
        self.number = Some(number);
        self
    }

    /// Gives up after that long with `DeviceHang`; the default never does.
    pub fn within(mut self, span: DurNs) -> Self {
        self.deadline = Some(self.start + span);
        self
    }

    /// How often the device's status was asked.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// The queue.
    pub fn queue(&mut self) -> &mut Q {
        &mut self.queue
    }

    fn target(&mut self) -> Result<u64> {
        match self.number {
            Some(number) => Ok(number),
            None => {
                let number = self.queue.store_next()?;
                self.number = Some(number);
                Ok(number)
            }
        }
    }

    /// Whether a status that said done may be believed (invariant 2, and a driver that says success
    /// after a loss).
    fn believe(&mut self, number: u64) -> Result<()> {
        match reached(self.line, self.queue.slot(), number) {
            true => Ok(()),
            false => self.queue.confirm(number),
        }
    }

    fn hang_check(&self, number: u64) -> Result<()> {
        if self.deadline.is_none() {
            return Ok(());
        }
        let now = self.clock.monotonic_ns();
        if past(self.deadline, now) {
            let what = alloc::format!("waiting for number {number} of {}", self.queue.label());
            return Err(error!(DeviceHang, what, now.since(self.start)));
        }
        Ok(())
    }

    fn ask(&mut self) -> Result<bool> {
        let number = self.target()?;
        self.queries += 1;
        if self.queue.status(number)? {
            self.believe(number)?;
            return Ok(true);
        }
        self.hang_check(number)?;
        Ok(false)
    }
}

impl<'l, Q: Queue, W: ParkWord<'l>, C: Clock> CompletionPort for QueuePort<'l, Q, W, C> {
    type Error = Error;

    fn query(&mut self) -> Result<bool> {
        self.ask()
    }

    async fn block(&mut self) -> Result<()> {
        let number = self.target()?;
        while !self.queue.block(number, self.bounded(BLOCK_SLICE))? {
            self.hang_check(number)?;
        }
        self.believe(number)
    }

    async fn poll(&mut self) -> Result<()> {
        let mut in_vain = 0;
        while !self.ask()? {
            in_vain += 1;
            if self.seen && in_vain % QUERIES_IN_A_ROW == 0 {
                // There is no word left to watch: this one is never reached, and the bound ends it.
                let never = MemoryDescriptor::new(self.line, self.queue.slot(), u64::MAX);
                self.words.park_word(never, GIVE_WAY).await;
            } else {
                yield_now().await;
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Result<()> {
        self.target().map(|_| ())
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool> {
        let number = self.target()?;
        let bound = self.bounded(bound);
        let work = MemoryDescriptor::new(self.line, self.queue.slot(), number);
        self.seen = self.words.park_word(work, bound).await;
        if !self.seen {
            self.hang_check(number)?;
        }
        Ok(self.seen)
    }

    async fn watch<D: Clock>(&mut self, bound: DurNs, clock: &D) -> Result<bool> {
        /// Looks at the word between two readings of the clock and two turns of the other tasks.
        const LOOKS: u32 = 32;
        let number = self.target()?;
        let end = clock.monotonic_ns() + self.bounded(bound);
        loop {
            for _ in 0..LOOKS {
                if reached(self.line, self.queue.slot(), number) {
                    self.seen = true;
                    return Ok(true);
                }
                core::hint::spin_loop();
            }
            if clock.monotonic_ns() >= end {
                self.hang_check(number)?;
                // Invariant 3: a silent word is asked about.
                return self.ask();
            }
            yield_now().await;
        }
    }
}

impl<Q, W, C: Clock> QueuePort<'_, Q, W, C> {
    fn bounded(&self, bound: DurNs) -> DurNs {
        match self.deadline {
            Some(at) => bound.min(at.since(self.clock.monotonic_ns())),
            None => bound,
        }
    }
}
