//! Reads a serving trace: a header, then `TIMESTAMP,ContextTokens,GeneratedTokens`.

use crate::exit::Failure;
use std::path::Path;

const EXCERPT: &str = include_str!("../../data/azure-llm-2023-conv-excerpt.csv");
const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// When it came, in microseconds after the first one.
    pub(super) at_us: u64,
    pub(super) context: u64,
    pub(super) generated: u64,
}

pub(super) fn excerpt() -> Result<Vec<Request>, Failure> {
    parse("the excerpt inside", EXCERPT)
}

pub(super) fn read(path: &Path) -> Result<Vec<Request>, Failure> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path)
        .map_err(|e| Failure::bad_input(format!("reading the trace {name}: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let line = 1 + e.as_bytes()[..e.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        Failure::bad_input(format!("reading the trace {name}, line {line}: it is no UTF-8 text"))
    })?;
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Vec<Request>, Failure> {
    let bad = |line: usize, what: String| {
        Failure::bad_input(format!("reading the trace {name}, line {line}: {what}"))
    };
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_end()));
    match lines.next() {
        Some((_, header)) if header.trim_start_matches('\u{feff}') == HEADER => {}
        Some((line, found)) => {
            return Err(bad(line, format!("expected the header `{HEADER}`, found `{found}`")));
        }
        None => return Err(bad(1, format!("expected the header `{HEADER}`, found nothing"))),
    }
    let mut requests: Vec<Request> = Vec::new();
    let mut first = None;
    for (line, row) in lines.filter(|(_, row)| !row.is_empty()) {
        let fields: Vec<_> = row.split(',').collect();
        let [time, context, generated] = fields[..] else {
            return Err(bad(line, format!("expected 3 fields, found {} in `{row}`", fields.len())));
        };
        let tokens = |name, text: &str| {
            // A million tokens are beyond any context there is; more would only overflow the cost.
            let tokens = text.parse::<u64>().ok().filter(|tokens| *tokens <= 1_000_000);
            tokens.ok_or_else(|| {
                bad(line, format!("{name} must be a whole number up to 1000000, found `{text}`"))
            })
        };
        let at = micros(time).ok_or_else(|| {
            bad(line, format!("TIMESTAMP must be `YYYY-MM-DD hh:mm:ss.fraction`, found `{time}`"))
        })?;
        let first = *first.get_or_insert(at);
        let at_us = at.checked_sub(first);
        let in_order = at_us.filter(|at| requests.last().is_none_or(|last| last.at_us <= *at));
        requests.push(Request {
            at_us: in_order
                .ok_or_else(|| bad(line, format!("`{time}` is before the row above it")))?,
            context: tokens("ContextTokens", context)?,
            generated: tokens("GeneratedTokens", generated)?,
        });
    }
    if requests.is_empty() {
        return Err(bad(2, "expected a row, found nothing".to_owned()));
    }
    Ok(requests)
}

/// Microseconds since the year 0, in days of a month as they are written.
fn micros(time: &str) -> Option<u64> {
    let (date, clock) = time.split_once(' ')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut parts = clock.splitn(3, ':');
    let (hour, minute) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<u64>().ok()?);
    let (second, fraction) =
        parts.next()?.split_once('.').unwrap_or((clock.rsplit(':').next()?, "0"));
    let second = second.parse::<u64>().ok()?;
    let digits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    if year > 9999 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || !digits {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let six = format!("{fraction:0<6}").get(..6)?.parse::<u64>().ok()?;
    let days = days_before(year, month) + day;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + six)
}

/// Days from the year 0 to the first of a month (Gregorian).
fn days_before(year: u64, month: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let full = if month > 2 { year + 1 } else { year };
    year * 365 + full.div_ceil(4) - full.div_ceil(100)
        + full.div_ceil(400)
        + BEFORE[month as usize - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excerpt_is_read_whole() {
        let requests = excerpt().unwrap();
        assert_eq!(requests.len(), 400);
        assert_eq!(requests[0], Request { at_us: 0, context: 374, generated: 44 });
        assert_eq!(requests[1].at_us, 4_314_579); // 46.680590 to 50.995169
    }

    #[test]
    fn times_cross_days_months_and_leap_years() {
        let span = |a: &str, b: &str| micros(b).unwrap() - micros(a).unwrap();
        assert_eq!(span("2023-12-31 23:59:59.5", "2024-01-01 00:00:00.25"), 750_000);
        assert_eq!(span("2024-02-28 00:00:00.0", "2024-03-01 00:00:00.0"), 2 * 86_400_000_000);
        assert_eq!(span("2023-02-28 00:00:00.0", "2023-03-01 00:00:00.0"), 86_400_000_000);
        assert_eq!(micros("2023-13-01 00:00:00.0"), None);
        assert_eq!(micros("yesterday"), None);
    }
}
