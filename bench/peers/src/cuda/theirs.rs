//! NVIDIA's `cuda-async`, and cudarc with the three ways to await that its users take.

use super::round::Subject;
use cuda_async::device_future::DeviceFuture;
use cuda_async::device_operation::{DeviceOp, ExecutionContext};
use cuda_async::error::DeviceError;
use cudarc::driver::result::stream::launch_host_function;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use gpu_async_reactor_hardware::api::{Answer, Ptr};
use gpu_async_reactor_hardware::bad::Bad;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::oneshot;

fn bad(error: impl Debug) -> Bad {
    Bad(format!("{error:?}"))
}

/// `cuda-async`'s futures; how they wait is told by the environment.
pub struct CudaAsync {
    lanes: Vec<ExecutionContext>,
}

struct Operation<L>(L);

impl<L: FnOnce(Ptr) -> Answer<()> + Send> DeviceOp for Operation<L> {
    type Output = ();

    unsafe fn execute(self, context: &ExecutionContext) -> Result<(), DeviceError> {
        let stream = context.get_cuda_stream().cu_stream();
        (self.0)(stream.cast()).map_err(|error| DeviceError::Internal(error.0))
    }
}

/// The trait asks for it. Nobody here awaits an operation without saying on which stream.
impl<L: FnOnce(Ptr) -> Answer<()> + Send> IntoFuture for Operation<L> {
    type Output = Result<(), DeviceError>;
    type IntoFuture = DeviceFuture<(), Operation<L>>;

    fn into_future(self) -> Self::IntoFuture {
        DeviceFuture::failed(DeviceError::Internal("no stream was given".into()))
    }
}

impl Subject for CudaAsync {
    fn new(lanes: usize) -> Answer<CudaAsync> {
        let context = cuda_core::Context::new(0).map_err(bad)?;
        let lane = |_| Ok(ExecutionContext::new(context.new_stream().map_err(bad)?));
        Ok(CudaAsync { lanes: (0..lanes).map(lane).collect::<Answer<_>>()? })
    }

    async fn step<L>(&self, lane: usize, launch: L) -> Answer<()>
    where
        L: FnOnce(Ptr) -> Answer<()> + Send,
    {
        DeviceFuture::scheduled(Operation(launch), self.lanes[lane].clone()).await.map_err(bad)
    }
}

fn streams(lanes: usize) -> Answer<Vec<Arc<CudaStream>>> {
    let context = CudaContext::new(0).map_err(bad)?;
    (0..lanes).map(|_| context.new_stream().map_err(bad)).collect()
}

fn launched(
    stream: &CudaStream,
    launch: impl FnOnce(Ptr) -> Answer<()>,
    flags: Option<CUevent_flags>,
) -> Answer<CudaEvent> {
    launch(stream.cu_stream().cast())?;
    stream.record_event(flags).map_err(bad)
}

/// An event that a task asks for again and again.
pub struct Poll(Vec<Arc<CudaStream>>);

impl Subject for Poll {
    fn new(lanes: usize) -> Answer<Poll> {
        streams(lanes).map(Poll)
    }

    async fn step<L>(&self, lane: usize, launch: L) -> Answer<()>
    where
        L: FnOnce(Ptr) -> Answer<()> + Send,
    {
        let event = launched(&self.0[lane], launch, None)?;
        while !event.try_is_complete().map_err(bad)? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// A thread of tokio's that blocks in the driver.
pub struct Synchronize(Vec<Arc<CudaStream>>);

impl Subject for Synchronize {
    fn new(lanes: usize) -> Answer<Synchronize> {
        streams(lanes).map(Synchronize)
    }

    async fn step<L>(&self, lane: usize, launch: L) -> Answer<()>
    where
        L: FnOnce(Ptr) -> Answer<()> + Send,
    {
        let flags = Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC);
        let event = launched(&self.0[lane], launch, flags)?;
        let blocked = tokio::task::spawn_blocking(move || event.synchronize()).await;
        blocked.map_err(bad)?.map_err(bad)
    }
}

/// A function that the driver calls on a thread of its own, into a oneshot.
pub struct Callback(Vec<Arc<CudaStream>>);

unsafe extern "C" fn called(data: Ptr) {
    // SAFETY: the box that was given with this function, which is called once.
    let done = unsafe { Box::from_raw(data.cast::<oneshot::Sender<()>>()) };
    let _ = done.send(());
}

impl Subject for Callback {
    fn new(lanes: usize) -> Answer<Callback> {
        streams(lanes).map(Callback)
    }

    async fn step<L>(&self, lane: usize, launch: L) -> Answer<()>
    where
        L: FnOnce(Ptr) -> Answer<()> + Send,
    {
        let receiver = {
            let stream = self.0[lane].cu_stream();
            launch(stream.cast())?;
            let (sender, receiver) = oneshot::channel::<()>();
            let data: Ptr = Box::into_raw(Box::new(sender)).cast();
            // SAFETY: a live stream; `called` takes the box. One that isn't called leaks it.
            unsafe { launch_host_function(stream, called, data) }.map_err(bad)?;
            receiver
        };
        receiver.await.map_err(bad)
    }
}
