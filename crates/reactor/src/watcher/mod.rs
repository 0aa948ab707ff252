//! Level 3: completions for any runtime, woken by one thread.
//!
//! | | |
//! |---|---|
//! | [`CompletionExt::completion`] | a `Send + 'static` future of everything submitted to a queue so far |
//! | [`Ticket`] | one number, awaited by many |
//! | [`Watcher`] | the thread that wakes them; the process has one, started when first needed |
//! | [`InFlight`](crate::inflight::InFlight) | owns what the device uses until it is done |
//!
//! The thread runs the level-2 reactor; its wakers belong to somebody else's runtime. What it has learnt
//! of a queue's steps lets it sleep through them, and wake a task a little ahead of its completion, so
//! that the wake-up's own latency is hidden behind the end of the device's work.

mod alarm;
mod completion;
mod door;
mod early;
mod entry;
mod error;
mod fork;
mod hints;
mod inbox;
mod job;
mod options;
mod shared;
mod spin;
mod sync;
mod thread;
mod ticket;
mod turns;
mod wait;
mod world;

pub use completion::Completion;
pub use error::{Awaited, WaitError};
pub use options::{EarlyOptions, WatcherOptions};
pub use ticket::{CompletionExt, Ticket};

use crate::{Error, Result, error};
pub(crate) use completion::Source;
use shared::Shared;
pub(crate) use shared::{buried, bury, leak, leaked};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The thread that wakes completions. Clones are the same thread.
///
/// It ends when the last clone goes; waits that are still pending on it resolve as
/// [`WaitError::Refused`]. With nothing in flight it sleeps in the kernel until something is.
///
/// ```
/// use gpu_async_reactor::backend::sim::{SimDevice, SimOptions, Work};
/// use gpu_async_reactor::watcher::{CompletionExt, Watcher, WatcherOptions};
/// use gpu_async_reactor::DurNs;
/// let watcher = Watcher::start(WatcherOptions::default())?;
/// let mut queue = SimDevice::start(SimOptions::default()).queue()?;
/// queue.submit(Work::lasting(DurNs::from_ms(1)))?;
/// let done = queue.completion().on(&watcher).timeout(DurNs::from_ms(5_000));
/// assert_eq!(smol::block_on(done), Ok(()));
/// # Ok::<(), gpu_async_reactor::Error>(())
/// ```
pub struct Watcher {
    shared: Arc<Shared>,
}

impl Watcher {
    /// Starts a watcher's thread.
    ///
    /// # Errors
    ///
    /// `System` when the system gives no thread.
    pub fn start(options: WatcherOptions) -> Result<Watcher> {
        let name = options.name.clone();
        let shared = Arc::new(Shared::new(options));
        let run = shared.clone();
        let spawned = std::thread::Builder::new().name(name).spawn(move || thread::run(&run));
        match spawned {
            Ok(_) => Ok(Watcher { shared }),
            Err(e) => Err(error!(System, "starting a watcher's thread", e.to_string())),
        }
    }

    /// The process's own watcher, with the default options; started by the first call, and never ended.
    ///
    /// # Errors
    ///
    /// `System` when the system gives no thread. The next call tries again.
    pub fn of_process() -> Result<&'static Watcher> {
        static WATCHER: OnceLock<Watcher> = OnceLock::new();
        static STARTING: Mutex<()> = Mutex::new(());
        if let Some(watcher) = WATCHER.get() {
            return Ok(watcher);
        }
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if WATCHER.get().is_none() {
            let _ = WATCHER.set(Watcher::start(WatcherOptions::default())?);
        }
        WATCHER.get().ok_or_else(watcher_gone)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Clone for Watcher {
    fn clone(&self) -> Watcher {
        self.shared.hold();
        Watcher { shared: self.shared.clone() }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.let_go();
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("options", self.shared.options()).finish_non_exhaustive()
    }
}

/// Why a wait is refused when its watcher has ended.
fn watcher_gone() -> Error {
    error!(Misuse, "awaiting a completion", "its watcher is gone")
}
