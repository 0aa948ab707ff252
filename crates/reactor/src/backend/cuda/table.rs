//! The driver's entry points. Each is looked up by its newest name first; one that is missing fails only what
//! needs it (invariant 9).

use crate::backend::mapped::table::{Lookup, Ptr, call, ready, table};
use crate::backend::mapped::{
    Compile, Driver, Failure, Handle, HostMemory, Kernels, Load, Raw, Vendor,
};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

table! { Cuda: "CUDA's driver interface, as far as it is used here.";
    needed: [init, device_count, device_get, retain, release, get_current, push, pop, stream_create, stream_destroy,
        event_create, event_record, event_query, event_destroy, stream_query];
    init: [c"cuInit"] fn(c_uint);
    driver_version: [c"cuDriverGetVersion"] fn(*mut c_int);
    error_name: [c"cuGetErrorName"] fn(c_int, *mut *const c_char);
    device_count: [c"cuDeviceGetCount"] fn(*mut c_int);
    device_get: [c"cuDeviceGet"] fn(*mut c_int, c_int);
    device_name: [c"cuDeviceGetName"] fn(*mut c_char, c_int, c_int);
    retain: [c"cuDevicePrimaryCtxRetain"] fn(*mut Ptr, c_int);
    release: [c"cuDevicePrimaryCtxRelease_v2", c"cuDevicePrimaryCtxRelease"] fn(c_int);
    get_current: [c"cuCtxGetCurrent"] fn(*mut Ptr);
    current_device: [c"cuCtxGetDevice"] fn(*mut c_int);
    push: [c"cuCtxPushCurrent_v2"] fn(Ptr);
    pop: [c"cuCtxPopCurrent_v2"] fn(*mut Ptr);
    exchange_mode: [c"cuThreadExchangeStreamCaptureMode"] fn(*mut c_int);
    host_alloc: [c"cuMemHostAlloc"] fn(*mut Ptr, usize, c_uint);
    host_free: [c"cuMemFreeHost"] fn(Ptr);
    device_pointer: [c"cuMemHostGetDevicePointer_v2"] fn(*mut u64, Ptr, c_uint);
    stream_create: [c"cuStreamCreate"] fn(*mut Ptr, c_uint);
    stream_destroy: [c"cuStreamDestroy_v2"] fn(Ptr);
    stream_query: [c"cuStreamQuery"] fn(Ptr);
    stream_context: [c"cuStreamGetCtx"] fn(Ptr, *mut Ptr);
    is_capturing: [c"cuStreamIsCapturing"] fn(Ptr, *mut c_int);
    write64: [c"cuStreamWriteValue64_v2", c"cuStreamWriteValue64"] fn(Ptr, u64, u64, c_uint);
    wait64: [c"cuStreamWaitValue64_v2", c"cuStreamWaitValue64"] fn(Ptr, u64, u64, c_uint);
    batch: [c"cuStreamBatchMemOp_v2", c"cuStreamBatchMemOp"] fn(Ptr, c_uint, *mut [u64; 6], c_uint);
    event_create: [c"cuEventCreate"] fn(*mut Ptr, c_uint);
    event_destroy: [c"cuEventDestroy_v2"] fn(Ptr);
    event_record: [c"cuEventRecord"] fn(Ptr, Ptr);
    event_query: [c"cuEventQuery"] fn(Ptr);
    event_synchronize: [c"cuEventSynchronize"] fn(Ptr);
    module_load: [c"cuModuleLoadData"] fn(*mut Ptr, *const c_char);
    module_function: [c"cuModuleGetFunction"] fn(*mut Ptr, Ptr, *const c_char);
    launch: [c"cuLaunchKernel"] fn(Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Ptr, *mut Ptr, *mut Ptr);
}

