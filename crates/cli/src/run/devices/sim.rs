//! The simulated device: real results, computed on the threads that stand for its queues.

use super::{About, StepDevice, StepQueue};
use crate::args::{FaultKind, SimFault};
use crate::workload::Step;
use gpu_async_reactor::backend::sim::{Faults, SimDevice, SimOptions, SimQueue, Work};
use gpu_async_reactor::{DurNs, HostCaps, MonoNs, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 16;

pub(crate) struct Sim {
    device: SimDevice,
    about: About,
    wrong_at: Option<u64>,
}

impl Sim {
    pub(crate) fn start(fault: Option<SimFault>) -> Sim {
        let script = |fault: SimFault| match fault.kind {
            FaultKind::Lose => Faults::none().lose_device(fault.number),
            FaultKind::Hang => Faults::none().hang(fault.number),
            FaultKind::Refuse => Faults::none().refuse_store(fault.number),
            FaultKind::LostStore => Faults::none().lost_store(fault.number),
            FaultKind::Wrong => Faults::none(),
        };
        let faults = fault.map_or(Faults::none(), script);
        let wrong = fault.filter(|fault| fault.kind == FaultKind::Wrong);
        let about = About {
            name: "simulated device (threads of this process, no GPU)".to_owned(),
            simulated: true,
            no_store_times: None,
            caps: HostCaps { flag_wait: Ok(()) },
            note: Some(
                "the simulation's stores come from timers of this host, and such a timer may end a nap \
                 that was to end later: a real device's lag may be longer"
                    .to_owned(),
            ),
        };
        let device = SimDevice::start(SimOptions { faults, ..SimOptions::default() });
        Sim { device, about, wrong_at: wrong.map(|fault| fault.number) }
    }
}

impl StepDevice for Sim {
    type Queue = SimSteps;

    fn about(&self) -> &About {
        &self.about
    }

    fn queue(&self, index: usize, _steps: usize) -> Result<SimSteps> {
        let queue = self.device.queue()?;
        let result = Arc::new([const { AtomicU64::new(0) }; WORDS]);
        Ok(SimSteps { queue, index: index as u64, result, wrong_at: self.wrong_at })
    }
}

pub(crate) struct SimSteps {
    queue: SimQueue,
    index: u64,
    /// What the step computed; one step is in flight at a time.
    result: Arc<[AtomicU64; WORDS]>,
    wrong_at: Option<u64>,
}

impl SimSteps {
    fn seed(&self, step: usize) -> u64 {
        (self.index << 32) | step as u64
    }
}

/// The device's side: each word by a hundred rounds, one at a time.
fn compute(seed: u64, word: u64) -> u64 {
    (0..100).fold(seed ^ (word << 56), |x, _| x.wrapping_mul(A).wrapping_add(C))
}

/// The host's side: the same hundred rounds of x·A + C at once, as one multiplication and addition.
const fn expect(seed: u64, word: u64) -> u64 {
    (seed ^ (word << 56)).wrapping_mul(HUNDRED.0).wrapping_add(HUNDRED.1)
}

const A: u64 = 6_364_136_223_846_793_005;
const C: u64 = 1_442_695_040_888_963_407;
const HUNDRED: (u64, u64) = {
    let (mut a, mut c, mut round) = (1u64, 0u64, 0);
    while round < 100 {
        a = a.wrapping_mul(A);
        c = c.wrapping_mul(A).wrapping_add(C);
        round += 1;
    }
    (a, c)
};

impl StepQueue for SimSteps {
    type Queue = SimQueue;

    fn queue(&mut self) -> &mut SimQueue {
        &mut self.queue
    }

    fn submit_step(&mut self, index: usize, step: &Step) -> Result<u64> {
        let (seed, result) = (self.seed(index), self.result.clone());
        let wrong = u64::from(self.wrong_at == Some(index as u64 + 1));
        self.queue.submit(Work::lasting(DurNs::from_us(step.us)).effect(move || {
            for (word, out) in (0..).zip(result.iter()) {
                // Relaxed: the completion store behind this makes it visible.
                out.store(compute(seed, word) ^ wrong, Ordering::Relaxed);
            }
        }))
    }

    fn verify_step(&mut self, index: usize) -> Result<bool> {
        let seed = self.seed(index);
        let mut words = (0..).zip(self.result.iter());
        Ok(words.all(|(word, found)| found.load(Ordering::Relaxed) == expect(seed, word)))
    }

    fn stored_at(&self, number: u64) -> Option<MonoNs> {
        self.queue.stored_at(number)
    }
}
