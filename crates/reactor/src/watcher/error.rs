//! How a wait of any runtime fails: always typed, always with what was awaited and for how long.
//!
//! Upholds invariant 8.

use crate::{DurNs, Error, ErrorCode, error};
use std::fmt;

/// What was awaited, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The queue, as it calls itself.
    pub queue: Box<str>,
    /// The number awaited; 0 when none was given out.
    pub number: u64,
    /// From the first poll to the end.
    pub waited: DurNs,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "awaiting {}", self.queue),
            number => write!(f, "awaiting number {number} of {}", self.queue),
        }
    }
}

/// Why a wait ended without its completion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The caller's deadline came first. The work goes on.
    Timeout(Awaited),
    /// The watcher's own limit came first: the device hangs.
    Hang(Awaited),
    /// The word that the caller gave to [`until`](super::Completion::until) came first. The work goes on.
    Cancelled(Awaited),
    /// The device is lost.
    DeviceLost(Awaited, Error),
    /// The store behind the work or the registration was refused, or the watcher is gone.
    Refused(Awaited, Error),
    /// The queue's own error.
    Port(Awaited, Error),
}

impl WaitError {
    /// The error of a queue, put in its place.
    /// The failure of a wait, by its cause's code.
    pub fn of(awaited: Awaited, cause: Error) -> WaitError {
        match cause.code() {
            ErrorCode::DeviceLost => WaitError::DeviceLost(awaited, cause),
            ErrorCode::DeviceHang => WaitError::Hang(awaited),
            ErrorCode::StoreRefused | ErrorCode::Misuse => WaitError::Refused(awaited, cause),
            _ => WaitError::Port(awaited, cause),
        }
    }

    /// What was awaited, and for how long.
    pub fn awaited(&self) -> &Awaited {
        match self {
            WaitError::Timeout(awaited)
            | WaitError::Hang(awaited)
            | WaitError::Cancelled(awaited)
            | WaitError::DeviceLost(awaited, _)
            | WaitError::Refused(awaited, _)
            | WaitError::Port(awaited, _) => awaited,
        }
    }

    /// The error beneath, if there is one.
    pub fn cause(&self) -> Option<&Error> {
        match self {
            WaitError::DeviceLost(_, cause)
            | WaitError::Refused(_, cause)
            | WaitError::Port(_, cause) => Some(cause),
            _ => None,
        }
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let awaited = self.awaited();
        match self {
            WaitError::Timeout(_) => write!(f, "{awaited}: not complete at the deadline"),
            WaitError::Hang(_) => write!(f, "{awaited}: the device hangs"),
            WaitError::Cancelled(_) => write!(f, "{awaited}: cancelled by its word"),
            WaitError::DeviceLost(_, cause)
            | WaitError::Refused(_, cause)
            | WaitError::Port(_, cause) => write!(f, "{awaited}: {cause}"),
        }?;
        write!(f, " (after {})", awaited.waited)
    }
}

impl std::error::Error for WaitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().map(|cause| cause as _)
    }
}

impl From<WaitError> for Error {
    /// The cause, or else `DeviceHang` for a deadline and `Misuse` for a cancelled wait.
    fn from(failed: WaitError) -> Error {
        match failed {
            WaitError::DeviceLost(_, cause)
            | WaitError::Refused(_, cause)
            | WaitError::Port(_, cause) => cause,
            WaitError::Timeout(awaited) | WaitError::Hang(awaited) => {
                error!(DeviceHang, awaited.to_string(), awaited.waited)
            }
            WaitError::Cancelled(awaited) => {
                error!(Misuse, awaited.to_string(), "cancelled by its word")
            }
        }
    }
}
