//! Whether CUDA's driver has a device, asked so that the question changes nothing in the system.
//!
//! Only the driver's initialisation tells, and as root it creates the device node `nvidiactl` even on a machine
//! without a device (seen with the libraries of the releases 525, 535 and 550). So where nobody named CUDA it
//! is initialised at once only if that creates nothing: for an ordinary user, or with the node or the kernel
//! module there. Else a child process is asked, which gives up its rights first. `--device cuda` asks for the
//! initialisation, and gets it.

use crate::exit::{Exit, Failure};
use crate::sys::outln;
use gpu_async_reactor::backend::cuda::CudaDriver;
use gpu_async_reactor::{ErrorCode, Result, error};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the child says of a driver that has a device.
const HERE: &str = "here";
/// A driver is initialised in a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fails where the driver, asked harmlessly, has no device.
pub(crate) fn cuda() -> Result<()> {
    CudaDriver::load()?;
    if !creates_a_node() {
        return Ok(());
    }
    let said = child()
        .map_err(|why| no_device(&format!("it could not be asked as an ordinary user: {why}")))?;
    match said.trim() {
        HERE => Ok(()),
        why => Err(no_device(&format!(
            "{why}; asked as an ordinary user, for as root the question would create a device node: \
             --device cuda asks as root"
        ))),
    }
}

fn no_device(found: &str) -> gpu_async_reactor::Error {
    error!(NoDevice, "CUDA", found)
}

#[cfg(target_os = "linux")]
fn creates_a_node() -> bool {
    let is_there = |path: &str| std::path::Path::new(path).exists();
    rustix::process::geteuid().is_root()
        && !is_there("/dev/nvidiactl")
        && !is_there("/proc/driver/nvidia/version")
}

#[cfg(not(target_os = "linux"))]
fn creates_a_node() -> bool {
    false
}

/// Starts this program again with the question: its answer.
fn child() -> std::result::Result<String, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.arg("ask-cuda").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let begun = Instant::now();
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no answer within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("the child ended with {}", output.status)),
    }
}

/// The child's side.
pub(crate) fn answer() -> Result<Exit, Failure> {
    // Loaded with the rights that it would be used with; loading runs nothing of the driver's that changes
    // anything.
    let driver = CudaDriver::load()?;
    let given_up = give_up_rights();
    given_up.map_err(|e| Failure::bad_input(format!("becoming an ordinary user: {e}")))?;
    match driver.devices() {
        Err(e) if e.code() == ErrorCode::NoDevice => {
            let found = e.args().get(1).map(ToString::to_string).unwrap_or_default();
            outln!("{found}");
        }
        // Whatever else is wrong is found again, with its own error, by who asked.
        _ => outln!("{HERE}"),
    }
    Ok(Exit::Done)
}

#[cfg(target_os = "linux")]
fn give_up_rights() -> rustix::io::Result<()> {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    // The only thread so far; those that the driver starts inherit what it is.
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}

#[cfg(not(target_os = "linux"))]
fn give_up_rights() -> std::io::Result<()> {
    Ok(())
}
