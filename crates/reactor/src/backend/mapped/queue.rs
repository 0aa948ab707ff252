//! A completion queue over a stream: behind the work an event, then the store of the next number.
//!
//! Upholds invariants 2, 5, 7 (a drop waits for nothing), 8, 10 (a stream in capture is refused before it is
//! asked anything), 11 and 13.

use super::block::Blocker;
use super::device::Inner;
use super::events::Events;
use super::gate::{Gate, OPEN, PASSED};
use super::line::{Home, Refused, check_stream};
use super::{Handle, MappedLine, Owner, Raw, Vendor};
use crate::{CompletionLine, DurNs, Error, Queue, QueueStatus, Result, SharedStatus, Slot, error};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::thread::ThreadId;

/// A stream that somebody else owns, as the driver names it.
pub struct Stream<V> {
    raw: Handle,
    vendor: PhantomData<fn() -> V>,
}

impl<V> Stream<V> {
    /// The default stream of the context, with which the other blocking streams synchronise.
    pub const LEGACY: Stream<V> =
        Stream { raw: Handle(without_provenance_mut(1)), vendor: PhantomData };
    /// The default stream of the calling thread: a queue over it stays on that thread.
    pub const PER_THREAD: Stream<V> =
        Stream { raw: Handle(without_provenance_mut(2)), vendor: PhantomData };

    /// A stream by its raw handle, for example of another runtime of the process.
    ///
    /// # Safety
    ///
    /// The handle is a live stream of the same driver, and stays one for as long as anything made from this
    /// value is used. Its context outlives it.
    pub unsafe fn from_raw(raw: *mut c_void) -> Stream<V> {
        Stream { raw: Handle(raw), vendor: PhantomData }
    }

    /// The handle.
    pub fn as_raw(self) -> *mut c_void {
        self.raw.0
    }

    pub(super) fn raw(self) -> Handle {
        self.raw
    }
}

impl<V> Clone for Stream<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Stream<V> {}

impl<V> std::fmt::Debug for Stream<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stream").field(&self.raw.0).finish()
    }
}

/// The line of a queue: one that the device stores to, or, where it can't, one that stays as it is and
/// leaves every wait to its status.
#[derive(Debug)]
pub enum QueueLine<V: Vendor> {
    /// The device stores the numbers here.
    Mapped(MappedLine<V>),
    /// The device can't store; see [`Device::caps`](super::Device::caps).
    Unmapped(CompletionLine),
}

impl<V: Vendor> AsRef<CompletionLine> for QueueLine<V> {
    fn as_ref(&self) -> &CompletionLine {
        match self {
            QueueLine::Mapped(line) => line.line(),
            QueueLine::Unmapped(line) => line,
        }
    }
}

/// Words of one device that waits of a stream look at, or that it rings: each until that number.
type Watched<V> = Vec<(u64, Arc<Home<V>>)>;

/// A stream whose completions are numbers. Dropping it waits for nothing.
pub struct StreamQueue<V: Vendor> {
    inner: Arc<Inner<V>>,
    events: Arc<Events<V>>,
    blocker: Blocker<V>,
    stream: Stream<V>,
    owned: bool,
    /// Others submit to the stream too, so that a number already stored covers less than all.
    shared_with_owner: bool,
    /// Something was submitted since the last number.
    fresh: bool,
    /// The default stream of one thread is another one on every other.
    thread: Option<ThreadId>,
    line: Arc<QueueLine<V>>,
    slot: Slot,
    bell: Option<(Arc<Home<V>>, Slot)>,
    watched: Watched<V>,
}

impl<V: Vendor> StreamQueue<V> {
    pub(super) fn owned(inner: Arc<Inner<V>>) -> Result<StreamQueue<V>> {
        let doing = || format!("making a queue of {}", inner.name);
        let raw = inner.call(doing, |driver| driver.create_stream())?;
        let stream = Stream { raw, vendor: PhantomData };
        Self::over(inner.clone(), stream, true, None).inspect_err(|_| {
            let _ = inner.within(|driver| driver.destroy_stream(raw));
        })
    }

    pub(super) fn borrowed(
        inner: Arc<Inner<V>>,
        stream: Stream<V>,
        owner: Option<Owner>,
    ) -> Result<StreamQueue<V>> {
        Self::check(&inner, stream)?;
        Self::over(inner, stream, false, owner)
    }

    /// Fails for a stream that can't be used here.
    pub(super) fn check(inner: &Inner<V>, stream: Stream<V>) -> Result<()> {
        let checked = inner.within(|driver| check_stream(driver, stream, inner));
        let doing = format!("making a queue over a stream of {}", inner.name);
        checked.map_err(|refused| refusal(inner, &doing, refused))
    }

