//! What a park watches: lines, and when each of them ends it.

use crate::sync::{AtomicU64, Ordering};
use crate::{CompletionLine, DurNs, LINE_WORDS, MonoNs, Slot};
use alloc::sync::Arc;
use core::fmt;
use core::task::Waker;

/// A line that is kept alive by whoever holds this.
pub type SharedLine = Arc<dyn AsRef<CompletionLine> + Send + Sync>;

/// A line as the tables hold it.
#[derive(Clone)]
pub(super) enum LineRef<'l> {
    Borrowed(&'l CompletionLine),
    Shared(SharedLine),
}

impl LineRef<'_> {
    #[inline]
    pub(super) fn get(&self) -> &CompletionLine {
        match self {
            LineRef::Borrowed(line) => line,
            LineRef::Shared(line) => (**line).as_ref(),
        }
    }
}

impl fmt::Debug for LineRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// One line that a park watches.
#[derive(Clone, Debug)]
pub struct WatchedLine<'l> {
    line: LineRef<'l>,
    /// A bit for each slot that is looked at.
    slots: u8,
    words: [u64; LINE_WORDS],
    rule: Rule,
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    /// Ready when a word reached its number.
    Reached,
    /// Ready when a word is no longer its number: doorbells, which don't grow in order.
    Changed,
}

impl<'l> WatchedLine<'l> {
    /// Ends a park when `slot` of `line` has reached `target`.
    pub fn new(line: &'l CompletionLine, slot: Slot, target: u64) -> Self {
        let mut words = [u64::MAX; LINE_WORDS];
        words[slot.index()] = target;
        Self::reaching(LineRef::Borrowed(line), 1 << slot.index(), words)
    }

    pub(super) fn reaching(line: LineRef<'l>, slots: u8, words: [u64; LINE_WORDS]) -> Self {
        Self { line, slots, words, rule: Rule::Reached }
    }

    pub(super) fn changing(line: &'l CompletionLine, words: [u64; LINE_WORDS]) -> Self {
        Self { line: LineRef::Borrowed(line), slots: u8::MAX, words, rule: Rule::Changed }
    }

    /// The line.
    pub fn line(&self) -> &CompletionLine {
        self.line.get()
    }

    /// Whether this line ends the park, by Acquire loads.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let (line, mut slots) = (self.line.get(), self.slots);
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            slots &= slots - 1;
            let word = line.load(Slot::ALL[slot]);
            let ready = match self.rule {
                Rule::Reached => word >= self.words[slot],
                Rule::Changed => word != self.words[slot],
            };
            if ready {
                return true;
            }
        }
        false
    }
}

/// A word that changes a little before the doorbell rings: a park that spins sees a wake from another
/// thread sooner there. Whoever changes it rings as well, so that a park in hardware or in the kernel
/// needs the doorbell alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Early<'a> {
    word: &'a AtomicU64,
    quiet: u64,
}

impl<'a> Early<'a> {
    pub(crate) fn new(word: &'a AtomicU64, quiet: u64) -> Self {
        Self { word, quiet }
    }

    #[inline]
    pub(crate) fn is_seen(&self) -> bool {
        self.word.load(Ordering::Acquire) != self.quiet
    }
}

/// The lines that one park watches: a store to any of them ends it.
#[derive(Clone, Debug)]
pub struct LineSet<'a> {
    lines: &'a [WatchedLine<'a>],
    bell: Option<WatchedLine<'a>>,
    early: Option<Early<'a>>,
}

impl<'a> LineSet<'a> {
    /// A set of lines.
    pub fn new(lines: &'a [WatchedLine<'a>]) -> Self {
        Self { lines, bell: None, early: None }
    }

    pub(super) fn with_bell(
        lines: &'a [WatchedLine<'a>],
        bell: Option<WatchedLine<'a>>,
        early: Option<Early<'a>>,
    ) -> Self {
        Self { lines, bell, early }
    }

    /// The lines, a reactor's doorbell first.
    pub fn lines(&self) -> impl Iterator<Item = &WatchedLine<'a>> {
        self.bell.iter().chain(self.lines)
    }

    /// How many lines.
    pub fn len(&self) -> usize {
        self.lines.len() + usize::from(self.bell.is_some())
    }

    /// Whether there is no line at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any line ends the park.
    pub fn any_ready(&self) -> bool {
        self.early.is_some_and(|early| early.is_seen()) || self.lines().any(WatchedLine::is_ready)
    }
}

/// How a thread idles. Duties of an implementer:
///
/// 1. return from `sleep_until` at the time at the latest plus what the host's sleep overshoots;
///    earlier is allowed;
/// 2. return from `park_line` within its bound (invariant 3), `true` only if `ready` was seen true;
/// 3. look at `ready` before sleeping and after (invariant 4): a store that landed just before the
///    park ends it at once;
/// 4. call nothing of the reactor's from inside.
///
/// The other methods are provided; a host that can do better overrides them.
pub trait Idle {
    /// Sleeps until `at`, or less.
    fn sleep_until(&mut self, at: MonoNs);

    /// Watches a line until `ready` holds or the bound has passed: whether it held.
    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool;

    /// Watches several lines until one is ready or the bound has passed: whether one was.
    ///
    /// Provided: parks on each in turn for its share of the bound, and looks at all of them each
    /// time, so that no line waits behind another one's bound.
    fn park_lines(&mut self, set: &LineSet<'_>, bound: DurNs) -> bool {
        let count = set.len() as u64;
        let share = DurNs(bound.0 / count.max(1));
        for (i, watched) in set.lines().enumerate() {
            // The last line gets what the division left over.
            let last = i as u64 + 1 == count;
            let slice = if last { DurNs(bound.0 - share.0 * (count - 1)) } else { share };
            if self.park_line(watched.line(), |_| set.any_ready(), slice) {
                return true;
            }
        }
        false
    }

    /// A waker that ends this thread's sleep in the kernel, if its sleeps can be ended from another
    /// thread.
    ///
    /// Provided: none. Then a wake from another thread is seen within the park bound, or when the
    /// next timer is due.
    fn unparker(&self) -> Option<&Waker> {
        None
    }

    /// Looks at what the host itself serves, files and sockets for one, without sleeping. An executor
    /// whose tasks are always ready, and which so never idles, calls it once in a while.
    ///
    /// Provided: nothing.
    fn glance(&mut self) {}
}

impl<I: Idle> Idle for &mut I {
    fn sleep_until(&mut self, at: MonoNs) {
        (**self).sleep_until(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        (**self).park_line(line, ready, bound)
    }

    fn park_lines(&mut self, set: &LineSet<'_>, bound: DurNs) -> bool {
        (**self).park_lines(set, bound)
    }

    fn unparker(&self) -> Option<&Waker> {
        (**self).unparker()
    }

    fn glance(&mut self) {
        (**self).glance();
    }
}
