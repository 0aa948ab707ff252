//! The simulated machine behind both vendors' entry points: one for each loaded copy of the library.

pub(crate) mod code;
pub(crate) mod context;
pub(crate) mod event;
// The watcher's own: asking for the process at every call would be a system call each.
#[path = "../../../reactor/src/watcher/fork.rs"]
mod fork;
pub(crate) mod graph;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod pool;
pub(crate) mod stream;

use crate::script::Script;
use code::*;
use context::{Context, Device};
use event::Event;
use fork::ForkMark;
use graph::Graph;
use kernel::{Function, Module};
use memory::Memory;
use pool::Pool;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use stream::Stream;

pub(crate) type Result<T> = std::result::Result<T, Code>;

/// The store log keeps so many.
const LOG: usize = 1 << 16;

pub(crate) struct Machine {
    script: RwLock<Arc<Script>>,
    /// Of the process that initialised it.
    initialised: OnceLock<ForkMark>,
    devices: OnceLock<Vec<Device>>,
    pub(crate) contexts: Table<Context>,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) pools: Table<Pool>,
    pub(crate) memory: Memory,
    stores: Mutex<VecDeque<(u64, u64, u64)>>,
    /// CPU time of the device's threads that ended, and of those that live.
    pub(crate) device_cpu: AtomicU64,
    /// Streams that capture in global mode, in the whole process.
    pub(crate) global_captures: AtomicUsize,
    calls: RwLock<HashMap<&'static str, AtomicU64>>,
    counting: AtomicBool,
}

thread_local! {
    /// The contexts pushed on this thread, the current one last. It is never destroyed, for destructors of
    /// a thread's variables may call the driver.
    pub(crate) static CURRENT: ManuallyDrop<RefCell<Vec<Option<Arc<Context>>>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    /// The thread's number, from 1; 0 before it was asked for.
    static THREAD: Cell<u64> = const { Cell::new(0) };
    /// This thread is the driver's own, running a host function.
    pub(crate) static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    /// The thread's capture mode: 0 global, 1 thread-local, 2 relaxed.
    pub(crate) static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
    /// HIP: the thread's device.
    pub(crate) static HIP_DEVICE: Cell<usize> = const { Cell::new(0) };
}

/// The one machine of this copy of the library.
pub(crate) fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let text = std::env::var("GPU_DRIVER_SIM").unwrap_or_default();
        let script = Script::parse(&text).unwrap_or_else(|bad| {
            eprintln!("GPU_DRIVER_SIM: {bad}");
            std::process::abort();
        });
        Machine {
            script: RwLock::new(Arc::new(script)),
            initialised: OnceLock::new(),
            devices: OnceLock::new(),
            contexts: Table::new(1),
            streams: Table::new(2),
            events: Table::new(3),
            modules: Table::new(4),
            functions: Table::new(5),
            graphs: Table::new(6),
            pools: Table::new(7),
            memory: Memory::default(),
            stores: Mutex::new(VecDeque::new()),
            device_cpu: AtomicU64::new(0),
            global_captures: AtomicUsize::new(0),
            calls: RwLock::default(),
            counting: AtomicBool::new(false),
        }
    })
}

