//! The core of gpu-async-reactor: waiting for a GPU by watching a word in memory.
//!
//! A device queue stores a number into host-visible memory behind the work submitted to it. That
//! word can be watched for the price of a load, with no driver call and no driver thread. This crate
//! has the word ([`CompletionLine`]), one wait for it ([`wait`]), and a reactor and an executor that
//! fill waits with ready work ([`Reactor`], [`Executor`]). It is `no_std` with `alloc`, has no unsafe
//! code, no I/O, and names no vendor; the crate `gpu-async-reactor` adds devices and hosts.
//!
//! Its feature `std` changes nothing but speed: the executor then knows its own thread's wakes, which
//! need no locked instruction.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod bands;
mod bell;
mod declared;
mod error;
mod estimator;
mod executor;
mod line;
mod manual;
mod plan;
mod port;
mod queue;
mod reactor;
mod status;
mod step_plan;
mod sync;
mod time;

pub use bands::{BANDS_MAX, Band, Bands, StepRows, WaitBands};
pub use bell::Bell;
pub use declared::{Declared, ExecutorCaps, ExecutorKind, Running, Strictness, resolve};
pub use error::{Arg, Error, ErrorCode, Result};
pub use estimator::{
    Costs, Ending, Estimator, Ewma, HalfMean, HalfMin, HazardSchedule, MinSchedule, Naps, Outcome,
    PointEstimate, PointTable, Schedule, Step,
};
pub use executor::{DynExecutor, DynTask, Executor, JoinHandle, RunStats, Spawner};
pub use line::{CompletionLine, LINE_WORDS, MemoryDescriptor, Slot, reached};
pub use manual::{ManualClock, ManualIdle, ManualTimer};
pub use plan::{DeadlinePlan, HostCaps, Park, Resolved, WINDOW_MAX, WaitPlan};
pub use port::{CompletionPort, WaitReport, run_inline, wait, wait_steps, yield_now};
pub use queue::{OnThread, ParkWord, Queue, QueuePort};
pub use reactor::{Alarmed, Idle, LineSet, Outside, Reactor, Ready, SharedLine, Turn, WatchedLine};
pub use status::{QueueStatus, SharedStatus};
pub use step_plan::{AnySchedule, EstimatorKind, StepBands, StepPlan};
pub use time::{Clock, DurNs, MonoNs, Timer};
