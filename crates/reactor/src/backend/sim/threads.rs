//! The simulated device in real time: a thread for each queue.
//!
//! Upholds invariants 5 (no lock is held while an effect runs), 7 (no drop waits for the device) and 8
//! (its loss reaches every wait).

use super::engine::{Deed, Engine};
use super::{SimOptions, Work, lost};
use crate::host::std_host::StdClock;
use crate::{
    Bell, Clock, CompletionLine, DurNs, Error, LINE_WORDS, MonoNs, Queue, Result, Slot, error,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A simulated device whose queues run on threads of this process. Clones are the same device.
#[derive(Clone)]
pub struct SimDevice {
    shared: Arc<Device>,
}

pub(super) struct Device {
    pub(super) options: SimOptions,
    lost: AtomicBool,
    /// Doorbell numbers: never used twice.
    rings: AtomicU64,
    /// What threads that ended have used.
    cpu_ended_ns: AtomicU64,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    count: u64,
    queues: Vec<Weak<Shared>>,
    line: Option<Arc<CompletionLine>>,
}

/// What a queue and its thread share.
pub(super) struct Shared {
    pub(super) device: Arc<Device>,
    pub(super) engine: Mutex<Engine>,
    /// Wakes the thread: work, or the end.
    work: Condvar,
    /// Wakes blocked waits: a status, or a loss.
    status: Condvar,
    pub(super) closed: AtomicBool,
    /// What the status says is done: no lock is taken for it, so that asking holds nobody up.
    pub(super) done: AtomicU64,
    cpu_ns: AtomicU64,
    line: Arc<CompletionLine>,
    slot: Slot,
    bell: Mutex<Option<(Arc<Bell>, Slot)>>,
    pub(super) label: String,
}

impl SimDevice {
    /// A device that behaves as the options say.
    pub fn start(options: SimOptions) -> SimDevice {
        let shared = Device {
            options,
            lost: AtomicBool::new(false),
            rings: AtomicU64::new(0),
            cpu_ended_ns: AtomicU64::new(0),
            made: Mutex::default(),
        };
        SimDevice { shared: Arc::new(shared) }
    }

    /// Another queue, on a thread of its own. Eight share a line.
    ///
    /// # Errors
    ///
    /// `System` when the system gives no thread.
    pub fn queue(&self) -> Result<SimQueue> {
        let mut made = hold(&self.shared.made);
        let slot = Slot::ALL[(made.count % LINE_WORDS as u64) as usize];
        if slot.index() == 0 {
            made.line = None;
        }
        let line = made.line.get_or_insert_default().clone();
        let label = format!("simulated queue {}", made.count);
        let shared = Arc::new(Shared {
            device: self.shared.clone(),
            engine: Mutex::new(Engine::new(self.shared.options.clone(), made.count)),
            work: Condvar::new(),
            status: Condvar::new(),
            closed: AtomicBool::new(false),
            done: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            line,
            slot,
            bell: Mutex::new(None),
            label: label.clone(),
        });
        let run = shared.clone();
        let thread = std::thread::Builder::new().name(format!("sim-queue-{}", made.count));
        thread.spawn(move || run.run()).map_err(|e| {
            error!(System, format!("starting the thread of {label}"), e.to_string())
        })?;
        made.count += 1;
        made.queues.retain(|queue| queue.strong_count() > 0);
        made.queues.push(Arc::downgrade(&shared));
        Ok(SimQueue { shared })
    }

    /// CPU time that the device's own threads have used: what a real device's would not be.
    pub fn cpu_time(&self) -> DurNs {
        let made = hold(&self.shared.made);
        let live = made.queues.iter().filter_map(Weak::upgrade);
        let live: u64 = live.map(|queue| queue.cpu_ns.load(Ordering::Relaxed)).sum();
        DurNs(live + self.shared.cpu_ended_ns.load(Ordering::Relaxed))
    }

    /// Loses the device now.
    pub fn lose(&self) {
        self.shared.lose();
    }
}

impl std::fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDevice").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl Device {
    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        let queues: Vec<_> = hold(&self.made).queues.iter().filter_map(Weak::upgrade).collect();
        for queue in queues {
            let remains = hold(&queue.engine).stop();
            drop(remains);
            queue.work.notify_all();
            queue.status.notify_all();
        }
    }
}

impl Shared {
    pub(super) fn is_lost(&self) -> bool {
        self.device.lost.load(Ordering::Acquire)
    }

