//! How to wait for one piece of work: the plan, its text, and what a host makes of it.

use crate::{Error, Result, Strictness, error};
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// The largest window of a deadline estimate, in waits.
pub const WINDOW_MAX: usize = 16;

const NS_PER_US: u64 = 1_000;
const PARK_US_MAX: u64 = 10_000;
const BACKSTOP_US_MAX: u64 = 1_000_000;
/// Predictions are bounded by an hour: far beyond any step, and safe to add to any instant.
const SLEEP_US_MAX: u64 = 3_600_000_000;

/// What a wait does once it no longer sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Park {
    /// The vendor's blocking wait, and nothing else.
    Block,
    /// Query the device's status until it says done.
    QueryPoll,
    /// Watch the completion word, and ask the status every backstop.
    FlagWait {
        /// The longest single park on the word, in nanoseconds.
        park_ns: u64,
        /// How often the status is asked while the word is silent, in nanoseconds.
        backstop_ns: u64,
    },
}

/// How long to sleep before watching, from what earlier waits at the point took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadlinePlan {
    /// Wake this much before the predicted completion, in nanoseconds.
    pub margin_ns: u64,
    /// Don't sleep at all for less than this, in nanoseconds.
    pub min_sleep_ns: u64,
    /// Never sleep longer than this, in nanoseconds.
    pub max_sleep_ns: u64,
    /// How many past waits are looked at, 1 to [`WINDOW_MAX`].
    pub window: usize,
}

/// How to wait for one piece of work.
///
/// Its text is `<park>` or `<park>+predict:<fields>`:
///
/// | part | text |
/// |---|---|
/// | park | `block`, `poll`, or `flag:park_us=<n>,backstop_us=<n>`, 1 ≤ park ≤ 10 ms, park ≤ backstop ≤ 1 s |
/// | prediction | `margin_us=<n>,min_sleep_us=<n>,max_sleep_us=<n>,window=<n>`, window 1 to 16 |
///
/// Each key stands exactly once, in any order; nothing is defaulted.
///
/// ```
/// use gpu_async_reactor_core::{Park, WaitPlan};
/// let plan: WaitPlan = "flag:park_us=100,backstop_us=2000".parse()?;
/// assert_eq!(plan.park, Park::FlagWait { park_ns: 100_000, backstop_ns: 2_000_000 });
/// assert_eq!(plan.to_string().parse(), Ok(plan));
/// # Ok::<(), gpu_async_reactor_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitPlan {
    /// What the wait does once it no longer sleeps.
    pub park: Park,
    /// How long it sleeps first; `None` never sleeps.
    pub predict: Option<DeadlinePlan>,
}

/// What a host can do for a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCaps {
    /// Whether the device can store a word that this host can watch, or why it can't.
    pub flag_wait: Result<(), String>,
}

/// A plan that a host can run, and what had to change for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The plan to run.
    pub plan: WaitPlan,
    /// Why it isn't the plan that was asked for ([`ErrorCode::PlanFallback`](crate::ErrorCode::PlanFallback)).
    pub warning: Option<Error>,
}

impl WaitPlan {
    /// The plan this host can run: itself, or `poll` with the same prediction where no word can be
    /// watched.
    ///
    /// # Errors
    ///
    /// [`PlanRefused`](crate::ErrorCode::PlanRefused) where another plan would be needed and
    /// `strictness` allows none.
    pub fn resolve(&self, caps: &HostCaps, strictness: Strictness) -> Result<Resolved> {
        let (Park::FlagWait { .. }, Err(reason)) = (self.park, &caps.flag_wait) else {
            return Ok(Resolved { plan: *self, warning: None });
        };
        if strictness == Strictness::Strict {
            return Err(error!(PlanRefused, self.to_string(), reason.as_str()));
        }
        let plan = WaitPlan { park: Park::QueryPoll, predict: self.predict };
        let warning = error!(PlanFallback, self.to_string(), plan.to_string(), reason.as_str());
        Ok(Resolved { plan, warning: Some(warning) })
    }
}

