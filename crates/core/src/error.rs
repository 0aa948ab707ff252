//! Coded errors: a number to decide by, arguments to look at, text only when somebody reads it.
//!
//! The registry is append-only: a code keeps its number for ever, and a test pins every one.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A result whose error is an [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $form:literal;)*) => {
        /// What went wrong. Numbers never change and are never used again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[$doc])* $name = $number,)* }

        impl ErrorCode {
            /// Every code, in the order of its number.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The template of the code's text; each `{}` stands for one argument.
            pub const fn form(self) -> &'static str {
                match self { $(ErrorCode::$name => $form,)* }
            }
        }
    };
}

codes! {
    /// A plan's text has no known shape. Arguments: the text, the part.
    PlanSyntax = 1, "reading the wait plan `{}`: `{}` is not `block`, `poll`, `flag:<fields>` or one of these with `+predict:<fields>`";
    /// A plan lacks a key. Arguments: the part, the key.
    PlanMissingKey = 2, "reading the wait plan part `{}`: the key `{}` is missing; nothing is defaulted, so write it";
    /// A plan has a key that means nothing there. Arguments: the part, the key.
    PlanUnknownKey = 3, "reading the wait plan part `{}`: the key `{}` is not known here; remove it";
    /// A plan has a key twice. Arguments: the part, the key.
    PlanRepeatedKey = 4, "reading the wait plan part `{}`: the key `{}` is given twice; give it once";
    /// A plan's value is no whole number. Arguments: the part, the key, the value.
    PlanValue = 5, "reading the wait plan part `{}`: `{}` must be a whole number, found `{}`";
    /// A plan's value is out of its range. Arguments: the part, the key, the value, the least, the most.
    PlanRange = 6, "reading the wait plan part `{}`: `{}={}` is out of range; choose {} to {}";
    /// `block` with a prediction. Argument: the text.
    PlanPredictOnBlock = 7, "reading the wait plan `{}`: `block` takes no prediction, the driver does the waiting; use `poll+predict:…` or `flag:…+predict:…`";
    /// A banded plan has no known shape. Arguments: the text, the part.
    BandsSyntax = 8, "reading the banded plan `{}`: `{}` is not `rows>=<n>:<plan>`";
    /// A banded plan's edges don't increase. Arguments: the text, the edge, the edge before it.
    BandsOrder = 9, "reading the banded plan `{}`: the edge rows>={} does not come after rows>={}; edges must increase strictly";
    /// A banded plan has too many bands. Arguments: the text, the number found, the most.
    BandsCount = 10, "reading the banded plan `{}`: it has {} bands, at most {} are kept";
    /// An executor's name is not known. Arguments: the name, the names there are.
    InvalidExecutor = 11, "reading the executor `{}`: the executors are {}";
    /// An executor can't run here and another does. Arguments: asked for, running, the reason.
    ExecutorFallback = 12, "choosing the executor `{}`: running `{}` in its place because {}";
    /// An executor can't run here, and nothing else was allowed. Arguments: asked for, the reason.
    ExecutorRefused = 13, "choosing the executor `{}`: it can't run here because {}, and strict allows no other";
    /// A flag plan can't run here and another does. Arguments: asked for, running, the reason.
    PlanFallback = 14, "choosing the wait plan `{}`: running `{}` in its place because {}";
    /// A flag plan can't run here, and nothing else was allowed. Arguments: asked for, the reason.
    PlanRefused = 15, "choosing the wait plan `{}`: it can't run here because {}, and strict allows no other";
    /// Tasks are left and nothing will wake them. Argument: how many.
    Stalled = 16, "running the reactor: nothing is registered that could wake one of the tasks left ({}); register a descriptor, a timer or an outside source";
    /// A task was dropped before it finished, with its executor.
    TaskDropped = 17, "joining a task: it was dropped before it finished, because its executor was";
    /// The doorbell's last word belongs to the host. Argument: the slot.
    DoorbellSlot = 18, "binding a line to doorbell slot {}: that word is the host's; use 0 to 6";
    /// The device is lost. Arguments: what was being done, the cause.
    DeviceLost = 32, "{}: the device is lost ({}); nothing more completes on it, open it anew";
    /// Work did not complete by its deadline. Arguments: what was awaited, how long.
    DeviceHang = 33, "{}: not complete after {}; the device hangs or the deadline is too short";
    /// The store or the registration behind the work was refused. Arguments: what, the reason.
    StoreRefused = 34, "{}: the completion store was refused ({})";
    /// A driver call failed. Arguments: what was being done, the call, its number, its name.
    DriverCall = 35, "{}: {} returned {} ({})";
    /// A driver library can't be loaded. Arguments: the library, the reason.
    LibraryMissing = 36, "loading {}: {}; install the driver or choose another device";
    /// A driver lacks an entry point. Arguments: the library, the entry point.
    SymbolMissing = 37, "loading {}: it has no `{}`; a newer driver is needed for this";
    /// The driver is there and finds no device. Arguments: the driver, what was found.
    NoDevice = 38, "opening a {} device: {}";
    /// The device lacks something that is needed. Arguments: the device, what it lacks.
    DeviceUnfit = 39, "opening {}: it lacks {}";
    /// A caller's argument can't be used. Arguments: what was being done, what is wrong.
    Misuse = 40, "{}: {}";
    /// The operating system refused something. Arguments: what was being done, the reason.
    System = 41, "{}: {}";
    /// A stream is being captured into a graph. Argument: what was being done.
    StreamCapturing = 42, "{}: the stream is being captured into a graph; await it once the capture has ended, behind the launch of the graph";
}

