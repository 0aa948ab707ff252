//! Loading the driver.

use super::CudaDevice;
use super::table::{Cuda, INIT_NO_DEVICE, Lookup};
use crate::backend::mapped::{Device, Failure, Vendor};
use crate::{Result, error};
use std::ffi::{CStr, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

#[cfg(windows)]
const LIBRARY: &str = "nvcuda.dll";
#[cfg(not(windows))]
const LIBRARY: &str = "libcuda.so.1";

/// A loaded CUDA driver. Clones are the same driver.
#[derive(Clone, Debug)]
pub struct CudaDriver {
    table: Arc<Cuda>,
}

impl CudaDriver {
    /// The system's driver, by the name that it is installed under. It is loaded once.
    ///
    /// # Errors
    ///
    /// `LibraryMissing` where it can't be loaded, `SymbolMissing` where it lacks what everything needs.
    pub fn load() -> Result<CudaDriver> {
        static LOADED: OnceLock<CudaDriver> = OnceLock::new();
        if let Some(driver) = LOADED.get() {
            return Ok(driver.clone());
        }
        let driver = Self::load_from(Path::new(LIBRARY))?;
        Ok(LOADED.get_or_init(|| driver).clone())
    }

    /// A driver in a given file.
    ///
    /// # Errors
    ///
    /// As [`load`](CudaDriver::load).
    pub fn load_from(file: &Path) -> Result<CudaDriver> {
        let name = file.display().to_string();
        // SAFETY: a vendor's driver, under the name that it is installed under or that the caller chose; its
        // initialisers are made to run in any process that links it.
        let library = unsafe { libloading::Library::new(file) }
            .map_err(|e| error!(LibraryMissing, name.as_str(), e.to_string()))?;
        // Never unloaded: it may have started threads.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let lookup = |symbol: &CStr| {
            // SAFETY: the address is only used as the function that the driver documents under the name.
            let found = unsafe { library.get::<*mut c_void>(symbol.to_bytes_with_nul()) };
            found.map_or(std::ptr::null_mut(), |address| *address)
        };
        Self::over(name, &lookup)
    }

    /// A driver by the addresses of its entry points, for a process that has loaded it its own way. `lookup`
    /// gives null for what isn't there.
    ///
    /// # Errors
    ///
    /// `SymbolMissing` where it lacks what everything needs.
    ///
    /// # Safety
    ///
    /// Each address is the function that the driver's documentation describes under the name, and stays one
    /// until the process ends.
    pub unsafe fn from_lookup(
        name: &str,
        lookup: &dyn Fn(&CStr) -> *mut c_void,
    ) -> Result<CudaDriver> {
        Self::over(name.to_owned(), lookup)
    }

    fn over(name: String, lookup: Lookup<'_>) -> Result<CudaDriver> {
        let table = Cuda::new(name, lookup);
        match table.lacks_for_everything() {
            Some(entry) => Err(error!(SymbolMissing, table.library(), entry)),
            None => Ok(CudaDriver { table: Arc::new(table) }),
        }
    }

    /// The version that the driver supports, as 1000 × major + 10 × minor; known before it is initialised.
    ///
    /// # Errors
    ///
    /// A failed driver call.
    pub fn version(&self) -> Result<i32> {
        self.table.version().map_err(|failure| self.table.error("asking for the version", failure))
    }

    /// The file that was loaded.
    pub fn library(&self) -> &str {
        self.table.library()
    }

    /// The names of the devices, in the order of their ordinals.
    ///
    /// # Errors
    ///
    /// `NoDevice` where the driver finds none, or a failed driver call.
    pub fn devices(&self) -> Result<Vec<String>> {
        let table = self.ready()?;
        let fail = |failure| table.error("listing CUDA devices", failure);
        let count = table.devices().map_err(fail)?;
        (0..count).map(|ordinal| table.device_name(ordinal).map_err(fail)).collect()
    }

    /// Opens a device, by its ordinal.
    ///
    /// # Errors
    ///
    /// `NoDevice` without a device of that ordinal, or a failed driver call.
    pub fn open(&self, ordinal: usize) -> Result<CudaDevice> {
        self.ready()?;
        Device::open_on(self.table.clone(), ordinal)
    }

    /// Initialises the driver; a machine's driver may find its device later, so a failure isn't remembered.
    pub(super) fn ready(&self) -> Result<&Arc<Cuda>> {
        match self.table.init() {
            Ok(()) => Ok(&self.table),
            Err(Failure::Status { call, status: status @ INIT_NO_DEVICE }) => {
                let name = self.table.status_name(status);
                let found =
                    format!("the driver is here and found none: {call} returned {status} ({name})");
                Err(error!(NoDevice, Cuda::NAME, found))
            }
            Err(failure) => Err(self.table.error("initialising CUDA", failure)),
        }
    }
}
