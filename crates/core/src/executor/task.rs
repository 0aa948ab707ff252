//! Where tasks live: futures in pinned chunks, each with a header that its wakers and its join
//! handle share.

use super::ready::{Leaf, ReadySet};
use crate::sync::{AtomicBool, AtomicU8, AtomicWaker, Ordering, fence, home_thread, this_thread};
use crate::{Result, error};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

const LIVE: u8 = 0;
const FINISHED: u8 = 1;
const DROPPED: u8 = 2;

/// What a task's wakers and its join handle hold of it.
///
/// ```text
/// LIVE ──the future resolved──▶ FINISHED
///   └───the executor dropped──▶ DROPPED
/// ```
///
/// A wake of a task that isn't `LIVE` does nothing, so a waker that outlives its task can't wake the
/// next task of its place.
struct Header {
    state: AtomicU8,
    /// Whether somebody joined. Handles stay on the executor's thread, and so do reads and writes of
    /// this: an atomic only so that a header can be shared at all.
    joined: AtomicBool,
    /// The executor's thread, as `sync` names it.
    home: usize,
    leaf: Arc<Leaf>,
    bit: u64,
    join: AtomicWaker,
}

impl Header {
    fn new((leaf, bit): (Arc<Leaf>, u64)) -> Header {
        let (state, joined) = (AtomicU8::new(LIVE), AtomicBool::new(false));
        Header { state, joined, home: home_thread(), leaf, bit, join: AtomicWaker::new() }
    }

    fn end(&self, state: u8) {
        // Release: the output is written before the state says so. Then the joiner is woken, who
        // registered before it looked (invariant 4).
        self.state.store(state, Ordering::Release);
        if self.joined.load(Ordering::Relaxed) {
            self.join.wake();
        }
    }
}

impl Wake for Header {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.load(Ordering::Acquire) != LIVE {
            return;
        }
        if self.home == this_thread() {
            self.leaf.set_local(self.bit);
        } else {
            self.leaf.set(self.bit);
        }
    }
}

const CHUNK: usize = 8;

pin_project_lite::pin_project! {
    /// Futures that stay where they are: eight to an allocation.
    struct Chunk<F> {
        #[pin] f0: Option<F>,
        #[pin] f1: Option<F>,
        #[pin] f2: Option<F>,
        #[pin] f3: Option<F>,
        #[pin] f4: Option<F>,
        #[pin] f5: Option<F>,
        #[pin] f6: Option<F>,
        #[pin] f7: Option<F>,
    }
}

impl<F> Chunk<F> {
    fn new() -> Pin<Box<Self>> {
        let [f0, f1, f2, f3, f4, f5, f6, f7] = [const { None }; CHUNK];
        Box::pin(Self { f0, f1, f2, f3, f4, f5, f6, f7 })
    }

    fn place(self: Pin<&mut Self>, index: usize) -> Pin<&mut Option<F>> {
        let this = self.project();
        match index % CHUNK {
            0 => this.f0,
            1 => this.f1,
            2 => this.f2,
            3 => this.f3,
            4 => this.f4,
            5 => this.f5,
            6 => this.f6,
            _ => this.f7,
        }
    }
}

/// What an executor and its spawners share: who is ready, free places, and tasks not yet placed.
pub(super) struct Shared<F> {
    pub(super) ready: ReadySet,
    /// Places of ended tasks, with their seats to use again.
    free: Vec<(u32, Seat)>,
    places: u32,
    inbox: Vec<Arrival<F>>,
    closed: bool,
}

struct Arrival<F> {
    index: u32,
    seat: Seat,
    future: F,
}

/// A task's header, and the waker made from it once so that neither a poll nor a spawn makes one.
struct Seat {
    header: Arc<Header>,
    waker: Waker,
}

impl Seat {
    fn new(header: Header) -> Seat {
        let header = Arc::new(header);
        Seat { waker: Waker::from(header.clone()), header }
    }

    /// Makes the seat of an ended task one of a new task, unless somebody else still holds on to the
    /// header: a waker that outlived its task must not wake the next one.
    fn renew(&self) -> bool {
        // The header here and the waker's; with no third owner nobody can make one.
        if Arc::strong_count(&self.header) != 2 {
            return false;
        }
        // What the last of the other owners did comes before what is done here.
        fence(Ordering::Acquire);
        self.header.joined.store(false, Ordering::Relaxed);
        self.header.state.store(LIVE, Ordering::Release);
        true
    }
}

impl<F> Shared<F> {
    pub(super) fn new() -> Self {
        let (ready, free, inbox) = (ReadySet::new(), Vec::new(), Vec::new());
        Self { ready, free, places: 0, inbox, closed: false }
    }

