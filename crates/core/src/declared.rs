//! Settings with a declared chain of fallbacks: what was asked for, what runs, and why.

use crate::{Error, ErrorCode, Result, error};
use alloc::string::{String, ToString};
use core::fmt;

/// Whether something else may run when what was asked for can't.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strictness {
    /// The next in the chain runs, with a warning.
    #[default]
    Lenient,
    /// Nothing else may run: an error.
    Strict,
}

/// A setting with a declared fallback chain. Duties of an implementer:
///
/// 1. following [`next`](Declared::next) from any value ends, at a value that every host can run;
/// 2. [`name`](Declared::name) is the spelling that users write.
pub trait Declared: Copy + 'static {
    /// What a host offers, with its reasons.
    type Caps;
    /// The code of the warning when another value runs.
    const FALLBACK_CODE: ErrorCode;
    /// The code of the error when strict and the value can't run.
    const REFUSED_CODE: ErrorCode;

    /// The value's spelling.
    fn name(self) -> &'static str;
    /// Why the value can't run on such a host, or `None` where it can.
    fn unavailable(self, caps: &Self::Caps) -> Option<String>;
    /// What to try in its place; `None` at the chain's end.
    fn next(self) -> Option<Self>;
}

/// A setting that a host can run, and what had to change for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running<D> {
    /// What was asked for.
    pub requested: D,
    /// What runs.
    pub running: D,
    /// Why the two differ.
    pub warning: Option<Error>,
}

impl<D: Declared> Running<D> {
    /// What runs, and what was asked for where that differs: `gpu-reactor (asked for io-uring)`.
    pub fn label(&self) -> String {
        match self.warning {
            None => self.running.name().to_string(),
            Some(_) => {
                alloc::format!("{} (asked for {})", self.running.name(), self.requested.name())
            }
        }
    }
}

/// Follows a setting's chain to the first value that the host can run.
///
/// ```
/// use gpu_async_reactor_core::{ExecutorCaps, ExecutorKind, Strictness, resolve};
/// let caps = ExecutorCaps { word_wait: Ok(()), io_uring: Err("the kernel has none".into()) };
/// let chosen = resolve(ExecutorKind::IoUring, Strictness::Lenient, &caps)?;
/// assert_eq!(chosen.running, ExecutorKind::GpuReactor);
/// assert!(resolve(ExecutorKind::IoUring, Strictness::Strict, &caps).is_err());
/// # Ok::<(), gpu_async_reactor_core::Error>(())
/// ```
///
/// # Errors
///
/// [`Declared::REFUSED_CODE`] when strict and the value can't run, or when the chain ends with
/// nothing that can.
pub fn resolve<D: Declared>(
    value: D,
    strictness: Strictness,
    caps: &D::Caps,
) -> Result<Running<D>> {
    let Some(reason) = value.unavailable(caps) else {
        return Ok(Running { requested: value, running: value, warning: None });
    };
    let mut next = value.next().filter(|_| strictness == Strictness::Lenient);
    while let Some(running) = next {
        if running.unavailable(caps).is_none() {
            let args = [value.name().into(), running.name().into(), reason.into()];
            let warning = Some(Error::new(D::FALLBACK_CODE, args));
            return Ok(Running { requested: value, running, warning });
        }
        next = running.next();
    }
    Err(Error::new(D::REFUSED_CODE, [value.name().into(), reason.into()]))
}

/// Which executor runs a thread's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecutorKind {
    /// Poll every task in turn; runs anywhere.
    Naive,
    /// The reactor's executor, parked on a word in hardware.
    GpuReactor,
    /// The reactor's executor, idling in io_uring.
    IoUring,
}

/// What a host offers to executors, each with the reason where it doesn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorCaps {
    /// Whether a word can be parked on in hardware, or why not.
    pub word_wait: Result<(), String>,
    /// Whether the kernel offers io_uring, or why not.
    pub io_uring: Result<(), String>,
}

