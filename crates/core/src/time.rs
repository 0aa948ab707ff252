//! Time: an instant and a span, which don't mix, and the two seams that give them meaning.

use core::fmt;
use core::ops::Add;

/// An instant on a monotonic clock, in nanoseconds.
///
/// ```
/// use gpu_async_reactor_core::{DurNs, MonoNs};
/// assert_eq!(MonoNs(5).since(MonoNs(9)), DurNs(0));
/// assert_eq!(MonoNs(u64::MAX) + DurNs(1), MonoNs(u64::MAX));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoNs(pub u64);

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DurNs(pub u64);

impl MonoNs {
    /// The end of time: a deadline that never comes.
    pub const MAX: MonoNs = MonoNs(u64::MAX);

    /// The span since an earlier instant; zero when that instant is later.
    pub const fn since(self, earlier: MonoNs) -> DurNs {
        DurNs(self.0.saturating_sub(earlier.0))
    }
}

impl DurNs {
    /// A span of whole microseconds, saturating.
    pub const fn from_us(us: u64) -> DurNs {
        DurNs(us.saturating_mul(1_000))
    }

    /// A span of whole milliseconds, saturating.
    pub const fn from_ms(ms: u64) -> DurNs {
        DurNs(ms.saturating_mul(1_000_000))
    }
}

impl Add<DurNs> for MonoNs {
    type Output = MonoNs;

    /// The later instant; saturates at the end of time.
    fn add(self, span: DurNs) -> MonoNs {
        MonoNs(self.0.saturating_add(span.0))
    }
}

impl From<core::time::Duration> for DurNs {
    /// The same span; beyond 584 years it saturates.
    fn from(span: core::time::Duration) -> DurNs {
        DurNs(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<DurNs> for core::time::Duration {
    fn from(span: DurNs) -> core::time::Duration {
        core::time::Duration::from_nanos(span.0)
    }
}

impl fmt::Display for DurNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns @ 0..1_000 => write!(f, "{ns} ns"),
            ns @ 1_000..1_000_000 => write!(f, "{}.{} µs", ns / 1_000, ns / 100 % 10),
            ns @ 1_000_000..1_000_000_000 => {
                write!(f, "{}.{:02} ms", ns / 1_000_000, ns / 10_000 % 100)
            }
            ns => write!(f, "{}.{:02} s", ns / 1_000_000_000, ns / 10_000_000 % 100),
        }
    }
}

/// A monotonic clock. Duties of an implementer:
///
/// 1. a later reading is never smaller than an earlier one, on any thread that shares the clock;
/// 2. a reading answers at once and allocates nothing;
/// 3. clones and references read the same time.
pub trait Clock {
    /// Nanoseconds since an origin that stays fixed for the clock's life.
    fn monotonic_ns(&self) -> MonoNs;
}

impl<C: Clock + ?Sized> Clock for &C {
    fn monotonic_ns(&self) -> MonoNs {
        (**self).monotonic_ns()
    }
}

/// Resolves at a time. Duties of an implementer:
///
/// 1. never resolve before the clock it goes with reads `at`;
/// 2. resolve at the first poll when `at` has passed;
/// 3. a dropped sleep leaves nothing behind.
#[allow(async_fn_in_trait)] // Level 2 is one thread; a Send bound would exclude it.
pub trait Timer {
    /// Resolves when the clock reads `at`.
    async fn sleep_until(&self, at: MonoNs);
}

impl<T: Timer + ?Sized> Timer for &T {
    async fn sleep_until(&self, at: MonoNs) {
        (**self).sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn spans_and_instants_saturate() {
        assert_eq!(MonoNs(9).since(MonoNs(5)), DurNs(4));
        assert_eq!(MonoNs(5).since(MonoNs(9)), DurNs(0));
        assert_eq!(MonoNs(u64::MAX - 1) + DurNs(5), MonoNs::MAX);
        assert_eq!(DurNs::from_us(u64::MAX), DurNs(u64::MAX));
        assert_eq!(DurNs::from(core::time::Duration::MAX), DurNs(u64::MAX));
    }

    #[test]
    fn spans_print_with_their_unit() {
        let shown = [999, 1_500, 2_340_000, 5_000_000_000].map(|ns| DurNs(ns).to_string());
        assert_eq!(shown, ["999 ns", "1.5 µs", "2.34 ms", "5.00 s"]);
    }
}
