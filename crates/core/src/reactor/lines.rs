//! Line groups: the waiters of each slot of each line, in target order.
//!
//! A pass loads each occupied slot's word once and compares it with the smallest pending target, so
//! its cost follows the occupied lines and not the waiting tasks; the targets of a group's lines lie
//! side by side, so that it touches no waiter. Lines whose stores ring a doorbell are looked at only
//! when their group's doorbell word changed.

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
/// The group of the lines that ring no doorbell.
const NO_BELL: usize = GROUPS;

/// Names one waiter; a key of a waiter that is due or was forgotten names nothing, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterKey {
    waiter: u32,
    generation: u32,
}

impl WaiterKey {
    /// Names no waiter.
    pub(super) const NONE: WaiterKey = WaiterKey { waiter: NONE, generation: 0 };

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self.waiter != NONE
    }
}

/// What a waiter leaves behind when it is forgotten: the caller wakes, drops and cancels, once it has
/// let go of the tables.
pub(super) struct Left<'l> {
    pub(super) waker: Waker,
    pub(super) bound: Option<TimerKey>,
    /// A shared line whose last waiter this was.
    pub(super) line: Option<LineRef<'l>>,
}

pub(super) struct Lines<'l> {
    lines: Vec<Line>,
    /// Entries of shared lines that went.
    vacant: Vec<u32>,
    /// Known lines. A borrowed line stays known, for its memory lives as long as `'l`; a shared one
    /// is let go with its last waiter.
    by_address: Addresses,
    waiters: Vec<Waiter>,
    free: u32,
    count: usize,
    /// The waiters whose numbers are reached, until they are taken to be woken.
    due: Ends,
    /// Shared lines whose last waiter is due, until they are taken to be dropped.
    let_go: Vec<LineRef<'l>>,
    /// Occupied lines by doorbell group; the last list is of those that ring none.
    watched: [Vec<Watched<'l>>; GROUPS + 1],
    /// A bit for each group with occupied lines.
    belled: u8,
    /// What each doorbell word was when its group was last looked at.
    seen: [u64; GROUPS],
}

/// What a pass looks at of an occupied line.
struct Watched<'l> {
    /// The smallest pending target of each slot, `u64::MAX` where there is none.
    least: [u64; LINE_WORDS],
    line: LineRef<'l>,
    id: u32,
}

impl Watched<'_> {
    /// How many slots' words have reached their smallest target, by Acquire loads (invariant 1). A
    /// slot with no waiter has the largest target, so that no branch comes in between.
    #[inline]
    fn reached(&self) -> u64 {
        let pairs = self.line.get().words.iter().zip(&self.least);
        pairs.map(|(word, &least)| u64::from(word.load(Ordering::Acquire) >= least)).sum()
    }

    /// A bit for each such slot.
    #[inline]
    fn reached_slots(&self) -> u8 {
        let pairs = self.line.get().words.iter().zip(&self.least).enumerate();
        pairs.fold(0, |slots, (slot, (word, &least))| {
            slots | u8::from(word.load(Ordering::Acquire) >= least) << slot
        })
    }
}

/// A line that is known.
struct Line {
    slots: [Ends; LINE_WORDS],
    /// A bit for each slot with waiters; with none the line is in no list.
    occupied: u8,
    group: u8,
    /// Its place in the group's list of occupied lines.
    place: u32,
}

/// The first and the last of a list of waiters.
#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

impl Ends {
    const EMPTY: Ends = Ends { first: NONE, last: NONE };
}

struct Waiter {
    /// `None` in a free entry.
    waker: Option<Waker>,
    target: u64,
    bound: TimerKey,
    generation: u32,
    /// The line's entry times eight, and the slot.
    word: u32,
    /// The waiter before it in its slot; nothing that counts in the first one.
    prev: u32,
    /// The next waiter of the slot, the next one that is due, or the next free one.
    next: u32,
}

