//! What a completion is of: one number of one queue, and its status for any thread.

use super::{Awaited, Completion, WaitError};
use crate::inflight::InFlight;
use crate::{CompletionLine, DurNs, QueueStatus, Result, SharedLine, SharedStatus, Slot, reached};
use std::fmt;
use std::sync::Arc;

/// One number of one queue. Clones await the same store.
#[derive(Clone)]
pub struct Ticket {
    line: SharedLine,
    slot: Slot,
    number: u64,
    status: Arc<dyn QueueStatus>,
}

impl Ticket {
    /// A number that is already behind its work, of whatever gave it out.
    pub fn new(line: SharedLine, slot: Slot, number: u64, status: Arc<dyn QueueStatus>) -> Ticket {
        Ticket { line, slot, number, status }
    }

    /// The number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A future of the number being reached. Many may await one ticket: there is one store.
    pub fn completion(&self) -> Completion {
        Completion::new(Ok(self.clone()))
    }

    /// Keeps what the device uses until the number is reached.
    pub fn in_flight<T: Send + 'static>(&self, owned: T) -> InFlight<T> {
        InFlight::new(Ok(self.clone()), owned)
    }

    pub(super) fn line(&self) -> &CompletionLine {
        (*self.line).as_ref()
    }

    pub(super) fn shared_line(&self) -> SharedLine {
        self.line.clone()
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    pub(super) fn status(&self) -> &dyn QueueStatus {
        &*self.status
    }

    /// Whether the word says done; the status decides.
    pub(crate) fn word_reached(&self) -> bool {
        reached(self.line(), self.slot, self.number)
    }

    /// Whether the status says done, and may be believed (invariant 2): where the word is behind it,
    /// the device is asked whether it is lost.
    pub(crate) fn ask(&self) -> Result<bool> {
        if !self.status.status(self.number)? {
            return Ok(false);
        }
        if !self.word_reached() {
            self.status.confirm(self.number)?;
        }
        Ok(true)
    }

    pub(super) fn awaited(&self, waited: DurNs) -> Awaited {
        Awaited { queue: self.status.label().into(), number: self.number, waited }
    }

    /// The end of a wait that asked: done, not yet, or failed.
    pub(super) fn verdict(&self, waited: DurNs) -> Option<Result<(), WaitError>> {
        match self.ask() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(cause) => Some(Err(WaitError::of(self.awaited(waited), cause))),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.status.label();
        f.debug_struct("Ticket").field("queue", &label).field("number", &self.number).finish()
    }
}

/// Completions of a queue for any runtime.
///
/// ```
/// use gpu_async_reactor::DurNs;
/// use gpu_async_reactor::backend::sim::{SimDevice, SimOptions, Work};
/// use gpu_async_reactor::watcher::CompletionExt;
/// # #[derive(Debug)] struct Failed; // any error that takes both
/// # impl<E: std::error::Error> From<E> for Failed { fn from(e: E) -> Self { eprintln!("{e}"); Failed } }
/// # fn main() -> Result<(), Failed> {
/// let mut queue = SimDevice::start(SimOptions::default()).queue()?;
/// queue.submit(Work::lasting(DurNs::from_ms(1)))?;
/// let done = queue.completion(); // `Send + 'static`: await it in a task of any runtime
/// # smol::block_on(done)?;
/// # Ok(())
/// # }
/// ```
pub trait CompletionExt: SharedStatus {
    /// A ticket for everything submitted so far.
    ///
    /// # Errors
    ///
    /// The queue's own, when it can't store a number behind the work.
    fn ticket(&mut self) -> Result<Ticket> {
        let number = self.store_next()?;
        Ok(Ticket::new(self.line().clone(), self.slot(), number, self.shared_status()))
    }

    /// A future of everything submitted so far. A refused store resolves it with that refusal.
    fn completion(&mut self) -> Completion {
        let ticket = self.ticket().map_err(|cause| (self.label().into(), cause));
        Completion::new(ticket)
    }

    /// Keeps what the device uses until everything submitted so far is done. Where the store is
    /// refused nothing can be known of that, and the memory is leaked and counted.
    fn in_flight<T: Send + 'static>(&mut self, owned: T) -> InFlight<T> {
        let ticket = self.ticket().map_err(|cause| (self.label().into(), cause));
        InFlight::new(ticket, owned)
    }
}

impl<Q: SharedStatus + ?Sized> CompletionExt for Q {}
