//! Records waits from any thread, without a lock and within bounds.

use super::{Recording, Row};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Keeps the first waits that it is given, up to a bound, from any thread; the rest it counts.
///
/// ```
/// use gpu_async_reactor::replay::{Recorder, Row};
/// let recorder = Recorder::new(1);
/// let row = Row { point: 0, rows: 4, start_ns: 10, duration_ns: 5 };
/// recorder.record(row);
/// recorder.record(row);
/// assert_eq!((recorder.recording().rows, recorder.left_out()), (vec![row], 1));
/// ```
#[derive(Debug)]
pub struct Recorder {
    places: Box<[Place]>,
    /// Places given out, and beyond the bound those refused.
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct Place {
    point: AtomicU64,
    rows: AtomicU64,
    start_ns: AtomicU64,
    /// Stored last: not 0 says that the others are there.
    duration_ns: AtomicU64,
}

impl Recorder {
    /// A recorder of at most that many waits, whose memory it takes at once.
    pub fn new(most: usize) -> Recorder {
        let places = (0..most).map(|_| Place::default()).collect();
        Recorder { places, next: AtomicUsize::new(0) }
    }

    /// Keeps a wait, if there is room. A duration of 0 counts as 1 ns.
    pub fn record(&self, row: Row) {
        // Relaxed: the place is this call's alone, whoever else records.
        let Some(place) = self.places.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
            return;
        };
        place.point.store(row.point, Ordering::Relaxed);
        place.rows.store(row.rows, Ordering::Relaxed);
        place.start_ns.store(row.start_ns, Ordering::Relaxed);
        // Release: whoever sees the duration sees the rest.
        place.duration_ns.store(row.duration_ns.max(1), Ordering::Release);
    }

    /// Waits that there was no room for.
    pub fn left_out(&self) -> usize {
        self.next.load(Ordering::Relaxed).saturating_sub(self.places.len())
    }

    /// What was kept, by the times the waits began; one that is just being recorded is left out.
    pub fn recording(&self) -> Recording {
        let row = |place: &Place| {
            let duration_ns = place.duration_ns.load(Ordering::Acquire);
            (duration_ns > 0).then(|| Row {
                point: place.point.load(Ordering::Relaxed),
                rows: place.rows.load(Ordering::Relaxed),
                start_ns: place.start_ns.load(Ordering::Relaxed),
                duration_ns,
            })
        };
        let mut rows: Vec<Row> = self.places.iter().filter_map(row).collect();
        rows.sort_by_key(|row| row.start_ns);
        Recording { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_record_at_once_lose_nothing_within_the_bound() {
        let recorder = Recorder::new(4_000);
        std::thread::scope(|scope| {
            for thread in 0..5u64 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for n in 0..1_000 {
                        let id = thread * 1_000 + n;
                        recorder.record(Row {
                            point: id,
                            rows: id,
                            start_ns: id,
                            duration_ns: id + 1,
                        });
                        for row in recorder.recording().rows.iter().step_by(97) {
                            assert_eq!((row.rows, row.start_ns), (row.point, row.point));
                        }
                    }
                });
            }
        });
        let rows = recorder.recording().rows;
        assert_eq!((rows.len(), recorder.left_out()), (4_000, 1_000));
        assert!(rows.windows(2).all(|pair| pair[0].start_ns < pair[1].start_ns));
        assert!(rows.iter().all(|row| row.duration_ns == row.point + 1));
    }
}
