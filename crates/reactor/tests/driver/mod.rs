//! A simulated driver for one test: a copy of the library of its own, loaded by the ordinary loading path.

#![allow(dead_code, unused_macros, unused_imports)] // Each test program uses a part of it.

pub(crate) mod suite;
mod vendors;

use driver_sim::install::{Vendor, install};
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};

pub(crate) struct DriverSim {
    _folder: tempfile::TempDir,
    path: PathBuf,
    library: libloading::Library,
}

impl DriverSim {
    /// A machine that behaves as the script says, without some of its entry points.
    pub(crate) fn new(vendor: Vendor, script: &str, missing: &[&str]) -> DriverSim {
        let folder = tempfile::tempdir().unwrap();
        let path = install(folder.path(), vendor, missing).unwrap();
        // SAFETY: the simulated driver, which has no initialisers.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        let sim = DriverSim { _folder: folder, path, library };
        sim.script(script);
        sim
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on, behaves as the script says.
    pub(crate) fn script(&self, script: &str) {
        let text = CString::new(script).unwrap();
        // SAFETY: the function has this signature.
        let status = unsafe {
            let set = self
                .library
                .get::<unsafe extern "C" fn(*const c_char) -> i32>(b"gpuDriverSimScript\0");
            set.unwrap()(text.as_ptr())
        };
        assert_eq!(status, 0, "the script `{script}`");
    }

    pub(crate) fn tally(&self, what: &str) -> u64 {
        let text = CString::new(what).unwrap();
        // SAFETY: the function has this signature.
        unsafe {
            let tally = self
                .library
                .get::<unsafe extern "C" fn(*const c_char) -> u64>(b"gpuDriverSimTally\0");
            tally.unwrap()(text.as_ptr())
        }
    }

    /// An entry point of the driver, for the parts of a test that another library would play.
    ///
    /// # Safety
    ///
    /// `F` is the entry point's type.
    pub(crate) unsafe fn entry<F: Copy>(&self, name: &str) -> F {
        let name = CString::new(name).unwrap();
        // SAFETY: the caller's promise.
        unsafe { *self.library.get::<F>(name.as_bytes_with_nul()).unwrap() }
    }

    /// CPU time of the device's own threads, in nanoseconds.
    pub(crate) fn device_cpu(&self) -> u64 {
        // SAFETY: the function has this signature.
        unsafe { self.library.get::<extern "C" fn() -> u64>(b"gpuDriverSimDeviceCpu\0").unwrap()() }
    }
}
