//! The HIP backend on the simulated runtime. Nothing here runs on a GPU.

mod driver;

use driver::DriverSim;
use driver::suite::{Tested, Without, each_missing_entry_point_fails_what_needs_it};
use driver_sim::install::Vendor;
use gpu_async_reactor::backend::hip::{Hip, HipPort, MappedLine};
use std::ffi::c_void;

type Status = i32;

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

driver::suite::whole_suite!(Hip);

#[test]
fn each_missing_entry_point_fails_what_needs_it_and_nothing_else() {
    use Without::*;
    let cases: &[(&[&str], Without)] = &[
        (&["hipInit"], Nothing),
        (&["hipDriverGetVersion"], Everything),
        (&["hipGetDeviceCount"], Nothing),
        (&["hipSetDevice"], Nothing),
        (&["hipGetDevice"], Nothing),
        (&["hipDeviceGetName"], Nothing),
        (&["hipDeviceGetAttribute"], Kernels),
        (&["hipDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRelease"], Everything),
        (&["hipThreadExchangeStreamCaptureMode"], Everything),
        (&["hipHostMalloc"], Words),
        (&["hipHostGetDevicePointer"], Words),
        (&["hipHostFree"], Everything),
        (&["hipStreamCreateWithFlags"], Nothing),
        (&["hipStreamDestroy"], Nothing),
        (&["hipStreamQuery"], Nothing),
        (&["hipStreamGetDevice"], Everything),
        (&["hipStreamIsCapturing"], Everything),
        (&["hipStreamWaitValue64"], Gates),
        (&["hipEventCreateWithFlags"], Nothing),
        (&["hipEventDestroy"], Nothing),
        (&["hipEventRecord"], Nothing),
        (&["hipEventQuery"], Nothing),
        (&["hipEventSynchronize"], Block),
        (&["hiprtcCreateProgram"], Kernels),
        (&["hiprtcCompileProgram"], Kernels),
        (&["hiprtcGetCodeSize"], Kernels),
        (&["hiprtcGetCode"], Kernels),
        (&["hiprtcDestroyProgram"], Everything),
        (&["hipModuleLoadData"], Kernels),
        (&["hipModuleGetFunction"], Kernels),
        (&["hipModuleLaunchKernel"], Kernels),
    ];
    each_missing_entry_point_fails_what_needs_it::<Hip>(cases);
}

#[test]
fn the_published_names_are_there() {
    // Without a runtime on this machine the line's constructor is a typed error and no panic.
    let line = MappedLine::new();
    if let Ok(line) = &line {
        assert_eq!(line.line().words.len(), 8);
    }
    fn port_is_a_completion_port<P: gpu_async_reactor::CompletionPort>() {}
    port_is_a_completion_port::<HipPort<'_>>();
}
