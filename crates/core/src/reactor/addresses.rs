//! From a line's address to its entry: a table of open addressing, found in one or two looks however
//! many lines are known.

use crate::CompletionLine;
use alloc::vec::Vec;

/// No line lies there.
const FREE: usize = 0;

/// Which entry each known line has.
pub(super) struct Addresses {
    /// A power of two long, or empty; at most half of the places are taken.
    places: Vec<(usize, u32)>,
    count: usize,
}

impl Addresses {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), count: 0 }
    }

    #[inline]
    pub(super) fn get(&self, address: usize) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mut place = self.home(address);
        loop {
            match self.places[place] {
                (FREE, _) => return None,
                (found, id) if found == address => return Some(id),
                _ => place = self.after(place),
            }
        }
    }

    /// Adds an address that is not in the table.
    pub(super) fn insert(&mut self, address: usize, id: u32) {
        if self.count * 2 >= self.places.len() {
            let longer = alloc::vec![(FREE, 0); (self.places.len() * 2).max(16)];
            let shorter = core::mem::replace(&mut self.places, longer);
            shorter.into_iter().filter(|&(at, _)| at != FREE).for_each(|entry| self.put(entry));
        }
        self.put((address, id));
        self.count += 1;
    }

    pub(super) fn remove(&mut self, address: usize) {
        if self.get(address).is_none() {
            return;
        }
        let mut hole = self.home(address);
        while self.places[hole].0 != address {
            hole = self.after(hole);
        }
        self.count -= 1;
        // Whoever lies behind the hole and isn't beyond reach of its home without it moves into it.
        let mut place = hole;
        loop {
            place = self.after(place);
            let entry = self.places[place];
            if entry.0 == FREE {
                break;
            }
            let from_home = place.wrapping_sub(self.home(entry.0)) & (self.places.len() - 1);
            let from_hole = place.wrapping_sub(hole) & (self.places.len() - 1);
            if from_home >= from_hole {
                self.places[hole] = entry;
                hole = place;
            }
        }
        self.places[hole] = (FREE, 0);
    }

    fn put(&mut self, entry: (usize, u32)) {
        let mut place = self.home(entry.0);
        while self.places[place].0 != FREE {
            place = self.after(place);
        }
        self.places[place] = entry;
    }

    /// Lines are aligned to their size, and often lie one behind the other: the multiplication
    /// spreads what is above the alignment, and the highest bits of it are the best.
    #[inline]
    fn home(&self, address: usize) -> usize {
        let line = (address / align_of::<CompletionLine>()) as u64;
        let spread = line.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (spread >> 32) as usize & (self.places.len() - 1)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// Against a map: the same entries, whatever comes and goes.
        #[test]
        fn behaves_as_a_map(ops in prop::collection::vec((any::<bool>(), 1usize..40), 1..300)) {
            let mut table = Addresses::new();
            let mut oracle = BTreeMap::new();
            for (n, (add, line)) in ops.into_iter().enumerate() {
                let address = line * 64;
                if add && !oracle.contains_key(&address) {
                    table.insert(address, n as u32);
                    oracle.insert(address, n as u32);
                } else if !add {
                    table.remove(address);
                    oracle.remove(&address);
                }
                for line in 1..40 {
                    prop_assert_eq!(table.get(line * 64), oracle.get(&(line * 64)).copied());
                }
            }
        }
    }
}
