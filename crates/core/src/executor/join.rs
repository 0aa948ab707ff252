//! Where tasks end: the places of an executor's tasks, and the handles that wait for them.
//!
//! Handles stay on the executor's thread, so nothing here is counted or set atomically. A place is given
//! out again once its task has ended and its handle is gone, so that a handle needs no more than a number.

use crate::{Result, error};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

const NONE: u32 = u32::MAX;

/// How far a place's task is.
///
/// ```text
/// Live ──the future resolved──▶ Finished
///   └───the executor dropped──▶ Dropped
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Live,
    Finished,
    Dropped,
}

/// The places of one executor's tasks.
#[derive(Default)]
pub(super) struct Places(RefCell<Table>);

struct Table {
    places: Vec<Place>,
    free: u32,
    live: usize,
}

impl Default for Table {
    fn default() -> Self {
        Table { places: Vec::new(), free: NONE, live: 0 }
    }
}

struct Place {
    end: End,
    /// Whether there is a handle.
    held: bool,
    /// The next free place.
    next: u32,
    joiner: Option<Waker>,
}

impl Table {
    fn give_back(&mut self, place: u32) {
        self.places[place as usize].next = core::mem::replace(&mut self.free, place);
    }
}

impl Places {
    /// Tasks that have not ended.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.0.borrow().live
    }

    /// A place for a new task, as its handle holds it.
    #[inline]
    pub(super) fn admit(self: &Rc<Self>) -> Joined {
        let Table { places, free, live } = &mut *self.0.borrow_mut();
        let at = *free;
        match places.get_mut(at as usize) {
            Some(place) => {
                *free = place.next;
                (place.end, place.held) = (End::Live, true);
                *live += 1;
                Joined { places: self.clone(), place: at }
            }
            None => {
                places.push(Place { end: End::Live, held: true, next: NONE, joiner: None });
                *live += 1;
                Joined { places: self.clone(), place: places.len() as u32 - 1 }
            }
        }
    }

    /// Says how a task ended: its joiner, to be woken once nothing is borrowed (invariant 5).
    #[inline]
    pub(super) fn end(&self, at: u32, end: End) -> Option<Waker> {
        let mut table = self.0.borrow_mut();
        table.live -= 1;
        let place = &mut table.places[at as usize];
        place.end = end;
        if place.held {
            return place.joiner.take();
        }
        table.give_back(at);
        None
    }

    /// The places whose tasks have not ended.
    pub(super) fn unfinished(&self) -> Vec<u32> {
        let table = self.0.borrow();
        let live = |at: &u32| table.places[*at as usize].end == End::Live;
        (0..table.places.len() as u32).filter(live).collect()
    }
}

/// A task as its handle holds it.
pub(super) struct Joined {
    places: Rc<Places>,
    place: u32,
}

impl Joined {
    /// The number of the task's place.
    #[inline]
    pub(super) fn place(&self) -> u32 {
        self.place
    }

    fn end(&self) -> End {
        self.places.0.borrow().places[self.place as usize].end
    }

    /// Has `waker` woken at the end.
    fn join(&self, waker: &Waker) {
        // Cloned and dropped with nothing borrowed (invariant 5).
        let waker = Some(waker.clone());
        let joiner = |waker| {
            core::mem::replace(
                &mut self.places.0.borrow_mut().places[self.place as usize].joiner,
                waker,
            )
        };
        drop(joiner(waker));
    }
}

impl Drop for Joined {
    #[inline]
    fn drop(&mut self) {
        let joiner = {
            let mut table = self.places.0.borrow_mut();
            let place = &mut table.places[self.place as usize];
            place.held = false;
            let joiner = place.joiner.take();
            if place.end != End::Live {
                table.give_back(self.place);
            }
            joiner
        };
        drop(joiner);
    }
}

/// Resolves when its task has ended, with what the task gave.
///
/// Dropping it detaches the task, which goes on. One task at a time awaits a handle.
pub struct JoinHandle<T = ()> {
    task: Joined,
    output: Output<T>,
}

/// Where the task's output is: a unit needs no place.
enum Output<T> {
    Given(Option<T>),
    Shared(Rc<Cell<Option<T>>>),
}

impl JoinHandle<()> {
    #[inline]
    pub(super) fn unit(task: Joined) -> Self {
        Self { task, output: Output::Given(Some(())) }
    }
}

impl<T> JoinHandle<T> {
    pub(super) fn shared(task: Joined, output: Rc<Cell<Option<T>>>) -> Self {
        Self { task, output: Output::Shared(output) }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.end() != End::Live
    }

    fn outcome(&mut self) -> Poll<Result<T>> {
        let output = match self.task.end() {
            End::Live => return Poll::Pending,
            End::Finished => match &mut self.output {
                Output::Given(output) => output.take(),
                Output::Shared(output) => output.take(),
            },
            End::Dropped => None,
        };
        Poll::Ready(output.ok_or_else(|| error!(TaskDropped)))
    }
}

// Nothing of the handle is pinned.
impl<T> Unpin for JoinHandle<T> {}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T>;

    /// Resolves to the task's output, or to `TaskDropped` when its executor was dropped first.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let outcome = self.outcome();
        if outcome.is_pending() {
            self.task.join(cx.waker());
        }
        outcome
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}