impl fmt::Display for WaitPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.park {
            Park::Block => f.write_str("block")?,
            Park::QueryPoll => f.write_str("poll")?,
            Park::FlagWait { park_ns, backstop_ns } => write!(
                f,
                "flag:park_us={},backstop_us={}",
                park_ns / NS_PER_US,
                backstop_ns / NS_PER_US
            )?,
        }
        if let Some(p) = self.predict {
            write!(
                f,
                "+predict:margin_us={},min_sleep_us={},max_sleep_us={},window={}",
                p.margin_ns / NS_PER_US,
                p.min_sleep_ns / NS_PER_US,
                p.max_sleep_ns / NS_PER_US,
                p.window
            )?;
        }
        Ok(())
    }
}

impl FromStr for WaitPlan {
    type Err = Error;

    /// Reads a plan's text.
    ///
    /// # Errors
    ///
    /// A code that says what is wrong, quoting the part: `PlanSyntax`, `PlanMissingKey`,
    /// `PlanUnknownKey`, `PlanRepeatedKey`, `PlanValue`, `PlanRange` or `PlanPredictOnBlock`.
    fn from_str(text: &str) -> Result<WaitPlan> {
        let (park_text, predict_text) = match text.split_once('+') {
            Some((park, rest)) => match rest.strip_prefix("predict:") {
                Some(fields) => (park, Some(fields)),
                None => return Err(error!(PlanSyntax, text, rest)),
            },
            None => (text, None),
        };
        let park = match park_text {
            "block" => Park::Block,
            "poll" => Park::QueryPoll,
            _ => match park_text.strip_prefix("flag:") {
                Some(fields) => parse_flag(fields)?,
                None => return Err(error!(PlanSyntax, text, park_text)),
            },
        };
        if park == Park::Block && predict_text.is_some() {
            return Err(error!(PlanPredictOnBlock, text));
        }
        let predict = predict_text.map(parse_predict).transpose()?;
        Ok(WaitPlan { park, predict })
    }
}

fn parse_flag(fields: &str) -> Result<Park> {
    let [park, backstop] = read_keys(fields, ["park_us", "backstop_us"])?;
    in_range(fields, "park_us", park, 1, PARK_US_MAX)?;
    in_range(fields, "backstop_us", backstop, park, BACKSTOP_US_MAX)?;
    Ok(Park::FlagWait { park_ns: park * NS_PER_US, backstop_ns: backstop * NS_PER_US })
}

fn parse_predict(fields: &str) -> Result<DeadlinePlan> {
    let keys = ["margin_us", "min_sleep_us", "max_sleep_us", "window"];
    let [margin, min_sleep, max_sleep, window] = read_keys(fields, keys)?;
    in_range(fields, "margin_us", margin, 0, SLEEP_US_MAX)?;
    in_range(fields, "max_sleep_us", max_sleep, 0, SLEEP_US_MAX)?;
    in_range(fields, "min_sleep_us", min_sleep, 0, max_sleep)?;
    in_range(fields, "window", window, 1, WINDOW_MAX as u64)?;
    Ok(DeadlinePlan {
        margin_ns: margin * NS_PER_US,
        min_sleep_ns: min_sleep * NS_PER_US,
        max_sleep_ns: max_sleep * NS_PER_US,
        window: window as usize,
    })
}

/// Reads `key=number` pairs: each of `keys` exactly once, in any order.
pub(crate) fn read_keys<const N: usize>(part: &str, keys: [&'static str; N]) -> Result<[u64; N]> {
    let mut found = [None; N];
    for field in part.split(',') {
        let (key, value) = field.split_once('=').unwrap_or((field, ""));
        let Some(i) = keys.iter().position(|k| *k == key) else {
            return Err(error!(PlanUnknownKey, part, key));
        };
        if found[i].is_some() {
            return Err(error!(PlanRepeatedKey, part, key));
        }
        // `parse` alone would take a leading `+`.
        let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        let number = digits.then(|| value.parse::<u64>().ok()).flatten();
        found[i] = Some(number.ok_or_else(|| error!(PlanValue, part, key, value))?);
    }
    let mut numbers = [0; N];
    for i in 0..N {
        numbers[i] = found[i].ok_or_else(|| error!(PlanMissingKey, part, keys[i]))?;
    }
    Ok(numbers)
}

pub(crate) fn in_range(
    part: &str,
    key: &'static str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<()> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(error!(PlanRange, part, key, value, least, most))
    }
}