impl ErrorCode {
    /// The code's number, which never changes.
    pub const fn number(self) -> u16 {
        self as u16
    }
}

/// One argument of an error, kept as a value until the text is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arg {
    /// A text.
    Text(Box<str>),
    /// A text that is part of the program.
    Name(&'static str),
    /// A number.
    Number(i128),
    /// A span of time.
    Span(crate::DurNs),
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Text(text) => f.write_str(text),
            Arg::Name(name) => f.write_str(name),
            Arg::Number(number) => number.fmt(f),
            Arg::Span(span) => span.fmt(f),
        }
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Arg {
        Arg::Text(text.into())
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Arg {
        Arg::Text(text.into())
    }
}

impl From<crate::DurNs> for Arg {
    fn from(span: crate::DurNs) -> Arg {
        Arg::Span(span)
    }
}

macro_rules! arg_from_number {
    ($($kind:ty)*) => { $(impl From<$kind> for Arg {
        fn from(number: $kind) -> Arg { Arg::Number(number as i128) }
    })* };
}
arg_from_number!(u8 u16 u32 u64 usize i32 i64 isize);

/// An [`ErrorCode`] and its arguments. Decide by [`Error::code`]; read the text to understand.
///
/// ```
/// use gpu_async_reactor_core::{ErrorCode, WaitPlan};
/// let bad = "flag:park_us=0,backstop_us=5".parse::<WaitPlan>().unwrap_err();
/// assert_eq!(bad.code(), ErrorCode::PlanRange);
/// assert!(bad.to_string().contains("park_us=0"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    args: Vec<Arg>,
}

impl Error {
    /// An error of a code with its arguments, in the order of the form; [`error!`](crate::error!) is shorter.
    pub fn new(code: ErrorCode, args: impl Into<Vec<Arg>>) -> Error {
        Error { code, args: args.into() }
    }