    fn over(
        inner: Arc<Inner<V>>,
        stream: Stream<V>,
        owned: bool,
        owner: Option<Owner>,
    ) -> Result<StreamQueue<V>> {
        let slot = Slot::ALL[0];
        let line = match inner.can_store() {
            true => {
                let home = Home::new(&inner);
                let doing = format!("making the line of a queue of {}", inner.name);
                let home = home.map_err(|failure| inner.driver.error(&doing, failure))?;
                QueueLine::Mapped(MappedLine::of(home))
            }
            false => QueueLine::Unmapped(CompletionLine::new()),
        };
        Self::on_line(inner, stream, owned, owner, Arc::new(line), slot)
    }

    /// A queue that numbers one word of a given line.
    pub(super) fn on_line(
        inner: Arc<Inner<V>>,
        stream: Stream<V>,
        owned: bool,
        owner: Option<Owner>,
        line: Arc<QueueLine<V>>,
        slot: Slot,
    ) -> Result<StreamQueue<V>> {
        let label = format!("{} queue {} of {}", V::NAME, inner.next_queue(), inner.name);
        let mut last = 0;
        if let QueueLine::Mapped(line) = &*line {
            if !line.home().take(slot) {
                let what =
                    format!("word {} of the line is numbered by another queue", slot.index());
                return Err(error!(Misuse, format!("making {label}"), what));
            }
            last = line.home().last(slot);
        }
        let events = Arc::new(Events::new(inner.clone(), stream.raw, label, last, owner));
        let thread =
            (stream.raw == Stream::<V>::PER_THREAD.raw).then(|| std::thread::current().id());
        Ok(StreamQueue {
            blocker: Blocker::new(inner.clone()),
            inner,
            events,
            stream,
            owned,
            shared_with_owner: !owned,
            fresh: true,
            thread,
            line,
            slot,
            bell: None,
            watched: Vec::new(),
        })
    }

    /// Submits work by the caller's own driver calls, and stores the next number behind it: the number.
    ///
    /// ```ignore
    /// let number = queue.submit(|stream| launch(kernel, stream.as_raw()))?;
    /// ```
    ///
    /// # Errors
    ///
    /// The caller's own, when the work could not be submitted; then those of
    /// [`store_next`](Queue::store_next).
    pub fn submit<E: From<Error>>(
        &mut self,
        work: impl FnOnce(Stream<V>) -> std::result::Result<(), E>,
    ) -> std::result::Result<u64, E> {
        self.events.check()?;
        self.fresh = true;
        let stream = self.stream;
        // The caller's calls find the device's context current, as their own thread's may be another.
        let entered = self.inner.driver.enter(self.inner.ordinal, self.inner.context);
        let doing = || format!("submitting to {}", self.events.label());
        let entered = entered.map_err(|failure| self.events.failed(&doing(), failure))?;
        // The number goes in under the same context: a driver call saved is one saved for every submit.
        let stored = match work(stream) {
            Ok(()) => self.store_entered().map_err(E::from),
            Err(failed) => Err(failed),
        };
        self.inner.driver.leave(entered);
        stored
    }

    /// Stores the next number, with the device's context current.
    fn store_entered(&mut self) -> Result<u64> {
        const DOING: &str = "storing the next number of";
        self.may_submit(DOING)?;
        self.free_to_submit(DOING, self.inner.driver.is_capturing(self.stream.raw))?;
        let number = self.events.last() + 1;
        self.store(&self.inner.driver, number)?;
        self.fresh = false;
        if !self.watched.is_empty() {
            let done = self.events.done();
            self.watched.retain(|&(number, _)| number > done);
        }
        Ok(number)
    }

    /// The stream, for work that others submit. From now on every number asked for is stored anew.
    pub fn stream(&mut self) -> Stream<V> {
        self.shared_with_owner = true;
        self.stream
    }

    /// Rings a doorbell word behind each number from now on: the word and the bell in one driver call where
    /// the driver has it. The line is the reactor's [`Bell`](crate::Bell), made over a line of this device.
    ///
    /// # Errors
    ///
    /// `Misuse` for a line of another device, and on a device that can't store words; `DoorbellSlot` for the
    /// host's word.
    pub fn ring(&mut self, bell: &MappedLine<V>, group: Slot) -> Result<()> {
        let doing = || format!("binding a doorbell to {}", self.events.label());
        if group == crate::Bell::HOST {
            return Err(error!(DoorbellSlot, group.index()));
        }
        if !Arc::ptr_eq(&bell.home().inner, &self.inner) {
            return Err(error!(Misuse, doing(), "the bell's line is another device's"));
        }
        if matches!(*self.line, QueueLine::Unmapped(_)) {
            return Err(error!(Misuse, doing(), "the device can't store words"));
        }
        let last = self.events.last() + 1;
        let old = self.bell.replace((bell.home().clone(), group));
        // What was rung before may still be on its way.
        self.watched.extend(old.map(|(home, _)| (last, home)));
        Ok(())
    }

