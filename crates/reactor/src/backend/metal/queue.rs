//! A completion queue over a command queue.
//!
//! Upholds invariants 2, 7 (no drop waits for the device), 8 and 13.

use super::event::{Commands, SharedEvent};
use super::ledger::Ledger;
use crate::host::std_host::StdClock;
use crate::{
    Clock, CompletionLine, DurNs, LINE_WORDS, Queue, QueueStatus, Result, SharedStatus, Slot,
};
use std::sync::Arc;

/// The longest single wait for an event, whose signal an errored buffer may never send.
const EVENT_SLICE: DurNs = DurNs::from_ms(10);

/// Words for queues, eight to a line.
#[derive(Debug, Default)]
pub struct Places {
    given: usize,
    line: Option<Arc<CompletionLine>>,
}

impl Places {
    /// The next free word.
    pub fn next_place(&mut self) -> (Arc<CompletionLine>, Slot) {
        let slot = Slot::ALL[self.given % LINE_WORDS];
        if slot.index() == 0 {
            self.line = None;
        }
        self.given += 1;
        (self.line.get_or_insert_default().clone(), slot)
    }
}

/// A queue whose completions are numbers, over a Metal command queue. Dropping it waits for nothing: Metal keeps
/// what was committed, and the handlers keep the line.
///
/// A number covers what was submitted through this queue. Buffers that others commit to the same command queue
/// are theirs to await: let them signal an event of a [`SharedEventPort`](super::SharedEventPort).
pub struct MetalQueue<C> {
    commands: C,
    ledger: Arc<Ledger>,
    number: u64,
}

impl<C: Commands> MetalQueue<C> {
    /// A queue over a command queue that nobody else signals the event of, with a word that is its own.
    pub fn new(commands: C, place: (Arc<CompletionLine>, Slot), label: String) -> MetalQueue<C> {
        let (line, slot) = place;
        MetalQueue { commands, ledger: Ledger::new(line, slot, label), number: 0 }
    }

    /// Has work encoded into a new command buffer and commits it, with the next number behind it: that number.
    ///
    /// # Errors
    ///
    /// What `encode` returned, `DeviceLost`, or a failed driver call: then nothing was committed.
    pub fn submit(&mut self, encode: impl FnOnce(&C::Buffer) -> Result<()>) -> Result<u64> {
        let number = self.number + 1;
        self.ledger.confirm(number)?;
        self.commands.commit(number, encode, self.ledger.report(number))?;
        self.number = number;
        Ok(number)
    }

    /// The command queue and its event.
    pub fn commands(&self) -> &C {
        &self.commands
    }
}

impl<C: Commands> Queue for MetalQueue<C> {
    type Line = CompletionLine;

    fn line(&self) -> &Arc<CompletionLine> {
        self.ledger.line()
    }

    fn slot(&self) -> Slot {
        self.ledger.slot()
    }

    fn store_next(&mut self) -> Result<u64> {
        match self.number {
            0 => self.submit(|_| Ok(())),
            // Each buffer of ours carries its number.
            number => self.ledger.confirm(number).map(|()| number),
        }
    }

    fn status(&mut self, number: u64) -> Result<bool> {
        self.ledger.status(number)
    }

    fn block(&mut self, number: u64, bound: DurNs) -> Result<bool> {
        let clock = StdClock::new();
        let end = clock.monotonic_ns() + bound;
        // The event wakes sooner than the handler; only the status says done (invariant 2).
        while !self.ledger.status(number)? {
            let left = end.since(clock.monotonic_ns());
            if left == DurNs(0) {
                return Ok(false);
            }
            let slice = left.min(EVENT_SLICE);
            if self.commands.event().signaled() >= number || slice < DurNs::from_ms(1) {
                self.ledger.wait(number, slice)?;
            } else {
                self.commands.event().wait(number, slice);
            }
        }
        Ok(true)
    }

    fn confirm(&mut self, number: u64) -> Result<()> {
        self.ledger.confirm(number)
    }

    fn label(&self) -> &str {
        self.ledger.label()
    }
}

impl<C: Commands> SharedStatus for MetalQueue<C> {
    fn shared_status(&self) -> Arc<dyn QueueStatus> {
        self.ledger.clone()
    }
}

impl<C> Drop for MetalQueue<C> {
    fn drop(&mut self) {
        self.ledger.close(self.number);
    }
}

impl<C> std::fmt::Debug for MetalQueue<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let label = self.ledger.label();
        f.debug_struct("MetalQueue").field("label", &label).field("number", &self.number).finish()
    }
}
