//! The HIP backend on the simulated runtime. Nothing here runs on a GPU.

mod driver;

use driver::suite::{Without, each_missing_entry_point_fails_what_needs_it};
use gpu_async_reactor::backend::hip::{Hip, HipPort, MappedLine};

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