impl Waiter {
    #[inline]
    fn place(&self) -> (u32, usize) {
        (self.word / LINE_WORDS as u32, self.word as usize % LINE_WORDS)
    }
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
            due: Ends::EMPTY,
            let_go: Vec::new(),
            watched: [const { Vec::new() }; GROUPS + 1],
            belled: 0,
            seen: [0; GROUPS],
        }
    }

    /// Waiters registered, without those that are due.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Says that every store to `line` is followed by a ring of the doorbell's word `group`.
    pub(super) fn bind(&mut self, line: &'l CompletionLine, group: usize) {
        let id = self.line_id(core::ptr::from_ref(line).addr());
        let occupied = self.lines[id as usize].occupied != 0;
        let watched = occupied.then(|| self.leave_group(id));
        self.lines[id as usize].group = group as u8;
        if let Some(watched) = watched {
            self.enter_group(id, watched);
        }
    }

    pub(super) fn register(
        &mut self,
        line: &LineRef<'l>,
        slot: Slot,
        target: u64,
        waker: Waker,
    ) -> WaiterKey {
        let line_id = self.line_id(core::ptr::from_ref(line.get()).addr());
        let word = line_id * LINE_WORDS as u32 + slot.index() as u32;
        let id = if self.free == NONE { self.another() } else { self.free };
        let ends = &mut self.lines[line_id as usize].slots[slot.index()];
        let last = ends.last;
        // Numbers grow, so a waiter's place is nearly always behind its slot's last one.
        let behind = self.waiters.get(last as usize).is_some_and(|last| last.target <= target);
        if behind {
            ends.last = id;
            self.waiters[last as usize].next = id;
        }
        let waiter = &mut self.waiters[id as usize];
        self.free = waiter.next;
        (waiter.waker, waiter.target, waiter.word) = (Some(waker), target, word);
        (waiter.prev, waiter.next) = (last, NONE);
        let key = WaiterKey { waiter: id, generation: waiter.generation };
        self.count += 1;
        if !behind {
            self.link(id, line);
        }
        key
    }

    #[cold]
    fn another(&mut self) -> u32 {
        self.waiters.push(Waiter {
            waker: None,
            target: 0,
            bound: TimerKey::NONE,
            generation: 0,
            word: 0,
            prev: NONE,
            next: NONE,
        });
        self.waiters.len() as u32 - 1
    }

    #[inline]
    fn waiter(&mut self, key: WaiterKey) -> Option<&mut Waiter> {
        let waiter = self.waiters.get_mut(key.waiter as usize)?;
        (waiter.generation == key.generation).then_some(waiter)
    }

    /// Whether a key names a registered waiter.
    #[inline]
    pub(super) fn knows(&self, key: WaiterKey) -> bool {
        let waiter = self.waiters.get(key.waiter as usize);
        waiter.is_some_and(|waiter| waiter.generation == key.generation)
    }

    /// The waker of a registered waiter.
    #[inline]
    pub(super) fn waker(&mut self, key: WaiterKey) -> Option<&mut Waker> {
        self.waiter(key)?.waker.as_mut()
    }

    /// Says which timer bounds a registered waiter.
    pub(super) fn bound(&mut self, key: WaiterKey, bound: TimerKey) {
        if let Some(waiter) = self.waiter(key) {
            waiter.bound = bound;
        }
    }

    /// Takes a registered waiter out.
    #[inline]
    pub(super) fn forget(&mut self, key: WaiterKey) -> Option<Left<'l>> {
        self.waker(key)?;
        self.unlink(key.waiter)
    }

    /// One pass: makes every waiter due whose word has reached its target, each slot's in target
    /// order, and hands over what bounds it. With `all`, groups whose doorbell is silent are looked
    /// at too (invariant 3: a lost ring costs at most one park).
    #[inline]
    pub(super) fn scan(&mut self, bell: &Bell, all: bool, bound: &mut impl FnMut(TimerKey)) {
        if self.belled != 0 {
            self.scan_belled(bell.line(), all, bound);
        }
        self.scan_group(NO_BELL, bound);
    }

    fn scan_belled(&mut self, bell: &CompletionLine, all: bool, bound: &mut impl FnMut(TimerKey)) {
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
            self.scan_group(group, bound);
        }
    }

    #[inline]
    fn scan_group(&mut self, group: usize, bound: &mut impl FnMut(TimerKey)) {
        // Backwards: a line that empties is replaced by one that was already looked at.
        let mut left = self.watched[group].len();
        while let Some(at) =
            self.watched[group][..left].iter().rposition(|watched| watched.reached() != 0)
        {
            self.reach(group, at, bound);
            left = at;
        }
    }

    /// Makes due who waits for the reached slots of a line.
    fn reach(&mut self, group: usize, at: usize, bound: &mut impl FnMut(TimerKey)) {
        let watched = &mut self.watched[group][at];
        let line = &mut self.lines[watched.id as usize];
        let mut slots = watched.reached_slots() & line.occupied;
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize % LINE_WORDS;
            slots &= slots - 1;
            let word = watched.line.get().load(Slot::ALL[slot]);
            let (first, mut last, mut next) =
                (line.slots[slot].first, NONE, line.slots[slot].first);
            let mut least = u64::MAX;
            while let Some(waiter) = self.waiters.get_mut(next as usize) {
                if waiter.target > word {
                    least = waiter.target;
                    break;
                }
                waiter.generation = waiter.generation.wrapping_add(1);
                self.count -= 1;
                if waiter.bound.is_some() {
                    bound(core::mem::replace(&mut waiter.bound, TimerKey::NONE));
                }
                (last, next) = (next, waiter.next);
            }
            let Some(end) = self.waiters.get_mut(last as usize) else { continue };
            end.next = NONE;
            match self.waiters.get_mut(self.due.last as usize) {
                None => self.due.first = first,
                Some(before) => before.next = first,
            }
            self.due.last = last;
            line.slots[slot].first = next;
            watched.least[slot] = least;
            if next == NONE {
                line.slots[slot].last = NONE;
                line.occupied &= !(1 << slot);
            }
        }
        if line.occupied == 0 {
            let id = watched.id;
            let gone = self.vacate(id);
            self.let_go.extend(gone);
        }
    }

    /// Whether a waiter is due.
    #[inline]
    pub(super) fn any_due(&self) -> bool {
        self.due.first != NONE
    }

    /// Takes the waker of the next waiter that is due.
    #[inline]
    pub(super) fn next_due(&mut self) -> Option<Waker> {
        let id = self.due.first;
        let waiter = self.waiters.get_mut(id as usize)?;
        let waker = waiter.waker.take();
        self.due.first = core::mem::replace(&mut waiter.next, self.free);
        self.free = id;
        if self.due.first == NONE {
            self.due.last = NONE;
        }
        waker
    }

    /// Takes a shared line whose last waiter was due, for the caller to drop.
    pub(super) fn next_let_go(&mut self) -> Option<LineRef<'l>> {
        self.let_go.pop()
    }

    /// Whether there is such a line.
    #[inline]
    pub(super) fn any_let_go(&self) -> bool {
        !self.let_go.is_empty()
    }

    /// What a park must watch: the occupied lines that ring no doorbell, and whether any line does.
    pub(super) fn watched(&self, into: &mut Vec<super::WatchedLine<'l>>) -> bool {
        into.extend(self.watched[NO_BELL].iter().map(|Watched { line, id, least }| {
            let slots = self.lines[*id as usize].occupied;
            super::WatchedLine::reaching(line.clone(), slots, *least)
        }));
        self.belled != 0
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
    fn line_id(&mut self, address: usize) -> u32 {
        self.by_address.get(address).unwrap_or_else(|| self.learn(address))
    }

    /// Makes a line known.
    #[cold]
    fn learn(&mut self, address: usize) -> u32 {
        let entry =
            Line { slots: [Ends::EMPTY; LINE_WORDS], occupied: 0, group: NO_BELL as u8, place: 0 };
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

    /// Takes an occupied line that has no waiter left out of its group's list. A shared one is
    /// forgotten and handed to the caller, to be dropped.
    fn vacate(&mut self, id: u32) -> Option<LineRef<'l>> {
        let Watched { line, .. } = self.leave_group(id);
        if matches!(line, LineRef::Borrowed(_)) {
            return None;
        }
        self.by_address.remove(core::ptr::from_ref(line.get()).addr());
        self.vacant.push(id);
        Some(line)
    }

    /// Puts a waiter where its target belongs: behind the last one whose target is no larger.
    fn link(&mut self, id: u32, line_ref: &LineRef<'l>) {
        let (target, (line_id, slot)) = {
            let waiter = &self.waiters[id as usize];
            (waiter.target, waiter.place())
        };
        let line = &mut self.lines[line_id as usize];
        let (mut prev, mut next) = (line.slots[slot].last, NONE);
        while prev != NONE && self.waiters[prev as usize].target > target {
            let first = prev == line.slots[slot].first;
            next = prev;
            prev = if first { NONE } else { self.waiters[prev as usize].prev };
        }
        match self.waiters.get_mut(next as usize) {
            None => line.slots[slot].last = id,
            Some(next) => next.prev = id,
        }
        match self.waiters.get_mut(prev as usize) {
            None => line.slots[slot].first = id,
            Some(prev) => prev.next = id,
        }
        let waiter = &mut self.waiters[id as usize];
        (waiter.prev, waiter.next) = (prev, next);
        let first = line.occupied == 0;
        line.occupied |= 1 << slot;
        if first {
            let (line, least) = (line_ref.clone(), [u64::MAX; LINE_WORDS]);
            self.enter_group(line_id, Watched { least, line, id: line_id });
        }
        if prev == NONE {
            let Line { group, place, .. } = self.lines[line_id as usize];
            self.watched[usize::from(group)][place as usize].least[slot] = target;
        }
    }

    fn unlink(&mut self, id: u32) -> Option<Left<'l>> {
        let waiter = &mut self.waiters[id as usize];
        let waker = waiter.waker.take()?;
        let bound = core::mem::replace(&mut waiter.bound, TimerKey::NONE);
        let ((line_id, slot), prev, next) = (waiter.place(), waiter.prev, waiter.next);
        waiter.generation = waiter.generation.wrapping_add(1);
        waiter.next = core::mem::replace(&mut self.free, id);
        self.count -= 1;
        let line = &mut self.lines[line_id as usize];
        let first = line.slots[slot].first == id;
        let mut least = u64::MAX;
        match self.waiters.get_mut(next as usize) {
            None => line.slots[slot].last = if first { NONE } else { prev },
            Some(next) => {
                next.prev = prev;
                least = next.target;
            }
        }
        let mut left = Left { waker, bound: bound.named(), line: None };
        if !first {
            self.waiters[prev as usize].next = next;
            return Some(left);
        }
        line.slots[slot].first = next;
        if next == NONE {
            line.occupied &= !(1 << slot);
        }
        if line.occupied == 0 {
            left.line = self.vacate(line_id);
        } else {
            let (group, place) = (usize::from(line.group), line.place as usize);
            self.watched[group][place].least[slot] = least;
        }
        Some(left)
    }

    fn enter_group(&mut self, id: u32, watched: Watched<'l>) {
        let line = &mut self.lines[id as usize];
        let group = usize::from(line.group);
        line.place = self.watched[group].len() as u32;
        self.watched[group].push(watched);
        if group < GROUPS {
            self.belled |= 1 << group;
        }
    }

    fn leave_group(&mut self, id: u32) -> Watched<'l> {
        let Line { group, place, .. } = self.lines[id as usize];
        let (group, place) = (usize::from(group), place as usize);
        let list = &mut self.watched[group];
        let left = list.swap_remove(place);
        if let Some(moved) = list.get(place) {
            self.lines[moved.id as usize].place = place as u32;
        } else if list.is_empty() && group < GROUPS {
            self.belled &= !(1 << group);
        }
        left
    }
}

const _: () = assert!(Bell::HOST.index() == GROUPS);
const _: () = assert!(size_of::<Waiter>() <= 48);
