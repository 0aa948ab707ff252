//! What the predictors guess from.

/// Rows are remembered in this many bands: each number up to 15, then four to a doubling.
const BANDS: usize = 64;
/// Ways to guess: no guess, the last length, the one before it (alternation), a level with a trend
/// (drift), and what steps with about as many rows took.
pub(super) const PREDICTORS: usize = 5;

/// The lengths there were, as far as a guess needs them.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) waits: u64,
    last: u64,
    last_but_one: u64,
    level: i64,
    trend: i64,
    /// The rows and the length of the last step in each band; length 0 is none.
    bands: [(u64, u64); BANDS],
}

impl History {
    pub(super) const fn new() -> Self {
        let (last, last_but_one, level, trend) = (0, 0, 0, 0);
        Self { waits: 0, last, last_but_one, level, trend, bands: [(0, 0); BANDS] }
    }

    /// Each predictor's guess for a step of so many rows.
    pub(super) fn guesses(&self, rows: u64) -> [u64; PREDICTORS] {
        let drifted = (self.level + self.trend).max(0) as u64;
        [0, self.last, self.last_but_one, drifted, self.by_rows(rows)]
    }

    /// Between the nearest bands below and above that were seen, in proportion.
    fn by_rows(&self, rows: u64) -> u64 {
        let seen = |&&(_, length): &&(u64, u64)| length > 0;
        let band = band(rows);
        let below = self.bands[..=band].iter().rev().filter(seen).find(|(r, _)| *r <= rows);
        let above = self.bands[band..].iter().filter(seen).find(|(r, _)| *r >= rows);
        match (below, above) {
            (Some(&(r0, l0)), Some(&(r1, l1))) if r1 > r0 => {
                let (part, whole) = ((rows - r0) as i64, (r1 - r0) as i64);
                let rise = (l1 as i64 - l0 as i64).saturating_mul(part) / whole.max(1);
                l0.saturating_add_signed(rise)
            }
            (Some(&(_, length)), _) | (None, Some(&(_, length))) => length,
            (None, None) => self.last,
        }
    }

    /// Takes in a step's rows and length.
    pub(super) fn learn(&mut self, rows: u64, length: u64) {
        if self.waits == 0 {
            self.level = length as i64;
            self.last = length;
        }
        let guess = self.level + self.trend;
        let error = length as i64 - guess;
        self.level = guess + error / 2;
        self.trend += error / 16;
        self.last_but_one = self.last;
        self.last = length;
        self.waits += 1;
        self.bands[band(rows)] = (rows, length.max(1));
    }
}

/// The band of a number of rows.
fn band(rows: u64) -> usize {
    match rows {
        0..16 => rows as usize,
        _ => {
            let octave = rows.ilog2() as usize;
            (16 + (octave - 4) * 4 + ((rows >> (octave - 2)) & 3) as usize).min(BANDS - 1)
        }
    }
}
