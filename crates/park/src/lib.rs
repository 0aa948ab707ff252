//! Hardware word waits: parking a thread on a cache line until somebody stores to it.
//!
//! A [`WordWait`] can only be made by [`WordWait::probe`] (invariant 9): code that holds one may use
//! the instruction.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

use gpu_async_reactor_core::{CompletionLine, DurNs};

/// Proof that this CPU can wait for a store to a line.
///
/// No instruction is supported yet, so no value of this type can exist: the methods are there for
/// the code that will hold one.
#[derive(Clone, Copy, Debug)]
pub struct WordWait {
    never: core::convert::Infallible,
}

impl WordWait {
    /// A value where the CPU has an instruction that this crate can use; `None` everywhere today.
    ///
    /// ```
    /// assert!(gpu_async_reactor_park::WordWait::probe().is_none());
    /// ```
    pub fn probe() -> Option<WordWait> {
        None
    }

    /// Waits for a store to `line` until `ready` holds or the bound has passed: whether it held.
    pub fn park<R: Fn(&CompletionLine) -> bool>(
        &self,
        _line: &CompletionLine,
        _ready: R,
        _bound: DurNs,
    ) -> bool {
        match self.never {}
    }

    /// The instruction's name.
    pub fn name(&self) -> &'static str {
        match self.never {}
    }
}
