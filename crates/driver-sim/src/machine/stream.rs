//! Streams: in-order queues, each run by a thread of its own, which is started by the first operation.

use super::code::*;
use super::context::Context;
use super::event::Event;
use super::kernel::{Effect, Launch};
use super::memory::Kind;
use super::{CAPTURE_MODE, IN_CALLBACK, Result, hold, machine, now, thread_cpu};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A host function and what it is given.
#[derive(Clone, Copy)]
pub(crate) struct HostFn {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

/// How a stream waits for a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compare {
    /// CUDA's GEQ: the signed difference is not negative.
    Cyclic,
    /// HIP's GEQ.
    AtLeast,
    Equal,
    And,
    Nor,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum MemOp {
    Store { address: u64, value: u64, wide: bool },
    Wait { address: u64, value: u64, wide: bool, compare: Compare },
}

#[derive(Clone)]
pub(crate) enum Deed {
    Kernel(Launch),
    /// A copy or a fill: what it does, at once when its turn comes.
    Move(Effect),
    /// Frees device memory when its turn comes.
    Free(usize),
    Host(HostFn),
    Memory(Vec<MemOp>),
    Record(Arc<Event>, u64),
    WaitFor(Arc<Event>, u64),
}

struct Op {
    deed: Deed,
    /// What other streams have to finish first.
    after: Vec<(Arc<Stream>, u64)>,
    submitted: u64,
}

pub(crate) struct Stream {
    handle: OnceLock<usize>,
    context: Arc<Context>,
    /// It synchronises with the legacy stream.
    blocking: bool,
    legacy: bool,
    state: Mutex<State>,
    work: Condvar,
    progress: Condvar,
    submitted: AtomicU64,
    finished: AtomicU64,
    /// 0 not, 1 active, 2 invalidated: as the drivers number it.
    capture: AtomicI32,
    closed: AtomicBool,
    /// When its last kernels ended, and the number of the first of these.
    ended: Mutex<(u64, VecDeque<u64>)>,
}

#[derive(Default)]
struct State {
    ops: VecDeque<Op>,
    running: bool,
    captured: Vec<Deed>,
    capture_mode: i32,
    /// The stream's thread waits for work: a submit wakes it. One that a kernel keeps busy isn't disturbed, and
    /// who submits pays no wake.
    idle: bool,
    /// How many wait for progress.
    waiting: usize,
}

impl Stream {
    pub(crate) fn create(context: &Arc<Context>, blocking: bool, legacy: bool) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            handle: OnceLock::new(),
            context: context.clone(),
            blocking,
            legacy,
            state: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            submitted: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            capture: AtomicI32::new(0),
            closed: AtomicBool::new(false),
            ended: Mutex::new((1, VecDeque::new())),
        });
        context.adopt(&stream);
        stream
    }

    /// Makes a handle for it.
    pub(crate) fn publish(self: Arc<Stream>) -> usize {
        let handle = machine().streams.add_shared(self.clone());
        let _ = self.handle.set(handle);
        handle
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.blocking
    }

    /// Submits, or captures.
    pub(crate) fn submit(self: &Arc<Stream>, deed: Deed) -> Result<()> {
        self.context.check()?;
        match self.capture.load(Ordering::Acquire) {
            0 => {}
            1 => {
                hold(&self.state).captured.push(deed);
                return Ok(());
            }
            _ => return Err(CAPTURE_INVALIDATED),
        }
        self.refuse_implicit()?;
        self.push(deed)
    }

    fn push(self: &Arc<Stream>, deed: Deed) -> Result<()> {
        let after = self.dependencies();
        let submitted = now();
        let most = machine().script().pending;
        let mut state = hold(&self.state);
        // A full stream blocks the caller until there is room.
        while state.ops.len() >= most {
            state = self.progressed(state);
            self.context.check()?;
        }
        if !state.running {
            state.running = true;
            let stream = self.clone();
            let thread = std::thread::Builder::new().name("driver-sim".into());
            if thread.spawn(move || stream.run()).is_err() {
                state.running = false;
                return Err(OUT_OF_MEMORY);
            }
        }
        state.ops.push_back(Op { deed, after, submitted });
        self.submitted.fetch_add(1, Ordering::AcqRel);
        if std::mem::take(&mut state.idle) {
            drop(state);
            self.work.notify_all();
        }
        Ok(())
    }

    /// The legacy stream waits for the blocking ones and they for it.
    fn dependencies(&self) -> Vec<(Arc<Stream>, u64)> {
        let mut after = Vec::new();
        let mut add = |stream: &Arc<Stream>| {
            if !stream.is_idle() {
                after.push((stream.clone(), stream.submitted.load(Ordering::Acquire)));
            }
        };
        if self.legacy {
            self.context.each_stream(|stream| {
                if stream.blocking && !stream.legacy {
                    add(stream);
                }
            });
        } else if self.blocking
            && let Some(legacy) = self.context.legacy_if_used()
        {
            add(legacy);
        }
        after
    }

    /// The legacy stream can't be used while a blocking stream captures: it would have to wait for it.
    fn refuse_implicit(&self) -> Result<()> {
        let mut refused = false;
        if self.legacy {
            self.context.each_stream(|stream| {
                if stream.blocking && stream.capture.load(Ordering::Acquire) != 0 {
                    stream.capture.store(2, Ordering::Release);
                    refused = true;
                }
            });
        }
        if refused { Err(CAPTURE_IMPLICIT) } else { Ok(()) }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.finished.load(Ordering::Acquire) >= self.submitted.load(Ordering::Acquire)
    }

    /// A query, or anything else that a capture doesn't survive.
    pub(crate) fn refuse_capture(&self) -> Result<()> {
        match self.capture.load(Ordering::Acquire) {
            0 => self.refuse_implicit(),
            1 => {
                self.capture.store(2, Ordering::Release);
                Err(CAPTURE_UNSUPPORTED)
            }
            _ => Err(CAPTURE_INVALIDATED),
        }
    }

    pub(crate) fn query(&self) -> Result<()> {
        self.refuse_capture()?;
        self.context.check()?;
        if self.is_idle() { Ok(()) } else { Err(NOT_READY) }
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.refuse_capture()?;
        let target = self.submitted.load(Ordering::Acquire);
        let spins = self.context.spins();
        loop {
            if let Err(status) = self.context.check() {
                return if machine().script().lie_after_loss { Ok(()) } else { Err(status) };
            }
            if self.finished.load(Ordering::Acquire) >= target {
                return Ok(());
            }
            if spins {
                std::hint::spin_loop();
                continue;
            }
            let state = hold(&self.state);
            if self.finished.load(Ordering::Acquire) < target && !self.context.is_dead() {
                drop(self.progressed(state));
            }
        }
    }

    /// When that kernel of the stream ended, from 1; `None` before it did, and for one long ago.
    pub(crate) fn ended_at(&self, kernel: u64) -> Option<u64> {
        let ended = hold(&self.ended);
        ended.1.get(usize::try_from(kernel.checked_sub(ended.0)?).ok()?).copied()
    }

    fn note_end(&self) {
        const MOST: usize = 1 << 14;
        let mut ended = hold(&self.ended);
        if ended.1.len() == MOST {
            ended.1.pop_front();
            ended.0 += 1;
        }
        ended.1.push_back(now());
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.capture.load(Ordering::Acquire) != 0
    }

    pub(crate) fn capture_status(&self) -> Result<i32> {
        self.refuse_implicit_quietly()?;
        Ok(self.capture.load(Ordering::Acquire))
    }

    /// Asking the legacy stream whether it captures, while a blocking one does, is an error and breaks nothing.
    fn refuse_implicit_quietly(&self) -> Result<()> {
        let mut captures = false;
        if self.legacy {
            self.context.each_stream(|stream| {
                captures |= stream.blocking && stream.capture.load(Ordering::Acquire) != 0;
            });
        }
        if captures { Err(CAPTURE_IMPLICIT) } else { Ok(()) }
    }

    pub(crate) fn begin_capture(&self, mode: i32) -> Result<()> {
        if self.legacy {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let mut state = hold(&self.state);
        if self.capture.load(Ordering::Acquire) != 0 {
            return Err(ILLEGAL_STATE);
        }
        state.captured.clear();
        state.capture_mode = mode;
        if mode == 0 {
            machine().global_captures.fetch_add(1, Ordering::AcqRel);
        }
        self.capture.store(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn end_capture(&self) -> Result<Vec<Deed>> {
        let mut state = hold(&self.state);
        let status = self.capture.swap(0, Ordering::AcqRel);
        if status == 0 {
            return Err(ILLEGAL_STATE);
        }
        if state.capture_mode == 0 {
            machine().global_captures.fetch_sub(1, Ordering::AcqRel);
        }
        let deeds = std::mem::take(&mut state.captured);
        if status == 1 { Ok(deeds) } else { Err(CAPTURE_INVALIDATED) }
    }

    /// What some releases of HIP do with a store in a capture.
    pub(crate) fn store_at_once(&self, op: MemOp) -> Result<()> {
        let MemOp::Store { address, value, wide } = op else { return Err(INVALID_VALUE) };
        machine().note_store(address, value);
        machine().memory.pinned(|memory| memory.store(address, value, wide))
    }

    pub(crate) fn invalidate_capture(&self) {
        let _ = self.capture.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Acquire);
    }

    /// What is pending never happens.
    pub(crate) fn abandon(&self) {
        let dropped = std::mem::take(&mut hold(&self.state).ops);
        for op in &dropped {
            if let Deed::Record(event, _) = &op.deed {
                event.stir();
            }
        }
        let host = dropped.into_iter().filter_map(|op| match op.deed {
            Deed::Host(host) => Some(host),
            _ => None,
        });
        if machine().script().callback_after_fault {
            host.for_each(call);
        }
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// No more work comes; what is there is still done.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        drop(hold(&self.state));
        self.work.notify_all();
    }

    fn progressed<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // The bound is for what was told before this thread listened.
        let bound = Duration::from_millis(5);
        state.waiting += 1;
        let waited = self.progress.wait_timeout(state, bound);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.waiting -= 1;
        state
    }

    fn run(self: Arc<Stream>) {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut worker = Worker { free_at: 0, kernels: 0, cpu: 0, late: None, owed: 0 };
        loop {
            let mut state = hold(&self.state);
            let op = loop {
                if let Some(op) = state.ops.pop_front() {
                    break op;
                }
                if worker.late.is_some() {
                    drop(state);
                    worker.settle(&self);
                    self.finish(&mut worker);
                    state = hold(&self.state);
                    continue;
                }
                if self.closed.load(Ordering::Acquire) {
                    return;
                }
                worker.account();
                state.idle = true;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle = false;
            };
            drop(state);
            worker.free_at = worker.free_at.max(op.submitted);
            self.perform(op, &mut worker);
            worker.owed += 1;
            self.finish(&mut worker);
        }
    }

    /// Tells that operations are finished, unless late data is still to land.
    fn finish(&self, worker: &mut Worker) {
        if worker.late.is_none() && !self.context.is_dead() {
            self.finished.fetch_add(std::mem::take(&mut worker.owed), Ordering::AcqRel);
        }
        if hold(&self.state).waiting > 0 {
            self.progress.notify_all();
        }
    }

    /// Sleeps until then, unless the context dies first.
    fn sleep_until(&self, at: u64) {
        let mut state = hold(&self.state);
        while !self.context.is_dead() {
            let left = at.saturating_sub(now());
            if left == 0 {
                return;
            }
            let wait = self.work.wait_timeout(state, Duration::from_nanos(left));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn perform(&self, op: Op, worker: &mut Worker) {
        for (stream, target) in &op.after {
            while stream.finished.load(Ordering::Acquire) < *target && !self.context.is_dead() {
                drop(stream.progressed(hold(&stream.state)));
            }
            worker.free_at = worker.free_at.max(now());
        }
        if self.context.is_dead() {
            return;
        }
        match op.deed {
            Deed::Kernel(launch) => self.kernel(launch, worker),
            Deed::Move(effect) => {
                worker.settle(self);
                self.effect(&effect);
            }
            Deed::Free(address) => {
                worker.settle(self);
                let freed = machine().memory.free(address, |kind| kind == Kind::Device);
                if freed.is_err() {
                    self.context.fault(ILLEGAL_ADDRESS);
                }
            }
            Deed::Host(host) => {
                if worker.settle(self) {
                    std::thread::sleep(Duration::from_micros(machine().script().callback_us));
                    // What the function uses is the host's.
                    worker.account();
                    call(host);
                    worker.cpu = thread_cpu();
                }
                worker.free_at = worker.free_at.max(now());
            }
            Deed::Memory(ops) => {
                for op in ops {
                    self.memory_op(op, worker);
                }
            }
            Deed::Record(event, recording) => match &mut worker.late {
                Some(late) => late.events.push((event, recording)),
                None => event.reach(recording),
            },
            Deed::WaitFor(event, recording) => {
                let begun = now();
                while !event.is_reached(recording) && !self.context.is_dead() {
                    self.nap(begun);
                }
                worker.free_at = worker.free_at.max(now());
            }
        }
    }

    fn kernel(&self, launch: Launch, worker: &mut Worker) {
        worker.settle(self);
        worker.kernels += 1;
        let script = machine().script();
        if script.hang == Some(worker.kernels) {
            return self.sleep_until(u64::MAX);
        }
        let end = worker.free_at.saturating_add(launch.ns);
        // Not behind the kernel, where a device would be at the next command already.
        worker.account();
        self.sleep_until(end);
        self.note_end();
        worker.free_at = end;
        if self.context.is_dead() {
            return;
        }
        if script.fault == Some(worker.kernels) {
            return self.context.fault(script.fault_code);
        }
        if let Some(status) = launch.fault {
            return self.context.fault(status);
        }
        match (script.late_data, launch.effect) {
            (Some((kernel, us)), Some(effect)) if kernel == worker.kernels => {
                // From now, not from the end that was due: a busy machine may have passed that long ago.
                let (at, events) = (now() + us * 1_000, Vec::new());
                worker.late = Some(Late { at, effect, events });
            }
            (_, Some(effect)) => self.effect(&effect),
            _ => {}
        }
    }

    fn effect(&self, effect: &Effect) {
        if let Err(status) = machine().memory.pinned(|memory| effect(memory)) {
            self.context.fault(status);
        }
    }

    fn memory_op(&self, op: MemOp, worker: &mut Worker) {
        let memory = &machine().memory;
        let script = machine().script();
        match op {
            MemOp::Store { address, value, wide } => {
                if script.dead_stores || script.lost_store == Some(value) {
                    return;
                }
                machine().note_store(address, value);
                if let Err(status) = memory.pinned(|memory| memory.store(address, value, wide)) {
                    self.context.fault(status);
                }
            }
            MemOp::Wait { address, value, wide, compare } => {
                worker.settle(self);
                let begun = now();
                loop {
                    match memory.pinned(|memory| memory.load(address, wide)) {
                        Ok(word) if compare.holds(word, value, wide) => break,
                        Ok(_) => {}
                        Err(status) => return self.context.fault(status),
                    }
                    if self.context.is_dead() {
                        return;
                    }
                    self.nap(begun);
                }
                worker.free_at = worker.free_at.max(now());
            }
        }
    }

    /// A nap that grows with how long it has been.
    fn nap(&self, begun: u64) {
        let ns = ((now() - begun) / 8).clamp(10_000, 500_000);
        let state = hold(&self.state);
        let _ = self.work.wait_timeout(state, Duration::from_nanos(ns));
    }
}

struct Worker {
    /// When the device would have ended what ran last.
    free_at: u64,
    kernels: u64,
    cpu: u64,
    late: Option<Late>,
    /// Operations done and not told yet.
    owed: u64,
}

/// What a kernel computed and a fault holds back until then; events behind it are held back too, for they
/// tell the truth.
struct Late {
    at: u64,
    effect: Effect,
    events: Vec<(Arc<Event>, u64)>,
}

impl Worker {
    fn account(&mut self) {
        let cpu = thread_cpu();
        machine().device_cpu.fetch_add(cpu - self.cpu, Ordering::Relaxed);
        self.cpu = cpu;
    }

    /// Lets late data land; whether the context lives.
    fn settle(&mut self, stream: &Stream) -> bool {
        if let Some(Late { at, effect, events }) = self.late.take() {
            stream.sleep_until(at);
            stream.effect(&effect);
            self.free_at = self.free_at.max(at);
            if !stream.context.is_dead() {
                events.iter().for_each(|(event, recording)| event.reach(*recording));
            }
        }
        !stream.context.is_dead()
    }
}

impl Compare {
    fn holds(self, word: u64, value: u64, wide: bool) -> bool {
        match self {
            Compare::Cyclic if wide => word.wrapping_sub(value) as i64 >= 0,
            Compare::Cyclic => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
            Compare::AtLeast => word >= value,
            Compare::Equal => word == value,
            Compare::And => word & value != 0,
            Compare::Nor => {
                !(word | value) & if wide { u64::MAX } else { u64::from(u32::MAX) } != 0
            }
        }
    }
}

fn call(host: HostFn) {
    IN_CALLBACK.set(true);
    // SAFETY: whoever submitted it gave a function and the data it takes.
    unsafe { (host.function)(host.data as *mut c_void) };
    IN_CALLBACK.set(false);
}

/// A call that a thread in global capture mode may not make while anybody captures in global mode. It breaks
/// the captures.
pub(crate) fn refuse_unsafe_call() -> Result<()> {
    let machine = machine();
    if machine.global_captures.load(Ordering::Acquire) == 0 || CAPTURE_MODE.get() == 2 {
        return Ok(());
    }
    machine.streams.find(|stream| {
        stream.invalidate_capture();
        false
    });
    Err(CAPTURE_UNSUPPORTED)
}