/// `CUDA_ERROR_INVALID_CONTEXT`: no context is current.
const INVALID_CONTEXT: i32 = 201;
const CAPTURE_IMPLICIT: i32 = 906;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PORTABLE_MAPPED: c_uint = 1 | 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`, and `CU_EVENT_BLOCKING_SYNC`.
const NO_TIMING: c_uint = 2;
const BLOCKING_SYNC: c_uint = 1;
/// `CU_STREAM_MEM_OP_WRITE_VALUE_64`.
const WRITE_64: u64 = 5;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
const GEQ: c_uint = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

impl Cuda {
    fn function(&self, module: Handle, name: &CStr) -> Raw<Handle> {
        let mut function = null_mut();
        let found = call!(self, module_function(&mut function, module.0, name.as_ptr()));
        found.map(|()| Handle(function))
    }
}

/// The kernels, as text that the driver compiles.
const PTX: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("step.ptx"), "\0").as_bytes()) {
        Ok(ptx) => ptx,
        Err(_) => panic!("the text has a zero in it"),
    };

impl Compile for Cuda {
    fn compile(&self, _ordinal: usize) -> Raw<Kernels> {
        let mut module = null_mut();
        call!(self, module_load(&mut module, PTX.as_ptr()))?;
        let module = Handle(module);
        let (step, fault) = (self.function(module, c"step")?, self.function(module, c"fault")?);
        // The kernel reads a clock of nanoseconds.
        Ok(Kernels { step, fault, ticks_per_ms: 1_000_000 })
    }

    unsafe fn launch(
        &self,
        function: Handle,
        threads: u32,
        stream: Handle,
        parameters: &mut [Ptr],
    ) -> Raw<()> {
        let parameters = parameters.as_mut_ptr();
        call!(self, launch(function.0, 1, 1, 1, threads, 1, 1, 0, stream.0, parameters, null_mut()))
    }
}

impl Load for Cuda {
    const LIBRARIES: &'static [&'static str] =
        if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1"] };
    /// `CUDA_ERROR_NO_DEVICE`.
    const NO_DEVICE: &'static [i32] = &[100];

    fn look_up(library: String, lookup: Lookup<'_>) -> Cuda {
        Cuda::new(library, lookup)
    }

    fn lacks(&self) -> Option<&'static str> {
        self.lacks_for_everything()
    }

    fn initialise(&self) -> Raw<()> {
        call!(self, init(0))
    }

    fn version(&self) -> Raw<i32> {
        let mut version = 0;
        call!(self, driver_version(&mut version)).map(|()| version)
    }

    fn system() -> &'static OnceLock<Driver<Cuda>> {
        static SYSTEM: OnceLock<Driver<Cuda>> = OnceLock::new();
        &SYSTEM
    }
}

/// What [`Vendor::enter`] changed on the thread.
#[derive(Debug)]
pub struct Entered {
    pushed: bool,
    mode: Option<c_int>,
}

impl Vendor for Cuda {
    const NAME: &'static str = "CUDA";
    type Entered = Entered;

    fn library(&self) -> &str {
        &self.library
    }

    fn status_name(&self, status: i32) -> String {
        let mut name = std::ptr::null();
        match call!(self, error_name(status, &mut name)) {
            // SAFETY: the driver gives a constant text that ends with a zero.
            Ok(()) if !name.is_null() => unsafe { CStr::from_ptr(name) }.to_string_lossy().into(),
            _ => "a status that the driver has no name for".to_owned(),
        }
    }

    fn devices(&self) -> Raw<usize> {
        let mut count = 0;
        call!(self, device_count(&mut count)).map(|()| count.max(0) as usize)
    }

    fn device_name(&self, ordinal: usize) -> Raw<String> {
        let mut device = 0;
        call!(self, device_get(&mut device, ordinal as c_int))?;
        let mut name = [0u8; 256];
        let length = name.len() as c_int;
        call!(self, device_name(name.as_mut_ptr().cast(), length, device))?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    fn current_device(&self) -> Raw<Option<usize>> {
        let mut device = 0;
        match call!(self, current_device(&mut device)) {
            Ok(()) => Ok(usize::try_from(device).ok()),
            Err(Failure::Status { status: INVALID_CONTEXT, .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn retain(&self, ordinal: usize) -> Raw<Handle> {
        let (mut device, mut context) = (0, null_mut());
        call!(self, device_get(&mut device, ordinal as c_int))?;
        call!(self, retain(&mut context, device)).map(|()| Handle(context))
    }

    fn release(&self, ordinal: usize) -> Raw<()> {
        let mut device = 0;
        call!(self, device_get(&mut device, ordinal as c_int))?;
        call!(self, release(device))
    }

    fn enter(&self, _ordinal: usize, context: Handle) -> Raw<Entered> {
        let mut current = null_mut();
        call!(self, get_current(&mut current))?;
        let pushed = current != context.0;
        if pushed {
            call!(self, push(context.0))?;
        }
        let mut mode = RELAXED;
        let mode = call!(self, exchange_mode(&mut mode)).ok().map(|()| mode);
        Ok(Entered { pushed, mode })
    }

    fn leave(&self, entered: Entered) {
        if let Some(mut mode) = entered.mode {
            let _: Raw<()> = call!(self, exchange_mode(&mut mode));
        }
        if entered.pushed {
            let mut context = null_mut();
            let _: Raw<()> = call!(self, pop(&mut context));
        }
    }

    fn allocate(&self, bytes: usize) -> Raw<HostMemory> {
        let mut host = null_mut();
        call!(self, host_alloc(&mut host, bytes, PORTABLE_MAPPED))?;
        let mut device = 0;
        let mapped = call!(self, device_pointer(&mut device, host, 0));
        match (mapped, NonNull::new(host.cast())) {
            (Ok(()), Some(host)) => Ok(HostMemory { host, device }),
            (mapped, _) => {
                let _: Raw<()> = call!(self, host_free(host));
                Err(mapped.err().unwrap_or(Failure::Missing("an address that isn't null")))
            }
        }
    }

    fn free(&self, memory: HostMemory) -> Raw<()> {
        call!(self, host_free(memory.host.as_ptr().cast()))
    }

    fn create_stream(&self) -> Raw<Handle> {
        let mut stream = null_mut();
        call!(self, stream_create(&mut stream, NON_BLOCKING)).map(|()| Handle(stream))
    }

    fn destroy_stream(&self, stream: Handle) -> Raw<()> {
        call!(self, stream_destroy(stream.0))
    }

    fn is_of(&self, stream: Handle, _ordinal: usize, context: Handle) -> Raw<bool> {
        // The default streams are those of the context that was entered.
        if (stream.0 as usize) <= 2 {
            return Ok(true);
        }
        let mut own = null_mut();
        match call!(self, stream_context(stream.0, &mut own)) {
            Ok(()) => Ok(own == context.0),
            Err(Failure::Missing(_)) => Ok(true),
            Err(failure) => Err(failure),
        }
    }

    fn is_capturing(&self, stream: Handle) -> Raw<bool> {
        let mut status = 0;
        match call!(self, is_capturing(stream.0, &mut status)) {
            Ok(()) => Ok(status != 0),
            // The default stream, while a stream that synchronises with it captures.
            Err(Failure::Status { status: CAPTURE_IMPLICIT, .. }) => Ok(true),
            // A driver without it has no captures.
            Err(Failure::Missing(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn query_stream(&self, stream: Handle) -> Raw<bool> {
        ready(call!(self, stream_query(stream.0)))
    }

    fn create_event(&self, blocking: bool) -> Raw<Handle> {
        let flags = NO_TIMING | if blocking { BLOCKING_SYNC } else { 0 };
        let mut event = null_mut();
        call!(self, event_create(&mut event, flags)).map(|()| Handle(event))
    }

    fn destroy_event(&self, event: Handle) -> Raw<()> {
        call!(self, event_destroy(event.0))
    }

    fn record(&self, event: Handle, stream: Handle) -> Raw<()> {
        call!(self, event_record(event.0, stream.0))
    }

    fn query_event(&self, event: Handle) -> Raw<bool> {
        ready(call!(self, event_query(event.0)))
    }

    fn synchronize_event(&self, event: Handle) -> Raw<()> {
        call!(self, event_synchronize(event.0))
    }

    fn store(&self, stream: Handle, words: &[(u64, u64)]) -> Raw<()> {
        if let (&[(word, number), (bell, ring)], Some(_)) = (words, self.batch) {
            let mut ops = [[WRITE_64, word, number, 0, 0, 0], [WRITE_64, bell, ring, 0, 0, 0]];
            return call!(self, batch(stream.0, ops.len() as c_uint, ops.as_mut_ptr(), 0));
        }
        words.iter().try_for_each(|&(word, number)| call!(self, write64(stream.0, word, number, 0)))
    }

    fn wait(&self, stream: Handle, address: u64, number: u64) -> Raw<()> {
        call!(self, wait64(stream.0, address, number, GEQ))
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("library", &self.library).finish_non_exhaustive()
    }
}
