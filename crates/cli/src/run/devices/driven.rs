//! A device of a vendor's driver, CUDA's or HIP's: the system's, or the simulated one inside. The step is a
//! kernel of a stated length, so nothing is calibrated.
//!
//! Upholds invariant 14: a simulated driver's device says that it is one.

use super::{About, StepDevice, StepQueue, Want};
use crate::args::{FaultKind, SimFault};
use crate::workload::Step;
use gpu_async_reactor::backend::mapped::{
    Compile, Device, Driver, Load, QueueLine, StepJob, StepKernel, StreamQueue,
};
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::{Clock, DurNs, MonoNs, Queue, Result, error};
use std::ffi::{CStr, c_void};

/// The address of an entry point of the simulated drivers.
fn simulated(name: &CStr) -> *mut c_void {
    let entry = name.to_str().ok().and_then(driver_sim::entry);
    entry.map_or(std::ptr::null_mut(), |entry| entry.as_ptr())
}

/// The system's driver, or the simulated one.
fn driver<V: Load>(sim: bool) -> Result<Driver<V>> {
    match sim {
        // SAFETY: the simulated drivers keep to the signatures that the vendors document, and are never
        // unloaded.
        true => unsafe {
            Driver::from_lookup(&format!("the simulated {} driver", V::NAME), &simulated)
        },
        false => Driver::load(),
    }
}

pub(crate) struct Driven<V: Compile> {
    device: Device<V>,
    kernel: StepKernel<V>,
    about: About,
}

impl<V: Load + Compile> Driven<V> {
    /// Opens a device by its ordinal, or the first one.
    pub(crate) fn open(index: Option<usize>, want: Want) -> Result<Driven<V>> {
        if let Some(fault) = want.fault {
            script(fault)?;
        }
        let simulated = want.driver_sim;
        let device = driver(simulated)?.open(index.unwrap_or(0))?;
        let kernel = StepKernel::new(&device)?;
        let (name, ordinal, vendor) = (device.name(), device.ordinal(), V::NAME);
        let kind = vendor.to_lowercase();
        let about = match simulated {
            true => About {
                name: format!("{name} ({kind}:{ordinal}, the simulated {vendor} driver inside, no GPU)"),
                simulated: true,
                no_store_times: None,
                caps: device.caps(),
                note: Some(
                    "the simulated driver's device is threads of this process, and its calls cost little: a \
                     real driver's lag and CPU may be more"
                        .to_owned(),
                ),
            },
            false => About {
                name: format!("{name} ({kind}:{ordinal})"),
                simulated: false,
                no_store_times: Some(format!(
                    "{vendor} doesn't tell when a word was stored; tests/hardware/run measures it by the \
                     device's own clock"
                )),
                caps: device.caps(),
                note: None,
            },
        };
        Ok(Driven { device, kernel, about })
    }
}

/// Lets the simulated driver show a fault, besides what its variable says.
fn script(fault: SimFault) -> Result<()> {
    let n = fault.number;
    let part = match fault.kind {
        FaultKind::Lose => format!("fault={n}"),
        FaultKind::Hang => format!("hang={n}"),
        FaultKind::LostStore => format!("lost_store={n}"),
        FaultKind::Refuse | FaultKind::Wrong => {
            let what = "a simulated driver takes lose@N, hang@N and lost-store@N";
            return Err(error!(Misuse, "scripting a fault", what));
        }
    };
    let already = std::env::var("GPU_DRIVER_SIM").unwrap_or_default();
    driver_sim::set_script(&format!("{already} {part}"))
        .map_err(|bad| error!(Misuse, "scripting a fault", bad))
}

impl<V: Compile> StepDevice for Driven<V> {
    type Queue = DrivenSteps<V>;

    fn about(&self) -> &About {
        &self.about
    }

    fn queue(&self, index: usize, _steps: usize) -> Result<DrivenSteps<V>> {
        let queue = self.device.queue()?;
        let address = match (&**queue.line(), self.about.simulated) {
            (QueueLine::Mapped(line), true) => {
                Some(line.device_address() + 8 * queue.slot().index() as u64)
            }
            _ => None,
        };
        let (job, index, submitted) = (self.kernel.job()?, index as u64, MonoNs(0));
        Ok(DrivenSteps { queue, job, index, address, submitted })
    }

    fn device_cpu_ns(&self) -> Option<u64> {
        // A real device has no threads here: all CPU time is the host's.
        Some(if self.about.simulated { driver_sim::device_cpu_ns() } else { 0 })
    }
}

pub(crate) struct DrivenSteps<V: Compile> {
    queue: StreamQueue<V>,
    job: StepJob<V>,
    index: u64,
    /// Of the word, on a simulated device, which knows when it was stored to.
    address: Option<u64>,
    /// When the last step was submitted: the word may have had the same number before, from another queue.
    submitted: MonoNs,
}

/// A status is done a moment before the word is stored; a store that takes longer than this is lost.
const STORED_WITHIN: DurNs = DurNs::from_ms(5);

impl<V: Compile> DrivenSteps<V> {
    /// Unlike that of the step before, whose result would otherwise pass for this one's.
    fn seed(&self, step: usize) -> u64 {
        (self.index << 32) | step as u64
    }
}

impl<V: Compile> StepQueue for DrivenSteps<V> {
    type Queue = StreamQueue<V>;

    fn queue(&mut self) -> &mut StreamQueue<V> {
        &mut self.queue
    }

    fn submit_step(&mut self, index: usize, step: &Step) -> Result<u64> {
        let seed = self.seed(index);
        self.submitted = StdClock::new().monotonic_ns();
        self.job.run(&mut self.queue, seed, step.us * 1_000)
    }

    fn verify_step(&mut self, index: usize) -> Result<bool> {
        Ok(self.job.verify(self.seed(index)))
    }

    fn stored_at(&self, number: u64) -> Option<MonoNs> {
        let (address, clock) = (self.address?, StdClock::new());
        let until = clock.monotonic_ns() + STORED_WITHIN;
        loop {
            let stored = driver_sim::stored_at_ns(address, number).map(MonoNs);
            match stored.filter(|&at| at >= self.submitted) {
                None if clock.monotonic_ns() < until => std::thread::yield_now(),
                stored => return stored,
            }
        }
    }
}