    /// Keeps a line that work submitted from here on uses, until the next number is reached.
    ///
    /// # Errors
    ///
    /// `Misuse` for a line of another device.
    pub fn keep(&mut self, line: &MappedLine<V>) -> Result<()> {
        if !Arc::ptr_eq(&line.home().inner, &self.inner) {
            let doing = format!("keeping a line for {}", self.events.label());
            return Err(error!(Misuse, doing, "the line is another device's"));
        }
        self.watched.push((self.events.last() + 1, line.home().clone()));
        self.fresh = true;
        Ok(())
    }

    /// Makes a gate: what is submitted from here on starts once it is opened.
    ///
    /// # Errors
    ///
    /// `SymbolMissing` where the driver has no such wait, `StreamCapturing`, `DeviceLost`, or a failed call.
    pub fn gate(&mut self) -> Result<Gate<V>> {
        self.ready("gating")?;
        let stream = self.stream.raw;
        let home = Home::new(&self.inner).and_then(|home| {
            self.inner.within(|driver| driver.wait(stream, home.address(OPEN), 1))?;
            // From here on the stream waits: the gate exists, and its drop opens it.
            let gate = Gate::new(home.clone());
            home.expect(PASSED, 1);
            let told =
                self.inner.within(|driver| driver.store(stream, &[(home.address(PASSED), 1)]));
            if told.is_err() {
                home.expect(PASSED, 0);
                self.watched.push((self.events.last() + 1, home.clone()));
            }
            told.map(|()| gate)
        });
        self.fresh = true;
        home.map_err(|failure| self.failed("gating", failure))
    }

    /// Lets what is submitted from here on wait, on the device, for a number of another queue of the device.
    ///
    /// # Errors
    ///
    /// `Misuse` for a number that was not given out, for its stream would wait for ever, and for queues whose
    /// device can't store words; `SymbolMissing` where the driver has no such wait, `StreamCapturing`,
    /// `DeviceLost`, or a failed call.
    pub fn after(&mut self, other: &StreamQueue<V>, number: u64) -> Result<()> {
        let doing = || format!("ordering {} behind another", self.events.label());
        if number > other.events.last() {
            return Err(error!(Misuse, doing(), format!("number {number} was not given out yet")));
        }
        if !Arc::ptr_eq(&self.inner, &other.inner) {
            return Err(error!(Misuse, doing(), "the other queue is another device's"));
        }
        let QueueLine::Mapped(line) = &*other.line else {
            return Err(error!(Misuse, doing(), "the device can't store words"));
        };
        self.ready("ordering")?;
        let home = line.home();
        let address = home.address(other.slot);
        let waits = self.inner.within(|driver| driver.wait(self.stream.raw, address, number));
        waits.map_err(|failure| self.failed("ordering", failure))?;
        self.watched.push((self.events.last() + 1, home.clone()));
        self.fresh = true;
        Ok(())
    }

    /// Fails if nothing may be put on the stream now.
    fn ready(&self, doing: &str) -> Result<()> {
        self.may_submit(doing)?;
        let capturing = self.inner.within(|driver| driver.is_capturing(self.stream.raw));
        self.free_to_submit(doing, capturing)
    }

    /// Fails on a lost device, and on another thread's default stream.
    fn may_submit(&self, doing: &str) -> Result<()> {
        self.events.check()?;
        if self.thread.is_some_and(|thread| thread != std::thread::current().id()) {
            let doing = format!("{doing} {}", self.events.label());
            return Err(error!(Misuse, doing, "it is the default stream of another thread"));
        }
        Ok(())
    }

    /// Fails while the stream is being captured.
    fn free_to_submit(&self, doing: &str, capturing: Raw<bool>) -> Result<()> {
        match capturing {
            Ok(false) => Ok(()),
            Ok(true) => Err(error!(StreamCapturing, format!("{doing} {}", self.events.label()))),
            Err(failure) => Err(self.failed(doing, failure)),
        }
    }

    fn failed(&self, doing: &str, failure: super::Failure) -> Error {
        self.events.failed(&format!("{doing} {}", self.events.label()), failure)
    }

