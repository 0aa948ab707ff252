//! Loading a driver.

use super::table::{Lookup, load};
use super::{Device, Failure, Handle, Raw, Vendor};
use crate::{ErrorCode, Result, error};
use std::any::Any;
use std::ffi::{CStr, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A vendor whose driver is a library with a table of entry points.
pub trait Load: Vendor {
    /// The names that the library is installed under, the one to prefer first.
    const LIBRARIES: &'static [&'static str];
    /// The statuses by which it says that there is no device.
    const NO_DEVICE: &'static [i32];

    /// Looks up the entry points.
    fn look_up(library: String, lookup: Lookup<'_>) -> Self;
    /// An entry point that nothing works without and that isn't there.
    fn lacks(&self) -> Option<&'static str>;
    /// Initialises the driver.
    fn initialise(&self) -> Raw<()>;
    /// The driver's version; known before it is initialised.
    fn version(&self) -> Raw<i32>;
    /// Where the system's driver is kept once it was loaded.
    fn system() -> &'static OnceLock<Driver<Self>>;
}

/// A loaded driver. Clones are the same driver.
pub struct Driver<V> {
    table: Arc<V>,
}

impl<V: Load> Driver<V> {
    /// The system's driver, by the names that it is installed under. It is loaded once, and initialised when
    /// a device is asked for.
    ///
    /// # Errors
    ///
    /// `LibraryMissing` where it can't be loaded, `SymbolMissing` where it lacks what everything needs.
    pub fn load() -> Result<Driver<V>> {
        if let Some(driver) = V::system().get() {
            return Ok(driver.clone());
        }
        let mut first = None;
        for library in V::LIBRARIES {
            match Self::load_from(Path::new(library)) {
                Ok(driver) => return Ok(V::system().get_or_init(|| driver).clone()),
                // One that is there and lacks something is the one to speak of.
                Err(error) if error.code() != ErrorCode::LibraryMissing => return Err(error),
                // Else the preferred one is.
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first
            .unwrap_or_else(|| error!(LibraryMissing, V::NAME, "it has no name on this system")))
    }

    /// A driver in a given file.
    ///
    /// # Errors
    ///
    /// As [`load`](Driver::load).
    pub fn load_from(file: &Path) -> Result<Driver<V>> {
        Self::over(file.display().to_string(), &load(file)?)
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
    ) -> Result<Driver<V>> {
        Self::over(name.to_owned(), lookup)
    }

    fn over(name: String, lookup: Lookup<'_>) -> Result<Driver<V>> {
        let table = V::look_up(name, lookup);
        match table.lacks() {
            Some(entry) => Err(error!(SymbolMissing, table.library(), entry)),
            None => Ok(Driver { table: Arc::new(table) }),
        }
    }

    /// The driver's version, in its own numbering; known before it is initialised.
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
        let doing = format!("listing {} devices", V::NAME);
        let count = table.devices().map_err(|failure| self.failed(&doing, failure))?;
        let name = |ordinal| table.device_name(ordinal);
        (0..count).map(|i| name(i).map_err(|failure| self.failed(&doing, failure))).collect()
    }

    /// Opens a device, by its ordinal.
    ///
    /// # Errors
    ///
    /// `NoDevice` without a device of that ordinal, or a failed driver call.
    pub fn open(&self, ordinal: usize) -> Result<Device<V>> {
        self.ready()?;
        Device::open_on(self.table.clone(), ordinal)
    }

    /// Opens a device in a context that somebody else made, and that lives as long as its `owner`; the owner
    /// is kept as long as anything made from the device.
    ///
    /// # Errors
    ///
    /// As [`open`](Driver::open).
    ///
    /// # Safety
    ///
    /// The context is this driver's, of the device of that ordinal, and isn't destroyed while the owner is
    /// there.
    pub unsafe fn open_in(
        &self,
        ordinal: usize,
        context: *mut c_void,
        owner: impl Any + Send + Sync,
    ) -> Result<Device<V>> {
        self.ready()?;
        Device::open_in(self.table.clone(), ordinal, Handle(context), Arc::new(owner))
    }

    /// The ordinal of the calling thread's current device, or 0.
    pub(crate) fn current(&self) -> Result<usize> {
        Ok(self.ready()?.current_device().unwrap_or(None).unwrap_or(0))
    }

    /// Initialises the driver; a machine's driver may find its device later, so a failure isn't remembered.
    pub(crate) fn ready(&self) -> Result<&Arc<V>> {
        let failed = |failure| self.failed(&format!("initialising {}", V::NAME), failure);
        self.table.initialise().map(|()| &self.table).map_err(failed)
    }

    fn failed(&self, doing: &str, failure: Failure) -> crate::Error {
        match failure {
            Failure::Status { call, status } if V::NO_DEVICE.contains(&status) => {
                let name = self.table.status_name(status);
                let found =
                    format!("the driver is here and found none: {call} returned {status} ({name})");
                error!(NoDevice, V::NAME, found, status)
            }
            failure => self.table.error(doing, failure),
        }
    }
}

impl<V> Clone for Driver<V> {
    fn clone(&self) -> Self {
        Driver { table: self.table.clone() }
    }
}

impl<V: Vendor> std::fmt::Debug for Driver<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("library", &self.table.library()).finish()
    }
}
