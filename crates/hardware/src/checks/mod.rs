//! What must hold on a device. Each check has a process of its own: one of them loses its context.

mod capture;
mod contexts;
mod fault;
mod pending;
mod visibility;

use crate::api::{Answer, Api};
use clap::ValueEnum;
use gpu_async_reactor::backend::cuda::{CudaDevice, CudaDriver};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Check {
    /// Data that a kernel stored to mapped memory is there when its word is.
    VisibilityMapped,
    /// Data that was copied to page-locked memory is there when its word is.
    VisibilityCopied,
    /// A kernel faults, and every wait of the context is told.
    Fault,
    /// A stream that captures is refused, and the capture stays whole.
    Capture,
    /// Two thousand waits are pending at once, and all resolve.
    Pending,
    /// Another context is current and busy, and neither disturbs the other.
    Contexts,
}

impl Check {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What was seen, or what was violated.
    pub(crate) fn run(self, driver: &Path, seconds: u64) -> Answer<String> {
        let api = Api::open(driver, false)?;
        let driver = CudaDriver::load_from(driver)?;
        let device = driver.open(0)?;
        device.caps().flag_wait.map_err(|why| format!("the device stores no words: {why:?}"))?;
        match self {
            Check::VisibilityMapped => visibility::run(api, &device, false, seconds),
            Check::VisibilityCopied => visibility::run(api, &device, true, seconds),
            Check::Fault => fault::run(api, &device),
            Check::Capture => capture::run(api, &device),
            Check::Pending => pending::run(api, &device),
            Check::Contexts => contexts::run(api, &driver, &device),
        }
    }
}

/// A wait that must end.
fn wait(
    queue: &mut gpu_async_reactor::backend::cuda::CudaQueue,
    plan: &str,
) -> gpu_async_reactor::Result<()> {
    use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
    use gpu_async_reactor::{DurNs, OnThread, Queue, QueuePort, run_inline, wait};
    let (clock, line) = (StdClock::new(), queue.line().clone());
    let idle = OnThread(StdIdle::new(clock, None));
    let port = QueuePort::new(queue, (*line).as_ref(), idle, clock);
    let mut port = port.within(DurNs::from_ms(20_000));
    run_inline(wait(&plan.parse()?, None, &mut port, &clock, &clock)).map(|_| ())
}

type Device = CudaDevice;
