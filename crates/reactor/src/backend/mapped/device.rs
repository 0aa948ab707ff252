//! An open device: its primary context, its pages, and what it was seen to be able to do.
//!
//! Upholds invariants 5 (no lock is held around a driver call), 7 and 9 (capabilities come from a probe that
//! does the thing, for attributes lie).

use super::line::Home;
use super::memory::{PAGE, Page, Place, Places};
use super::{Failure, Handle, MappedLine, Raw, Stream, StreamQueue, Vendor};
use crate::backend::LineError;
use crate::{HostCaps, Result, Slot, error};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A device that takes longer than this to store one word on an idle stream can't be relied on for it.
const PROBE: Duration = Duration::from_secs(2);
/// What the probe stores: no queue gets to this number.
const PROBE_VALUE: u64 = 0x5EED_0000_0000_0001;

/// An open device. Clones are the same device.
pub struct Device<V: Vendor> {
    pub(super) inner: Arc<Inner<V>>,
}

/// What lines, queues and handles share.
pub(crate) struct Inner<V: Vendor> {
    pub(crate) driver: Arc<V>,
    pub(crate) ordinal: usize,
    pub(crate) context: Handle,
    pub(crate) name: String,
    caps: Mutex<HostCaps>,
    places: Mutex<Places<V>>,
    /// Doorbell numbers: none is used twice.
    rings: AtomicU64,
    /// The queues made so far, for their names.
    queues: AtomicU64,
}

impl<V: Vendor> Device<V> {
    /// Opens a device of a driver.
    pub(crate) fn open_on(driver: Arc<V>, ordinal: usize) -> Result<Device<V>> {
        let doing = || format!("opening {} device {ordinal}", V::NAME);
        let fail = |failure| driver.error(&doing(), failure);
        let count = driver.devices().map_err(fail)?;
        if ordinal >= count {
            let found = format!("there is no device {ordinal}, the driver found {count}");
            return Err(error!(NoDevice, V::NAME, found));
        }
        let name = driver.device_name(ordinal).map_err(fail)?;
        let context = driver.retain(ordinal).map_err(fail)?;
        let inner = Inner {
            driver,
            ordinal,
            context,
            name,
            caps: Mutex::new(HostCaps { flag_wait: Ok(()) }),
            places: Mutex::default(),
            rings: AtomicU64::new(0),
            queues: AtomicU64::new(0),
        };
        let device = Device { inner: Arc::new(inner) };
        if let Err(reason) = device.probe() {
            *hold(&device.inner.caps) = HostCaps { flag_wait: Err(reason) };
        }
        Ok(device)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner<V>> {
        &self.inner
    }

    /// The device's name, as its driver has it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its place in the driver's list.
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }

    /// What the device was seen to do when it was opened: whether it stored a word that this host saw, or
    /// why not. Without it every plan but the flag plans works; see
    /// [`WaitPlan::resolve`](crate::WaitPlan::resolve).
    pub fn caps(&self) -> HostCaps {
        hold(&self.inner.caps).clone()
    }

    /// A queue on a new stream of its own, which doesn't synchronise with the default stream.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or a failed driver call.
    pub fn queue(&self) -> Result<StreamQueue<V>> {
        StreamQueue::owned(self.inner.clone())
    }

    /// A queue over a stream that somebody else submits to as well. Each number asked for is stored anew,
    /// for the queue can't know what was submitted since the last one.
    ///
    /// # Errors
    ///
    /// `Misuse` for a stream of another context, `StreamCapturing`, `DeviceLost`, or a failed driver call.
    pub fn queue_on(&self, stream: Stream<V>) -> Result<StreamQueue<V>> {
        StreamQueue::borrowed(self.inner.clone(), stream)
    }

    /// A completion line that this device can store to.
    ///
    /// # Errors
    ///
    /// The status of a refused allocation.
    pub fn line(&self) -> std::result::Result<MappedLine<V>, LineError> {
        MappedLine::on(self)
    }

    /// Frees what was kept for a device that has stored to it since.
    pub fn sweep(&self) {
        self.inner.sweep();
    }

    /// How many lines of this device are kept because it may still store to them.
    pub fn kept(&self) -> usize {
        self.inner.places().kept()
    }