impl Machine {
    pub(crate) fn script(&self) -> Arc<Script> {
        self.script.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_script(&self, script: Script) {
        *self.script.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
    }

    /// What every entry point does first.
    pub(crate) fn enter(&self, entry: &'static str, needs_init: bool) -> Result<()> {
        if self.counting.load(Ordering::Relaxed) {
            self.count(entry);
        }
        if let Some((_, status)) = self.script().refuse.iter().find(|(name, _)| name == entry) {
            return Err(*status);
        }
        if IN_CALLBACK.get() {
            return Err(NOT_PERMITTED);
        }
        // A child of a fork has the parent's memory and none of the driver's threads.
        if needs_init && !self.initialised.get().is_some_and(ForkMark::is_here) {
            return Err(NOT_INITIALIZED);
        }
        Ok(())
    }

    pub(crate) fn init(&self) -> Result<()> {
        match self.initialised.get().map(ForkMark::is_here) {
            None => {}
            Some(true) => return Ok(()),
            Some(false) => return Err(NOT_INITIALIZED),
        }
        let devices = self.script().devices;
        if devices == 0 {
            return Err(NO_DEVICE);
        }
        self.devices.get_or_init(|| (0..devices).map(Device::new).collect());
        self.initialised.get_or_init(ForkMark::new);
        Ok(())
    }

    pub(crate) fn devices(&self) -> &[Device] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn device(&self, index: i32) -> Result<&Device> {
        usize::try_from(index).ok().and_then(|i| self.devices().get(i)).ok_or(INVALID_DEVICE)
    }

    /// Notes a store that is about to land, so that whoever sees it finds its time.
    pub(crate) fn note_store(&self, address: u64, value: u64) {
        let mut stores = hold(&self.stores);
        if stores.len() == LOG {
            stores.pop_front();
        }
        stores.push_back((address, value, now()));
    }

    pub(crate) fn stored_at(&self, address: u64, value: u64) -> Option<u64> {
        let stores = hold(&self.stores);
        let found = stores.iter().rev().find(|&&(a, v, _)| (a, v) == (address, value));
        found.map(|&(_, _, at)| at)
    }

    fn count(&self, entry: &'static str) {
        let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = calls.get(entry) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        drop(calls);
        let mut calls = self.calls.write().unwrap_or_else(PoisonError::into_inner);
        calls.entry(entry).or_default().fetch_add(1, Ordering::Relaxed);
    }

    /// How many of a thing there are: `contexts`, `streams`, `events`, `modules`, `pages`, `references` (to
    /// primary contexts), or how often an entry point was called since it was first asked about.
    pub(crate) fn tally(&self, what: &str) -> u64 {
        let length = match what {
            "contexts" => self.contexts.len(),
            "streams" => self.streams.len(),
            "events" => self.events.len(),
            "modules" => self.modules.len(),
            "pages" => self.memory.host_blocks(),
            "references" => self.devices().iter().map(Device::references).sum(),
            entry => {
                self.counting.store(true, Ordering::Relaxed);
                let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
                return calls.get(entry).map_or(0, |count| count.load(Ordering::Relaxed));
            }
        };
        length as u64
    }
}

/// Handles of one kind of thing. A handle is never used twice, and one of another kind is not found.
pub(crate) struct Table<T> {
    kind: usize,
    next: AtomicUsize,
    things: RwLock<HashMap<usize, Arc<T>>>,
}

impl<T> Table<T> {
    fn new(kind: usize) -> Table<T> {
        Table { kind, next: AtomicUsize::new(1), things: RwLock::default() }
    }

    pub(crate) fn add(&self, thing: T) -> usize {
        self.add_shared(Arc::new(thing))
    }

    pub(crate) fn add_shared(&self, thing: Arc<T>) -> usize {
        // Not an address that anybody could follow, and above what CUDA uses for its special streams.
        let handle = (self.next.fetch_add(1, Ordering::Relaxed) << 8) | (self.kind << 4);
        self.things.write().unwrap_or_else(PoisonError::into_inner).insert(handle, thing);
        handle
    }

    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>> {
        let things = self.things.read().unwrap_or_else(PoisonError::into_inner);
        things.get(&handle).cloned().ok_or(INVALID_HANDLE)
    }

    pub(crate) fn remove(&self, handle: usize) -> Result<Arc<T>> {
        let mut things = self.things.write().unwrap_or_else(PoisonError::into_inner);
        things.remove(&handle).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<usize> {
        let things = self.things.read().unwrap_or_else(PoisonError::into_inner);
        things.iter().find(|(_, thing)| wanted(thing)).map(|(&handle, _)| handle)
    }

    fn len(&self) -> usize {
        self.things.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The calling thread's number: like its `ThreadId`, and there until its very end.
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if THREAD.get() == 0 {
        THREAD.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

/// Locks; nobody here leaves anything half done.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The system's monotonic clock, in nanoseconds.
pub(crate) fn now() -> u64 {
    nanoseconds(rustix::time::ClockId::Monotonic)
}

pub(crate) fn thread_cpu() -> u64 {
    nanoseconds(rustix::time::ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
