//! Each device found is made to do the thing: run a step, store a number, and answer for it.

use super::{Finding, State};
use crate::args::{DeviceChoice, Kind};
use crate::run::devices::{self, Opened, StepDevice, StepQueue, Want, on_device};
use crate::workload::Step;
use gpu_async_reactor::backend::vulkan::VulkanDevice;
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::{
    CompletionLine, DurNs, Error, ErrorCode, OnThread, Queue as _, QueuePort, Result, error,
    reached, run_inline, wait,
};

const DEADLINE: DurNs = DurNs::from_ms(5_000);

/// Opens each device there is, and tests what opens. With `driver_sim` the simulated drivers stand for CUDA's
/// and HIP's.
pub(super) fn test_all(driver_sim: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in Kind::ALL {
        let on_driver = matches!(kind, Kind::Cuda | Kind::Hip);
        let want = Want { driver_sim: driver_sim && on_driver, fault: None };
        if kind != Kind::Vulkan {
            test(kind.name(), DeviceChoice { kind, index: None }, want, &mut findings);
            continue;
        }
        match VulkanDevice::list() {
            Ok(devices) if devices.is_empty() => {
                findings.push(missing("vulkan", "the loader is there and lists no device"));
            }
            Ok(devices) => {
                for info in devices {
                    let choice = DeviceChoice { kind, index: Some(info.index) };
                    test(&format!("vulkan:{}", info.index), choice, want, &mut findings);
                }
            }
            Err(e) => findings.push(missing("vulkan", &e.to_string())),
        }
    }
    findings
}

fn missing(name: &str, why: &str) -> Finding {
    Finding::missing("device", name, why, "the devices that are there are used")
}

/// Why a kind has no device: no driver, a driver without a device, or one that lacks an entry point, each
/// with what to do about it.
fn not_there(name: &str, error: &Error) -> Finding {
    let (found, advice) = match error.code() {
        ErrorCode::LibraryMissing => ("no driver", "install the driver if there is such a GPU"),
        ErrorCode::NoDevice if ["cuda", "hip"].contains(&name) => (
            "driver here, no device",
            "if there is such a GPU: check that the kernel's driver is loaded, that this user may open its \
             nodes in /dev, and that a container was given them",
        ),
        ErrorCode::SymbolMissing => ("an entry point is missing", "install a newer driver"),
        _ => return missing(name, &error.to_string()),
    };
    Finding::missing("device", name, format!("{found}: {error}"), advice)
}

fn test(name: &str, choice: DeviceChoice, want: Want, findings: &mut Vec<Finding>) {
    match devices::look(choice, want) {
        Ok(opened) => on_device!(&opened, device => test_open(name, device, findings)),
        Err(e) => findings.push(not_there(name, &e)),
    }
}

fn test_open<D: StepDevice>(name: &str, device: &D, findings: &mut Vec<Finding>) {
    let simulated = device.about().simulated;
    findings.push(Finding::ok("device", name, device.about().name.clone()).simulated(simulated));
    let tested = match self_test(device) {
        Ok(()) => Finding::ok(
            "self-test",
            name,
            "ran a step, stored a number, the word changed, the status agrees, the result is right",
        ),
        Err(e) => Finding {
            kind: "self-test",
            name: name.to_owned(),
            state: State::Failed,
            found: e.to_string(),
            advice: Some(format!("don't use --device {name} here")),
            simulated,
        },
    };
    findings.push(tested.simulated(simulated));
}

fn self_test<D: StepDevice>(device: &D) -> Result<()> {
    let mut queue = device.queue(0, 1)?;
    let line = queue.queue().line().clone();
    let line: &CompletionLine = (*line).as_ref();
    let before = line.load(queue.queue().slot());
    let number = queue.submit_step(0, &Step { us: 1_000, rows: 1, prefill: 0 })?;
    let unlike = |what: String| error!(Misuse, format!("testing {}", queue_name(device)), what);
    if before >= number {
        return Err(unlike(format!("the word was {before} before {number} was stored")));
    }
    let clock = StdClock::new();
    let mut port = QueuePort::new(queue.queue(), line, OnThread(StdIdle::new(clock, None)), clock)
        .number(number);
    port = port.within(DEADLINE);
    run_inline(wait(
        &"flag:park_us=1000,backstop_us=20000".parse()?,
        None,
        &mut port,
        &clock,
        &clock,
    ))?;
    drop(port);
    if !reached(line, queue.queue().slot(), number) {
        return Err(unlike(format!("the status says done and the word is not {number}")));
    }
    if !queue.queue().status(number)? {
        return Err(unlike("the status took back that it was done".to_owned()));
    }
    match queue.verify_step(0)? {
        true => Ok(()),
        false => Err(unlike("the result of a step is wrong".to_owned())),
    }
}

fn queue_name<D: StepDevice>(device: &D) -> &str {
    &device.about().name
}
