//! A simulated `libcuda.so.1` and `libamdhip64.so.7`: the entry points of both drivers over one small
//! machine of threads and memory. **Nothing here is a GPU.** It exists so that what is written for a driver
//! can be tested where there is no device: loaded by the ordinary loading path ([`install`]), or in the
//! process itself ([`entry`]).
//!
//! | modelled | how | source |
//! |---|---|---|
//! | streams | in order, a thread each; non-blocking, legacy default and per-thread default ones; the legacy one waits for the blocking ones and they for it | CUDA driver API, "Stream synchronization behavior" |
//! | pending operations | `pending=` (1,024) for each stream, then a launch blocks its caller | facts of the field |
//! | word stores and waits | 32 and 64 bits, single and batched, behind a full fence; refused for addresses that are unaligned, managed or not the device's; `NO_MEMORY_BARRIER` refused by the `_v2` names | CUDA driver API, "Stream memory operations" |
//! | comparison | CUDA's GEQ is a signed difference, HIP's is plain | the same; HIP's source |
//! | events | recorded, queried, waited for by streams; blocking or spinning waits by their flag | CUDA driver API, "Event management" |
//! | capture | of one stream; a query breaks it; stores are recorded and replay their value; global mode refuses unsafe calls of every thread that isn't relaxed | CUDA driver API, "Stream capture" |
//! | contexts | primary ones counted by reference; memory, streams and events die with them; freed host pages can never be touched again | CUDA driver API, "Primary context management" |
//! | faults of a kernel | the context answers with the fault for ever, nothing pending happens, host functions are not called | the same, `CUDA_ERROR_ILLEGAL_ADDRESS` |
//! | host functions | on the stream's thread, where calls to the driver are refused; its CPU time is the host's | the same, `cuLaunchHostFunc` |
//! | fork | a child's calls answer "not initialised" | facts of the field |
//! | kernels | PTX text whose entries are known by name (see the table in `kernel.rs`) | |
//! | copies | page-locked memory when their turn comes; pageable memory is read before the call returns, and written before it returns | CUDA driver API, "API synchronization behavior" |
//! | memory pools | a default one and others: what is used, reserved and kept back; the memory itself is as any other | CUDA driver API, "Stream Ordered Memory Allocator" |
//! | signal memory (HIP) | exactly 8 bytes | HIP's documentation |
//! | what goes wrong | a script ([`Script`]) | |
//!
//! Not modelled: memory bandwidth and contention; the cost of driver calls beyond `query_us` and
//! `callback_us`; child graphs, capture across streams, pools that processes share, green contexts, peers, textures,
//! several processes on one device, cooperative launches, priorities; host memory that a kernel reads while
//! the host writes it. A real driver's thread that makes callbacks is another one, and slower.
//!
//! The tests that NVIDIA publishes with `cuda-async` 0.5.0 pass on it (`cargo xtask cuda-async`), but for one that fills
//! 32 GB in 200 ms, as a device's memory can and a host's can't.

#![allow(non_snake_case)]

mod control;
mod cuda;
mod hip;
pub mod install;
mod machine;
mod script;

pub use control::{device_cpu_ns, kernel_ended_at_ns, set_script, stored_at_ns, tally};
pub use script::Script;

use std::ffi::c_void;
use std::ptr::NonNull;

/// The address of an entry point of either driver in this process, by its exported name.
pub fn entry(name: &str) -> Option<NonNull<c_void>> {
    let tables = cuda::TABLES.iter().chain(hip::TABLES);
    let found = tables.flat_map(|table| table.iter()).find(|(known, _)| *known == name);
    found.and_then(|(_, address)| NonNull::new(address.0.cast_mut()))
}

/// An entry point's address; a table of them can be shared.
#[derive(Clone, Copy)]
pub(crate) struct Address(pub(crate) *const c_void);

// SAFETY: the address of a function, which is the same on every thread.
unsafe impl Sync for Address {}
// SAFETY: as above.
unsafe impl Send for Address {}

/// Entry points of a driver: C functions that return a status, and the table of their addresses. `uninit`
/// ones may be called before initialisation.
macro_rules! entries {
    ($table:ident; $($(#[$kind:ident])? fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            /// # Safety
            ///
            /// As the vendor documents it: every pointer is valid for what is read or written there.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
                let needs_init = $crate::entries!(@init $($kind)?);
                let run = || -> $crate::machine::Result<()> {
                    $crate::machine::machine().enter(stringify!($name), needs_init)?;
                    // SAFETY: the caller keeps the vendor's contract.
                    #[allow(unused_unsafe)]
                    unsafe { $body }
                };
                run().err().unwrap_or($crate::machine::code::OK)
            }
        )*
        pub(crate) const $table: &[(&str, $crate::Address)] =
            &[$((stringify!($name), $crate::Address($name as *const std::ffi::c_void))),*];
    };
    (@init) => { true };
    (@init uninit) => { false };
}
pub(crate) use entries;

/// Writes an answer where the caller wants it.
///
/// # Safety
///
/// `to` is null or valid for a write.
pub(crate) unsafe fn answer<T>(to: *mut T, value: T) -> machine::Result<()> {
    if to.is_null() {
        return Err(machine::code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads a C string.
///
/// # Safety
///
/// `text` is null or ends with a zero.
pub(crate) unsafe fn text<'a>(text: *const std::ffi::c_char) -> machine::Result<&'a str> {
    if text.is_null() {
        return Err(machine::code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    text.to_str().map_err(|_| machine::code::INVALID_VALUE)
}
