//! Why a completion line could not be made or stored to.

use crate::{Error, error};
use std::fmt;

/// Why a completion line could not be made or stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineError {
    /// The driver answered with that status.
    Status(i32),
    /// The driver is not here, or lacks the entry point.
    Unavailable,
    /// There is no device, so no context to allocate in.
    NoDomain,
    /// The stream is of another context than the line.
    ForeignStream,
    /// The stream is being captured into a graph.
    Capturing,
    /// The number is not above the last one that was enqueued for the word.
    NotIncreasing,
    /// The word is numbered by a queue or a port.
    Taken,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Status(status) => write!(f, "the driver answered {status}"),
            LineError::Unavailable => {
                f.write_str("the driver is not here, or lacks the entry point")
            }
            LineError::NoDomain => f.write_str("there is no device to allocate a line for"),
            LineError::ForeignStream => {
                f.write_str("the stream is of another context than the line")
            }
            LineError::Capturing => f.write_str("the stream is being captured into a graph"),
            LineError::NotIncreasing => {
                f.write_str("the number is not above the last one that was stored to the word")
            }
            LineError::Taken => f.write_str("the word is numbered by a queue or a port"),
        }
    }
}

impl std::error::Error for LineError {}

impl From<LineError> for Error {
    fn from(line: LineError) -> Error {
        let doing = "using a completion line";
        match line {
            LineError::Status(status) => error!(StoreRefused, doing, line.to_string(), status),
            LineError::Unavailable => error!(LibraryMissing, "a driver", line.to_string()),
            LineError::NoDomain => error!(NoDevice, "GPU", line.to_string()),
            LineError::Capturing => error!(StreamCapturing, doing),
            _ => error!(Misuse, doing, line.to_string()),
        }
    }
}
