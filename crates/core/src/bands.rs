//! One plan for each band of rows: a small step is waited for otherwise than a large one.

use crate::sync::{AtomicU64, Ordering};
use crate::{Error, Result, WaitPlan, error};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The most bands a banded plan may have.
pub const BANDS_MAX: usize = 4;

/// One band: from a number of rows up to the next band's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band<P> {
    /// The least rows of the band.
    pub from_rows: u64,
    /// What holds in the band.
    pub plan: P,
}

/// Up to [`BANDS_MAX`] bands that together cover every number of rows; exactly one is selected.
///
/// Its text is `<plan>;rows>=<n>:<plan>;…`: the first band starts at 0 rows, and edges increase
/// strictly.
///
/// ```
/// use gpu_async_reactor_core::{Park, WaitBands};
/// let bands: WaitBands = "poll;rows>=32:block".parse()?;
/// assert_eq!(bands.select(31).park, Park::QueryPoll);
/// assert_eq!(bands.select(32).park, Park::Block);
/// # Ok::<(), gpu_async_reactor_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bands<P> {
    bands: Vec<Band<P>>,
}

/// A banded wait plan.
pub type WaitBands = Bands<WaitPlan>;

impl<P> Bands<P> {
    /// One band for every number of rows.
    pub fn single(plan: P) -> Bands<P> {
        Bands { bands: alloc::vec![Band { from_rows: 0, plan }] }
    }

    /// Adds a band above the ones there are.
    ///
    /// # Errors
    ///
    /// `BandsOrder` when the edge doesn't come after the last one, `BandsCount` past [`BANDS_MAX`].
    pub fn with_band(mut self, from_rows: u64, plan: P) -> Result<Bands<P>> {
        self.push("", from_rows, plan)?;
        Ok(self)
    }

    fn push(&mut self, text: &str, from_rows: u64, plan: P) -> Result<()> {
        let last = self.bands.last().map_or(0, |band| band.from_rows);
        if from_rows <= last {
            return Err(error!(BandsOrder, text, from_rows, last));
        }
        if self.bands.len() == BANDS_MAX {
            return Err(error!(BandsCount, text, BANDS_MAX + 1, BANDS_MAX));
        }
        self.bands.push(Band { from_rows, plan });
        Ok(())
    }

    /// What holds for that many rows.
    pub fn select(&self, rows: u64) -> &P {
        let above = self.bands.partition_point(|band| band.from_rows <= rows);
        // The first band starts at 0, so at least one edge is at or below any number of rows.
        &self.bands[above.max(1) - 1].plan
    }

    /// The bands, from the fewest rows up.
    pub fn bands(&self) -> &[Band<P>] {
        &self.bands
    }
}

impl<P: fmt::Display> fmt::Display for Bands<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, band) in self.bands.iter().enumerate() {
            match i {
                0 => write!(f, "{}", band.plan)?,
                _ => write!(f, ";rows>={}:{}", band.from_rows, band.plan)?,
            }
        }
        Ok(())
    }
}

impl<P: FromStr<Err = Error>> FromStr for Bands<P> {
    type Err = Error;

    /// Reads a banded text.
    ///
    /// # Errors
    ///
    /// `BandsSyntax`, `BandsOrder` or `BandsCount`, or the error of the plan inside.
    fn from_str(text: &str) -> Result<Bands<P>> {
        let mut parts = text.split(';');
        let mut bands = Bands::single(parts.next().unwrap_or("").parse()?);
        let count = text.matches(';').count() + 1;
        if count > BANDS_MAX {
            return Err(error!(BandsCount, text, count, BANDS_MAX));
        }
        for part in parts {
            let (edge, plan) = part
                .strip_prefix("rows>=")
                .and_then(|rest| rest.split_once(':'))
                .filter(|(edge, _)| !edge.is_empty() && edge.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| error!(BandsSyntax, text, part))?;
            let from_rows = edge.parse().map_err(|_| error!(BandsSyntax, text, part))?;
            bands.push(text, from_rows, plan.parse()?)?;
        }
        Ok(bands)
    }
}

/// The rows of the step now running: written once a step, read by every wait, shared by clones.
#[derive(Clone, Debug, Default)]
pub struct StepRows(Arc<AtomicU64>);

impl StepRows {
    /// No rows yet.
    pub fn new() -> StepRows {
        StepRows::default()
    }

    /// Publishes the rows of the step that starts.
    pub fn publish(&self, rows: u64) {
        self.0.store(rows, Ordering::Relaxed);
    }

    /// The rows last published.
    pub fn rows(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// What holds for the rows last published.
    pub fn select<'b, P>(&self, bands: &'b Bands<P>) -> &'b P {
        bands.select(self.rows())
    }
}

impl From<WaitPlan> for WaitBands {
    fn from(plan: WaitPlan) -> WaitBands {
        Bands::single(plan)
    }
}

impl<P: fmt::Display> Bands<P> {
    /// The text, as [`Display`](fmt::Display) prints it.
    pub fn label(&self) -> alloc::string::String {
        self.to_string()
    }
}
