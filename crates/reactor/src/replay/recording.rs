//! What a recording holds, and its file.

use crate::{Result, error};
use std::fmt::Write as _;

const HEADER: &str = "point,rows,start_ns,duration_ns";
const VERSION: &str = "# gpu-reactor recording 1";

/// One wait that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Where in the program it was: waits of one point are alike.
    pub point: u64,
    /// What the program knew of its size; 0 if nothing.
    pub rows: u64,
    /// When it began.
    pub start_ns: u64,
    /// From its beginning to the end of its work.
    pub duration_ns: u64,
}

/// Waits in the order they were done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The waits.
    pub rows: Vec<Row>,
}

impl Recording {
    /// Reads a recording's text: a version line, a header line, then a line for each wait.
    ///
    /// # Errors
    ///
    /// `Misuse`, with the number of the line and what is wrong with it; `name` is what to call the
    /// text.
    pub fn read(name: &str, text: &str) -> Result<Recording> {
        let bad = |line: usize, what: String| error!(Misuse, format!("{name}, line {line}"), what);
        let mut lines = text.lines().zip(1..);
        for expected in [VERSION, HEADER] {
            match lines.next() {
                Some((found, _)) if found.trim_end() == expected => {}
                found => {
                    let (found, line) = found.unwrap_or(("the end of the file", 1));
                    return Err(bad(line, format!("`{found}` is not `{expected}`")));
                }
            }
        }
        let mut rows = Vec::new();
        for (text, line) in lines.filter(|(text, _)| !text.trim().is_empty()) {
            let mut numbers = [0u64; 4];
            let fields: Vec<_> = text.trim_end().split(',').collect();
            if fields.len() != numbers.len() {
                return Err(bad(line, format!("{} fields, not 4: {HEADER}", fields.len())));
            }
            for (number, field) in numbers.iter_mut().zip(fields) {
                *number = field
                    .parse()
                    .map_err(|_| bad(line, format!("`{field}` is not a whole number")))?;
            }
            let [point, rows_, start_ns, duration_ns] = numbers;
            if duration_ns == 0 || duration_ns > 3_600_000_000_000 {
                let what = format!("a duration of {duration_ns} ns is not within an hour");
                return Err(bad(line, what));
            }
            rows.push(Row { point, rows: rows_, start_ns, duration_ns });
        }
        if rows.is_empty() {
            return Err(bad(3, "there is no wait to replay".into()));
        }
        Ok(Recording { rows })
    }

    /// The recording's text.
    pub fn write(&self) -> String {
        let mut text = format!("{VERSION}\n{HEADER}\n");
        for Row { point, rows, start_ns, duration_ns } in &self.rows {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{point},{rows},{start_ns},{duration_ns}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let row = |n| Row { point: n, rows: n * 2, start_ns: n * 3, duration_ns: n * 4 + 1 };
        let recording = Recording { rows: (0..50).map(row).collect() };
        assert_eq!(Recording::read("it", &recording.write()), Ok(recording));
    }

    #[test]
    fn each_fault_names_its_line() {
        let good = format!("{VERSION}\n{HEADER}\n0,1,2,3\n");
        for (text, line, what) in [
            (String::new(), 1, "the end of the file"),
            ("point\n".into(), 1, "`point`"),
            (format!("{VERSION}\nx\n"), 2, "`x`"),
            (format!("{VERSION}\n{HEADER}\n"), 3, "no wait"),
            (format!("{good}1,2,3\n"), 4, "3 fields"),
            (format!("{good}\n1,2,3,-4\n"), 5, "`-4`"),
            (format!("{good}1,2,3,0\n"), 4, "0 ns"),
        ] {
            let error = Recording::read("it.csv", &text).unwrap_err().to_string();
            assert!(error.contains(&format!("it.csv, line {line}:")), "{error}");
            assert!(error.contains(what), "{error}");
        }
    }
}
