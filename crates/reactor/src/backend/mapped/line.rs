//! A completion line that the device stores to.
//!
//! Upholds invariants 7 (the memory outlives every store that was enqueued) and 13 (numbers of a slot only
//! grow).

use super::device::{Inner, hold};
use super::memory::Place;
use super::{Device, Driver, Failure, Load, Raw, Stream, Vendor};
use crate::backend::LineError;
use crate::{CompletionLine, ErrorCode, LINE_WORDS, Slot};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A line in page-locked host memory that its device stores to. It keeps its device's primary context alive.
///
/// Clones are the same line. Dropped with stores still to come, its memory is kept until they have.
pub struct MappedLine<V: Vendor> {
    home: Arc<Home<V>>,
}

/// A line's place, with what was promised for it.
pub(super) struct Home<V: Vendor> {
    pub(super) inner: Arc<Inner<V>>,
    pub(super) place: Place,
    /// The greatest number enqueued for each word.
    expected: [AtomicU64; LINE_WORDS],
    /// The words that queues and ports number, one bit each.
    taken: AtomicU8,
    /// Lines of others that work behind this one's stores looks at: they are kept as long.
    watched: Mutex<Vec<Arc<Home<V>>>>,
}

impl<V: Vendor> Home<V> {
    pub(super) fn new(inner: &Arc<Inner<V>>) -> Raw<Arc<Home<V>>> {
        let place = inner.place()?;
        let expected = [const { AtomicU64::new(0) }; LINE_WORDS];
        let (taken, watched) = (AtomicU8::new(0), Mutex::default());
        Ok(Arc::new(Home { inner: inner.clone(), place, expected, taken, watched }))
    }

    /// Notes a store before it is enqueued, so that no drop in between can free the line.
    pub(super) fn expect(&self, slot: Slot, number: u64) {
        self.expected[slot.index()].store(number, Ordering::Release);
    }

    pub(super) fn last(&self, slot: Slot) -> u64 {
        self.expected[slot.index()].load(Ordering::Acquire)
    }

    pub(super) fn address(&self, slot: Slot) -> u64 {
        self.place.device_address() + 8 * slot.index() as u64
    }

    /// Whether the word was free to be numbered, and now is taken.
    pub(super) fn take(&self, slot: Slot) -> bool {
        let bit = 1 << slot.index();
        self.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Keeps other lines until all that was enqueued for this one has landed.
    pub(super) fn keep(&self, others: impl IntoIterator<Item = Arc<Home<V>>>) {
        hold(&self.watched).extend(others);
    }

    pub(super) fn give_back(&self, slot: Slot) {
        self.taken.fetch_and(!(1 << slot.index()), Ordering::AcqRel);
    }
}

impl<V: Vendor> Drop for Home<V> {
    fn drop(&mut self) {
        let expected = std::array::from_fn(|i| self.expected[i].load(Ordering::Acquire));
        let watched = std::mem::take(&mut *hold(&self.watched));
        let done = self.inner.places().give_back(self.place.clone(), expected, watched);
        // Dropped after the lock is released: each comes back here.
        drop(done);
    }
}

impl<V: Vendor> MappedLine<V> {
    /// A line of that device.
    ///
    /// # Errors
    ///
    /// `Status` with the driver's answer to a refused allocation, `Unavailable` where the driver lacks an
    /// entry point.
    pub fn on(device: &Device<V>) -> Result<MappedLine<V>, LineError> {
        Ok(MappedLine { home: Home::new(&device.inner).map_err(line_error)? })
    }

    pub(super) fn of(home: Arc<Home<V>>) -> MappedLine<V> {
        MappedLine { home }
    }

    pub(super) fn home(&self) -> &Arc<Home<V>> {
        &self.home
    }

    /// The line, for descriptors.
    pub fn line(&self) -> &CompletionLine {
        self.home.place.line()
    }

    /// The line's address on the device, in the device's own address space.
    pub fn device_address(&self) -> u64 {
        self.home.place.device_address()
    }

    /// The device that the line is of.
    pub fn device(&self) -> Device<V> {
        Device { inner: self.home.inner.clone() }
    }

    /// Stores a number to a word behind everything submitted to the stream. It answers at once.
    ///
    /// # Errors
    ///
    /// `ForeignStream` for a stream of another context, `Capturing` for one that is being captured,
    /// `NotIncreasing` for a number that is not above the last one of the word, `Taken` for a word that a
    /// queue numbers, `Status` with the driver's answer, `Unavailable` where the driver lacks the entry point.
    pub fn enqueue_store(
        &self,
        stream: Stream<V>,
        slot: Slot,
        value: u64,
    ) -> Result<(), LineError> {
        let home = &self.home;
        if !home.take(slot) {
            return Err(LineError::Taken);
        }
        let stored = self.store_behind(stream, slot, value);
        home.give_back(slot);
        stored
    }

    fn store_behind(&self, stream: Stream<V>, slot: Slot, value: u64) -> Result<(), LineError> {
        let (home, last) = (&self.home, self.home.last(slot));
        if value <= last {
            return Err(LineError::NotIncreasing);
        }
        let stored = home.inner.within(|driver| {
            check_stream(driver, stream, &home.inner)?;
            home.expect(slot, value);
            let stored = driver.store(stream.raw(), &[(home.address(slot), value)]);
            if stored.is_err() {
                home.expect(slot, last);
            }
            stored.map_err(Refused::Call)
        });
        stored.map_err(|refused| match refused {
            Refused::Capturing => LineError::Capturing,
            Refused::Foreign => LineError::ForeignStream,
            Refused::Call(failure) => line_error(failure),
        })
    }
}

/// A line of the system driver's device that is current on this thread, or of its first one.
pub(crate) fn line_of_current<V: Load>() -> Result<MappedLine<V>, LineError> {
    let open = || {
        let driver = Driver::<V>::load()?;
        driver.open(driver.current()?)
    };
    let device = open().map_err(|error| match (error.code(), error.driver_status()) {
        (ErrorCode::NoDevice, _) => LineError::NoDomain,
        (_, Some(status)) => LineError::Status(status),
        _ => LineError::Unavailable,
    })?;
    MappedLine::on(&device)
}

/// Why nothing may be stored behind a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    Capturing,
    Foreign,
    Call(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Call(failure)
    }
}

/// A stream in capture is refused before anything else is asked of it (invariant 10), and one of another
/// context before anything is stored.
pub(super) fn check_stream<V: Vendor>(
    driver: &V,
    stream: Stream<V>,
    inner: &Inner<V>,
) -> Result<(), Refused> {
    if driver.is_capturing(stream.raw())? {
        return Err(Refused::Capturing);
    }
    if !driver.is_of(stream.raw(), inner.ordinal, inner.context)? {
        return Err(Refused::Foreign);
    }
    Ok(())
}

pub(super) fn line_error(failure: Failure) -> LineError {
    match failure {
        Failure::Missing(_) => LineError::Unavailable,
        Failure::Status { status, .. } => LineError::Status(status),
    }
}

impl<V: Vendor> AsRef<CompletionLine> for MappedLine<V> {
    fn as_ref(&self) -> &CompletionLine {
        self.line()
    }
}

impl<V: Vendor> Clone for MappedLine<V> {
    fn clone(&self) -> Self {
        MappedLine { home: self.home.clone() }
    }
}

impl<V: Vendor> std::fmt::Debug for MappedLine<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.line().fmt(f)
    }
}
