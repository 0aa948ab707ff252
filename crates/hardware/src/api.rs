//! CUDA's driver interface, as far as the other ways to wait and the checks need it.

use crate::bad::Bad;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// A handle of the driver's, or an address.
pub type Ptr = *mut c_void;
/// What came of it, or what went wrong.
pub type Answer<T> = Result<T, Bad>;

/// The kernels, compiled by the driver.
const KERNELS: &str = include_str!("kernels.ptx");
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PORTABLE_MAPPED: c_uint = 3;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_CTX_SCHED_BLOCKING_SYNC`.
const SCHED_BLOCKING: c_uint = 4;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`.
const BLOCKING_EVENT: c_uint = 3;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;

macro_rules! api {
    ($($field:ident: $name:literal ($($type:ty),*);)*) => {
        struct Table {
            $($field: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Table {
            fn new(library: &libloading::Library) -> Answer<Table> {
                // SAFETY: the entry points have these types (CUDA driver API reference).
                Ok(Table { $($field: unsafe { *library.get($name.as_bytes()).map_err(|e| e.to_string())? },)* })
            }
        }
    };
}

api! {
    init: "cuInit" (c_uint);
    version: "cuDriverGetVersion" (*mut c_int);
    device_name: "cuDeviceGetName" (*mut c_char, c_int, c_int);
    set_flags: "cuDevicePrimaryCtxSetFlags_v2" (c_int, c_uint);
    retain: "cuDevicePrimaryCtxRetain" (*mut Ptr, c_int);
    context_create: "cuCtxCreate_v2" (*mut Ptr, c_uint, c_int);
    set_current: "cuCtxSetCurrent" (Ptr);
    get_current: "cuCtxGetCurrent" (*mut Ptr);
    stream_create: "cuStreamCreate" (*mut Ptr, c_uint);
    stream_query: "cuStreamQuery" (Ptr);
    stream_synchronize: "cuStreamSynchronize" (Ptr);
    event_create: "cuEventCreate" (*mut Ptr, c_uint);
    event_record: "cuEventRecord" (Ptr, Ptr);
    event_synchronize: "cuEventSynchronize" (Ptr);
    launch_host: "cuLaunchHostFunc" (Ptr, unsafe extern "C" fn(Ptr), Ptr);
    host_alloc: "cuMemHostAlloc" (*mut Ptr, usize, c_uint);
    device_pointer: "cuMemHostGetDevicePointer_v2" (*mut u64, Ptr, c_uint);
    alloc: "cuMemAlloc_v2" (*mut u64, usize);
    copy: "cuMemcpyDtoHAsync_v2" (Ptr, u64, usize, Ptr);
    module_load: "cuModuleLoadData" (*mut Ptr, *const c_char);
    function: "cuModuleGetFunction" (*mut Ptr, Ptr, *const c_char);
    launch: "cuLaunchKernel" (Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Ptr, *mut Ptr, *mut Ptr);
    begin_capture: "cuStreamBeginCapture_v2" (Ptr, c_int);
    end_capture: "cuStreamEndCapture" (Ptr, *mut Ptr);
    error_name: "cuGetErrorName" (c_int, *mut *const c_char);
}

/// A device's primary context with the kernels in it. Whatever is created lives as long as the process: it is
/// one measurement or one check.
pub struct Api {
    table: Table,
    library: libloading::Library,
    context: Ptr,
    timed_step: Ptr,
    tick: Ptr,
    fault: Ptr,
}

// SAFETY: the driver's functions may be called from any thread, and its handles used from any.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// Host memory that the device sees: words, and where they are for the device.
#[derive(Clone, Copy)]
pub struct Mapped {
    /// For the host.
    pub words: &'static [AtomicU64],
    /// Where they begin, for the device.
    pub device: u64,
}

/// A stream of the driver's.
#[derive(Clone, Copy)]
pub struct Stream(pub Ptr);

// SAFETY: as for `Api`.
unsafe impl Send for Stream {}
// SAFETY: as for `Api`.
unsafe impl Sync for Stream {}

impl Api {
    /// Loads the driver and opens its first device; with `blocking`, so that its synchronising calls block.
    pub fn open(driver: &Path, blocking: bool) -> Answer<&'static Api> {
        // SAFETY: the vendor's library, or the simulated driver, which has no initialisers.
        let library = unsafe { libloading::Library::new(driver) }.map_err(|e| e.to_string())?;
        let table = Table::new(&library)?;
        let null = std::ptr::null_mut();
        let mut api =
            Api { table, library, context: null, timed_step: null, tick: null, fault: null };
        // SAFETY: pointers are to locals; the texts end with a zero.
        unsafe {
            api.ok("cuInit", (api.table.init)(0))?;
            if blocking {
                api.ok("cuDevicePrimaryCtxSetFlags", (api.table.set_flags)(0, SCHED_BLOCKING))?;
            }
            let mut context = null;
            api.ok("cuDevicePrimaryCtxRetain", (api.table.retain)(&mut context, 0))?;
            api.context = context;
            api.enter()?;
            let text = CString::new(KERNELS).map_err(|e| e.to_string())?;
            let mut module = null;
            let loaded = (api.table.module_load)(&mut module, text.as_ptr());
            api.ok("cuModuleLoadData", loaded)?;
            let function = |name: &CStr| {
                let mut found = null;
                let got = (api.table.function)(&mut found, module, name.as_ptr());
                api.ok("cuModuleGetFunction", got).map(|()| found)
            };
            let (step, tick, fault) =
                (function(c"timed_step")?, function(c"tick")?, function(c"fault")?);
            (api.timed_step, api.tick, api.fault) = (step, tick, fault);
        }
        Ok(Box::leak(Box::new(api)))
    }

    fn ok(&self, what: &str, status: c_int) -> Answer<()> {
        if status == 0 {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a local; a name is static.
        let name = unsafe {
            match (self.table.error_name)(status, &mut name) {
                0 => CStr::from_ptr(name).to_string_lossy().into_owned(),
                _ => "unknown".to_owned(),
            }
        };
        Err(format!("{what}: {status} ({name})").into())
    }

    /// The driver's version, as it counts them.
    pub fn version(&self) -> Answer<c_int> {
        let mut version = 0;
        // SAFETY: the pointer is to a local.
        self.ok("cuDriverGetVersion", unsafe { (self.table.version)(&mut version) })?;
        Ok(version)
    }

    /// The device's name.
    pub fn name(&self) -> Answer<String> {
        let mut name = [0; 128];
        // SAFETY: the buffer has that length, and the driver ends the name with a zero.
        unsafe {
            let length = name.len() as c_int;
            self.ok("cuDeviceGetName", (self.table.device_name)(name.as_mut_ptr(), length, 0))?;
            Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// CPU time of the device's own threads: of a simulated one.
    pub fn device_cpu_ns(&self) -> Option<u64> {
        // SAFETY: the simulated driver's function has this type, and no other has the name.
        unsafe {
            let found = self.library.get::<extern "C" fn() -> u64>(b"gpuDriverSimDeviceCpu\0");
            found.ok().map(|found| found())
        }
    }

    /// Makes the primary context this thread's.
    pub fn enter(&self) -> Answer<()> {
        self.set_current(self.context)
    }

    /// Makes a context this thread's.
    pub fn set_current(&self, context: Ptr) -> Answer<()> {
        // SAFETY: a live context.
        self.ok("cuCtxSetCurrent", unsafe { (self.table.set_current)(context) })
    }

    /// The context that is this thread's.
    pub fn current(&self) -> Answer<Ptr> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        self.ok("cuCtxGetCurrent", unsafe { (self.table.get_current)(&mut context) })?;
        Ok(context)
    }

    /// A context of its own on the same device; it becomes this thread's.
    pub fn second_context(&self) -> Answer<Ptr> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let created = unsafe { (self.table.context_create)(&mut context, 0, 0) };
        self.ok("cuCtxCreate", created)?;
        Ok(context)
    }

    /// A stream that the legacy default one doesn't wait for.
    pub fn stream(&self) -> Answer<Stream> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let created = unsafe { (self.table.stream_create)(&mut stream, NON_BLOCKING) };
        self.ok("cuStreamCreate", created)?;
        Ok(Stream(stream))
    }

    /// Whether all that was submitted to the stream is done.
    pub fn is_done(&self, stream: Stream) -> Answer<bool> {
        // SAFETY: a live stream.
        match unsafe { (self.table.stream_query)(stream.0) } {
            NOT_READY => Ok(false),
            status => self.ok("cuStreamQuery", status).map(|()| true),
        }
    }

    /// Blocks until all that was submitted to the stream is done.
    pub fn synchronize(&self, stream: Stream) -> Answer<()> {
        // SAFETY: a live stream.
        self.ok("cuStreamSynchronize", unsafe { (self.table.stream_synchronize)(stream.0) })
    }

    /// An event whose synchronising call blocks.
    pub fn event(&self) -> Answer<Stream> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let created = unsafe { (self.table.event_create)(&mut event, BLOCKING_EVENT) };
        self.ok("cuEventCreate", created)?;
        Ok(Stream(event))
    }

    /// Records the event behind the stream's work, and blocks until it is reached.
    pub fn block(&self, event: Stream, stream: Stream) -> Answer<()> {
        // SAFETY: a live event and stream.
        unsafe {
            self.ok("cuEventRecord", (self.table.event_record)(event.0, stream.0))?;
            self.ok("cuEventSynchronize", (self.table.event_synchronize)(event.0))
        }
    }

    /// Lets the driver call a function behind the stream's work.
    ///
    /// # Safety
    ///
    /// `data` is what `call` takes, and stays until it was called.
    pub unsafe fn call_behind(
        &self,
        stream: Stream,
        call: unsafe extern "C" fn(Ptr),
        data: Ptr,
    ) -> Answer<()> {
        // SAFETY: the caller's promise.
        self.ok("cuLaunchHostFunc", unsafe { (self.table.launch_host)(stream.0, call, data) })
    }

    /// Zeroed host memory that the device sees.
    pub fn mapped(&self, words: usize) -> Answer<Mapped> {
        let (mut host, mut device) = (std::ptr::null_mut(), 0);
        // SAFETY: pointers are to locals; the allocation has that size, its alignment is a page's, and it is
        // never freed.
        unsafe {
            let allocated = (self.table.host_alloc)(&mut host, 8 * words, PORTABLE_MAPPED);
            self.ok("cuMemHostAlloc", allocated)?;
            host.cast::<u8>().write_bytes(0, 8 * words);
            let found = (self.table.device_pointer)(&mut device, host, 0);
            self.ok("cuMemHostGetDevicePointer", found)?;
            let words = std::slice::from_raw_parts(host.cast::<AtomicU64>(), words);
            Ok(Mapped { words, device })
        }
    }

    /// Memory of the device's.
    pub fn device_memory(&self, words: usize) -> Answer<u64> {
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        self.ok("cuMemAlloc", unsafe { (self.table.alloc)(&mut address, 8 * words) })?;
        Ok(address)
    }

    /// Copies from the device's memory to page-locked memory, behind the stream's work.
    pub fn copy(&self, to: Mapped, from: u64, stream: Ptr) -> Answer<()> {
        let host = to.words.as_ptr().cast_mut().cast();
        // SAFETY: page-locked memory that is never freed; its words are atomic.
        let copied = unsafe { (self.table.copy)(host, from, 8 * to.words.len(), stream) };
        self.ok("cuMemcpyDtoHAsync", copied)
    }

    /// Launches `timed_step`: after `ns`, results from the seed go to `words` words at `out`, and the device's
    /// time to `stamp`.
    pub fn step(
        &self,
        stream: Ptr,
        out: u64,
        words: u32,
        seed: u64,
        ns: u64,
        stamp: u64,
    ) -> Answer<()> {
        let (mut out, mut count, mut seed, mut ns, mut stamp) = (out, words, seed, ns, stamp);
        let mut parameters = [
            (&raw mut out).cast(),
            (&raw mut count).cast(),
            (&raw mut seed).cast(),
            (&raw mut ns).cast(),
            (&raw mut stamp).cast(),
        ];
        self.launch(self.timed_step, words.max(1), stream, &mut parameters)
    }

    /// Launches `tick`: once `go` isn't 0, the device's time goes to `out`.
    pub fn tick(&self, stream: Stream, go: u64, out: u64) -> Answer<()> {
        let (mut go, mut out) = (go, out);
        self.launch(self.tick, 1, stream.0, &mut [(&raw mut go).cast(), (&raw mut out).cast()])
    }

    /// Launches the kernel that stores where nothing is.
    pub fn fault(&self, stream: Ptr) -> Answer<()> {
        self.launch(self.fault, 1, stream, &mut [])
    }

    fn launch(
        &self,
        function: Ptr,
        threads: u32,
        stream: Ptr,
        parameters: &mut [Ptr],
    ) -> Answer<()> {
        let (parameters, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the parameters are the function's, and what they point to on the device is never freed.
        let launched = unsafe {
            (self.table.launch)(function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, none)
        };
        self.ok("cuLaunchKernel", launched)
    }

    /// Begins a capture in the strictest mode, global.
    pub fn begin_capture(&self, stream: Ptr) -> Answer<()> {
        // SAFETY: a live stream.
        self.ok("cuStreamBeginCapture", unsafe { (self.table.begin_capture)(stream, 0) })
    }

    /// Ends a capture: fails if something broke it.
    pub fn end_capture(&self, stream: Ptr) -> Answer<()> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: a live stream; the pointer is to a local.
        self.ok("cuStreamEndCapture", unsafe { (self.table.end_capture)(stream, &mut graph) })
    }
}

/// What the kernel stores to its word `i`.
pub fn result(seed: u64, i: u64) -> u64 {
    const A: u64 = 6_364_136_223_846_793_005;
    const C: u64 = 1_442_695_040_888_963_407;
    (0..100).fold(seed ^ (i << 56), |x, _| x.wrapping_mul(A).wrapping_add(C))
}
