//! A completion port over one stream, one line and one of its words.

use super::{MappedLine, Owner, QueueLine, Stream, StreamQueue, Vendor};
use crate::backend::wordwait::WordWait;
use crate::host::std_host::{StdClock, StdIdle};
use crate::{Clock, CompletionPort, DurNs, Error, OnThread, QueuePort, Result, Slot};
use std::any::Any;
use std::sync::Arc;

/// Waits for everything that was submitted to a stream before the port was first asked, on the calling
/// thread.
pub struct StreamPort<'l, V: Vendor> {
    port: QueuePort<'l, StreamQueue<V>, OnThread<StdIdle>, StdClock>,
}

impl<'l, V: Vendor> StreamPort<'l, V> {
    /// A port over a stream, whose numbers go to that word of the line, parking in hardware where it is given
    /// a [`WordWait`].
    ///
    /// # Errors
    ///
    /// `Misuse` for a stream of another context or a word that is already numbered, `StreamCapturing`,
    /// `DeviceLost`, or a failed driver call.
    pub fn new(
        stream: Stream<V>,
        line: &'l MappedLine<V>,
        slot: Slot,
        word_wait: Option<WordWait>,
    ) -> Result<StreamPort<'l, V>> {
        Self::over(stream, line, slot, word_wait, None)
    }

    /// The same, over a stream that lives as long as its `owner`: it is kept for as long as the port.
    ///
    /// # Errors
    ///
    /// As [`new`](StreamPort::new).
    pub fn keeping(
        stream: Stream<V>,
        owner: impl Any + Send + Sync,
        line: &'l MappedLine<V>,
        slot: Slot,
        word_wait: Option<WordWait>,
    ) -> Result<StreamPort<'l, V>> {
        Self::over(stream, line, slot, word_wait, Some(Arc::new(owner)))
    }

    fn over(
        stream: Stream<V>,
        line: &'l MappedLine<V>,
        slot: Slot,
        word_wait: Option<WordWait>,
        owner: Option<Owner>,
    ) -> Result<StreamPort<'l, V>> {
        let inner = line.home().inner.clone();
        StreamQueue::check(&inner, stream)?;
        let own = Arc::new(QueueLine::Mapped(line.clone()));
        let queue = StreamQueue::on_line(inner, stream, false, owner, own, slot)?;
        let clock = StdClock::new();
        let idle = OnThread(StdIdle::new(clock, word_wait));
        Ok(StreamPort { port: QueuePort::new(queue, line.line(), idle, clock) })
    }

    /// Gives up after that long with `DeviceHang`; the default never does.
    pub fn within(self, span: DurNs) -> Self {
        StreamPort { port: self.port.within(span) }
    }

    /// How often the device's status was asked.
    pub fn queries(&self) -> u64 {
        self.port.queries()
    }
}

impl<V: Vendor> CompletionPort for StreamPort<'_, V> {
    type Error = Error;

    fn query(&mut self) -> Result<bool> {
        self.port.query()
    }

    async fn block(&mut self) -> Result<()> {
        self.port.block().await
    }

    async fn poll(&mut self) -> Result<()> {
        self.port.poll().await
    }

    fn arm(&mut self) -> Result<()> {
        self.port.arm()
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool> {
        self.port.park(bound).await
    }

    async fn watch<C: Clock>(&mut self, bound: DurNs, clock: &C) -> Result<bool> {
        self.port.watch(bound, clock).await
    }
}

impl<V: Vendor> std::fmt::Debug for StreamPort<'_, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamPort").finish_non_exhaustive()
    }
}
