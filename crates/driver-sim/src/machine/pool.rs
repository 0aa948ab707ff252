//! Memory pools: what was allocated from each, and what it keeps back. The memory itself is as any other.

use super::code::*;
use super::{Result, hold};
use std::sync::Mutex;

/// What a pool reserves comes in pieces of so many bytes.
const PIECE: u64 = 2 << 20;

#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `REUSE_FOLLOW_EVENT_DEPENDENCIES` and its two neighbours are told back and change nothing.
    reuse: [u64; 3],
    threshold: u64,
    reserved: Mark,
    used: Mark,
}

/// A number of bytes, and the most that it was.
#[derive(Default)]
struct Mark {
    now: u64,
    high: u64,
}

impl Mark {
    fn set(&mut self, now: u64) {
        self.now = now;
        self.high = self.high.max(now);
    }
}

/// The attributes whose value has 32 bits.
pub(crate) fn is_narrow(attribute: i32) -> bool {
    matches!(attribute, 1..=3)
}

impl Pool {
    pub(crate) fn allocated(&self, bytes: usize) {
        let mut state = hold(&self.state);
        let used = state.used.now + bytes as u64;
        state.used.set(used);
        let reserved = state.reserved.now.max(used.next_multiple_of(PIECE));
        state.reserved.set(reserved);
    }

    /// Beyond the threshold nothing is kept. A driver lets go at the next synchronisation, this one at once.
    pub(crate) fn freed(&self, bytes: usize) {
        let mut state = hold(&self.state);
        state.used.now -= bytes as u64;
        let needed = state.used.now.next_multiple_of(PIECE);
        state.reserved.now = needed.max(state.reserved.now.min(state.threshold));
    }

    pub(crate) fn attribute(&self, attribute: i32) -> Result<u64> {
        let state = hold(&self.state);
        Ok(match attribute {
            1..=3 => state.reuse[attribute as usize - 1],
            4 => state.threshold,
            5 => state.reserved.now,
            6 => state.reserved.high,
            7 => state.used.now,
            8 => state.used.high,
            _ => return Err(INVALID_VALUE),
        })
    }

    /// The most is set back to what is, by a zero and by nothing else.
    pub(crate) fn set_attribute(&self, attribute: i32, value: u64) -> Result<()> {
        let mut state = hold(&self.state);
        match (attribute, value) {
            (1..=3, _) => state.reuse[attribute as usize - 1] = value,
            (4, _) => state.threshold = value,
            (6, 0) => state.reserved.high = state.reserved.now,
            (8, 0) => state.used.high = state.used.now,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}