    /// The queue's thread: does what is due, then sleeps until the next thing is.
    fn run(&self) {
        crate::host::std_host::least_timer_slack();
        let clock = StdClock::new();
        let mut engine = hold(&self.engine);
        while !self.closed.load(Ordering::Acquire) {
            let now = clock.monotonic_ns();
            if let Some(deed) = engine.step(now) {
                if let Deed::Word(number) = deed {
                    // Before the store, so that whoever sees the word finds its time.
                    engine.note_store(number, clock.monotonic_ns());
                }
                drop(engine);
                self.perform(deed, clock);
                engine = hold(&self.engine);
                continue;
            }
            self.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
            engine = match engine.next_event() {
                None => self.work.wait(engine).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = Duration::from(at.since(now));
                    let woken = self.work.wait_timeout(engine, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        drop(engine);
        // Summed under the lock that readers hold, so that no time is counted twice.
        let _made = hold(&self.device.made);
        self.cpu_ns.store(0, Ordering::Relaxed);
        self.device.cpu_ended_ns.fetch_add(thread_cpu_ns(), Ordering::Relaxed);
    }

    fn perform(&self, deed: Deed, clock: StdClock) {
        match deed {
            Deed::Effect(effect) => {
                // A panic in the work is a fault of the device, not of its thread.
                let run = std::panic::AssertUnwindSafe(effect);
                match std::panic::catch_unwind(run) {
                    Ok(()) => hold(&self.engine).ran_until(clock.monotonic_ns()),
                    Err(_) => self.device.lose(),
                }
            }
            Deed::Word(number) => {
                self.line.store(self.slot, number);
                let bell = hold(&self.bell).clone();
                if let Some((bell, group)) = bell {
                    let ring = self.device.rings.fetch_add(1, Ordering::Relaxed) + 1;
                    bell.ring_group(group, ring);
                }
            }
            Deed::Status(number) => {
                if !self.is_lost() {
                    let mut engine = hold(&self.engine);
                    engine.set_done(number);
                    // Under the lock: a blocked wait that sees the one sees the other.
                    self.done.fetch_max(number, Ordering::Release);
                    drop(engine);
                    self.status.notify_all();
                }
            }
            Deed::Lose => self.device.lose(),
        }
    }
}

/// An in-order queue of a [`SimDevice`]. Dropping it waits for nothing: work that did not end is
/// dropped.
pub struct SimQueue {
    pub(super) shared: Arc<Shared>,
}

impl SimQueue {
    /// Submits work with the store of the next number behind it: that number.
    ///
    /// # Errors
    ///
    /// `DeviceLost`, or `StoreRefused`: then nothing was submitted.
    pub fn submit(&mut self, work: Work) -> Result<u64> {
        self.check()?;
        let mut engine = hold(&self.shared.engine);
        let (now, label) = (StdClock::new().monotonic_ns(), &self.shared.label);
        let number = engine.next_number(label)?;
        engine.submit(work, now, Some(number));
        let number = engine.store_next(now, label)?;
        drop(engine);
        self.shared.work.notify_one();
        Ok(number)
    }

    /// Submits work with no store behind it.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn submit_bare(&mut self, work: Work) -> Result<()> {
        self.check()?;
        hold(&self.shared.engine).submit(work, StdClock::new().monotonic_ns(), None);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Rings that doorbell word behind each store from now on.
    pub fn ring(&mut self, bell: Arc<Bell>, group: Slot) {
        *hold(&self.shared.bell) = Some((bell, group));
    }

    /// When the store of a number really happened, on the clock of
    /// [`StdClock`]; `None` before it did, and for numbers over
    /// 4,096 stores old.
    pub fn stored_at(&self, number: u64) -> Option<MonoNs> {
        hold(&self.shared.engine).stored_at(number)
    }

    fn check(&self) -> Result<()> {
        if self.shared.is_lost() { Err(self.loss()) } else { Ok(()) }
    }

    fn loss(&self) -> Error {
        lost(&self.shared.label)
    }
}

impl Queue for SimQueue {
    type Line = CompletionLine;

    fn line(&self) -> &Arc<CompletionLine> {
        &self.shared.line
    }

    fn slot(&self) -> Slot {
        self.shared.slot
    }

    fn store_next(&mut self) -> Result<u64> {
        self.check()?;
        let now = StdClock::new().monotonic_ns();
        let number = hold(&self.shared.engine).store_next(now, &self.shared.label)?;
        self.shared.work.notify_one();
        Ok(number)
    }

    fn status(&mut self, number: u64) -> Result<bool> {
        let faults = &self.shared.device.options.faults;
        if faults.slow_status > DurNs(0) {
            std::thread::sleep(Duration::from(faults.slow_status));
        }
        if self.shared.is_lost() {
            return if faults.lie_after_loss { Ok(true) } else { Err(self.loss()) };
        }
        // No lock: polling in a tight loop would keep the queue's thread from its own.
        Ok(self.shared.done.load(Ordering::Acquire) >= number)
    }

    fn block(&mut self, number: u64, bound: DurNs) -> Result<bool> {
        let engine = hold(&self.shared.engine);
        let pending = |engine: &mut Engine| engine.done() < number && !self.shared.is_lost();
        let bound = Duration::from(bound);
        let waited = self.shared.status.wait_timeout_while(engine, bound, pending);
        let engine = waited.unwrap_or_else(PoisonError::into_inner).0;
        if engine.done() >= number {
            return Ok(true);
        }
        drop(engine);
        match self.shared.is_lost() {
            true if self.shared.device.options.faults.lie_after_loss => Ok(true),
            true => Err(self.loss()),
            false => Ok(false),
        }
    }

    fn confirm(&mut self, _number: u64) -> Result<()> {
        self.check()
    }

    fn label(&self) -> &str {
        &self.shared.label
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        // Under the lock, so that the thread is either before its look at `closed` or asleep.
        let remains = hold(&self.shared.engine).stop();
        drop(remains);
        self.shared.work.notify_all();
    }
}

impl std::fmt::Debug for SimQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimQueue").field("label", &self.shared.label).finish_non_exhaustive()
    }
}

/// Locks; a panic of somebody who held it left nothing half done here.
pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(target_os = "linux")]
fn thread_cpu_ns() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (used.tv_sec as u64) * 1_000_000_000 + used.tv_nsec as u64
}

#[cfg(not(target_os = "linux"))]
fn thread_cpu_ns() -> u64 {
    0
}
