//! The watcher's wake word against its sleep in the kernel, where a store to the word is not seen.
//!
//! Upholds invariant 4: posted, then stored, then asked whether it sleeps; said to sleep, then looked at
//! the word. `crates/watcher-models` runs this file under loom.

use super::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// Stores to the wake word; where the thread sleeps in the kernel and it matters now, rings.
pub(super) fn poke(word: &AtomicU64, in_kernel: &AtomicBool, now: bool, ring: impl FnOnce()) {
    word.fetch_add(1, Ordering::Release);
    if !now {
        return;
    }
    // Between the two fences either the thread sees the store above before it sleeps, or this sees that
    // it sleeps.
    fence(Ordering::SeqCst);
    if in_kernel.load(Ordering::Relaxed) {
        ring();
    }
}

/// Says that the thread is about to sleep: whether it may, for nothing was posted since the word read
/// `seen`.
pub(super) fn about_to_sleep(word: &AtomicU64, in_kernel: &AtomicBool, seen: u64) -> bool {
    in_kernel.store(true, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    word.load(Ordering::Acquire) == seen
}

/// Says that the thread sleeps no more.
pub(super) fn awake(in_kernel: &AtomicBool) {
    in_kernel.store(false, Ordering::Relaxed);
}
