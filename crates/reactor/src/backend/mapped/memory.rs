//! Pages of page-locked memory, cut into completion lines, and the graveyard of lines that a device may
//! still store to.
//!
//! Upholds invariant 7.

use super::HostMemory;
use super::line::Home;
use crate::{CompletionLine, LINE_WORDS, Slot, reached};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines in graveyards.
pub(crate) static KEPT: AtomicU64 = AtomicU64::new(0);

pub(super) const PAGE: usize = 4_096;
const LINE: usize = size_of::<CompletionLine>();

/// A page of lines. Who frees it is its device, which its lines keep alive.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) memory: HostMemory,
}

// SAFETY: the memory is plain bytes that both sides use as atomic words.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

/// One line's place in a page.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) page: Arc<Page>,
    pub(super) index: usize,
}

/// What each word of a line still has to reach.
pub(super) type Expected = [u64; LINE_WORDS];

/// A line that was dropped while the device may store to it.
struct Grave<V: super::Vendor> {
    place: Place,
    expected: Expected,
    /// Lines of others that the same work looks at.
    _watched: Vec<Arc<Home<V>>>,
}

/// The lines of one device that nobody has, and those that nobody may have yet.
pub(super) struct Places<V: super::Vendor> {
    pages: Vec<Arc<Page>>,
    free: Vec<Place>,
    graves: Vec<Grave<V>>,
}

impl Page {
    /// Whether the page is as the driver promises: aligned for lines.
    pub(super) fn is_aligned(memory: HostMemory) -> bool {
        memory.host.cast::<CompletionLine>().is_aligned() && memory.device.is_multiple_of(64)
    }
}

impl Place {
    pub(super) fn line(&self) -> &CompletionLine {
        // SAFETY: the index is inside the page, whose address was checked to be aligned to 64; the page is
        // freed by the device only, which outlives every line; the words are atomics, zeroed before the
        // line was handed out, and the device stores whole words.
        unsafe { &*self.page.memory.host.as_ptr().cast::<CompletionLine>().add(self.index) }
    }

    pub(super) fn device_address(&self) -> u64 {
        self.page.memory.device + (self.index * LINE) as u64
    }

    fn has_reached(&self, expected: &Expected) -> bool {
        Slot::ALL.iter().all(|&slot| reached(self.line(), slot, expected[slot.index()]))
    }
}

impl<V: super::Vendor> Default for Places<V> {
    fn default() -> Self {
        Places { pages: Vec::new(), free: Vec::new(), graves: Vec::new() }
    }
}

impl<V: super::Vendor> Places<V> {
    /// A free place, zeroed.
    pub(super) fn take(&mut self) -> Option<Place> {
        let place = self.free.pop()?;
        Slot::ALL.iter().for_each(|&slot| place.line().store(slot, 0));
        Some(place)
    }

    /// Takes in a new page.
    pub(super) fn add(&mut self, page: Page) {
        let page = Arc::new(page);
        let places = (0..PAGE / LINE).rev().map(|index| Place { page: page.clone(), index });
        self.free.extend(places);
        self.pages.push(page);
    }

    /// Takes back a line: for others at once, or when what it expects has come. What it watched is handed
    /// out again where nothing is expected.
    pub(super) fn give_back(
        &mut self,
        place: Place,
        expected: Expected,
        watched: Vec<Arc<Home<V>>>,
    ) -> Vec<Arc<Home<V>>> {
        if place.has_reached(&expected) {
            self.free.push(place);
            return watched;
        }
        KEPT.fetch_add(1, Ordering::Relaxed);
        self.graves.push(Grave { place, expected, _watched: watched });
        Vec::new()
    }

    pub(super) fn kept(&self) -> usize {
        self.graves.len()
    }

    /// Frees the lines whose stores have come. What they watched is handed out, for its drop comes back
    /// here.
    pub(super) fn sweep(&mut self) -> impl Sized + use<V> {
        let mut done = Vec::new();
        let mut index = 0;
        while index < self.graves.len() {
            let grave = &self.graves[index];
            if grave.place.has_reached(&grave.expected) {
                let grave = self.graves.swap_remove(index);
                self.free.push(grave.place.clone());
                KEPT.fetch_sub(1, Ordering::Relaxed);
                done.push(grave);
            } else {
                index += 1;
            }
        }
        done
    }

    /// The pages, if no store is still to come: the last handle is gone, and they can be freed.
    pub(super) fn into_pages(mut self) -> Option<Vec<Arc<Page>>> {
        let swept = self.sweep();
        drop(swept);
        if self.graves.is_empty() {
            return Some(std::mem::take(&mut self.pages));
        }
        // The device may still write there: leaked, and counted in `KEPT`.
        std::mem::forget(self.graves);
        None
    }
}