impl ExecutorKind {
    /// Every executor.
    pub const ALL: [ExecutorKind; 3] =
        [ExecutorKind::Naive, ExecutorKind::GpuReactor, ExecutorKind::IoUring];

    /// Reads an executor's spelling: `naive`, `gpu-reactor` or `io-uring`.
    ///
    /// # Errors
    ///
    /// `InvalidExecutor`, quoting what was found.
    pub fn parse(text: &str) -> Result<ExecutorKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| error!(InvalidExecutor, text, Self::ALL.map(|k| k.name()).join(", ")))
    }

    /// The executor's spelling.
    pub const fn name(self) -> &'static str {
        match self {
            ExecutorKind::Naive => "naive",
            ExecutorKind::GpuReactor => "gpu-reactor",
            ExecutorKind::IoUring => "io-uring",
        }
    }
}

impl fmt::Display for ExecutorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Declared for ExecutorKind {
    type Caps = ExecutorCaps;
    const FALLBACK_CODE: ErrorCode = ErrorCode::ExecutorFallback;
    const REFUSED_CODE: ErrorCode = ErrorCode::ExecutorRefused;

    fn name(self) -> &'static str {
        ExecutorKind::name(self)
    }

    fn unavailable(self, caps: &ExecutorCaps) -> Option<String> {
        match self {
            ExecutorKind::Naive => None,
            ExecutorKind::GpuReactor => caps.word_wait.clone().err(),
            ExecutorKind::IoUring => caps.io_uring.clone().err(),
        }
    }

    fn next(self) -> Option<ExecutorKind> {
        match self {
            ExecutorKind::IoUring => Some(ExecutorKind::GpuReactor),
            ExecutorKind::GpuReactor => Some(ExecutorKind::Naive),
            ExecutorKind::Naive => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(word: bool, uring: bool) -> ExecutorCaps {
        let give = |has: bool, why: &str| if has { Ok(()) } else { Err(why.to_string()) };
        ExecutorCaps { word_wait: give(word, "no word wait"), io_uring: give(uring, "no ring") }
    }

    #[test]
    fn the_chain_goes_io_uring_gpu_reactor_naive() {
        use ExecutorKind::*;
        for (asked, word, uring, runs) in [
            (IoUring, true, true, IoUring),
            (IoUring, true, false, GpuReactor),
            (IoUring, false, false, Naive),
            (IoUring, false, true, IoUring),
            (GpuReactor, false, true, Naive),
            (GpuReactor, true, false, GpuReactor),
            (Naive, false, false, Naive),
        ] {
            let caps = caps(word, uring);
            let got = resolve(asked, Strictness::Lenient, &caps).unwrap();
            assert_eq!((got.requested, got.running), (asked, runs));
            let code = got.warning.as_ref().map(Error::code);
            assert_eq!(code, (asked != runs).then_some(ErrorCode::ExecutorFallback));
            let strict = resolve(asked, Strictness::Strict, &caps);
            match asked == runs {
                true => assert_eq!(strict.unwrap().running, asked),
                false => assert_eq!(strict.unwrap_err().code(), ErrorCode::ExecutorRefused),
            }
        }
    }

    #[test]
    fn the_warning_gives_the_reason_of_what_was_asked_for() {
        let got = resolve(ExecutorKind::IoUring, Strictness::Lenient, &caps(false, false)).unwrap();
        assert!(got.warning.as_ref().unwrap().to_string().contains("no ring"));
        assert_eq!(got.label(), "naive (asked for io-uring)");
    }

    #[test]
    fn names_are_read_back() {
        for kind in ExecutorKind::ALL {
            assert_eq!(ExecutorKind::parse(kind.name()), Ok(kind));
        }
        let bad = ExecutorKind::parse("tokio").unwrap_err();
        assert_eq!(bad.code(), ErrorCode::InvalidExecutor);
        assert!(bad.to_string().contains("`tokio`"));
        assert!(bad.to_string().contains("naive, gpu-reactor, io-uring"));
    }
}
