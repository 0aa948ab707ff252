//! The vendors' own libraries without a device: typed errors, and nothing called that should not be.
//!
//! HIP's is looked for where the system has it; CUDA's is named by `GPU_REACTOR_LIBCUDA`. A test that can't run
//! says so, and fails where `GPU_REACTOR_REQUIRE_VENDOR` names it.

#![cfg(target_os = "linux")]

use gpu_async_reactor::ErrorCode;
use gpu_async_reactor::backend::LineError;
use gpu_async_reactor::backend::cuda::CudaDriver;
use gpu_async_reactor::backend::hip;

fn skip(name: &str, why: &str) {
    assert_ne!(std::env::var("GPU_REACTOR_REQUIRE_VENDOR").as_deref(), Ok(name), "{why}");
    eprintln!("SKIPPED {name}: {why}");
}

/// `hipErrorNoDevice`, and what 5.2 answers before it knows of any: `hipErrorInvalidDevice`.
const NO_HIP_DEVICE: [i32; 2] = [100, 101];

#[test]
fn hip() {
    let driver = match hip::HipDriver::load() {
        Err(e) => {
            assert_eq!(e.code(), ErrorCode::LibraryMissing, "{e}");
            return skip("hip", "no HIP library is installed");
        }
        Ok(driver) => driver,
    };
    let error = match driver.devices() {
        Ok(devices) => return skip("hip", &format!("there are devices: {devices:?}")),
        Err(error) => error,
    };
    assert_eq!(error.code(), ErrorCode::NoDevice, "{error}");
    assert!(NO_HIP_DEVICE.contains(&error.driver_status().unwrap()), "{error}");
    let error = hip::HipDevice::open(0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoDevice, "{error}");
    assert!(matches!(hip::MappedLine::new().unwrap_err(), LineError::NoDomain));
}

#[test]
fn cuda() {
    let Some(library) = std::env::var_os("GPU_REACTOR_LIBCUDA") else {
        return skip("cuda", "GPU_REACTOR_LIBCUDA names no library");
    };
    let driver = CudaDriver::load_from(library.as_ref()).unwrap();
    // Asked before anything is initialised.
    assert!(driver.version().unwrap() >= 11_000);
    // As root the driver creates a device node: this thread becomes an ordinary user's.
    if rustix::process::geteuid().is_root() {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let (user, group) =
            (rustix::process::Uid::from_raw(65_534), rustix::process::Gid::from_raw(65_534));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
    }
    let error = match driver.devices() {
        Ok(devices) => return skip("cuda", &format!("there are devices: {devices:?}")),
        Err(error) => error,
    };
    assert_eq!((error.code(), error.driver_status()), (ErrorCode::NoDevice, Some(100)), "{error}");
    // It says so each time, and not that it is not initialised.
    let error = driver.open(0).unwrap_err();
    assert_eq!((error.code(), error.driver_status()), (ErrorCode::NoDevice, Some(100)), "{error}");
}