    /// The event, then the word and the doorbell; with the device's context current.
    fn store(&self, driver: &V, number: u64) -> Result<()> {
        let (events, stream) = (&self.events, self.stream.raw);
        let mut words = [(0, 0); 2];
        let mut count = 0;
        let home = match &*self.line {
            QueueLine::Mapped(line) => Some(line.home()),
            QueueLine::Unmapped(_) => None,
        };
        if let Some(home) = home {
            words[0] = (home.address(self.slot), number);
            count = 1;
            if let Some((bell, group)) = &self.bell {
                words[1] = (bell.address(*group), self.inner.next_ring());
                count = 2;
            }
        }
        // Before the call: once it is enqueued nobody may free the line (invariant 7).
        let last = home.map_or(0, |home| home.last(self.slot));
        if let Some(home) = home {
            home.expect(self.slot, number);
        }
        let behind = |event| {
            driver.record(event, stream)?;
            if count > 0 { driver.store(stream, &words[..count]) } else { Ok(()) }
        };
        let stored = events.take(driver).and_then(|event| {
            behind(event).map(|()| event).inspect_err(|_| events.give_back(event))
        });
        match stored {
            Ok(event) => {
                events.push(number, event);
                Ok(())
            }
            Err(failure) => {
                if let Some(home) = home {
                    home.expect(self.slot, last);
                }
                let doing = format!("storing number {number} of {}", events.label());
                let error = events.failed(&doing, failure);
                Err(match error.code() {
                    crate::ErrorCode::DriverCall => {
                        let (status, name) = match failure {
                            super::Failure::Status { status, .. } => {
                                (status, self.inner.driver.status_name(status))
                            }
                            super::Failure::Missing(name) => (0, name.to_owned()),
                        };
                        error!(
                            StoreRefused,
                            doing,
                            format!("the driver answered {status} ({name})"),
                            status
                        )
                    }
                    _ => error,
                })
            }
        }
    }
}

fn refusal<V: Vendor>(inner: &Inner<V>, doing: &str, refused: Refused) -> Error {
    match refused {
        Refused::Capturing => error!(StreamCapturing, doing),
        Refused::Foreign => error!(Misuse, doing, "the stream is of another context"),
        Refused::Call(failure) => inner.driver.error(doing, failure),
    }
}

impl<V: Vendor> Queue for StreamQueue<V> {
    type Line = QueueLine<V>;

    fn line(&self) -> &Arc<QueueLine<V>> {
        &self.line
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn store_next(&mut self) -> Result<u64> {
        let last = self.events.last();
        if !self.fresh && !self.shared_with_owner {
            self.events.check()?;
            return Ok(last);
        }
        let driver = &self.inner.driver;
        let entered = driver.enter(self.inner.ordinal, self.inner.context);
        let entered =
            entered.map_err(|failure| self.failed("storing the next number of", failure))?;
        let stored = self.store_entered();
        self.inner.driver.leave(entered);
        stored
    }

    fn status(&mut self, number: u64) -> Result<bool> {
        self.events.status(number)
    }

    fn block(&mut self, number: u64, bound: DurNs) -> Result<bool> {
        let newest = number == self.events.last() && (!self.fresh || self.shared_with_owner);
        self.blocker.block(&self.events, self.stream.raw, number, newest, bound)
    }

    fn confirm(&mut self, number: u64) -> Result<()> {
        self.events.confirm(number)
    }

    fn label(&self) -> &str {
        self.events.label()
    }
}

impl<V: Vendor> SharedStatus for StreamQueue<V> {
    fn shared_status(&self) -> Arc<dyn QueueStatus> {
        self.events.clone()
    }
}

impl<V: Vendor> Drop for StreamQueue<V> {
    fn drop(&mut self) {
        let last = self.events.last();
        let idle = self.events.done() >= last || self.events.status(last).unwrap_or(false);
        let rung = self.bell.take().map(|(bell, _)| bell);
        let watched = std::mem::take(&mut self.watched).into_iter().map(|(_, home)| home);
        let others: Vec<_> = watched.chain(rung).collect();
        if let QueueLine::Mapped(line) = &*self.line {
            let home = line.home();
            // What the stream may still read or ring is kept until a last number has landed, behind it.
            if !(others.is_empty() || idle && !self.fresh) {
                let doing = |failure| self.failed("closing", failure);
                let entered = self.inner.driver.enter(self.inner.ordinal, self.inner.context);
                let closing = entered.map_err(doing).and_then(|entered| {
                    let stored = self.store(&self.inner.driver, last + 1);
                    self.inner.driver.leave(entered);
                    stored
                });
                match closing {
                    Ok(()) => home.keep(others),
                    // It can't be known when: leaked, and counted.
                    Err(_) => {
                        super::KEPT
                            .fetch_add(others.len() as u64, std::sync::atomic::Ordering::Relaxed);
                        std::mem::forget(others);
                    }
                }
            }
            home.give_back(self.slot);
        }
        self.events.close();
        if self.owned {
            let stream = self.stream.raw;
            let _ = self.inner.within(|driver| driver.destroy_stream(stream));
        }
        self.inner.sweep();
    }
}

impl<V: Vendor> std::fmt::Debug for StreamQueue<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (label, last) = (self.events.label(), self.events.last());
        f.debug_struct("StreamQueue").field("label", &label).field("number", &last).finish()
    }
}
