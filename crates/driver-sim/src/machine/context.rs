//! Devices and contexts. A primary context lives while somebody holds a reference to it; memory and streams
//! die with it, and a fault stays with it.

use super::code::*;
use super::memory::Kind;
use super::pool::Pool;
use super::stream::Stream;
use super::{CURRENT, HIP_DEVICE, Result, hold, machine};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

pub(crate) struct Device {
    pub(crate) index: u32,
    primary: Mutex<Primary>,
    pool: OnceLock<usize>,
}

#[derive(Default)]
struct Primary {
    references: usize,
    flags: u32,
    context: Option<Arc<Context>>,
}

pub(crate) struct Context {
    handle: OnceLock<usize>,
    pub(crate) device: u32,
    pub(crate) flags: AtomicU32,
    fault: AtomicI32,
    gone: AtomicBool,
    streams: Mutex<Vec<Weak<Stream>>>,
    legacy: OnceLock<Arc<Stream>>,
    per_thread: Mutex<HashMap<u64, Arc<Stream>>>,
}

impl Device {
    pub(super) fn new(index: u32) -> Device {
        Device { index, primary: Mutex::default(), pool: OnceLock::new() }
    }

    /// Its default memory pool.
    pub(crate) fn pool(&self) -> usize {
        *self.pool.get_or_init(|| machine().pools.add(Pool::default()))
    }

    pub(crate) fn references(&self) -> usize {
        hold(&self.primary).references
    }

    pub(crate) fn retain(&self) -> Arc<Context> {
        let mut primary = hold(&self.primary);
        primary.references += 1;
        let (index, flags) = (self.index, primary.flags);
        primary.context.get_or_insert_with(|| Context::create(index, flags)).clone()
    }

    pub(crate) fn release(&self) -> Result<()> {
        let mut primary = hold(&self.primary);
        primary.references = primary.references.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        let last = if primary.references == 0 { primary.context.take() } else { None };
        drop(primary);
        if let Some(context) = last {
            context.destroy();
        }
        Ok(())
    }

    /// Destroys the primary context whoever holds it; references stay.
    pub(crate) fn reset(&self) {
        let context = hold(&self.primary).context.take();
        if let Some(context) = context {
            context.destroy();
        }
    }

    pub(crate) fn state(&self) -> (u32, bool) {
        let primary = hold(&self.primary);
        (primary.flags, primary.context.is_some())
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        let mut primary = hold(&self.primary);
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
    }
}

impl Context {
    pub(crate) fn create(device: u32, flags: u32) -> Arc<Context> {
        let context = Arc::new(Context {
            handle: OnceLock::new(),
            device,
            flags: AtomicU32::new(flags),
            fault: AtomicI32::new(OK),
            gone: AtomicBool::new(false),
            streams: Mutex::default(),
            legacy: OnceLock::new(),
            per_thread: Mutex::default(),
        });
        let handle = machine().contexts.add_shared(context.clone());
        let _ = context.handle.set(handle);
        context
    }

    pub(crate) fn handle(&self) -> usize {
        self.handle.get().copied().unwrap_or(0)
    }

    /// Spins in `synchronize` unless the flags say that it blocks.
    pub(crate) fn spins(&self) -> bool {
        const BLOCKING_SYNC: u32 = 4;
        self.flags.load(Ordering::Relaxed) & BLOCKING_SYNC == 0
    }

    /// The fault that stays, or the end of the context.
    pub(crate) fn check(&self) -> Result<()> {
        if self.gone.load(Ordering::Acquire) {
            return Err(CONTEXT_DESTROYED);
        }
        match self.fault.load(Ordering::Acquire) {
            OK => Ok(()),
            fault => Err(fault),
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.check().is_err()
    }

    /// A kernel faulted: all that is pending in the context never happens.
    pub(crate) fn fault(&self, code: Code) {
        let first = self.fault.compare_exchange(OK, code, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            self.each_stream(|stream| stream.abandon());
        }
    }

    pub(crate) fn destroy(&self) {
        self.gone.store(true, Ordering::Release);
        self.each_stream(|stream| {
            stream.abandon();
            stream.close();
        });
        hold(&self.per_thread).clear();
        machine().memory.free_context(self.handle());
        let _ = machine().contexts.remove(self.handle());
    }

    pub(crate) fn adopt(&self, stream: &Arc<Stream>) {
        let mut streams = hold(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    pub(crate) fn each_stream(&self, mut deed: impl FnMut(&Arc<Stream>)) {
        let streams: Vec<_> = hold(&self.streams).iter().filter_map(Weak::upgrade).collect();
        streams.iter().for_each(&mut deed);
    }

    pub(crate) fn legacy_if_used(&self) -> Option<&Arc<Stream>> {
        self.legacy.get()
    }

    fn legacy(self: &Arc<Context>) -> Arc<Stream> {
        self.legacy.get_or_init(|| Stream::create(self, true, true)).clone()
    }

    fn of_this_thread(self: &Arc<Context>) -> Arc<Stream> {
        let mut streams = hold(&self.per_thread);
        let thread = super::this_thread();
        streams.entry(thread).or_insert_with(|| Stream::create(self, true, false)).clone()
    }
}

/// The thread's current context.
pub(crate) fn current() -> Result<Arc<Context>> {
    let current = CURRENT.with(|stack| stack.borrow().last().cloned().flatten());
    let context = current.ok_or(INVALID_CONTEXT)?;
    context.check()?;
    Ok(context)
}

/// The current context as HIP has it: the primary one of the thread's device, made when first used.
pub(crate) fn current_hip() -> Result<Arc<Context>> {
    let device = machine().device(HIP_DEVICE.get() as i32)?;
    let made = hold(&device.primary).context.clone();
    let context = made.unwrap_or_else(|| device.retain());
    context.check()?;
    Ok(context)
}

/// The stream of a handle, the special ones included: 0 and 1 are the legacy stream, 2 the thread's own.
pub(crate) fn stream(handle: usize, of: impl Fn() -> Result<Arc<Context>>) -> Result<Arc<Stream>> {
    match handle {
        0 | 1 => Ok(of()?.legacy()),
        2 => Ok(of()?.of_this_thread()),
        handle => machine().streams.get(handle),
    }
}

/// Allocates in a context.
pub(crate) fn allocate(context: &Context, bytes: usize, kind: Kind) -> Result<usize> {
    context.check()?;
    machine().memory.allocate(bytes, kind, context.handle(), None)
}

/// Allocates device memory from a pool, by its handle.
pub(crate) fn allocate_from(pool: usize, context: &Context, bytes: usize) -> Result<u64> {
    context.check()?;
    let pool = machine().pools.get(pool)?;
    let handle = context.handle();
    Ok(machine().memory.allocate(bytes, Kind::Device, handle, Some(pool))? as u64)
}
