//! The devices that a run can use, and which one it takes.

mod sim;
pub(crate) mod vulkan;

use crate::args::{DeviceChoice, Kind, SimFault};
use crate::exit::Failure;
use crate::workload::Step;
use gpu_async_reactor::{HostCaps, MonoNs, Queue, Result, error};

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
    type Queue: StepQueue + Send;
    fn about(&self) -> &About;
    /// A queue for that many steps.
    fn queue(&self, index: usize, steps: usize) -> Result<Self::Queue>;
}

/// A queue that runs steps whose results are known. Duties of an implementer: the result is computed
/// by the device, and `verify_step` compares it with one computed by the host.
pub(crate) trait StepQueue {
    type Queue: Queue;
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
}

/// The device to use, and one line on each kind that is not.
pub(crate) fn choose(
    choice: Option<DeviceChoice>,
    fault: Option<SimFault>,
) -> Result<(Opened, Vec<String>), Failure> {
    if let Some(choice) = choice {
        return Ok((open(choice, fault)?, Vec::new()));
    }
    let mut passed = Vec::new();
    for kind in Kind::ALL {
        match open(DeviceChoice { kind, index: None }, fault) {
            Ok(opened) => return Ok((opened, passed)),
            Err(e) => passed.push(format!("{}: {e}", kind.name())),
        }
    }
    Err(Failure::bad_input(format!("no device can be used ({})", passed.join("; "))))
}

pub(crate) fn open(choice: DeviceChoice, fault: Option<SimFault>) -> Result<Opened> {
    if fault.is_some() && choice.kind != Kind::Sim {
        return Err(error!(
            Misuse,
            "scripting a fault", "only the simulated device takes --sim-fault"
        ));
    }
    match choice.kind {
        Kind::Sim => match choice.index {
            None | Some(0) => Ok(Opened::Sim(Sim::start(fault))),
            Some(index) => Err(error!(
                NoDevice,
                "sim",
                format!("there is one simulated device, sim:0, and no sim:{index}")
            )),
        },
        Kind::Vulkan => Vulkan::open(choice.index).map(Opened::Vulkan),
        Kind::Cuda | Kind::Hip | Kind::Metal => {
            let name = choice.kind.name();
            Err(error!(NoDevice, name, format!("this build has no {name} backend yet")))
        }
    }
}
