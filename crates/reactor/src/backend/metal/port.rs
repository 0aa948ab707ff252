//! A completion port over a shared event, for whoever encodes and commits by themselves.
//!
//! Upholds invariants 2 (a buffer that was handed over decides), 3 and 8.

use super::event::{BufferStatus, CommandBuffer, SharedEvent};
use super::failed;
use crate::host::std_host::{StdClock, StdIdle};
use crate::{
    Clock, CompletionLine, CompletionPort, DurNs, Error, Idle, MonoNs, Result, error, yield_now,
};

/// The longest single wait for the event, whose signal an errored buffer may never send.
const EVENT_SLICE: DurNs = DurNs::from_ms(10);

/// Waits, on the calling thread, for the last value taken from it to be signalled.
///
/// Take [`next_value`](SharedEventPort::next_value), encode its signal into the command buffer behind the work,
/// commit, and hand the buffer over ([`committed`](SharedEventPort::committed)): its status is then the
/// authority, so that a buffer that failed ends the wait with its error. Without a buffer the event's value is
/// all there is to ask, a failure looks like work that never ends, and [`within`](SharedEventPort::within)
/// should bound it.
///
/// ```no_run
/// # #[cfg(target_vendor = "apple")] {
/// use gpu_async_reactor::backend::metal::{MetalBuffer, MetalEvent, SharedEventPort};
/// use gpu_async_reactor::host::std_host::StdClock;
/// use gpu_async_reactor::{DurNs, WaitPlan, run_inline, wait};
/// use objc2::runtime::ProtocolObject;
/// use objc2_metal::*;
///
/// let device = MTLCreateSystemDefaultDevice().expect("no Metal device");
/// let queue = device.newCommandQueue().expect("no command queue");
/// let mut port = SharedEventPort::<MetalEvent, MetalBuffer>::new(&device)?;
/// let buffer = queue.commandBuffer().expect("no command buffer");
/// // … encode the work …
/// let value = port.next_value();
/// buffer.encodeSignalEvent_value(ProtocolObject::from_ref(port.event().as_raw()), value);
/// buffer.commit();
/// port.committed(MetalBuffer::new(buffer));
/// let (clock, plan) = (StdClock::new(), "flag:park_us=100,backstop_us=2000".parse::<WaitPlan>()?);
/// run_inline(wait(&plan, None, &mut port.within(DurNs::from_ms(1_000)), &clock, &clock))?;
/// # }
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
pub struct SharedEventPort<E, B> {
    event: E,
    /// The last value taken; 0 before the first.
    value: u64,
    /// Handed over and not known to be completed, each with its value, in that order.
    buffers: Vec<(u64, B)>,
    /// The value of the last buffer that was handed over.
    handed_over: u64,
    failure: Option<Error>,
    idle: StdIdle,
    clock: StdClock,
    /// How long a wait may take, from the value's being taken.
    within: Option<DurNs>,
    taken_at: MonoNs,
}

impl<E: SharedEvent, B: CommandBuffer> SharedEventPort<E, B> {
    /// A port over a new event of the device.
    ///
    /// # Errors
    ///
    /// `DeviceUnfit` when the device gives no event.
    pub fn new(device: &E::Device) -> Result<SharedEventPort<E, B>> {
        E::new(device).map(SharedEventPort::over)
    }

    /// A port over an event whose values nobody else signals, from its present one on.
    pub fn over(event: E) -> SharedEventPort<E, B> {
        let clock = StdClock::new();
        SharedEventPort {
            value: event.signaled(),
            handed_over: 0,
            event,
            buffers: Vec::new(),
            failure: None,
            idle: StdIdle::new(clock, None),
            clock,
            within: None,
            taken_at: clock.monotonic_ns(),
        }
    }

    /// The event to signal.
    pub fn event(&self) -> &E {
        &self.event
    }

    /// Takes the next value to signal; waits are for it from here on, and for all taken before.
    pub fn next_value(&mut self) -> u64 {
        self.value += 1;
        self.taken_at = self.clock.monotonic_ns();
        self.value
    }

    /// The buffer that signals the last value taken: its status decides from here on.
    pub fn committed(&mut self, buffer: B) {
        self.handed_over = self.value;
        self.buffers.push((self.value, buffer));
    }

    /// Gives up with `DeviceHang` that long after a value was taken; the default never does.
    pub fn within(mut self, span: DurNs) -> Self {
        self.within = Some(span);
        self
    }

    fn doing(&self, what: &str, value: u64) -> String {
        format!("{what} value {value} of a shared event")
    }

    /// What the authority says, at once.
    fn ask(&mut self) -> Result<bool> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        while let Some((value, buffer)) = self.buffers.first() {
            match buffer.status() {
                BufferStatus::Completed => drop(self.buffers.remove(0)),
                BufferStatus::Failed(failure) => {
                    let failure = failed(self.doing("awaiting", *value), &failure);
                    return Err(self.failure.insert(failure).clone());
                }
                BufferStatus::Pending => return self.hang_check().map(|()| false),
            }
        }
        // All buffers have completed; a value that came without one has only its signal.
        if self.handed_over == self.value || self.event.signaled() >= self.value {
            return Ok(true);
        }
        self.hang_check().map(|()| false)
    }

    fn hang_check(&self) -> Result<()> {
        let taken = self.clock.monotonic_ns().since(self.taken_at);
        match self.within {
            Some(span) if taken >= span => {
                Err(error!(DeviceHang, self.doing("awaiting", self.value), taken))
            }
            _ => Ok(()),
        }
    }

    fn bounded(&self, bound: DurNs) -> DurNs {
        let taken = self.clock.monotonic_ns().since(self.taken_at);
        self.within.map_or(bound, |span| bound.min(DurNs(span.0.saturating_sub(taken.0))))
    }
}

impl<E: SharedEvent, B: CommandBuffer> CompletionPort for SharedEventPort<E, B> {
    type Error = Error;

    fn query(&mut self) -> Result<bool> {
        self.ask()
    }

    async fn block(&mut self) -> Result<()> {
        while !self.ask()? {
            if self.event.signaled() < self.value {
                self.event.wait(self.value, self.bounded(EVENT_SLICE));
            } else {
                // Signalled; the buffer's status follows at once.
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    async fn poll(&mut self) -> Result<()> {
        while !self.ask()? {
            yield_now().await;
        }
        Ok(())
    }

    fn arm(&mut self) -> Result<()> {
        // The caller encoded the signal, behind the work.
        Ok(())
    }

    async fn park(&mut self, bound: DurNs) -> Result<bool> {
        let (event, value, bound) = (&self.event, self.value, self.bounded(bound));
        // The event's value is no word of memory: any line serves to idle on.
        let line = CompletionLine::default();
        let seen = self.idle.park_line(&line, |_| event.signaled() >= value, bound);
        if !seen {
            self.hang_check()?;
        }
        Ok(seen)
    }
}

impl<E: SharedEvent, B> std::fmt::Debug for SharedEventPort<E, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signaled = self.event.signaled();
        f.debug_struct("SharedEventPort")
            .field("value", &self.value)
            .field("signaled", &signaled)
            .finish_non_exhaustive()
    }
}
