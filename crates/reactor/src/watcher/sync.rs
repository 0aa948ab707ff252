//! The one place that this level's locks and atomics come from, so that loom can stand in for them.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
