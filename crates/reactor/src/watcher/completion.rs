//! The future of a completion, for any runtime.
//!
//! Upholds invariants 2 (resolves `Ok` only once the queue's status said done), 4 and 8.

use super::job::{Entry, Job, Phase, Until};
use super::shared::Shared;
use super::{Awaited, Ticket, WaitError, Watcher};
use crate::host::std_host::StdClock;
use crate::{Clock, CompletionLine, DurNs, Error, MonoNs, Slot};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What it is of, or the queue and why there is no number.
pub(crate) type Source = Result<Ticket, (Box<str>, Error)>;

/// Resolves when a number of a queue is reached: `Send + 'static`, for tokio, smol or any other runtime.
///
/// Work that is already done resolves at the first poll, without the watcher. Dropping it cancels the
/// wait and nothing else: the work goes on.
#[must_use = "futures do nothing unless polled"]
pub struct Completion {
    source: Source,
    watcher: Option<Arc<Shared>>,
    timeout: Option<DurNs>,
    deadline: Option<MonoNs>,
    until: Option<Until>,
    timer: bool,
    start: Option<MonoNs>,
    /// Where the watcher of this wait leaves its result.
    registered: Option<(Arc<Entry>, Arc<Shared>)>,
}

/// How long a status is asked again at once that is a moment behind its word: less than a wake costs.
const STATUS_PATIENCE: DurNs = DurNs::from_us(5);

impl Completion {
    pub(crate) fn new(source: Source) -> Completion {
        Completion {
            source,
            watcher: None,
            timeout: None,
            deadline: None,
            until: None,
            timer: false,
            start: None,
            registered: None,
        }
    }

    /// Stands in while a completion is changed.
    pub(crate) fn nothing() -> Completion {
        Completion::new(Err(("nothing".into(), super::watcher_gone())))
    }

    pub(crate) fn watcher(&self) -> Option<&Arc<Shared>> {
        self.watcher.as_ref()
    }

    /// Has that watcher wake it; without this, the process's own does, started when first needed.
    ///
    /// It holds the watcher's thread no longer than the watcher's other handles do.
    pub fn on(mut self, watcher: &Watcher) -> Completion {
        self.watcher = Some(watcher.shared().clone());
        self
    }

    /// Gives up with [`WaitError::Timeout`] that long after the first poll.
    pub fn timeout(mut self, span: impl Into<DurNs>) -> Completion {
        self.timeout = Some(span.into());
        self
    }

    /// Gives up with [`WaitError::Timeout`] when [`StdClock`] reads `at`.
    pub fn deadline(mut self, at: MonoNs) -> Completion {
        self.deadline = Some(at);
        self
    }

    /// Gives up with [`WaitError::Cancelled`] when `slot` of `line` has reached `target`. When both
    /// words are reached, completion wins.
    pub fn until<L>(mut self, line: Arc<L>, slot: Slot, target: u64) -> Completion
    where
        L: AsRef<CompletionLine> + Send + Sync + 'static,
    {
        self.until = Some(Until { line, slot, target });
        self
    }

    /// Waits for its deadline and nothing else.
    pub(super) fn timer(mut self) -> Completion {
        self.timer = true;
        self
    }

