//! Line groups: the waiters of each slot of each line, in target order.
//!
//! A pass loads each occupied slot's word once and compares it with the smallest pending target, so
//! its cost follows the occupied lines and not the waiting tasks. Lines whose stores ring a doorbell
//! are looked at only when their group's doorbell word changed.

use super::addresses::Addresses;
use super::timers::TimerKey;
use super::watch::LineRef;
use crate::sync::Ordering;
use crate::{Bell, CompletionLine, LINE_WORDS, Slot};
use alloc::vec::Vec;
use core::task::Waker;

const NONE: u32 = u32::MAX;
/// Doorbell words that devices ring; the eighth is the host's.
const GROUPS: usize = LINE_WORDS - 1;

/// Names one waiter; a key of a waiter that fired or was forgotten names nothing, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterKey {
    waiter: u32,
    generation: u32,
}

/// What a waiter leaves behind when it goes: the caller wakes, drops and cancels, once it has let go
/// of the tables.
pub(super) struct Left<'l> {
    pub(super) waker: Waker,
    pub(super) bound: Option<TimerKey>,
    /// A shared line whose last waiter this was.
    pub(super) line: Option<LineRef<'l>>,
}

pub(super) struct Lines<'l> {
    lines: Vec<Line<'l>>,
    /// Entries of shared lines that went.
    vacant: Vec<u32>,
    /// Known lines. A borrowed line stays known, for its memory lives as long as `'l`; a shared one
    /// is let go with its last waiter.
    by_address: Addresses,
    waiters: Vec<Waiter>,
    free: u32,
    count: usize,
    /// Occupied lines by doorbell group; the last list is of those that ring none.
    occupied: [Vec<u32>; GROUPS + 1],
    /// A bit for each group with occupied lines.
    belled: u8,
    /// What each doorbell word was when its group was last looked at.
    seen: [u64; GROUPS],
}

const NO_BELL: usize = GROUPS;

struct Line<'l> {
    /// `None` in a vacant entry.
    line: Option<LineRef<'l>>,
    /// The smallest pending target of each slot, `u64::MAX` where there is none.
    least: [u64; LINE_WORDS],
    head: [u32; LINE_WORDS],
    tail: [u32; LINE_WORDS],
    /// A bit for each slot with waiters.
    slots: u8,
    group: u8,
    /// Its place in the group's list of occupied lines.
    place: u32,
}

impl Line<'_> {
    /// How many slots' words have reached their smallest target, by Acquire loads (invariant 1). A
    /// slot with no waiter has the largest target, so that no branch comes in between.
    #[inline]
    fn reached(&self, line: &CompletionLine) -> u64 {
        let pairs = line.words.iter().zip(&self.least);
        pairs.map(|(word, &least)| u64::from(word.load(Ordering::Acquire) >= least)).sum()
    }
}

struct Waiter {
    /// `None` in a free entry.
    waker: Option<Waker>,
    bound: Option<TimerKey>,
    target: u64,
    generation: u32,
    line: u32,
    slot: u8,
    prev: u32,
    /// The next waiter of the slot, or the next free one.
    next: u32,
}

impl<'l> Lines<'l> {
    pub(super) const fn new() -> Self {
        Self {
            lines: Vec::new(),
            vacant: Vec::new(),
            by_address: Addresses::new(),
            waiters: Vec::new(),
            free: NONE,
            count: 0,
            occupied: [const { Vec::new() }; GROUPS + 1],
            belled: 0,
            seen: [0; GROUPS],
        }
    }

    /// Waiters registered.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Says that every store to `line` is followed by a ring of the doorbell's word `group`.
    pub(super) fn bind(&mut self, line: &'l CompletionLine, group: usize) {
        let id = self.line_id(&LineRef::Borrowed(line));
        let occupied = self.lines[id as usize].slots != 0;
        if occupied {
            self.leave_group(id);
        }
        self.lines[id as usize].group = group as u8;
        if occupied {
            self.enter_group(id);
        }
    }

    pub(super) fn register(
        &mut self,
        line: &LineRef<'l>,
        slot: Slot,
        target: u64,
        waker: Waker,
    ) -> WaiterKey {
        let line = self.line_id(line);
        let slot = slot.index();
        let (slot_index, waker) = (slot as u8, Some(waker));
        let id = match self.waiters.get_mut(self.free as usize) {
            None => {
                self.waiters.push(Waiter {
                    waker,
                    bound: None,
                    target,
                    generation: 0,
                    line,
                    slot: slot_index,
                    prev: NONE,
                    next: NONE,
                });
                self.waiters.len() as u32 - 1
            }
            Some(place) => {
                (place.waker, place.target, place.line, place.slot) =
                    (waker, target, line, slot_index);
                core::mem::replace(&mut self.free, place.next)
            }
        };
        self.count += 1;
        self.link(id, line, slot, target);
        WaiterKey { waiter: id, generation: self.waiters[id as usize].generation }
    }

