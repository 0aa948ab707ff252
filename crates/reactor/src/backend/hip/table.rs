//! The runtime's entry points.

use crate::backend::mapped::table::{Lookup, Ptr, call, load, ready, table};
use crate::backend::mapped::{
    Compile, Driver, Failure, Handle, HostMemory, Kernels, Load, Raw, Vendor,
};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

table! { Hip: "HIP's runtime interface, as far as it is used here.";
    needed: [init, device_count, set_device, get_device, stream_create, stream_destroy, event_create, event_record,
        event_query, event_destroy, stream_query];
    init: [c"hipInit"] fn(c_uint);
    driver_version: [c"hipDriverGetVersion"] fn(*mut c_int);
    device_count: [c"hipGetDeviceCount"] fn(*mut c_int);
    set_device: [c"hipSetDevice"] fn(c_int);
    get_device: [c"hipGetDevice"] fn(*mut c_int);
    device_name: [c"hipDeviceGetName"] fn(*mut c_char, c_int, c_int);
    attribute: [c"hipDeviceGetAttribute"] fn(*mut c_int, c_int, c_int);
    retain: [c"hipDevicePrimaryCtxRetain"] fn(*mut Ptr, c_int);
    release: [c"hipDevicePrimaryCtxRelease"] fn(c_int);
    exchange_mode: [c"hipThreadExchangeStreamCaptureMode"] fn(*mut c_int);
    host_alloc: [c"hipHostMalloc"] fn(*mut Ptr, usize, c_uint);
    host_free: [c"hipHostFree"] fn(Ptr);
    device_pointer: [c"hipHostGetDevicePointer"] fn(*mut Ptr, Ptr, c_uint);
    stream_create: [c"hipStreamCreateWithFlags"] fn(*mut Ptr, c_uint);
    stream_destroy: [c"hipStreamDestroy"] fn(Ptr);
    stream_query: [c"hipStreamQuery"] fn(Ptr);
    stream_device: [c"hipStreamGetDevice"] fn(Ptr, *mut c_int);
    is_capturing: [c"hipStreamIsCapturing"] fn(Ptr, *mut c_int);
    write64: [c"hipStreamWriteValue64"] fn(Ptr, Ptr, u64, c_uint);
    wait64: [c"hipStreamWaitValue64"] fn(Ptr, Ptr, u64, c_uint, u64);
    event_create: [c"hipEventCreateWithFlags"] fn(*mut Ptr, c_uint);
    event_destroy: [c"hipEventDestroy"] fn(Ptr);
    event_record: [c"hipEventRecord"] fn(Ptr, Ptr);
    event_query: [c"hipEventQuery"] fn(Ptr);
    event_synchronize: [c"hipEventSynchronize"] fn(Ptr);
    module_load: [c"hipModuleLoadData"] fn(*mut Ptr, *const u8);
    module_function: [c"hipModuleGetFunction"] fn(*mut Ptr, Ptr, *const c_char);
    launch: [c"hipModuleLaunchKernel"] fn(Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Ptr, *mut Ptr, *mut Ptr);
    rtc_create: [c"hiprtcCreateProgram"] fn(*mut Ptr, *const c_char, *const c_char, c_int, *mut Ptr, *mut Ptr);
    rtc_compile: [c"hiprtcCompileProgram"] fn(Ptr, c_int, *mut Ptr);
    rtc_size: [c"hiprtcGetCodeSize"] fn(Ptr, *mut usize);
    rtc_code: [c"hiprtcGetCode"] fn(Ptr, *mut u8);
    rtc_destroy: [c"hiprtcDestroyProgram"] fn(*mut Ptr);
}

/// `hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent`.
const COHERENT_MAPPED: c_uint = 1 | 2 | 0x4000_0000;
/// `hipStreamNonBlocking`.
const NON_BLOCKING: c_uint = 1;
/// `hipEventDisableTiming`, and `hipEventBlockingSync`.
const NO_TIMING: c_uint = 2;
const BLOCKING_SYNC: c_uint = 1;
/// `hipStreamWaitValueGte`.
const GTE: c_uint = 0;
/// `hipStreamCaptureModeRelaxed`.
const RELAXED: c_int = 2;
/// `hipErrorStreamCaptureImplicit`.
const CAPTURE_IMPLICIT: i32 = 906;
/// `hipDeviceAttributeWallClockRate`, in kHz.
const WALL_CLOCK_RATE: c_int = 10_017;

