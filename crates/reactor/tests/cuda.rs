//! The CUDA backend on the simulated driver. Nothing here runs on a GPU.

mod driver;

use driver::suite::{Without, each_missing_entry_point_fails_what_needs_it};
use gpu_async_reactor::backend::cuda::{Cuda, CudaPort, MappedLine};

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
