//! A wheel without ticks: lists of far timers by the highest bits in which their times differ from a
//! base, 64 to a level. A list's place is found from the time alone, so that an insert and a cancel
//! cost the same however many timers there are; no time is rounded, for lists only say who comes
//! before whom: what is in the first list of the lowest level is due before everything else.

const NONE: u32 = u32::MAX;
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// 11 are used; with a power of two no place has to be looked at whether it is in range.
const LEVELS: usize = 16;

pub(super) struct Wheel {
    /// No time in a list is before this. Within a level, lists lie in the order of their times.
    base: u64,
    lists: [[u32; SLOTS]; LEVELS],
    /// A bit for each list of a level with a timer in it.
    occupied: [u64; LEVELS],
    /// A bit for each level with such a list.
    levels: u32,
}

impl Wheel {
    pub(super) const fn new() -> Self {
        Self { base: 0, lists: [[NONE; SLOTS]; LEVELS], occupied: [0; LEVELS], levels: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// The list of a time from the base on.
    #[inline]
    pub(super) fn list(&self, at: u64) -> u32 {
        let differing = 63 - ((at ^ self.base) | 1).leading_zeros();
        let level = differing / BITS;
        level * SLOTS as u32 + (at >> (level * BITS)) as u32 % SLOTS as u32
    }

    /// Puts a timer before those of a list: the one that was first, or none.
    #[inline]
    pub(super) fn push(&mut self, list: u32, timer: u32) -> u32 {
        let (level, slot) = split(list);
        self.occupied[level] |= 1 << slot;
        self.levels |= 1 << level;
        core::mem::replace(&mut self.lists[level][slot], timer)
    }

    /// Says that another timer, or none, is a list's first one now.
    #[inline]
    pub(super) fn set_first(&mut self, list: u32, timer: u32) {
        let (level, slot) = split(list);
        self.lists[level][slot] = timer;
        if timer == NONE {
            self.occupied[level] &= !(1 << slot);
            self.levels &= !(u32::from(self.occupied[level] == 0) << level);
        }
    }

    #[inline]
    pub(super) fn is_first(&self, list: u32, timer: u32) -> bool {
        let (level, slot) = split(list);
        self.lists[level][slot] == timer
    }

    /// The first list's level, slot, and the earliest time that could be in it.
    #[inline]
    fn first(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.trailing_zeros() as usize;
        let slot = self.occupied.get(level)?.trailing_zeros() as usize;
        let shift = level as u32 * BITS;
        // What all times of this level have in common with the base; at the top that is nothing.
        let common = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
        Some((level, slot, self.base & common | (slot as u64) << shift))
    }

    /// A time that no timer is before.
    #[inline]
    pub(super) fn lower_bound(&self) -> Option<u64> {
        self.first().map(|(.., start)| start)
    }

    /// Takes the first list out, and makes its earliest time the base: its timers belong into lower
    /// levels now. Its first timer, and whether they are all due at the same time.
    pub(super) fn take_first(&mut self) -> Option<(u32, bool)> {
        let (level, slot, start) = self.first()?;
        self.base = start;
        let timer = self.lists[level][slot];
        self.set_first((level * SLOTS + slot) as u32, NONE);
        Some((timer, level == 0))
    }
}

#[inline]
fn split(list: u32) -> (usize, usize) {
    let list = list as usize;
    (list / SLOTS % LEVELS, list % SLOTS)
}
