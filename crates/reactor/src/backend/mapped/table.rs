//! Tables of entry points. Each is looked up by its newest name first; one that is missing fails only what
//! needs it (invariant 9).

use super::{Failure, Raw};
use std::ffi::{CStr, c_void};

/// Finds an entry point by its name; null where there is none.
pub(crate) type Lookup<'a> = &'a dyn Fn(&CStr) -> *mut c_void;

pub(crate) type Ptr = *mut c_void;

/// `CUDA_ERROR_NOT_READY`, and HIP's.
const NOT_READY: i32 = 600;

/// A driver's table: a field for each entry point, by its names in the order of preference.
macro_rules! table {
    ($table:ident: $doc:literal; needed: [$($needed:ident),* $(,)?];
        $($field:ident: [$($name:literal),+] fn($($arg:ty),*);)*) => {
        #[doc = $doc]
        pub struct $table {
            library: String,
            $($field: Option<unsafe extern "C" fn($($arg),*) -> std::ffi::c_int>,)*
        }

        impl $table {
            pub(super) fn new(
                library: String,
                lookup: $crate::backend::mapped::table::Lookup<'_>,
            ) -> $table {
                $table {
                    library,
                    $($field: {
                        let address = [$($name),+].into_iter().map(lookup).find(|a| !a.is_null());
                        // SAFETY: the driver documents these names with this signature; null was left out.
                        address.map(|address| unsafe {
                            std::mem::transmute::<
                                $crate::backend::mapped::table::Ptr,
                                unsafe extern "C" fn($($arg),*) -> std::ffi::c_int,
                            >(address)
                        })
                    },)*
                }
            }

            /// An entry point that nothing works without and that isn't there.
            pub(super) fn lacks_for_everything(&self) -> Option<&'static str> {
                let missing = [$((names::$needed, self.$needed.is_none())),*];
                missing.into_iter().find(|(_, gone)| *gone).map(|(name, _)| name)
            }
        }

        /// The newest name of each entry point.
        mod names {
            $(#[allow(non_upper_case_globals)]
            pub(super) const $field: &str = $crate::backend::mapped::table::first(&[$($name),+]);)*
        }
    };
}

/// Calls an entry point.
macro_rules! call {
    ($table:expr, $field:ident($($arg:expr),*)) => {
        match $table.$field {
            // SAFETY: the entry point is the one documented under its name; pointers are to locals that outlive
            // the call, or handles of this driver that their owners keep alive.
            Some(function) => match unsafe { function($($arg),*) } {
                0 => Ok(()),
                status => Err($crate::backend::mapped::Failure::Status { call: names::$field, status }),
            },
            None => Err($crate::backend::mapped::Failure::Missing(names::$field)),
        }
    };
}

pub(crate) use {call, table};

pub(crate) const fn first(names: &[&'static CStr]) -> &'static str {
    match names[0].to_str() {
        Ok(name) => name,
        Err(_) => "",
    }
}

/// An answer that says "not yet" without being a failure.
pub(crate) fn ready(answer: Raw<()>) -> Raw<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(Failure::Status { status: NOT_READY, .. }) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Loads a library for good: it may start threads, so it is never unloaded.
pub(crate) fn load(file: &std::path::Path) -> crate::Result<impl Fn(&CStr) -> Ptr + use<>> {
    let name = file.display().to_string();
    // SAFETY: a vendor's driver, under the name that it is installed under or that the caller chose; its
    // initialisers are made to run in any process that links it.
    let library = unsafe { libloading::Library::new(file) }
        .map_err(|e| crate::error!(LibraryMissing, name.as_str(), e.to_string()))?;
    let library: &'static libloading::Library = Box::leak(Box::new(library));
    Ok(move |symbol: &CStr| {
        // SAFETY: the address is only used as the function that the driver documents under the name.
        let found = unsafe { library.get::<Ptr>(symbol.to_bytes_with_nul()) };
        found.map_or(std::ptr::null_mut(), |address| *address)
    })
}