    /// Tasks that have not ended.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.places as usize - self.free.len()
    }

    /// Whether a task waits to be placed.
    #[inline]
    pub(super) fn has_arrivals(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Gives a future a place. When the executor is gone the future comes back, to be dropped once
    /// nothing is borrowed, with the header of a dropped task.
    pub(super) fn admit(&mut self, future: F) -> (Joined, Option<F>) {
        if self.closed {
            let header = Header::new(self.ready.leaf(0));
            header.end(DROPPED);
            return (Joined(Arc::new(header)), Some(future));
        }
        let (index, seat) = self.seat();
        let joined = Joined(seat.header.clone());
        self.inbox.push(Arrival { index, seat, future });
        (joined, None)
    }

    /// A free place and the seat for a new task there: steady spawning allocates nothing
    /// (invariant 11).
    fn seat(&mut self) -> (u32, Seat) {
        let index = match self.free.pop() {
            Some((index, seat)) if seat.renew() => return (index, seat),
            Some((index, _)) => index,
            None => {
                self.places += 1;
                self.places - 1
            }
        };
        (index, Seat::new(Header::new(self.ready.leaf(index as usize))))
    }
}

/// The placed tasks of one executor, by index.
pub(super) struct Tasks<F> {
    chunks: Vec<Pin<Box<Chunk<F>>>>,
    seats: Vec<Option<Seat>>,
    arrivals: Vec<Arrival<F>>,
}

impl<F: Future<Output = ()>> Tasks<F> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), seats: Vec::new(), arrivals: Vec::new() }
    }

    /// Gives a future its place at once.
    pub(super) fn admit(
        &mut self,
        ready: &mut ReadySet,
        shared: &RefCell<Shared<F>>,
        future: F,
    ) -> Joined {
        let (index, seat) = shared.borrow_mut().seat();
        let joined = Joined(seat.header.clone());
        self.make_room(ready, &shared.borrow());
        self.place(index, seat, future);
        joined
    }

    /// Places the tasks that arrived, and marks each ready for its first poll.
    pub(super) fn place_arrivals(&mut self, ready: &mut ReadySet, shared: &RefCell<Shared<F>>) {
        core::mem::swap(&mut shared.borrow_mut().inbox, &mut self.arrivals);
        self.make_room(ready, &shared.borrow());
        let mut arrivals = core::mem::take(&mut self.arrivals);
        for Arrival { index, seat, future } in arrivals.drain(..) {
            self.place(index, seat, future);
        }
        self.arrivals = arrivals;
    }

    /// Makes room for every place that was given out.
    #[inline]
    fn make_room(&mut self, ready: &mut ReadySet, shared: &Shared<F>) {
        while self.seats.len() < shared.places as usize {
            if self.seats.len().is_multiple_of(CHUNK) {
                self.chunks.push(Chunk::new());
            }
            self.seats.push(None);
            ready.catch_up(&shared.ready);
        }
    }

    fn place(&mut self, index: u32, seat: Seat, future: F) {
        let place = index as usize;
        self.chunks[place / CHUNK].as_mut().place(place).set(Some(future));
        // An executor stays on its thread, so this is it.
        seat.header.leaf.set_local(seat.header.bit);
        self.seats[place] = Some(seat);
    }

    /// Polls a task if there is one: whether there was.
    #[inline]
    pub(super) fn poll(&mut self, index: usize, shared: &RefCell<Shared<F>>) -> bool {
        let Some(Some(seat)) = self.seats.get(index) else { return false };
        let mut place = self.chunks[index / CHUNK].as_mut().place(index);
        let Some(future) = place.as_mut().as_pin_mut() else { return false };
        if future.poll(&mut Context::from_waker(&seat.waker)).is_ready() {
            place.set(None);
            if let Some(seat) = self.seats[index].take() {
                seat.header.end(FINISHED);
                shared.borrow_mut().free.push((index as u32, seat));
            }
        }
        true
    }

    /// Drops every task, placed or not, and tells those who joined one.
    pub(super) fn close(&mut self, shared: &RefCell<Shared<F>>) {
        let waiting = {
            let mut shared = shared.borrow_mut();
            shared.closed = true;
            core::mem::take(&mut shared.inbox)
        };
        // Futures first: a joiner that is told finds them gone.
        self.chunks.clear();
        for Arrival { seat, future, .. } in waiting {
            drop(future);
            seat.header.end(DROPPED);
        }
        for seat in self.seats.drain(..).flatten() {
            seat.header.end(DROPPED);
        }
    }
}

/// A task as its join handle holds it.
pub(super) struct Joined(Arc<Header>);

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
    pub(super) fn unit(task: Joined) -> Self {
        Self { task, output: Output::Given(Some(())) }
    }
}

impl<T> JoinHandle<T> {
    pub(super) fn shared(task: JoinHandle<()>, output: Rc<Cell<Option<T>>>) -> Self {
        Self { task: task.task, output: Output::Shared(output) }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.0.state.load(Ordering::Acquire) != LIVE
    }

    fn outcome(&mut self) -> Poll<Result<T>> {
        let output = match self.task.0.state.load(Ordering::Acquire) {
            LIVE => return Poll::Pending,
            FINISHED => match &mut self.output {
                Output::Given(output) => output.take(),
                Output::Shared(output) => output.take(),
            },
            _ => None,
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
        let early = self.outcome();
        if early.is_ready() {
            return early;
        }
        // Invariant 4: registered, then looked at again.
        self.task.0.joined.store(true, Ordering::Relaxed);
        self.task.0.join.register(cx.waker());
        self.outcome()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}
