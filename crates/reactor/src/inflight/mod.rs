//! Memory that a device uses, owned until the device is done with it.
//!
//! Upholds invariant 7: no drop waits for the device, and nothing is freed that it may still write.

use crate::DurNs;
use crate::watcher::{Completion, Source, WaitError, Watcher, bury};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bodies given up so far in this process: their device was lost, their number can't be reached, or no
/// watcher could be started. Their memory is never freed.
pub fn leaked() -> u64 {
    crate::watcher::leaked()
}

/// Bodies that wait, abandoned by their futures, for their device to be done.
pub fn buried() -> u64 {
    crate::watcher::buried()
}

/// Owns what a device uses until its number is reached.
///
/// Awaited, it gives the body back with `Ok`. With an error it gives none: the device may still write,
/// so the body went to the watcher's graveyard, from where it is freed once the queue's status says done.
/// Dropped early, it does the same. Where the device is lost or the number can't be reached, the body is
/// leaked and [counted](leaked).
///
/// What the device writes must lie behind a pointer that `T` owns, a `Vec` or an allocation's handle, for
/// the body itself is moved.
///
/// ```
/// use gpu_async_reactor::DurNs;
/// use gpu_async_reactor::backend::sim::{SimDevice, SimOptions, Work};
/// use gpu_async_reactor::watcher::CompletionExt;
/// let mut queue = SimDevice::start(SimOptions::default()).queue()?;
/// queue.submit(Work::lasting(DurNs::from_ms(1)))?;
/// let (buffers, done) = smol::block_on(queue.in_flight((vec![0u8; 64], vec![1u8; 64])));
/// assert!(done.is_ok() && buffers.is_some());
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct InFlight<T: Send + 'static> {
    body: Option<T>,
    completion: Completion,
}

impl<T: Send + 'static> InFlight<T> {
    pub(crate) fn new(source: Source, body: T) -> InFlight<T> {
        InFlight { body: Some(body), completion: Completion::new(source) }
    }

    /// Has that watcher wake it, and keep the body if it is abandoned.
    pub fn on(self, watcher: &Watcher) -> InFlight<T> {
        self.with(|completion| completion.on(watcher))
    }

    /// Gives up with [`WaitError::Timeout`] that long after the first poll.
    pub fn timeout(self, span: impl Into<DurNs>) -> InFlight<T> {
        self.with(|completion| completion.timeout(span))
    }

    fn with(mut self, change: impl FnOnce(Completion) -> Completion) -> InFlight<T> {
        let body = self.body.take();
        let nothing = Completion::nothing();
        let completion = change(std::mem::replace(&mut self.completion, nothing));
        InFlight { body, completion }
    }

    /// Leaves the body to whoever learns when the device is done.
    fn abandon(&mut self) {
        let Some(body) = self.body.take() else { return };
        let Some(ticket) = self.completion.ticket() else {
            // There is no number, so nothing will ever say done.
            return crate::watcher::leak(body);
        };
        if ticket.word_reached() && matches!(ticket.ask(), Ok(true)) {
            drop(body);
            return;
        }
        bury(self.completion.watcher(), ticket.clone(), Box::new(body));
    }
}

impl<T: Send + 'static> Future for InFlight<T> {
    type Output = (Option<T>, Result<(), WaitError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Poll::Ready(result) = Pin::new(&mut this.completion).poll(cx) else {
            return Poll::Pending;
        };
        if result.is_err() {
            this.abandon();
        }
        Poll::Ready((this.body.take(), result))
    }
}

/// The body is never pinned, whatever it is.
impl<T: Send + 'static> Unpin for InFlight<T> {}

impl<T: Send + 'static> Drop for InFlight<T> {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl<T: Send + 'static> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("completion", &self.completion).finish_non_exhaustive()
    }
}

/// A body with a closure that frees it: a device allocation and its driver call.
///
/// ```
/// use gpu_async_reactor::inflight::FreedBy;
/// let allocation = FreedBy::new(0x7000_u64, |address| println!("freeing {address:#x}"));
/// assert_eq!(*allocation.get(), 0x7000);
/// ```
#[derive(Debug)]
pub struct FreedBy<T: Copy, F: FnOnce(T)> {
    value: T,
    free: Option<F>,
}

impl<T: Copy, F: FnOnce(T)> FreedBy<T, F> {
    /// Calls `free` with the value when it is dropped.
    pub fn new(value: T, free: F) -> FreedBy<T, F> {
        FreedBy { value, free: Some(free) }
    }

    /// The value: an address or a handle.
    pub fn get(&self) -> &T {
        &self.value
    }
}

impl<T: Copy, F: FnOnce(T)> Drop for FreedBy<T, F> {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            free(self.value);
        }
    }
}
