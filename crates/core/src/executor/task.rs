//! Where tasks live: futures in pinned chunks, each place with a seat that its wakers share.

use super::join::{End, Joined, Places};
use super::ready::{ReadySet, Spot};
use crate::sync::{AtomicBool, Ordering, fence, home_thread, this_thread};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Waker};

/// What a task's wakers hold of it.
struct Header {
    /// Its task ended while somebody else held this: a waker that outlives its task does nothing, and
    /// so can't wake the next task of its place.
    stale: AtomicBool,
    /// The executor's thread, as `sync` names it.
    home: usize,
    spot: Spot,
}

impl Wake for Header {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        if self.stale.load(Ordering::Acquire) {
            return;
        }
        if self.home == this_thread() {
            self.spot.set_local();
        } else {
            self.spot.set();
        }
    }
}

/// A place's header, and the waker made from it once so that neither a poll nor a spawn makes one.
struct Seat {
    header: Arc<Header>,
    waker: Waker,
}

impl Seat {
    fn new(spot: Spot) -> Seat {
        let stale = AtomicBool::new(false);
        let header = Arc::new(Header { stale, home: home_thread(), spot });
        Seat { waker: Waker::from(header.clone()), header }
    }

    /// Whether somebody else holds a waker: with no owner but the two here nobody can make one.
    #[inline]
    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.header) != 2
    }

    /// The task has ended: its wakers do nothing from now on.
    #[inline]
    fn leave(&self) {
        if self.is_shared() {
            self.header.stale.store(true, Ordering::Release);
        }
    }

    /// Makes the seat one of a new task. With wakers of the one before still about it can't be: whether
    /// it was.
    #[inline]
    fn renew(&self) -> bool {
        if self.is_shared() {
            return false;
        }
        // What the last of the other owners did comes before what is done here.
        fence(Ordering::Acquire);
        self.header.stale.store(false, Ordering::Relaxed);
        true
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

/// What an executor and its spawners share: who has ended, and tasks not yet placed.
pub(super) struct Shared<F> {
    pub(super) places: Rc<Places>,
    inbox: RefCell<Vec<Arrival<F>>>,
    closed: Cell<bool>,
}

struct Arrival<F> {
    place: u32,
    future: F,
}

impl<F> Shared<F> {
    pub(super) fn new() -> Self {
        let (places, inbox, closed) = (Rc::default(), RefCell::default(), Cell::new(false));
        Self { places, inbox, closed }
    }

    /// Whether a task waits to be placed.
    #[inline]
    pub(super) fn has_arrivals(&self) -> bool {
        !self.inbox.borrow().is_empty()
    }

    /// Gives a future a place, which it takes in the executor's next round. When the executor is gone
    /// the future is dropped and its handle says so.
    pub(super) fn admit(&self, future: F) -> Joined {
        let joined = self.places.admit();
        if self.closed.get() {
            drop(future); // user code: nothing is borrowed here (invariant 5)
            self.places.end(joined.place(), End::Dropped);
        } else {
            self.inbox.borrow_mut().push(Arrival { place: joined.place(), future });
        }
        joined
    }
}

/// The placed tasks of one executor, by place.
pub(super) struct Tasks<F> {
    chunks: Vec<Pin<Box<Chunk<F>>>>,
    seats: Vec<Seat>,
    arrivals: Vec<Arrival<F>>,
}

impl<F: Future<Output = ()>> Tasks<F> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), seats: Vec::new(), arrivals: Vec::new() }
    }

    /// Places the tasks that arrived, and marks each ready for its first poll.
    pub(super) fn place_arrivals(&mut self, ready: &mut ReadySet, shared: &Shared<F>) {
        if !shared.has_arrivals() {
            return;
        }
        core::mem::swap(&mut *shared.inbox.borrow_mut(), &mut self.arrivals);
        let mut arrivals = core::mem::take(&mut self.arrivals);
        for Arrival { place, future } in arrivals.drain(..) {
            self.place(ready, place, future);
        }
        self.arrivals = arrivals;
    }

    /// Puts a future in its place, and marks it ready for its first poll.
    #[inline]
    pub(super) fn place(&mut self, ready: &mut ReadySet, place: u32, future: F) {
        let at = place as usize;
        if at >= self.seats.len() {
            self.make_room(ready, at);
        }
        self.chunks[at / CHUNK].as_mut().place(at).set(Some(future));
        let seat = &mut self.seats[at];
        if !seat.renew() {
            *seat = Seat::new(ready.spot(at));
        }
        // An executor stays on its thread, so this is it.
        seat.header.spot.set_local();
    }

    #[cold]
    fn make_room(&mut self, ready: &mut ReadySet, place: usize) {
        while self.seats.len() <= place {
            if self.seats.len().is_multiple_of(CHUNK) {
                self.chunks.push(Chunk::new());
            }
            self.seats.push(Seat::new(ready.spot(self.seats.len())));
        }
    }

    /// Polls a task if there is one: whether there was.
    #[inline]
    pub(super) fn poll(&mut self, index: usize, places: &Places) -> bool {
        let Some(seat) = self.seats.get(index) else { return false };
        let mut place = self.chunks[index / CHUNK].as_mut().place(index);
        let Some(future) = place.as_mut().as_pin_mut() else { return false };
        if future.poll(&mut Context::from_waker(&seat.waker)).is_ready() {
            place.set(None);
            seat.leave();
            if let Some(joiner) = places.end(index as u32, End::Finished) {
                joiner.wake();
            }
        }
        true
    }

    /// Drops every task, placed or not, and tells those who joined one.
    pub(super) fn close(&mut self, shared: &Shared<F>) {
        shared.closed.set(true);
        // Futures first: a joiner that is told finds them gone.
        let waiting = shared.inbox.take();
        self.chunks.clear();
        drop(waiting);
        self.seats.iter().for_each(Seat::leave);
        for place in shared.places.unfinished() {
            if let Some(joiner) = shared.places.end(place, End::Dropped) {
                joiner.wake();
            }
        }
    }
}