#[cfg(windows)]
const RTC_LIBRARIES: &[&str] = &["hiprtc0700.dll", "hiprtc0600.dll"];
#[cfg(not(windows))]
const RTC_LIBRARIES: &[&str] = &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"];

/// The kernels, as text that the runtime compiler compiles.
const SOURCE: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("step.hip"), "\0").as_bytes()) {
        Ok(source) => source,
        Err(_) => panic!("the text has a zero in it"),
    };

impl Hip {
    /// Compiles the kernels' source: the code of a module.
    fn code(&self) -> Raw<Vec<u8>> {
        let mut program = null_mut();
        let (source, name) = (SOURCE.as_ptr(), c"step.hip".as_ptr());
        call!(self, rtc_create(&mut program, source, name, 0, null_mut(), null_mut()))?;
        let code = call!(self, rtc_compile(program, 0, null_mut())).and_then(|()| {
            let mut size = 0;
            call!(self, rtc_size(program, &mut size))?;
            let mut code = vec![0; size];
            call!(self, rtc_code(program, code.as_mut_ptr())).map(|()| code)
        });
        let _: Raw<()> = call!(self, rtc_destroy(&mut program));
        code
    }

    fn function(&self, module: Handle, name: &CStr) -> Raw<Handle> {
        let mut function = null_mut();
        let found = call!(self, module_function(&mut function, module.0, name.as_ptr()));
        found.map(|()| Handle(function))
    }
}

impl Compile for Hip {
    fn compile(&self, ordinal: usize) -> Raw<Kernels> {
        let code = self.code()?;
        let (mut module, mut khz) = (null_mut(), 0);
        call!(self, module_load(&mut module, code.as_ptr()))?;
        let module = Handle(module);
        let (step, fault) = (self.function(module, c"step")?, self.function(module, c"fault")?);
        call!(self, attribute(&mut khz, WALL_CLOCK_RATE, ordinal as c_int))?;
        Ok(Kernels { step, fault, ticks_per_ms: khz.max(1) as u64 })
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

impl Load for Hip {
    const LIBRARIES: &'static [&'static str] = if cfg!(windows) {
        &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
    } else {
        &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]
    };
    /// `hipErrorNoDevice`, and `hipErrorInvalidDevice`, which some releases give in its place.
    const NO_DEVICE: &'static [i32] = &[100, 101];

    fn look_up(library: String, lookup: Lookup<'_>) -> Hip {
        if !lookup(c"hiprtcCreateProgram").is_null() {
            return Hip::new(library, lookup);
        }
        // Newer releases keep the compiler in a library of its own. Without it only compiling fails.
        let compiler = RTC_LIBRARIES.iter().find_map(|file| load(Path::new(file)).ok());
        Hip::new(library, &|name| match &compiler {
            Some(compiler) if name.to_bytes().starts_with(b"hiprtc") => compiler(name),
            _ => lookup(name),
        })
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

    fn system() -> &'static OnceLock<Driver<Hip>> {
        static SYSTEM: OnceLock<Driver<Hip>> = OnceLock::new();
        &SYSTEM
    }
}

/// What [`Vendor::enter`] changed on the thread.
#[derive(Debug)]
pub struct Entered {
    /// The device that was current.
    device: Option<c_int>,
    mode: Option<c_int>,
}

impl Vendor for Hip {
    const NAME: &'static str = "HIP";
    type Entered = Entered;

    fn library(&self) -> &str {
        &self.library
    }

    fn status_name(&self, status: i32) -> String {
        match status_name(status) {
            Some(name) => name.to_owned(),
            None => "a status that has no name here".to_owned(),
        }
    }

    fn devices(&self) -> Raw<usize> {
        let mut count = 0;
        call!(self, device_count(&mut count)).map(|()| count.max(0) as usize)
    }

