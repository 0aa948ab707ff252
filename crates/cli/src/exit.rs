//! What the command's exit codes mean, and the one line that goes with a failure.

use gpu_async_reactor::{Error, ErrorCode};
use std::fmt;
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done and right.
    Done = 0,
    /// A wrong result, a missing completion, or a self-test that failed.
    Wrong = 1,
    /// Something given to the command can't be used.
    BadInput = 2,
    /// The device was lost; what completed before was reported.
    DeviceLost = 3,
    /// Ctrl-C; what was measured before was reported.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// A failure before anything could be reported: one line, and a code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    line: String,
}

impl Failure {
    /// Something given to the command can't be used.
    pub(crate) fn bad_input(line: impl fmt::Display) -> Failure {
        Failure { exit: Exit::BadInput, line: line.to_string() }
    }

    /// Prints the line, and gives the code.
    pub(crate) fn report(self) -> ExitCode {
        // One line, whatever a driver put in its message.
        eprintln!("gpu-reactor: {}", self.line.replace(['\n', '\r'], " "));
        self.exit.into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { exit: of_error(&error), line: error.to_string() }
    }
}

/// The exit code for an error that ended a run or kept it from starting.
pub(crate) fn of_error(error: &Error) -> Exit {
    match error.code() {
        ErrorCode::DeviceLost => Exit::DeviceLost,
        ErrorCode::DeviceHang | ErrorCode::StoreRefused | ErrorCode::DriverCall => Exit::Wrong,
        ErrorCode::Stalled | ErrorCode::TaskDropped | ErrorCode::System => Exit::Wrong,
        _ => Exit::BadInput,
    }
}

/// Prints what clap found: help on stdout, a mistake as one line on stderr.
pub(crate) fn of_clap(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Nobody reads a closed pipe: nothing to do about it.
        let _ = error.print();
        return Exit::Done.into();
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    let line = said.join(" ").replacen("error: ", "", 1);
    Failure::bad_input(format!("{line} (--help lists the options)")).report()
}
