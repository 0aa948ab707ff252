//! The CUDA backend on the simulated driver. Nothing here ran on a GPU; `tests/hardware/run` does.

mod driver;

use driver::DriverSim;
use driver_sim::install::Vendor;
use gpu_async_reactor::backend::cuda::{CudaDevice, CudaDriver, CudaQueue, StepJob, StepKernel};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;
use testkit::conformance::{self, Rig};

const PATIENCE: DurNs = DurNs(30_000_000_000);

/// A device of a machine of its own.
struct Machine {
    sim: DriverSim,
    device: CudaDevice,
}

fn machine(script: &str) -> Machine {
    machine_without(script, &[])
}

fn machine_without(script: &str, missing: &[&str]) -> Machine {
    let sim = DriverSim::new(Vendor::Cuda, script, missing);
    let device = CudaDriver::load_from(sim.path()).unwrap().open(0).unwrap();
    Machine { sim, device }
}

struct Device {
    machine: Machine,
    kernel: StepKernel,
    jobs: Vec<StepJob>,
}

impl Rig for Device {
    type Queue = CudaQueue;
    type Clock = StdClock;
    type Idle = StdIdle;
    fn queue(&mut self) -> CudaQueue {
        self.machine.device.queue().unwrap()
    }
    fn submit(&mut self, queue: &mut CudaQueue, about: DurNs) -> u64 {
        let mut job = self.kernel.job().unwrap();
        let number = job.run(queue, 7, about.0).unwrap();
        self.jobs.push(job);
        number
    }
    fn clock(&self) -> StdClock {
        StdClock::new()
    }
    fn idle(&self) -> StdIdle {
        StdIdle::new(StdClock::new(), None)
    }
    fn depth(&self) -> u64 {
        // A launch, an event and a store each, of about a thousand operations.
        300
    }
}

fn rig(script: &str) -> Device {
    let machine = machine(script);
    let kernel = StepKernel::new(&machine.device).unwrap();
    Device { machine, kernel, jobs: Vec::new() }
}

#[test]
fn queues_do_their_duties() {
    conformance::queue(&mut rig(""));
}

#[test]
fn queues_do_their_duties_where_a_host_address_is_not_the_devices() {
    conformance::queue(&mut rig("distinct_addresses"));
}

#[test]
fn every_plan_waits_as_it_should() {
    conformance::plans(&mut rig(""));
}

#[test]
fn tasks_of_a_reactor_wait_for_several_queues() {
    conformance::reactor_waits(&mut rig(""));
}

#[test]
fn situation_8_a_thousand_and_one_waits_are_pending_on_one_queue() {
    conformance::pending_waits(&mut rig(""));
}
