//! The steps that the queues run: of a fixed length, or those of a serving trace.

mod batcher;
mod trace;

pub(crate) use batcher::COST_MODEL;

use crate::exit::Failure;
use std::path::Path;

/// One step of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// How long the device is to take, in microseconds.
    pub(crate) us: u64,
    /// Requests that decode in it.
    pub(crate) rows: u64,
    /// Prompt tokens admitted in it.
    pub(crate) prefill: u64,
}

/// Where the steps come from.
#[derive(Debug)]
pub(crate) struct Workload {
    /// The steps of each queue.
    pub(crate) queues: Vec<Vec<Step>>,
    /// What they are, for the report.
    pub(crate) about: String,
}

impl Workload {
    /// Steps of one length.
    pub(crate) fn fixed(queues: usize, steps: usize, us: u64) -> Workload {
        let step = Step { us, rows: 1, prefill: 0 };
        Workload { queues: vec![vec![step; steps]; queues], about: format!("steps of {us} µs") }
    }

    /// The steps of a serving trace: of a file, or of the excerpt that comes with the command.
    pub(crate) fn traced(
        queues: usize,
        steps: usize,
        file: Option<&Path>,
    ) -> Result<Workload, Failure> {
        let (requests, name) = match file {
            None => (trace::excerpt()?, "Azure LLM trace 2023, conversation, excerpt".to_owned()),
            Some(path) => (trace::read(path)?, path.display().to_string()),
        };
        let queues = batcher::replay(&requests, queues, steps);
        Ok(Workload { queues, about: format!("steps of {name}, through a continuous batcher") })
    }

    /// The mean length of a step, in microseconds.
    pub(crate) fn mean_us(&self) -> f64 {
        let steps = self.queues.iter().flatten();
        let total: u64 = steps.clone().map(|step| step.us).sum();
        total as f64 / steps.count().max(1) as f64
    }
}
