//! What a test does in another library's place, by each vendor's own entry points.

use super::DriverSim;
use super::suite::Tested;
use driver_sim::install::Vendor;
use gpu_async_reactor::backend::cuda::Cuda;
use gpu_async_reactor::backend::hip::Hip;
use std::ffi::c_void;

type Status = i32;

impl Tested for Cuda {
    const LIBRARY: Vendor = Vendor::Cuda;
    const HOST_ALLOC: &'static str = "cuMemHostAlloc";
    const WRITE: &'static [&'static str] = &["cuStreamWriteValue64_v2", "cuStreamWriteValue64"];
    const WAIT: &'static [&'static str] = &["cuStreamWaitValue64_v2", "cuStreamWaitValue64"];
    const NAME_OF_700: &'static str = "CUDA_ERROR_ILLEGAL_ADDRESS";

    fn foreign_stream(sim: &DriverSim, ordinal: i32) -> *mut c_void {
        type Retain = unsafe extern "C" fn(*mut *mut c_void, i32) -> Status;
        type Set = unsafe extern "C" fn(*mut c_void) -> Status;
        type Create = unsafe extern "C" fn(*mut *mut c_void, u32) -> Status;
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the entry points have these types; pointers are to locals.
        unsafe {
            assert_eq!(sim.entry::<Retain>("cuDevicePrimaryCtxRetain")(&mut context, ordinal), 0);
            assert_eq!(sim.entry::<Set>("cuCtxSetCurrent")(context), 0);
            assert_eq!(sim.entry::<Create>("cuStreamCreate")(&mut stream, 0), 0);
            assert_eq!(sim.entry::<Set>("cuCtxSetCurrent")(std::ptr::null_mut()), 0);
        }
        stream
    }

    fn begin_capture(sim: &DriverSim, stream: *mut c_void, mode: i32) {
        type Begin = unsafe extern "C" fn(*mut c_void, i32) -> Status;
        // SAFETY: the entry point has this type; the stream is live.
        let status = unsafe { sim.entry::<Begin>("cuStreamBeginCapture_v2")(stream, mode) };
        assert_eq!(status, 0);
    }

    fn end_capture(sim: &DriverSim, stream: *mut c_void) -> i32 {
        type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> Status;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the entry point has this type; the stream is live.
        unsafe { sim.entry::<End>("cuStreamEndCapture")(stream, &mut graph) }
    }
}

impl Tested for Hip {
    const LIBRARY: Vendor = Vendor::Hip;
    const HOST_ALLOC: &'static str = "hipHostMalloc";
    const WRITE: &'static [&'static str] = &["hipStreamWriteValue64"];
    const WAIT: &'static [&'static str] = &["hipStreamWaitValue64"];
    const NAME_OF_700: &'static str = "hipErrorIllegalAddress";

    fn foreign_stream(sim: &DriverSim, ordinal: i32) -> *mut c_void {
        type Set = unsafe extern "C" fn(i32) -> Status;
        type Create = unsafe extern "C" fn(*mut *mut c_void, u32) -> Status;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the entry points have these types; the pointer is to a local.
        unsafe {
            assert_eq!(sim.entry::<Set>("hipSetDevice")(ordinal), 0);
            assert_eq!(sim.entry::<Create>("hipStreamCreateWithFlags")(&mut stream, 0), 0);
            assert_eq!(sim.entry::<Set>("hipSetDevice")(0), 0);
        }
        stream
    }

    fn begin_capture(sim: &DriverSim, stream: *mut c_void, mode: i32) {
        type Begin = unsafe extern "C" fn(*mut c_void, i32) -> Status;
        // SAFETY: the entry point has this type; the stream is live.
        let status = unsafe { sim.entry::<Begin>("hipStreamBeginCapture")(stream, mode) };
        assert_eq!(status, 0);
    }

    fn end_capture(sim: &DriverSim, stream: *mut c_void) -> i32 {
        type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> Status;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the entry point has this type; the stream is live.
        unsafe { sim.entry::<End>("hipStreamEndCapture")(stream, &mut graph) }
    }
}