    #[inline]
    fn waiter(&mut self, key: WaiterKey) -> Option<&mut Waiter> {
        let waiter = self.waiters.get_mut(key.waiter as usize)?;
        (waiter.generation == key.generation).then_some(waiter)
    }

    /// The waker of a registered waiter.
    #[inline]
    pub(super) fn waker(&mut self, key: WaiterKey) -> Option<&mut Waker> {
        self.waiter(key)?.waker.as_mut()
    }

    /// Says which timer bounds a registered waiter.
    pub(super) fn bound(&mut self, key: WaiterKey, bound: TimerKey) {
        if let Some(waiter) = self.waiter(key) {
            waiter.bound = Some(bound);
        }
    }

    /// Takes a registered waiter out.
    #[inline]
    pub(super) fn forget(&mut self, key: WaiterKey) -> Option<Left<'l>> {
        self.waker(key)?;
        Some(self.unlink(key.waiter))
    }

    /// One pass: hands over every waiter whose word has reached its target, each slot's in target
    /// order. With `all`, groups whose doorbell is silent are looked at too (invariant 3: a lost
    /// ring costs at most one park).
    #[inline]
    pub(super) fn scan(
        &mut self,
        bell: &CompletionLine,
        all: bool,
        fired: &mut impl FnMut(Left<'l>),
    ) {
        if self.belled != 0 {
            self.scan_belled(bell, all, fired);
        }
        self.scan_group(NO_BELL, fired);
    }

    fn scan_belled(&mut self, bell: &CompletionLine, all: bool, fired: &mut impl FnMut(Left<'l>)) {
        // The ring comes behind the store, so a word that was stored before this ring is seen.
        let rung: [u64; GROUPS] = core::array::from_fn(|group| bell.load(Slot::ALL[group]));
        let mut groups = 0;
        for (group, (rung, seen)) in rung.iter().zip(&self.seen).enumerate() {
            groups |= u8::from(all || rung != seen) << group;
        }
        groups &= self.belled;
        while groups != 0 {
            let group = groups.trailing_zeros() as usize;
            groups &= groups - 1;
            self.seen[group] = rung[group];
            self.scan_group(group, fired);
        }
    }

    #[inline]
    fn scan_group(&mut self, group: usize, fired: &mut impl FnMut(Left<'l>)) {
        // Backwards: a line that empties is replaced by one that was already looked at.
        for place in (0..self.occupied[group].len()).rev() {
            let id = self.occupied[group][place];
            let entry = &self.lines[id as usize];
            let Some(line) = &entry.line else { continue };
            if entry.reached(line.get()) != 0 {
                self.hand_over(id as usize, fired);
            }
        }
    }

    fn hand_over(&mut self, id: usize, fired: &mut impl FnMut(Left<'l>)) {
        let entry = &self.lines[id];
        let Some(line) = &entry.line else { return };
        let words = line.get().words.each_ref().map(|word| word.load(Ordering::Acquire));
        let mut slots = 0;
        for (slot, (word, least)) in words.iter().zip(&entry.least).enumerate() {
            slots |= u8::from(word >= least) << slot;
        }
        slots &= entry.slots;
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize % LINE_WORDS;
            slots &= slots - 1;
            loop {
                let entry = &self.lines[id];
                if entry.head[slot] == NONE || entry.least[slot] > words[slot] {
                    break;
                }
                fired(self.unlink(entry.head[slot]));
            }
        }
    }

    /// What a park must watch: the occupied lines that ring no doorbell, and whether any line does.
    pub(super) fn watched(&self, into: &mut Vec<super::WatchedLine<'l>>) -> bool {
        into.extend(self.occupied[NO_BELL].iter().filter_map(|&id| {
            let Line { line, slots, least, .. } = &self.lines[id as usize];
            line.clone().map(|line| super::WatchedLine::reaching(line, *slots, *least))
        }));
        self.occupied[..GROUPS].iter().any(|group| !group.is_empty())
    }

    /// The doorbell words as the groups were last looked at; a group that nobody waits for has been
    /// looked at just now, so that its rings end no park.
    pub(super) fn seen(&self, bell: &CompletionLine) -> [u64; GROUPS] {
        core::array::from_fn(|group| match self.belled & 1 << group {
            0 => bell.load(Slot::ALL[group]),
            _ => self.seen[group],
        })
    }

    #[inline]
    fn line_id(&mut self, line: &LineRef<'l>) -> u32 {
        let address = core::ptr::from_ref(line.get()).addr();
        self.by_address.get(address).unwrap_or_else(|| self.learn(address, line))
    }

    /// Makes a line known.
    #[cold]
    fn learn(&mut self, address: usize, line: &LineRef<'l>) -> u32 {
        let entry = Line {
            line: Some(line.clone()),
            least: [u64::MAX; LINE_WORDS],
            head: [NONE; LINE_WORDS],
            tail: [NONE; LINE_WORDS],
            slots: 0,
            group: NO_BELL as u8,
            place: 0,
        };
        let id = match self.vacant.pop() {
            Some(id) => {
                self.lines[id as usize] = entry;
                id
            }
            None => {
                self.lines.push(entry);
                self.lines.len() as u32 - 1
            }
        };
        self.by_address.insert(address, id);
        id
    }

    /// Lets go of a shared line that has no waiter left, which the caller drops.
    fn vacate(&mut self, id: u32) -> Option<LineRef<'l>> {
        let entry = &mut self.lines[id as usize];
        let line = entry.line.take_if(|line| matches!(line, LineRef::Shared(_)))?;
        let address = core::ptr::from_ref(line.get()).addr();
        self.by_address.remove(address);
        self.vacant.push(id);
        Some(line)
    }

    /// Puts a waiter behind the last one of its slot whose target is no larger: numbers grow, so
    /// that is nearly always the tail.
    fn link(&mut self, id: u32, line: u32, slot: usize, target: u64) {
        let entry = &self.lines[line as usize];
        let mut prev = if target < entry.least[slot] { NONE } else { entry.tail[slot] };
        while prev != NONE && self.waiters[prev as usize].target > target {
            prev = self.waiters[prev as usize].prev;
        }
        let entry = &mut self.lines[line as usize];
        let next = match prev {
            NONE => core::mem::replace(&mut entry.head[slot], id),
            _ => core::mem::replace(&mut self.waiters[prev as usize].next, id),
        };
        if prev == NONE {
            entry.least[slot] = target;
        }
        match next {
            NONE => entry.tail[slot] = id,
            _ => self.waiters[next as usize].prev = id,
        }
        let first = entry.slots == 0;
        entry.slots |= 1 << slot;
        let waiter = &mut self.waiters[id as usize];
        (waiter.prev, waiter.next) = (prev, next);
        if first {
            self.enter_group(line);
        }
    }

    fn unlink(&mut self, id: u32) -> Left<'l> {
        let waiter = &mut self.waiters[id as usize];
        let waker = waiter.waker.take().expect("a linked waiter has its waker");
        let mut left = Left { waker, bound: waiter.bound.take(), line: None };
        let (line, slot) = (waiter.line, usize::from(waiter.slot) % LINE_WORDS);
        let (prev, next) = (waiter.prev, waiter.next);
        waiter.generation = waiter.generation.wrapping_add(1);
        waiter.next = core::mem::replace(&mut self.free, id);
        self.count -= 1;
        match next {
            NONE => self.lines[line as usize].tail[slot] = prev,
            _ => self.waiters[next as usize].prev = prev,
        }
        match prev {
            NONE => {
                let least =
                    if next == NONE { u64::MAX } else { self.waiters[next as usize].target };
                let entry = &mut self.lines[line as usize];
                (entry.head[slot], entry.least[slot]) = (next, least);
                if next == NONE {
                    entry.slots &= !(1 << slot);
                    if entry.slots == 0 {
                        self.leave_group(line);
                        left.line = self.vacate(line);
                    }
                }
            }
            _ => self.waiters[prev as usize].next = next,
        }
        left
    }

    #[inline]
    fn enter_group(&mut self, id: u32) {
        let line = &mut self.lines[id as usize];
        let group = usize::from(line.group);
        let occupied = &mut self.occupied[group];
        line.place = occupied.len() as u32;
        occupied.push(id);
        if group < GROUPS {
            self.belled |= 1 << group;
        }
    }

    #[inline]
    fn leave_group(&mut self, id: u32) {
        let Line { group, place, .. } = &self.lines[id as usize];
        let (group, place) = (usize::from(*group), *place);
        let occupied = &mut self.occupied[group];
        occupied.swap_remove(place as usize);
        if let Some(&moved) = occupied.get(place as usize) {
            self.lines[moved as usize].place = place;
        } else if occupied.is_empty() && group < GROUPS {
            self.belled &= !(1 << group);
        }
    }
}

const _: () = assert!(Bell::HOST.index() == GROUPS);
