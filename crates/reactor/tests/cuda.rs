//! The CUDA backend on the simulated driver. Nothing here runs on a GPU.

mod driver;

use driver::DriverSim;
use driver::suite::{Tested, Without, each_missing_entry_point_fails_what_needs_it};
use driver_sim::install::Vendor;
use gpu_async_reactor::backend::cuda::{Cuda, CudaPort, MappedLine};
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

driver::suite::whole_suite!(Cuda);

#[test]
fn each_missing_entry_point_fails_what_needs_it_and_nothing_else() {
    use Without::*;
    let cases: &[(&[&str], Without)] = &[
        (&["cuInit"], Nothing),
        (&["cuDriverGetVersion"], Everything),
        (&["cuGetErrorName"], Everything),
        (&["cuDeviceGetCount"], Nothing),
        (&["cuDeviceGet"], Nothing),
        (&["cuDeviceGetName"], Nothing),
        (&["cuDevicePrimaryCtxRetain"], Nothing),
        (&["cuDevicePrimaryCtxRelease_v2"], Everything),
        (&["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"], Nothing),
        (&["cuCtxGetCurrent"], Nothing),
        (&["cuCtxGetDevice"], Everything),
        (&["cuCtxPushCurrent_v2"], Nothing),
        (&["cuCtxPopCurrent_v2"], Nothing),
        (&["cuThreadExchangeStreamCaptureMode"], Everything),
        (&["cuMemHostAlloc"], Words),
        (&["cuMemHostGetDevicePointer_v2"], Words),
        (&["cuMemFreeHost"], Everything),
        (&["cuStreamCreate"], Nothing),
        (&["cuStreamDestroy_v2"], Nothing),
        (&["cuStreamQuery"], Nothing),
        (&["cuStreamGetCtx"], Everything),
        (&["cuStreamIsCapturing"], Everything),
        // An old driver has the first version of each only.
        (
            &["cuStreamWriteValue64_v2", "cuStreamWaitValue64_v2", "cuStreamBatchMemOp_v2"],
            Everything,
        ),
        (&["cuStreamWaitValue64_v2", "cuStreamWaitValue64"], Gates),
        (&["cuStreamBatchMemOp_v2", "cuStreamBatchMemOp"], Everything),
        (&["cuEventCreate"], Nothing),
        (&["cuEventDestroy_v2"], Nothing),
        (&["cuEventRecord"], Nothing),
        (&["cuEventQuery"], Nothing),
        (&["cuEventSynchronize"], Block),
        (&["cuModuleLoadData"], Kernels),
        (&["cuModuleGetFunction"], Kernels),
        (&["cuLaunchKernel"], Kernels),
    ];
    each_missing_entry_point_fails_what_needs_it::<Cuda>(cases);
}

#[test]
fn the_published_names_are_there() {
    // Without a driver on this machine the line's constructor is a typed error and no panic.
    let line = MappedLine::new();
    if let Ok(line) = &line {
        assert_eq!(line.line().words.len(), 8);
    }
    fn port_is_a_completion_port<P: gpu_async_reactor::CompletionPort>() {}
    port_is_a_completion_port::<CudaPort<'_>>();
}
