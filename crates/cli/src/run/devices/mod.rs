//! The devices that a run can use, and which one it takes.

pub(crate) mod ask;
mod driven;
mod sim;
pub(crate) mod vulkan;

use crate::args::{DeviceChoice, Kind, SimFault};
use crate::exit::Failure;
use crate::workload::Step;
use gpu_async_reactor::backend::{cuda::Cuda, hip::Hip};
use gpu_async_reactor::{HostCaps, MonoNs, Result, SharedStatus, error};

pub(crate) use driven::Driven;
pub(crate) use sim::Sim;
pub(crate) use vulkan::Vulkan;

/// What is said about a device.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) simulated: bool,
    /// Why the time of a store is not known, or nothing where it is.
    pub(crate) no_store_times: Option<String>,
    pub(crate) caps: HostCaps,
    /// What to know before the numbers are read.
    pub(crate) note: Option<String>,
}

/// An open device. Duties of an implementer: `about` never leaves out that a device is simulated
/// (invariant 14), and queues of one device work at the same time where it can.
pub(crate) trait StepDevice: Sync {
    type Queue: StepQueue + Send + 'static;
    fn about(&self) -> &About;
    /// A queue for that many steps.
    fn queue(&self, index: usize, steps: usize) -> Result<Self::Queue>;
    /// CPU time so far of the threads of this process that stand for the device, where that is known: all the
    /// rest of the process is then the host's. Nothing where the device has threads that can't be told apart.
    fn device_cpu_ns(&self) -> Option<u64> {
        None
    }
}

/// A queue that runs steps whose results are known. Duties of an implementer: the result is computed
/// by the device, and `verify_step` compares it with one computed by the host.
pub(crate) trait StepQueue {
    type Queue: SharedStatus;
    /// The queue that the steps are submitted to.
    fn queue(&mut self) -> &mut Self::Queue;
    /// Submits a step, with the store of a number behind it: the number.
    fn submit_step(&mut self, index: usize, step: &Step) -> Result<u64>;
    /// Whether the result of a step, done by now, is right.
    fn verify_step(&mut self, index: usize) -> Result<bool>;
    /// When the store of a number really happened, if that is known.
    fn stored_at(&self, number: u64) -> Option<MonoNs>;
}

/// A device of one of the kinds there are.
pub(crate) enum Opened {
    Sim(Sim),
    Vulkan(Vulkan),
    Cuda(Driven<Cuda>),
    Hip(Driven<Hip>),
}

/// Does the same with a device of whichever kind.
macro_rules! on_device {
    ($opened:expr, $device:ident => $deed:expr) => {
        match $opened {
            Opened::Sim($device) => $deed,
            Opened::Vulkan($device) => $deed,
            Opened::Cuda($device) => $deed,
            Opened::Hip($device) => $deed,
        }
    };
}
pub(crate) use on_device;

/// What is wanted of a device besides its kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Want {
    /// The simulated driver inside in the place of the system's.
    pub(crate) driver_sim: bool,
    pub(crate) fault: Option<SimFault>,
}

/// The device to use, and one line on each kind that is not.
pub(crate) fn choose(
    choice: Option<DeviceChoice>,
    want: Want,
) -> Result<(Opened, Vec<String>), Failure> {
    // Of the kinds that the simulated drivers are for, the one to prefer first.
    let simulated = DeviceChoice { kind: Kind::Cuda, index: None };
    if let Some(choice) = choice.or(want.driver_sim.then_some(simulated)) {
        return Ok((open(choice, want)?, Vec::new()));
    }
    let mut passed = Vec::new();
    for kind in Kind::ALL {
        match look(DeviceChoice { kind, index: None }, want) {
            Ok(opened) => return Ok((opened, passed)),
            Err(e) => passed.push(format!("{}: {e}", kind.name())),
        }
    }
    Err(Failure::bad_input(format!("no device can be used ({})", passed.join("; "))))
}

/// Opens a device that nobody named, if that changes nothing in the system.
pub(crate) fn look(choice: DeviceChoice, want: Want) -> Result<Opened> {
    if choice.kind == Kind::Cuda && !want.driver_sim {
        ask::cuda()?;
    }
    open(choice, want)
}

/// Opens a device that was asked for.
pub(crate) fn open(choice: DeviceChoice, want: Want) -> Result<Opened> {
    let (kind, name) = (choice.kind, choice.kind.name());
    if want.driver_sim && !matches!(kind, Kind::Cuda | Kind::Hip) {
        let what = format!("there is a simulated driver of cuda and of hip, and none of {name}");
        return Err(error!(Misuse, "simulating a driver", what));
    }
    if want.fault.is_some() && !want.driver_sim && kind != Kind::Sim {
        let what = "only the simulated device and the simulated drivers take --sim-fault";
        return Err(error!(Misuse, "scripting a fault", what));
    }
    match kind {
        Kind::Sim => match choice.index {
            None | Some(0) => Ok(Opened::Sim(Sim::start(want.fault))),
            Some(index) => Err(error!(
                NoDevice,
                "sim",
                format!("there is one simulated device, sim:0, and no sim:{index}")
            )),
        },
        Kind::Vulkan => Vulkan::open(choice.index).map(Opened::Vulkan),
        Kind::Cuda => Driven::open(choice.index, want).map(Opened::Cuda),
        Kind::Hip => Driven::open(choice.index, want).map(Opened::Hip),
        Kind::Metal => Err(error!(NoDevice, name, format!("this build has no {name} backend yet"))),
    }
}
