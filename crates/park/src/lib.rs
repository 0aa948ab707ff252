//! Hardware word waits: parking a thread on a cache line until somebody stores to it.
//!
//! | name | CPU | how long one wait may last |
//! |---|---|---|
//! | `umwait` | x86-64 with WAITPKG (Intel) | to a TSC deadline, and to the system's limit |
//! | `mwaitx` | x86-64 with MONITORX (AMD) | to a 32-bit count of TSC ticks, so a long wait is several |
//! | `wfet` | aarch64 with FEAT_WFxT | to a deadline of the generic timer |
//! | `wfe` | aarch64 whose kernel runs the event stream | to its next event, about 100 µs |
//!
//! A [`WordWait`] can only be made by [`WordWait::probe`] (invariant 9): code that holds one may use
//! the instruction. The probe reads what the CPU says it has, then runs the instruction once in a
//! child process, for a hypervisor may hide it and say otherwise. Only Linux has that guard, so
//! elsewhere, and without the feature `wordwait`, the probe finds nothing.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

#[cfg(all(
    feature = "wordwait",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[path = "here.rs"]
mod imp;
#[cfg(not(all(
    feature = "wordwait",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "nowhere.rs"]
mod imp;

#[cfg(any(test, all(feature = "wordwait", target_os = "linux")))]
mod monitor;

use gpu_async_reactor_core::{CompletionLine, DurNs};

/// Proof that this CPU can wait for a store to a line.
#[derive(Clone, Copy, Debug)]
pub struct WordWait(imp::Kind);

impl WordWait {
    /// A value where the CPU has an instruction that this crate can use. The first call takes a few
    /// milliseconds, later ones a load.
    ///
    /// ```
    /// match gpu_async_reactor_park::WordWait::probe() {
    ///     Some(word_wait) => println!("parks with {}", word_wait.name()),
    ///     None => println!("parks by spinning and napping"),
    /// }
    /// ```
    pub fn probe() -> Option<WordWait> {
        imp::probe().map(WordWait)
    }

    /// Waits for a store to `line` until `ready` holds or the bound has passed: whether it held.
    ///
    /// `ready` is asked before each wait, again once the monitor is armed, and after (invariant 4). It
    /// may look at other lines too, but only a store to this one ends the wait early.
    pub fn park<R: Fn(&CompletionLine) -> bool>(
        &self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        imp::park(self.0, line, ready, bound)
    }

    /// The instruction's name: `umwait`, `mwaitx`, `wfet` or `wfe`.
    pub fn name(&self) -> &'static str {
        imp::name(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_async_reactor_core::Slot;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn a_probe_says_the_same_each_time() {
        let first = WordWait::probe().map(|w| w.name());
        assert_eq!(WordWait::probe().map(|w| w.name()), first);
    }

    #[test]
    fn a_real_park_ends_at_a_store_and_at_its_bound() {
        let Some(word_wait) = WordWait::probe() else {
            eprintln!(
                "SKIPPED a_real_park_ends_at_a_store_and_at_its_bound: no word wait on this machine"
            );
            return;
        };
        let line = Arc::new(CompletionLine::new());
        let start = Instant::now();
        assert!(!word_wait.park(&line, |l| l.load(Slot::ALL[0]) > 0, DurNs::from_ms(3)));
        let took = start.elapsed();
        assert!((Duration::from_micros(2_900)..Duration::from_secs(5)).contains(&took), "{took:?}");
        let device = {
            let line = line.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                line.store(Slot::ALL[0], 1);
            })
        };
        assert!(word_wait.park(&line, |l| l.load(Slot::ALL[0]) > 0, DurNs::from_ms(60_000)));
        device.join().unwrap();
    }
}
