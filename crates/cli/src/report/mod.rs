//! What a run found, as text, as lines of JSON, and as one HTML file.
//!
//! Upholds invariant 14: each of them names the device and says whether it is simulated.

pub(crate) mod html;
pub(crate) mod json;
mod svg;
pub(crate) mod text;

use crate::exit::Failure;
use crate::run::devices::About;
use crate::sys::Machine;
use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::Path;

/// What every report says besides its results.
pub(crate) struct Facts {
    pub(crate) device: About,
    pub(crate) machine: Machine,
    pub(crate) date: String,
    pub(crate) work: String,
}

/// A report's file, opened before the run so that a path that can't be written is found then.
pub(crate) struct Writer {
    file: File,
    path: String,
}

impl Writer {
    pub(crate) fn open(path: &Path) -> Result<Writer, Failure> {
        let name = path.display().to_string();
        // An earlier report stays until there is another.
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        match opened {
            Ok(file) => Ok(Writer { file, path: name }),
            Err(e) => Err(Failure::bad_input(format!("writing the report {name}: {e}"))),
        }
    }

    /// Puts the report in the file: the path.
    pub(crate) fn write(mut self, text: &str) -> Result<String, Failure> {
        let done = self.file.set_len(0).and_then(|()| self.file.rewind());
        match done.and_then(|()| self.file.write_all(text.as_bytes())) {
            Ok(()) => Ok(self.path),
            Err(e) => Err(Failure::bad_input(format!("writing the report {}: {e}", self.path))),
        }
    }
}

/// A span of nanoseconds in the unit that suits it.
pub(crate) fn span(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// A value that may not be known.
pub(crate) fn known(value: Option<f64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), span)
}