    fn device_name(&self, ordinal: usize) -> Raw<String> {
        let mut name = [0u8; 256];
        let length = name.len() as c_int;
        call!(self, device_name(name.as_mut_ptr().cast(), length, ordinal as c_int))?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    fn current_device(&self) -> Raw<Option<usize>> {
        let mut device = 0;
        call!(self, get_device(&mut device)).map(|()| usize::try_from(device).ok())
    }

    fn retain(&self, ordinal: usize) -> Raw<Handle> {
        let mut context = null_mut();
        match call!(self, retain(&mut context, ordinal as c_int)) {
            Ok(()) => Ok(Handle(context)),
            // Where contexts are gone from the interface, a device keeps its own.
            Err(Failure::Missing(_)) => Ok(Handle(null_mut())),
            Err(failure) => Err(failure),
        }
    }

    fn release(&self, ordinal: usize) -> Raw<()> {
        match call!(self, release(ordinal as c_int)) {
            Err(Failure::Missing(_)) => Ok(()),
            released => released,
        }
    }

    fn enter(&self, ordinal: usize, _context: Handle) -> Raw<Entered> {
        let mut current = 0;
        call!(self, get_device(&mut current))?;
        let device = (current != ordinal as c_int).then_some(current);
        if device.is_some() {
            call!(self, set_device(ordinal as c_int))?;
        }
        let mut mode = RELAXED;
        let mode = call!(self, exchange_mode(&mut mode)).ok().map(|()| mode);
        Ok(Entered { device, mode })
    }

    fn leave(&self, entered: Entered) {
        if let Some(mut mode) = entered.mode {
            let _: Raw<()> = call!(self, exchange_mode(&mut mode));
        }
        if let Some(device) = entered.device {
            let _: Raw<()> = call!(self, set_device(device));
        }
    }

    fn allocate(&self, bytes: usize) -> Raw<HostMemory> {
        let (mut host, mut device) = (null_mut(), null_mut());
        call!(self, host_alloc(&mut host, bytes, COHERENT_MAPPED))?;
        let mapped = call!(self, device_pointer(&mut device, host, 0));
        match (mapped, NonNull::new(host.cast())) {
            (Ok(()), Some(host)) => Ok(HostMemory { host, device: device as u64 }),
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

    fn is_of(&self, stream: Handle, ordinal: usize, _context: Handle) -> Raw<bool> {
        // The default streams are those of the device that was entered.
        if (stream.0 as usize) <= 2 {
            return Ok(true);
        }
        let mut device = 0;
        match call!(self, stream_device(stream.0, &mut device)) {
            Ok(()) => Ok(device == ordinal as c_int),
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
        let store = |&(word, number): &(u64, u64)| {
            call!(self, write64(stream.0, word as usize as Ptr, number, 0))
        };
        words.iter().try_for_each(store)
    }

    fn wait(&self, stream: Handle, address: u64, number: u64) -> Raw<()> {
        call!(self, wait64(stream.0, address as usize as Ptr, number, GTE, u64::MAX))
    }
}

/// The runtime's names of its statuses; `hipGetErrorName` answers by a pointer and not by a status, so it is
/// not in the table.
fn status_name(status: i32) -> Option<&'static str> {
    Some(match status {
        1 => "hipErrorInvalidValue",
        2 => "hipErrorOutOfMemory",
        3 => "hipErrorNotInitialized",
        4 => "hipErrorDeinitialized",
        100 => "hipErrorNoDevice",
        101 => "hipErrorInvalidDevice",
        200 => "hipErrorInvalidImage",
        201 => "hipErrorInvalidContext",
        209 => "hipErrorNoBinaryForGpu",
        400 => "hipErrorInvalidHandle",
        500 => "hipErrorNotFound",
        600 => "hipErrorNotReady",
        700 => "hipErrorIllegalAddress",
        702 => "hipErrorLaunchTimeOut",
        709 => "hipErrorContextIsDestroyed",
        710 => "hipErrorAssert",
        718 => "hipErrorInvalidPc",
        719 => "hipErrorLaunchFailure",
        720 => "hipErrorCooperativeLaunchTooLarge",
        801 => "hipErrorNotSupported",
        900 => "hipErrorStreamCaptureUnsupported",
        901 => "hipErrorStreamCaptureInvalidated",
        905 => "hipErrorStreamCaptureIsolation",
        906 => "hipErrorStreamCaptureImplicit",
        907 => "hipErrorCapturedEvent",
        908 => "hipErrorStreamCaptureWrongThread",
        999 => "hipErrorUnknown",
        _ => return None,
    })
}

impl std::fmt::Debug for Hip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hip").field("library", &self.library).finish_non_exhaustive()
    }
}