    /// Stores a word and looks at it: what the flag plans need.
    fn probe(&self) -> std::result::Result<(), String> {
        let inner = &self.inner;
        let say = |failure| inner.driver.error("probing the device", failure).to_string();
        let home = Home::new(inner).map_err(say)?;
        let seen = inner.within(|driver| {
            let stream = driver.create_stream()?;
            let event = driver.create_event(false);
            let seen = event.and_then(|event| {
                let slot = Slot::ALL[0];
                home.expect(slot, PROBE_VALUE);
                let address = home.place.device_address();
                let stored = driver.store(stream, &[(address, PROBE_VALUE)]);
                if stored.is_err() {
                    home.expect(slot, 0);
                }
                stored?;
                driver.record(event, stream)?;
                let begun = Instant::now();
                let mut done = false;
                while !done && begun.elapsed() < PROBE {
                    done = driver.query_event(event)?;
                    std::thread::yield_now();
                }
                driver.destroy_event(event)?;
                Ok((done, crate::reached(home.place.line(), slot, PROBE_VALUE)))
            });
            driver.destroy_stream(stream)?;
            seen
        });
        match seen.map_err(say)? {
            (_, true) => Ok(()),
            (true, false) => {
                Err("it took the store of a word, said done, and the word never changed".into())
            }
            (false, false) => Err(format!("it stored no word within {} s", PROBE.as_secs())),
        }
    }
}

impl<V: Vendor> Inner<V> {
    /// Runs driver calls in this device's context.
    pub(crate) fn within<T, E: From<Failure>>(
        &self,
        calls: impl FnOnce(&V) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let entered = self.driver.enter(self.ordinal, self.context)?;
        let result = calls(&self.driver);
        self.driver.leave(entered);
        result
    }

    /// Runs driver calls in this device's context; what fails becomes an error.
    pub(crate) fn call<T>(
        &self,
        doing: impl FnOnce() -> String,
        calls: impl FnOnce(&V) -> Raw<T>,
    ) -> Result<T> {
        self.within(calls).map_err(|failure| self.driver.error(&doing(), failure))
    }

    pub(crate) fn can_store(&self) -> bool {
        hold(&self.caps).flag_wait.is_ok()
    }

    /// A zeroed line that nobody has.
    pub(super) fn place(&self) -> Raw<Place> {
        self.sweep();
        if let Some(place) = hold(&self.places).take() {
            return Ok(place);
        }
        let memory = self.within(|driver| driver.allocate(PAGE))?;
        if !Page::is_aligned(memory) {
            let _ = self.within(|driver| driver.free(memory));
            return Err(Failure::Missing("an allocation aligned to 64 bytes"));
        }
        // SAFETY: a page of that size, which nobody uses yet.
        unsafe { memory.host.as_ptr().write_bytes(0, PAGE) };
        let mut places = hold(&self.places);
        places.add(Page { memory });
        places.take().ok_or(Failure::Missing("a line in a new page"))
    }

    pub(super) fn places(&self) -> MutexGuard<'_, Places<V>> {
        hold(&self.places)
    }

    pub(crate) fn sweep(&self) {
        // Dropped after the lock is released: a line's drop takes it again.
        let swept = hold(&self.places).sweep();
        drop(swept);
    }

    /// A doorbell number that was never used before on this device.
    pub(super) fn next_ring(&self) -> u64 {
        self.rings.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn next_queue(&self) -> u64 {
        self.queues.fetch_add(1, Ordering::Relaxed)
    }
}

impl<V: Vendor> Drop for Inner<V> {
    fn drop(&mut self) {
        let places = std::mem::take(self.places.get_mut().unwrap_or_else(PoisonError::into_inner));
        let Some(pages) = places.into_pages() else { return };
        let (driver, ordinal, context) = (self.driver.clone(), self.ordinal, self.context);
        let close = move || {
            // A context that died has freed its pages already; the reference is given back all the same.
            if let Ok(entered) = driver.enter(ordinal, context) {
                for page in &pages {
                    let _ = driver.free(page.memory);
                }
                driver.leave(entered);
            }
            let _ = driver.release(ordinal);
        };
        // Freeing page-locked memory may wait for whatever runs in the context, and the last reference to
        // it for all of it; a drop waits for nothing (invariant 7).
        let name = "gpu-reactor-close".to_owned();
        let close = Arc::new(Mutex::new(Some(close)));
        let other = close.clone();
        let spawned = std::thread::Builder::new().name(name).spawn(move || run_once(&other));
        if spawned.is_err() {
            run_once(&close);
        }
    }
}

fn run_once(deed: &Mutex<Option<impl FnOnce()>>) {
    let deed = hold(deed).take();
    if let Some(deed) = deed {
        deed();
    }
}

impl<V: Vendor> Clone for Device<V> {
    fn clone(&self) -> Self {
        Device { inner: self.inner.clone() }
    }
}

impl<V: Vendor> std::fmt::Debug for Device<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, ordinal) = (&self.inner.name, self.inner.ordinal);
        f.debug_struct("Device").field("name", name).field("ordinal", &ordinal).finish()
    }
}

/// Locks; nobody here leaves anything half done.
pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
