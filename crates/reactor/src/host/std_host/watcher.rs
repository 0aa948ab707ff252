//! A thread that watches lines for futures of any runtime.
//!
//! It runs the same reactor as everybody else. Registrations and cancellations reach it through a queue
//! whose only signal is the doorbell (invariant 4: queued, then rung). With nothing in flight it sleeps
//! in the kernel (invariant 12). No lock is held while a waker runs (invariant 5).

use super::{StdClock, StdIdle};
use crate::backend::wordwait::WordWait;
use crate::{Bell, CompletionLine, DurNs, Reactor, Ready, SharedLine, Slot, reached};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// How long the watcher's park lasts before it looks at everything again.
const PARK_BOUND: DurNs = DurNs::from_ms(5);

/// Watches completion lines on a thread of its own, and wakes the futures that await them.
///
/// ```
/// use gpu_async_reactor::host::std_host::Watcher;
/// use gpu_async_reactor::{CompletionLine, Slot, run_inline};
/// use std::sync::Arc;
/// let watcher = Watcher::new(None);
/// let line = Arc::new(CompletionLine::new());
/// let done = watcher.watch(line.clone(), Slot::ALL[0], 1);
/// line.store(Slot::ALL[0], 1);
/// run_inline(done);
/// ```
///
/// Dropping it ends its thread once the last [`Watch`] is gone, too.
#[derive(Debug)]
pub struct Watcher {
    door: Arc<Door>,
}

/// What the watcher's thread and its watches share.
#[derive(Debug)]
struct Door {
    bell: Arc<Bell>,
    inbox: Mutex<Inbox>,
    /// Handles: the watcher and its watches.
    handles: AtomicUsize,
    /// The system gave no thread: futures poll their words themselves.
    threadless: AtomicBool,
    word_wait: Option<WordWait>,
}

#[derive(Debug, Default)]
struct Inbox {
    letters: Vec<Letter>,
    next_id: u64,
    started: bool,
}

enum Letter {
    /// Register, or replace the waker.
    Watch {
        id: u64,
        line: SharedLine,
        slot: Slot,
        target: u64,
        waker: Waker,
    },
    Forget {
        id: u64,
    },
}

impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Letter::Watch { id, slot, target, .. } => write!(f, "Watch({id}, {slot:?}, {target})"),
            Letter::Forget { id } => write!(f, "Forget({id})"),
        }
    }
}

impl Door {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // A panic while it was held left a whole queue behind: pushes are all that happens there.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, letter: Letter) {
        self.inbox().letters.push(letter);
        self.bell.ring();
    }

    fn leave(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.bell.ring();
        }
    }
}

impl Watcher {
    /// A watcher; its thread starts with the first watch that has to wait. With a [`WordWait`] it
    /// parks in hardware.
    pub fn new(word_wait: Option<WordWait>) -> Watcher {
        let door = Door {
            bell: Arc::new(Bell::new()),
            inbox: Mutex::default(),
            handles: AtomicUsize::new(1),
            threadless: AtomicBool::new(false),
            word_wait,
        };
        Watcher { door: Arc::new(door) }
    }

    /// Resolves when `slot` of `line` has reached `target`. Dropping the future deregisters it.
    pub fn watch<L>(&self, line: Arc<L>, slot: Slot, target: u64) -> Watch
    where
        L: AsRef<CompletionLine> + Send + Sync + 'static,
    {
        self.door.handles.fetch_add(1, Ordering::Relaxed);
        Watch { door: self.door.clone(), line, slot, target, registered: None }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.door.leave();
    }
}

/// A future of [`Watcher::watch`], for any runtime.
#[must_use = "futures do nothing unless polled"]
pub struct Watch {
    door: Arc<Door>,
    line: SharedLine,
    slot: Slot,
    target: u64,
    registered: Option<(u64, Waker)>,
}

