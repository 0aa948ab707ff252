//! The one place atomics come from, so that loom can stand in for them.

#[cfg(not(loom))]
pub(crate) use atomic_waker::AtomicWaker;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// loom's stand-in takes wakers by value only.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

#[cfg(loom)]
impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self(loom::future::AtomicWaker::new())
    }
    pub(crate) fn register(&self, waker: &core::task::Waker) {
        self.0.register_by_ref(waker);
    }
    pub(crate) fn wake(&self) {
        self.0.wake();
    }
}
