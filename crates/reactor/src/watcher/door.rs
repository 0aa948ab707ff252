//! The watcher's wake word against its sleep in the kernel, where a store to the word is not seen.
//!
//! Upholds invariant 4: posted, then stored, then asked until when it sleeps; said until when, then looked
//! at the word. `crates/watcher-models` runs this file under loom.

use super::sync::{AtomicU64, Ordering, fence};
use crate::MonoNs;

/// Until when the thread sleeps in the kernel; 0 while it is awake.
pub(super) struct Asleep(AtomicU64);

impl Asleep {
    pub(super) fn new() -> Asleep {
        Asleep(AtomicU64::new(0))
    }

    /// Stores to the wake word; where the thread sleeps in the kernel beyond `by`, when what was posted
    /// has to be looked at, rings.
    pub(super) fn poke(&self, word: &AtomicU64, by: MonoNs, ring: impl FnOnce()) {
        word.fetch_add(1, Ordering::Release);
        if by == MonoNs::MAX {
            return;
        }
        // Between the two fences either the thread sees the store above before it sleeps, or this sees
        // until when it sleeps.
        fence(Ordering::SeqCst);
        if by.0 < self.0.load(Ordering::Relaxed) {
            ring();
        }
    }

    /// Says that the thread is about to sleep until `at`: whether it may, for nothing was posted since
    /// the word read `seen`.
    pub(super) fn about_to_sleep(&self, word: &AtomicU64, seen: u64, at: MonoNs) -> bool {
        self.0.store(at.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        word.load(Ordering::Acquire) == seen
    }

    /// Says that the thread sleeps no more.
    pub(super) fn awake(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