impl Future for Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if reached((*this.line).as_ref(), this.slot, this.target) {
            return Poll::Ready(());
        }
        if this.door.threadless.load(Ordering::Acquire) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.registered.as_ref().is_some_and(|(_, waker)| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let (id, start) = {
            let mut inbox = this.door.inbox();
            let id = match this.registered {
                Some((id, _)) => id,
                None => {
                    inbox.next_id += 1;
                    inbox.next_id
                }
            };
            (id, !std::mem::replace(&mut inbox.started, true))
        };
        this.registered = Some((id, cx.waker().clone()));
        let (line, waker) = (this.line.clone(), cx.waker().clone());
        let letter = Letter::Watch { id, line, slot: this.slot, target: this.target, waker };
        this.door.post(letter);
        if start {
            start_thread(&this.door);
        }
        // Posted, then looked at again (invariant 4): a thread that can't be had takes no letter.
        if this.door.threadless.load(Ordering::Acquire) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((id, _)) = self.registered {
            self.door.post(Letter::Forget { id });
        }
        self.door.leave();
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("slot", &self.slot).field("target", &self.target).finish()
    }
}

/// Starts the thread; where the system refuses one, each letter's waker is woken so that its future
/// polls the word itself from then on.
fn start_thread(door: &Arc<Door>) {
    let watched = door.clone();
    let thread = thread::Builder::new().name("gpu-reactor-watcher".into());
    if thread.spawn(move || run(&watched)).is_err() {
        door.threadless.store(true, Ordering::Release);
        let letters = std::mem::take(&mut door.inbox().letters);
        for letter in letters {
            if let Letter::Watch { waker, .. } = letter {
                waker.wake();
            }
        }
    }
}

/// One watch, as the thread has it.
struct Entry<'r> {
    ready: Ready<'r, 'static, StdClock>,
    /// The same waker that the reactor wakes.
    waker: Waker,
}

/// The watches by their ids.
type Watches<'r> = HashMap<u64, Entry<'r>>;

/// The thread: takes the letters, turns the reactor, and ends when the last handle is gone.
fn run(door: &Door) {
    let clock = StdClock::new();
    let reactor = Reactor::with_bell(clock, door.bell.clone());
    let mut idle = StdIdle::new(clock, door.word_wait);
    let mut watches = Watches::new();
    let mut letters = Vec::new();
    // Whoever holds a handle may register: that is no stall.
    let _outside = reactor.outside();
    loop {
        std::mem::swap(&mut letters, &mut door.inbox().letters);
        for letter in letters.drain(..) {
            // One by one: a waker that panics takes no other letter with it.
            let _ = survive(|| take(letter, &reactor, &mut watches));
        }
        if door.handles.load(Ordering::Acquire) == 0 {
            return;
        }
        // Can't stall, for `_outside` lives. A letter posted since the swap has rung the bell, which
        // ends the turn's idle.
        let turned = survive(|| drop(reactor.turn(&mut idle, PARK_BOUND, watches.len())));
        if turned.is_err() {
            look_again(&mut watches);
        }
    }
}

/// Does what a letter asks for.
fn take<'r>(letter: Letter, reactor: &'r Reactor<'static, StdClock>, watches: &mut Watches<'r>) {
    match letter {
        Letter::Forget { id } => drop(watches.remove(&id)),
        Letter::Watch { id, line, slot, target, waker } => {
            let ready = match watches.remove(&id) {
                Some(Entry { ready, .. }) => ready,
                None => reactor.ready_shared(line, slot, target, None),
            };
            // The reactor wakes the caller's own waker; done already is woken here.
            let mut entry = Entry { ready, waker };
            if entry.is_ready() {
                entry.waker.wake();
            } else {
                watches.insert(id, entry);
            }
        }
    }
}

impl Entry<'_> {
    fn is_ready(&mut self) -> bool {
        Pin::new(&mut self.ready).poll(&mut Context::from_waker(&self.waker)).is_ready()
    }
}

/// A waker panicked in the middle of a pass, and took along the wakes that were still due (invariant
/// 8): each watch is looked at, and registered again or woken.
fn look_again(watches: &mut Watches<'_>) {
    watches.retain(|_, entry| {
        let pending = !entry.is_ready();
        if !pending {
            let _ = survive(|| entry.waker.wake_by_ref());
        }
        pending
    });
}

/// Runs somebody else's code, whose panic is theirs alone: the thread serves every other watch too.
fn survive(run: impl FnOnce()) -> thread::Result<()> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
}