    /// The ticket, where the queue gave a number.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.source.as_ref().ok()
    }

    fn waited(&self, now: MonoNs) -> DurNs {
        self.start.map_or(DurNs(0), |start| now.since(start))
    }

    /// Ends the registration; the watcher hears of it when it next looks.
    fn leave(&mut self, seen_at: Option<MonoNs>) {
        let Some((entry, watcher)) = self.registered.take() else { return };
        if watcher.check_fork().is_err() {
            return std::mem::forget((entry, watcher));
        }
        let (place, waker) = entry.leave(seen_at);
        drop(waker); // its drop may run user code (invariant 5)
        if let Some(place) = place {
            watcher.nudge(place, false);
        }
    }

    /// Looks at what the watcher left. A task woken early watches its word for a moment here.
    fn look(&mut self, cx: &Context<'_>) -> Option<Result<(), WaitError>> {
        let (entry, watcher) = self.registered.as_ref()?;
        if let Err(forked) = watcher.check_fork() {
            // Nobody here will ever wake it, and its locks may be held for ever.
            self.registered.take().into_iter().for_each(std::mem::forget);
            let ticket = self.source.as_ref().ok()?;
            return Some(Err(WaitError::Refused(ticket.awaited(DurNs(0)), forked)));
        }
        let mut state = entry.hold();
        let old = match &mut state.phase {
            Phase::Done(_) => {
                let Phase::Done(result) = std::mem::replace(&mut state.phase, Phase::Left) else {
                    return None;
                };
                drop(state);
                self.registered = None;
                return Some(result);
            }
            Phase::Early { woken, watch } => {
                let (woken, watch) = (*woken, *watch);
                drop(state);
                let ticket = self.source.as_ref().ok()?;
                let clock = StdClock::new();
                let now = clock.monotonic_ns();
                let late = ticket.word_reached();
                if !late {
                    // What the answer takes is in the caches when it counts.
                    let _ = ticket.status().status(ticket.number());
                }
                let seen = late || watch_word(ticket, clock, now + watch);
                let mut state = entry.hold();
                state.wake_took = Some(now.since(woken));
                state.late = late;
                // Back to the watcher, which may have ended the wait in the meantime.
                let mut nudged = None;
                if let Phase::Early { .. } = state.phase {
                    state.phase = Phase::Waiting;
                    nudged = state.place;
                }
                let old = state.waker.replace(cx.waker().clone());
                drop(state);
                drop(old);
                return match nudged {
                    Some(_) if seen => None, // the caller looks at the word, and at its status
                    Some(place) => {
                        watcher.nudge(place, true);
                        None
                    }
                    None => self.look(cx),
                };
            }
            Phase::Waiting | Phase::Left => match &state.waker {
                Some(waker) if waker.will_wake(cx.waker()) => None,
                _ => state.waker.replace(cx.waker().clone()),
            },
        };
        drop(state);
        drop(old);
        None
    }

    /// Asks the status, for the word says done.
    fn confirmed(&mut self, now: impl Fn() -> MonoNs) -> Option<Result<(), WaitError>> {
        let ticket = self.source.as_ref().ok()?;
        let mut answer = ticket.status().status(ticket.number());
        if let Ok(false) = answer {
            let end = now() + STATUS_PATIENCE;
            while matches!(answer, Ok(false)) && now() < end {
                std::hint::spin_loop();
                answer = ticket.status().status(ticket.number());
            }
        }
        match answer {
            Ok(true) => {
                let seen_at = self.registered.is_some().then(now);
                self.leave(seen_at);
                Some(Ok(()))
            }
            Ok(false) => {
                // A word before its data: the watcher asks again, and one that woke this task early
                // sleeps until it is told to.
                if let Some((entry, watcher)) = &self.registered {
                    let place = entry.hold().place;
                    place.into_iter().for_each(|place| watcher.nudge(place, true));
                }
                None
            }
            Err(cause) => {
                let failed = WaitError::of(ticket.awaited(self.waited(now())), cause);
                self.leave(None);
                Some(Err(failed))
            }
        }
    }
}

/// Watches the word until a time: whether it was reached.
fn watch_word(ticket: &Ticket, clock: StdClock, end: MonoNs) -> bool {
    loop {
        for _ in 0..16 {
            if ticket.word_reached() {
                return true;
            }
            std::hint::spin_loop();
        }
        if clock.monotonic_ns() >= end {
            return false;
        }
    }
}

impl Future for Completion {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let now = || StdClock::new().monotonic_ns();
        if let Some(result) = this.look(cx) {
            return Poll::Ready(result);
        }
        let ticket = match &this.source {
            Ok(ticket) => ticket,
            Err((queue, cause)) => {
                let awaited = Awaited { queue: queue.clone(), number: 0, waited: DurNs(0) };
                return Poll::Ready(Err(WaitError::of(awaited, cause.clone())));
            }
        };
        if ticket.word_reached()
            && let Some(result) = this.confirmed(now)
        {
            return Poll::Ready(result);
        }
        if this.registered.is_some() {
            return Poll::Pending;
        }
        let start = *this.start.get_or_insert_with(now);
        let deadline = match (this.deadline, this.timeout.map(|span| start + span)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let Ok(ticket) = this.source.clone() else { return Poll::Pending };
        if deadline.is_some_and(|at| start >= at) {
            // Already past: the status is asked once, for a word may have been lost.
            let timeout = || Err(WaitError::Timeout(ticket.awaited(DurNs(0))));
            return Poll::Ready(ticket.verdict(DurNs(0)).unwrap_or_else(timeout));
        }
        if this.until.as_ref().is_some_and(Until::reached) {
            return Poll::Ready(Err(WaitError::Cancelled(ticket.awaited(DurNs(0)))));
        }
        let job = Job { ticket, start, deadline, until: this.until.clone(), timer: this.timer };
        let registered = match &this.watcher {
            Some(watcher) => watcher.register(job, cx.waker()),
            None => Watcher::of_process().and_then(|w| w.shared().register(job, cx.waker())),
        };
        match registered {
            Ok(registered) => {
                this.registered = Some(registered);
                Poll::Pending
            }
            Err(cause) => {
                let Ok(ticket) = &this.source else { return Poll::Pending };
                let awaited = ticket.awaited(DurNs(0));
                Poll::Ready(Err(WaitError::Refused(awaited, cause)))
            }
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.leave(None);
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").field("of", &self.source).finish_non_exhaustive()
    }
}
