//! The doorbell: the one line that belongs to a reactor.
//!
//! Slots 0 to 6 are rung by devices, one for each group of lines; slot 7 is the host's wake word,
//! which another thread stores to in order to end a park (invariant 4).

use crate::sync::{AtomicWaker, Ordering};
use crate::{CompletionLine, SharedLine, Slot};
use alloc::sync::Arc;
use alloc::task::Wake;
use core::fmt;
use core::task::Waker;

/// A reactor's doorbell line, and what ends its thread's sleep in the kernel.
///
/// Rung from any thread, it makes the reactor's next or current park return at once. As a
/// [`Wake`], a clone of its `Arc` is a waker that ends the park.
pub struct Bell {
    line: BellLine,
    /// Ends a sleep in the kernel; set by the reactor before each idle.
    unparker: AtomicWaker,
}

enum BellLine {
    Own(CompletionLine),
    Shared(SharedLine),
}

impl Bell {
    /// The word that the host rings.
    pub const HOST: Slot = Slot::ALL[7];

    /// A doorbell in ordinary memory.
    pub fn new() -> Bell {
        Bell { line: BellLine::Own(CompletionLine::new()), unparker: AtomicWaker::new() }
    }

    /// A doorbell in memory that a device can store to.
    pub fn over(line: SharedLine) -> Bell {
        Bell { line: BellLine::Shared(line), unparker: AtomicWaker::new() }
    }

    /// The line that is rung.
    #[inline]
    pub fn line(&self) -> &CompletionLine {
        match &self.line {
            BellLine::Own(line) => line,
            BellLine::Shared(line) => (**line).as_ref(),
        }
    }

    /// Rings the host's word: the reactor's park, now or next, returns at once.
    pub fn ring(&self) {
        // Release: what the ringer did before is seen by the thread that its ring awakes.
        self.line().words[Self::HOST.index()].fetch_add(1, Ordering::Release);
        self.unparker.wake();
    }

    /// Rings a device's word for a group of lines, with a number never used before on it: what a
    /// device does behind its store, and a simulated one by calling this. It is a store and nothing
    /// else, for a device wakes no thread.
    pub fn ring_group(&self, group: Slot, number: u64) {
        self.line().store(group, number);
    }

    /// What [`ring`](Bell::ring) calls to end a sleep in the kernel; the caller looks at the words
    /// again after this and before it sleeps.
    pub(crate) fn register(&self, unparker: &Waker) {
        self.unparker.register(unparker);
    }
}

impl Default for Bell {
    fn default() -> Bell {
        Bell::new()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").field("line", self.line()).finish_non_exhaustive()
    }
}
