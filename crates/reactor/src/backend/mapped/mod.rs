//! What CUDA and HIP have in common: lines in page-locked host memory that the device stores to, and the
//! rules of who keeps what alive. A vendor is a table of entry points ([`Vendor`]); all ownership is here.
//!
//! * A device keeps a reference to its primary context from before its first page is allocated until after
//!   its last one is freed. Lines and queues keep the device.
//! * A line's memory goes back to its page once every number that was enqueued for it has landed (invariant
//!   7). Until then it waits in the device's graveyard; nobody waits for it.
//! * A page that still expects a store when the last handle of its device goes is leaked, and its context
//!   with it, and counted ([`kept`]).
//! * A queue's status is an event behind the work and before the store, so that whoever sees the word finds
//!   the status done (invariant 2).

mod block;
mod device;
mod driver;
mod events;
mod gate;
mod line;
mod memory;
mod port;
mod queue;
mod step;
pub(crate) mod table;

pub use device::Device;
pub use driver::{Driver, Load};
pub use gate::Gate;
pub use line::MappedLine;
pub use port::StreamPort;
pub use queue::{QueueLine, Stream, StreamQueue};
pub use step::{Compile, Kernels, StepJob, StepKernel};

pub(crate) use line::line_of_current;
pub(crate) use memory::KEPT;

use crate::{Error, error};
use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What somebody else's stream or context lives as long as.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// An opaque handle of the driver: a stream, an event, a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub(crate) *mut c_void);

// SAFETY: a handle is a name; both drivers take theirs from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Why a driver call did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The call answered with a status.
    Status {
        /// The entry point.
        call: &'static str,
        /// Its answer.
        status: i32,
    },
    /// The driver has no such entry point.
    Missing(&'static str),
}

/// The answer of one driver call.
pub type Raw<T> = Result<T, Failure>;

/// Host memory as the device may use it: where the host finds it, and its address on the device.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    pub(crate) host: NonNull<u8>,
    pub(crate) device: u64,
}

/// A driver's entry points, with the driver's words for things. Duties of an implementer:
///
/// 1. a call does that one thing and answers with the driver's own status; nothing is tried twice;
/// 2. `enter` makes the context current on the calling thread, and lets its calls pass while another thread
///    captures in global mode; `leave` puts back what was there;
/// 3. what needs an entry point that the driver lacks fails with `Missing`, and nothing else does.
pub trait Vendor: Send + Sync + Sized + 'static {
    /// The vendor's interface.
    const NAME: &'static str;
    /// What `enter` changed.
    type Entered;

    /// The library that was loaded.
    fn library(&self) -> &str;
    /// The driver's name of a status.
    fn status_name(&self, status: i32) -> String;
    /// How many devices there are.
    fn devices(&self) -> Raw<usize>;
    /// A device's name.
    fn device_name(&self, ordinal: usize) -> Raw<String>;
    /// The ordinal of the calling thread's current device, if it has one.
    fn current_device(&self) -> Raw<Option<usize>>;
    /// Takes a reference to a device's primary context.
    fn retain(&self, ordinal: usize) -> Raw<Handle>;
    /// Gives it back.
    fn release(&self, ordinal: usize) -> Raw<()>;
    /// Makes a device's context current on this thread.
    fn enter(&self, ordinal: usize, context: Handle) -> Raw<Self::Entered>;
    /// Puts back what was current before.
    fn leave(&self, entered: Self::Entered);
    /// Page-locked host memory that the entered device can use.
    fn allocate(&self, bytes: usize) -> Raw<HostMemory>;
    /// Frees it.
    fn free(&self, memory: HostMemory) -> Raw<()>;
    /// A stream that doesn't synchronise with the default one.
    fn create_stream(&self) -> Raw<Handle>;
    /// Destroys a stream once its work is done, without waiting for that.
    fn destroy_stream(&self, stream: Handle) -> Raw<()>;
    /// Whether a stream is of that context, where the driver can tell.
    fn is_of(&self, stream: Handle, ordinal: usize, context: Handle) -> Raw<bool>;
    /// Whether a stream is being captured into a graph.
    fn is_capturing(&self, stream: Handle) -> Raw<bool>;
    /// Whether a stream has nothing left to do.
    fn query_stream(&self, stream: Handle) -> Raw<bool>;
    /// Makes an event without a time; waiting for a `blocking` one sleeps.
    fn create_event(&self, blocking: bool) -> Raw<Handle>;
    /// Destroys an event, at once or when it was reached.
    fn destroy_event(&self, event: Handle) -> Raw<()>;
    /// Records an event behind what was submitted to a stream.
    fn record(&self, event: Handle, stream: Handle) -> Raw<()>;
    /// Whether an event's last recording was reached.
    fn query_event(&self, event: Handle) -> Raw<bool>;
    /// Waits for an event's last recording.
    fn synchronize_event(&self, event: Handle) -> Raw<()>;
    /// Stores words in order behind what was submitted to a stream, with a fence before each.
    fn store(&self, stream: Handle, words: &[(u64, u64)]) -> Raw<()>;
    /// Lets a stream wait until a word is at least a number.
    fn wait(&self, stream: Handle, address: u64, number: u64) -> Raw<()>;

    /// The error of a failed call.
    fn error(&self, doing: &str, failure: Failure) -> Error {
        match failure {
            Failure::Missing(name) => error!(SymbolMissing, self.library(), name),
            Failure::Status { call, status } => {
                let name = self.status_name(status);
                if is_loss(status) {
                    let cause = format!("{call} returned {status} ({name})");
                    return error!(DeviceLost, doing, cause, status);
                }
                if is_capture(status) {
                    return error!(StreamCapturing, doing, status);
                }
                error!(DriverCall, doing, call, status, name)
            }
        }
    }
}

/// Statuses after which nothing more completes in the context: the driver's documentation says of each that
/// the context can't be used any more. Both vendors number them alike.
pub(crate) fn is_loss(status: i32) -> bool {
    matches!(status, 4 | 46 | 214 | 219 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
}

/// Statuses that mean that a capture is going on.
fn is_capture(status: i32) -> bool {
    matches!(status, 900..=908)
}

/// How many lines and their pages, of all devices, are kept because a device may still store to them.
pub fn kept() -> u64 {
    KEPT.load(Ordering::Relaxed)
}
