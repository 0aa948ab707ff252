//! Level 0: one 64-byte line of eight words, and one word reaching one number.
//!
//! Upholds invariant 1 (a completion is seen by an Acquire load) and 13 (numbers only grow and are
//! compared with ≥).

use crate::sync::{AtomicU64, Ordering};

/// Words in one completion line.
pub const LINE_WORDS: usize = 8;

/// One 64-byte line of eight 64-bit words that a device stores completion numbers into.
///
/// A line fills exactly one cache line, so that watching it costs one load and a store to it
/// disturbs nobody else.
///
/// ```
/// use gpu_async_reactor_core::{CompletionLine, Slot, reached};
/// static LINE: CompletionLine = CompletionLine::new();
/// let slot = Slot::new(3).unwrap();
/// assert!(!reached(&LINE, slot, 1));
/// LINE.store(slot, 7);
/// assert!(reached(&LINE, slot, 7));
/// ```
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CompletionLine {
    /// The eight words. Read with Acquire; a store by the host is Release.
    pub words: [AtomicU64; LINE_WORDS],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<CompletionLine>() == 64);
    assert!(align_of::<CompletionLine>() == 64);
};

impl CompletionLine {
    /// A line of eight zeros.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; LINE_WORDS] }
    }

    /// A line of eight zeros.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The number a slot holds now, by an Acquire load.
    #[inline]
    pub fn load(&self, slot: Slot) -> u64 {
        self.words[slot.index()].load(Ordering::Acquire)
    }

    /// Stores a number from the host, Release: for tests, host gates and simulated devices.
    #[inline]
    pub fn store(&self, slot: Slot, number: u64) {
        self.words[slot.index()].store(number, Ordering::Release);
    }
}

impl Default for CompletionLine {
    fn default() -> Self {
        Self::new()
    }
}

impl AsRef<CompletionLine> for CompletionLine {
    fn as_ref(&self) -> &CompletionLine {
        self
    }
}

/// One of the eight words of a line; out of range can't be written down.
///
/// ```
/// use gpu_async_reactor_core::Slot;
/// assert_eq!(Slot::new(7).unwrap().index(), 7);
/// assert!(Slot::new(8).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// Every slot of a line, in order.
    pub const ALL: [Slot; LINE_WORDS] =
        [Slot(0), Slot(1), Slot(2), Slot(3), Slot(4), Slot(5), Slot(6), Slot(7)];

    /// The slot of that index, or `None` at [`LINE_WORDS`] and above.
    pub const fn new(index: usize) -> Option<Slot> {
        if index < LINE_WORDS { Some(Slot(index as u8)) } else { None }
    }

    /// The slot's index in its line, 0 to 7.
    #[inline]
    pub const fn index(self) -> usize {
        // The mask tells the compiler what the constructor checked.
        (self.0 & 7) as usize
    }
}

/// Whether a slot's word has reached a target, by an Acquire load (invariant 1).
#[inline]
pub fn reached(line: &CompletionLine, slot: Slot, target: u64) -> bool {
    line.load(slot) >= target
}

/// What a wait is: this slot of this line reaching this number.
///
/// ```
/// use gpu_async_reactor_core::{CompletionLine, MemoryDescriptor, Slot};
/// let line = CompletionLine::new();
/// let work = MemoryDescriptor::new(&line, Slot::new(0).unwrap(), 2);
/// line.store(work.slot(), 1);
/// assert!(!work.is_complete());
/// line.store(work.slot(), 2);
/// assert!(work.is_complete());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemoryDescriptor<'l> {
    line: &'l CompletionLine,
    slot: Slot,
    target: u64,
}

impl<'l> MemoryDescriptor<'l> {
    /// The descriptor of `slot` of `line` reaching `target`.
    pub const fn new(line: &'l CompletionLine, slot: Slot, target: u64) -> Self {
        Self { line, slot, target }
    }

    /// The line that is watched.
    pub const fn line(&self) -> &'l CompletionLine {
        self.line
    }

    /// The word of the line that is watched.
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// The number that the word must reach.
    pub const fn target(&self) -> u64 {
        self.target
    }

    /// Whether the word has reached the target, by an Acquire load.
    #[inline]
    pub fn is_complete(&self) -> bool {
        reached(self.line, self.slot, self.target)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn layout_is_one_cache_line() {
        assert_eq!(core::mem::size_of::<CompletionLine>(), 64);
        assert_eq!(core::mem::align_of::<CompletionLine>(), 64);
        let line = CompletionLine::new();
        let base = &line as *const _ as usize;
        for slot in Slot::ALL {
            assert_eq!(&line.words[slot.index()] as *const _ as usize - base, slot.index() * 8);
        }
    }

    #[test]
    fn a_slot_beyond_the_line_cannot_be_made() {
        assert!((0..LINE_WORDS).all(|i| Slot::new(i).is_some_and(|s| s.index() == i)));
        assert!([8, 9, 255, 256, usize::MAX].into_iter().all(|i| Slot::new(i).is_none()));
    }

    #[test]
    fn numbers_are_compared_with_ge_and_slots_do_not_mix() {
        let line = CompletionLine::new();
        line.store(Slot::ALL[2], 5);
        for (target, done) in [(0, true), (4, true), (5, true), (6, false), (u64::MAX, false)] {
            assert_eq!(reached(&line, Slot::ALL[2], target), done, "target {target}");
        }
        assert!(!reached(&line, Slot::ALL[1], 1) && !reached(&line, Slot::ALL[3], 1));
    }
}
