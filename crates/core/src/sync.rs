//! The one place atomics come from, so that loom can stand in for them.

#[cfg(not(loom))]
pub(crate) use atomic_waker::AtomicWaker;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

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

/// Which thread this is: no other thread that lives has the same name, and the name of one that
/// ended may come back. 0 where it can't be told, or not for less than it would save.
#[cfg(all(feature = "std", not(loom)))]
#[inline]
pub(crate) fn this_thread() -> usize {
    std::thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| core::ptr::from_ref(here).addr())
}

#[cfg(any(not(feature = "std"), loom))]
#[inline]
pub(crate) fn this_thread() -> usize {
    0
}

/// The name of this thread, to be compared with [`this_thread`] later; equal to none where that
/// can't be told.
pub(crate) fn home_thread() -> usize {
    match this_thread() {
        0 => usize::MAX,
        thread => thread,
    }
}
