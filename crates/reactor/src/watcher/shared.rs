//! What the watcher's thread shares with its futures: an inbox, and a wake word.
//!
//! Upholds invariants 4 (posted, then rung; marked asleep, then looked at the word), 5, 7 and 11 (entries
//! are used again).

use super::door::Asleep;
use super::fork::ForkMark;
use super::hints::Hints;
use super::inbox::Inbox;
use super::job::{Entry, Job};
use super::{Ticket, Watcher, WatcherOptions, watcher_gone};
use crate::{Bell, DurNs, MonoNs, Result, error};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

/// Owned by nobody but the device, until its number is reached.
pub(super) struct Grave {
    pub(super) ticket: Ticket,
    pub(super) body: Body,
}

type Body = Box<dyn Send>;

/// Bodies that were given up: nothing will ever say that the device is done with them.
static LEAKED: AtomicU64 = AtomicU64::new(0);
/// Bodies that wait in a graveyard.
static BURIED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

pub(crate) fn buried() -> u64 {
    BURIED.load(Ordering::Relaxed)
}

/// Gives up what a device may write for ever.
pub(crate) fn leak<T>(body: T) {
    std::mem::forget(body);
    LEAKED.fetch_add(1, Ordering::Relaxed);
}

/// Leaves a body with a watcher until its number is reached; with no watcher it is leaked.
pub(crate) fn bury(watcher: Option<&Arc<Shared>>, ticket: Ticket, body: Body) {
    let grave = Grave { ticket, body };
    let own = match watcher {
        Some(watcher) => watcher.bury(grave),
        None => Err(grave),
    };
    let Err(grave) = own else { return };
    let process = match Watcher::of_process() {
        Ok(watcher) => watcher.shared().bury(grave),
        Err(_) => Err(grave),
    };
    if let Err(grave) = process {
        leak(grave.body);
    }
}

impl Grave {
    /// The device is done with it. Its drop is somebody else's code.
    pub(super) fn free(self) {
        BURIED.fetch_sub(1, Ordering::Relaxed);
        drop_quietly(self.body);
    }

    /// Nothing will ever be known of it.
    pub(super) fn give_up(self) {
        BURIED.fetch_sub(1, Ordering::Relaxed);
        leak(self.body);
    }
}

/// A panic in somebody else's code must not end the watcher's thread.
pub(super) fn drop_quietly<T>(it: T) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(it)));
}

pub(super) fn wake_quietly(waker: Waker) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
}

/// An entry to use again, from the first few: futures that are woken leave theirs about in turn, and one
/// whose future is yet to leave goes behind the others.
fn unused(free: &mut VecDeque<Arc<Entry>>) -> Option<Arc<Entry>> {
    const LOOKS: usize = 4;
    for _ in 0..LOOKS.min(free.len()) {
        let mut entry = free.pop_front()?;
        if Arc::get_mut(&mut entry).is_some() {
            return Some(entry);
        }
        free.push_back(entry);
    }
    None
}

pub(crate) struct Shared {
    options: WatcherOptions,
    bell: Arc<Bell>,
    inbox: Inbox<Arc<Entry>, Grave>,
    handles: AtomicUsize,
    asleep: Asleep,
    hints: Hints,
    fork: ForkMark,
}

impl Shared {
    pub(super) fn new(options: WatcherOptions) -> Shared {
        Shared {
            options,
            bell: Arc::new(Bell::new()),
            inbox: Inbox::new(),
            handles: AtomicUsize::new(1),
            asleep: Asleep::new(),
            hints: Hints::new(),
            fork: ForkMark::new(),
        }
    }

    pub(super) fn options(&self) -> &WatcherOptions {
        &self.options
    }

    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub(super) fn inbox(&self) -> &Inbox<Arc<Entry>, Grave> {
        &self.inbox
    }

    pub(super) fn hold(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn let_go(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.bell.ring();
        }
    }

    pub(super) fn no_handles(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 0
    }

    /// Refuses in a child that was forked from the watcher's process: the thread isn't there, and a lock
    /// may be held for ever.
    pub(super) fn check_fork(&self) -> Result<()> {
        if self.fork.is_here() {
            return Ok(());
        }
        let why = "this process was forked from the watcher's; start one of its own";
        Err(error!(Misuse, "awaiting a completion", why))
    }

    /// Asks the watcher to watch.
    pub(super) fn register(
        self: &Arc<Shared>,
        job: Job,
        waker: &Waker,
    ) -> Result<(Arc<Entry>, Arc<Shared>)> {
        self.check_fork()?;
        let (waker, by) = (waker.clone(), job.needs_a_look_by(&self.options, &self.hints));
        let arrived = self.inbox.arrive(|free| {
            let mut entry = unused(free).unwrap_or_else(|| Arc::new(Entry::new()));
            if let Some(entry) = Arc::get_mut(&mut entry) {
                entry.set(job, waker);
            }
            entry
        });
        let entry = arrived.ok_or_else(watcher_gone)?;
        self.poke(by);
        Ok((entry, self.clone()))
    }

    fn bury(&self, grave: Grave) -> Result<(), Grave> {
        if self.check_fork().is_err() {
            return Err(grave);
        }
        BURIED.fetch_add(1, Ordering::Relaxed);
        if let Err(grave) = self.inbox.bury(grave) {
            BURIED.fetch_sub(1, Ordering::Relaxed);
            return Err(grave);
        }
        self.poke(MonoNs(0));
        Ok(())
    }

    /// Has the thread look at a place of its table: now, or when it next looks at anything.
    pub(super) fn nudge(&self, place: usize, now: bool) {
        self.inbox.nudge(place);
        self.poke(if now { MonoNs(0) } else { MonoNs::MAX });
    }

    fn word(&self) -> &AtomicU64 {
        &self.bell.line().words[Bell::HOST.index()]
    }

    /// Stores to the wake word, and ends a sleep in the kernel that goes on beyond `by`.
    fn poke(&self, by: MonoNs) {
        self.asleep.poke(self.word(), by, || self.bell.ring());
    }

    /// Says that the thread is about to sleep in the kernel until `at`: whether it may, for nothing was
    /// posted since the wake word read `seen`.
    pub(super) fn about_to_sleep(&self, seen: u64, at: MonoNs) -> bool {
        self.asleep.about_to_sleep(self.word(), seen, at)
    }

    pub(super) fn awake(&self) {
        self.asleep.awake();
    }

    /// The next wait at that point needs no look before so long after its start.
    pub(super) fn hint(&self, point: (usize, usize), span: DurNs) {
        self.hints.set(point, span);
    }
}