    /// What went wrong.
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// The driver's own number for what went wrong, where a driver call is behind the error.
    ///
    /// ```
    /// use gpu_async_reactor_core::error;
    /// let lost = error!(DeviceLost, "awaiting number 7", "cuEventQuery returned 700", 700i32);
    /// assert_eq!(lost.driver_status(), Some(700));
    /// assert_eq!(error!(Stalled, 3usize).driver_status(), None);
    /// ```
    pub fn driver_status(&self) -> Option<i32> {
        let place = match self.code {
            ErrorCode::DriverCall
            | ErrorCode::DeviceLost
            | ErrorCode::StoreRefused
            | ErrorCode::NoDevice => 2,
            ErrorCode::StreamCapturing => 1,
            _ => return None,
        };
        match self.args.get(place) {
            Some(Arg::Number(number)) => i32::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The arguments, in the order of the code's form; a driver's number may follow them.
    pub fn args(&self) -> &[Arg] {
        &self.args
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut args = self.args.iter();
        for (i, part) in self.code.form().split("{}").enumerate() {
            if i > 0 {
                match args.next() {
                    Some(arg) => arg.fmt(f)?,
                    None => f.write_str("?")?,
                }
            }
            f.write_str(part)?;
        }
        write!(f, " [E{:03}]", self.code.number())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.code)
    }
}

impl core::error::Error for Error {}

/// Makes an [`Error`](crate::Error): the code's name, then its arguments.
///
/// ```
/// use gpu_async_reactor_core::{ErrorCode, error};
/// let stalled = error!(Stalled, 3usize);
/// assert_eq!(stalled.code(), ErrorCode::Stalled);
/// assert!(stalled.to_string().contains("the tasks left (3)"));
/// ```
#[macro_export]
macro_rules! error {
    ($code:ident $(, $arg:expr)* $(,)?) => {
        $crate::Error::new($crate::ErrorCode::$code, [$($crate::Arg::from($arg)),*])
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Append-only: a line here is never changed, only added.
    const PINNED: &[(ErrorCode, u16)] = &[
        (ErrorCode::PlanSyntax, 1),
        (ErrorCode::PlanMissingKey, 2),
        (ErrorCode::PlanUnknownKey, 3),
        (ErrorCode::PlanRepeatedKey, 4),
        (ErrorCode::PlanValue, 5),
        (ErrorCode::PlanRange, 6),
        (ErrorCode::PlanPredictOnBlock, 7),
        (ErrorCode::BandsSyntax, 8),
        (ErrorCode::BandsOrder, 9),
        (ErrorCode::BandsCount, 10),
        (ErrorCode::InvalidExecutor, 11),
        (ErrorCode::ExecutorFallback, 12),
        (ErrorCode::ExecutorRefused, 13),
        (ErrorCode::PlanFallback, 14),
        (ErrorCode::PlanRefused, 15),
        (ErrorCode::Stalled, 16),
        (ErrorCode::TaskDropped, 17),
        (ErrorCode::DoorbellSlot, 18),
        (ErrorCode::DeviceLost, 32),
        (ErrorCode::DeviceHang, 33),
        (ErrorCode::StoreRefused, 34),
        (ErrorCode::DriverCall, 35),
        (ErrorCode::LibraryMissing, 36),
        (ErrorCode::SymbolMissing, 37),
        (ErrorCode::NoDevice, 38),
        (ErrorCode::DeviceUnfit, 39),
        (ErrorCode::Misuse, 40),
        (ErrorCode::System, 41),
        (ErrorCode::StreamCapturing, 42),
    ];

    #[test]
    fn every_number_is_pinned() {
        let now: Vec<_> = ErrorCode::ALL.iter().map(|code| (*code, code.number())).collect();
        assert_eq!(now, PINNED);
    }

    #[test]
    fn text_has_every_argument_in_its_place() {
        for &code in ErrorCode::ALL {
            let holes = code.form().matches("{}").count();
            let args: Vec<_> = (0..holes).map(|i| Arg::from(alloc::format!("<arg {i}>"))).collect();
            let text = Error::new(code, args).to_string();
            assert!(!text.contains("{}") && !text.contains('?'), "{text}");
            let found: Vec<_> =
                (0..holes).map(|i| text.find(&alloc::format!("<arg {i}>")).unwrap()).collect();
            assert!(found.is_sorted(), "{text}");
        }
    }

    #[test]
    fn a_missing_argument_shows_as_a_question_mark() {
        assert!(Error::new(ErrorCode::Stalled, []).to_string().contains("(?)"));
    }
}
