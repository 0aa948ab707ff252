//! The adapter for cudarc on the simulated driver. Nothing here ran on a GPU.
//!
//! The system's loader reads where to look for libraries when a process starts, so each test runs its part
//! in a child process, whose driver lies in a folder of its own.

use cudarc::driver::{CudaContext, CudaStream, result, sys};
use driver_sim::install::{Vendor, install};
use gpu_async_reactor::backend::cuda::{
    CuStream, CudaDevice, CudaDriver, CudaPort, CudaQueue, cudarc as ours,
};
use gpu_async_reactor::backend::mapped;
use gpu_async_reactor::host::std_host::StdClock;
use gpu_async_reactor::watcher::{CompletionExt, WaitError};
use gpu_async_reactor::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHILD: &str = "GPU_REACTOR_CUDARC_CHILD";
const PTX: &CStr = c".version 6.4\n.target sm_70\n.entry spin_ns() {}\n.entry fault() {}\n";

/// Runs a part of a test in a process whose driver behaves as the script says, or that has none.
fn in_child(test: &str, part: &str, driver: Option<(&str, &[&str])>, body: impl FnOnce()) {
    match std::env::var(CHILD) {
        Ok(asked) if asked == part => return body(),
        Ok(_) => return,
        Err(_) => {}
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, part);
    child.env("LD_LIBRARY_PATH", folder.path());
    if let Some((script, missing)) = driver {
        let library = install(folder.path(), Vendor::Cuda, missing).unwrap();
        // cudarc looks for this name first: both are one file, so both load one driver.
        std::os::unix::fs::symlink(library, folder.path().join("libcuda.so")).unwrap();
        child.env("GPU_DRIVER_SIM", script);
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}, {part}: {}\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "{test} ran nothing:\n{text}");
}

/// How many of a thing the driver of this process has.
fn tally(what: &str) -> u64 {
    let what = CString::new(what).unwrap();
    // SAFETY: the simulated driver, which is loaded already; the function has this signature.
    unsafe {
        let library = libloading::Library::new("libcuda.so.1").unwrap();
        let tally =
            library.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"gpuDriverSimTally\0");
        tally.unwrap()(what.as_ptr())
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Submits a kernel as a user of cudarc does.
fn launch(stream: &CudaStream, kernel: &CStr, mut ns: u64) {
    stream.context().bind_to_thread().unwrap();
    // SAFETY: the text ends with a zero, and the parameters are the kernel's.
    unsafe {
        let module = result::module::load_data(PTX.as_ptr().cast()).unwrap();
        let function = result::module::get_function(module, CString::from(kernel)).unwrap();
        let mut parameters: [*mut c_void; 1] = [(&raw mut ns).cast()];
        result::launch_kernel(
            function,
            (1, 1, 1),
            (1, 1, 1),
            0,
            stream.cu_stream(),
            &mut parameters,
        )
        .unwrap();
    }
}

/// A context that isn't the device's primary one.
fn own_context() -> Arc<CudaContext> {
    result::init().unwrap();
    let device = result::device::get(0).unwrap();
    let mut raw = std::ptr::null_mut();
    // SAFETY: a new context, which belongs to what is made of it.
    unsafe {
        let create = sys::cuCtxCreate_v4(&mut raw, std::ptr::null_mut(), 0, device);
        create.result().unwrap();
        CudaContext::from_raw_context(0, device, raw).unwrap()
    }
}

struct Rig {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    device: CudaDevice,
}

fn rig() -> Rig {
    let context = ours::context(0).unwrap();
    let stream = context.new_stream().unwrap();
    let device = ours::device(&context).unwrap();
    Rig { context, stream, device }
}

#[test]
fn what_cudarc_submitted_is_awaited_by_every_plan() {
    let name = "what_cudarc_submitted_is_awaited_by_every_plan";
    in_child(name, "all", Some(("", &[])), || {
        let Rig { context, stream, device } = rig();
        let line = device.line().unwrap();
        let plans = [
            "block",
            "poll",
            "flag:park_us=200,backstop_us=2000",
            "flag:park_us=200,backstop_us=2000+predict:margin_us=200,min_sleep_us=50,max_sleep_us=10000,window=3",
        ];
        let clock = StdClock::new();
        for stream in [stream, context.default_stream(), context.per_thread_stream()] {
            for plan in plans {
                let plan: WaitPlan = plan.parse().unwrap();
                let begun = Instant::now();
                launch(&stream, c"spin_ns", 3_000_000);
                let mut port = ours::port(&stream, &line, Slot::ALL[3], None).unwrap();
                let sleep = Some(1_000_000).filter(|_| plan.predict.is_some());
                run_inline(wait(&plan, sleep, &mut port, &clock, &clock)).unwrap();
                assert!(
                    begun.elapsed() >= Duration::from_millis(3),
                    "{plan:?} ended before the work"
                );
            }
        }
        // The same, through a queue: copies of cudarc's are there when the number is.
        let stream = context.new_stream().unwrap();
        let mut queue = ours::queue(&device, &stream).unwrap();
        let mut there = stream.alloc_zeros::<u64>(4).unwrap();
        for round in 1..=5u64 {
            launch(&stream, c"spin_ns", 500_000);
            stream.memcpy_htod(&[round, 2, 3, 4], &mut there).unwrap();
            smol::block_on(queue.completion()).unwrap();
            assert_eq!(stream.clone_dtoh(&there).unwrap(), [round, 2, 3, 4]);
        }
    });
}

#[test]
fn tasks_of_tokio_await_many_streams_of_cudarc() {
    let name = "tasks_of_tokio_await_many_streams_of_cudarc";
    in_child(name, "all", Some(("", &[])), || {
        let Rig { context, device, .. } = rig();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            let waits = (0..16u64).map(|i| {
                let stream = context.new_stream().unwrap();
                let mut queue = ours::queue(&device, &stream).unwrap();
                tokio::spawn(async move {
                    for round in 0..5 {
                        launch(&stream, c"spin_ns", 100_000 * (1 + (i + round) % 7));
                        queue.completion().await?;
                        // The stream's own answer agrees.
                        assert!(stream.record_event(None).is_ok());
                    }
                    Ok::<(), WaitError>(())
                })
            });
            for wait in waits.collect::<Vec<_>>() {
                wait.await.unwrap().unwrap();
            }
        });
    });
}

/// What can be dropped, with work in flight.
#[derive(Default)]
struct Held {
    context: Option<Arc<CudaContext>>,
    stream: Option<Arc<CudaStream>>,
    device: Option<CudaDevice>,
    queue: Option<CudaQueue>,
    done: Option<watcher::Completion>,
}

impl Held {
    fn drop_one(&mut self, which: usize) {
        match which {
            0 => self.context = None,
            1 => self.stream = None,
            2 => self.device = None,
            3 => self.queue = None,
            // Awaited rather than dropped: it resolves whatever else is gone.
            _ => smol::block_on(self.done.take().unwrap()).unwrap(),
        }
        // What is left works, whoever else let go of the stream and its context.
        if let Some(queue) = &mut self.queue {
            smol::block_on(queue.completion()).unwrap();
        }
        if let Some(device) = &self.device {
            let line = device.line().unwrap();
            line.enqueue_store(CuStream::LEGACY, Slot::ALL[0], 1).unwrap();
            until("the store is lost", || reached(line.line(), Slot::ALL[0], 1));
        }
    }
}

fn permutations(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let with = |&first: &usize| {
        let rest: Vec<_> = of.iter().copied().filter(|&other| other != first).collect();
        permutations(&rest).into_iter().map(move |order| [vec![first], order].concat())
    };
    of.iter().flat_map(with).collect()
}

#[test]
fn queue_stream_device_and_context_are_dropped_in_every_order() {
    let name = "queue_stream_device_and_context_are_dropped_in_every_order";
    in_child(name, "all", Some(("", &[])), || {
        for primary in [true, false] {
            for order in permutations(&[0, 1, 2, 3, 4]) {
                let context = match primary {
                    true => ours::context(0).unwrap(),
                    false => own_context(),
                };
                let stream = context.new_stream().unwrap();
                let device = ours::device(&context).unwrap();
                let mut queue = ours::queue(&device, &stream).unwrap();
                launch(&stream, c"spin_ns", 300_000);
                let done = Some(queue.completion());
                let mut held = Held {
                    context: Some(context),
                    stream: Some(stream),
                    device: Some(device),
                    queue: Some(queue),
                    done,
                };
                order.iter().for_each(|&which| held.drop_one(which));
                let gone = || ["contexts", "references", "streams", "pages"].map(tally) == [0; 4];
                until(&format!("something of {order:?} is still there"), gone);
                assert_eq!(mapped::kept(), 0, "{order:?}");
            }
        }
    });
}

#[test]
fn a_wait_that_was_begun_outlives_everything_else() {
    let name = "a_wait_that_was_begun_outlives_everything_else";
    in_child(name, "all", Some(("", &[])), || {
        let Rig { context, stream, device } = rig();
        let mut queue = ours::queue(&device, &stream).unwrap();
        launch(&stream, c"spin_ns", 30_000_000);
        let done = queue.completion();
        let wait = std::thread::spawn(move || smol::block_on(done));
        drop((context, device, queue));
        drop(stream);
        assert_eq!(wait.join().unwrap(), Ok(()));
        until("the context is still there", || tally("contexts") == 0);
    });
}

#[test]
fn a_fault_of_a_kernel_that_cudarc_launched_ends_the_wait() {
    let name = "a_fault_of_a_kernel_that_cudarc_launched_ends_the_wait";
    in_child(name, "all", Some(("", &[])), || {
        let Rig { stream, device, .. } = rig();
        let mut queue = ours::queue(&device, &stream).unwrap();
        launch(&stream, c"spin_ns", 2_000_000);
        launch(&stream, c"fault", 0);
        let cause = match smol::block_on(queue.completion()) {
            Err(WaitError::DeviceLost(_, cause)) => cause,
            other => panic!("{other:?}"),
        };
        assert_eq!((cause.code(), cause.driver_status()), (ErrorCode::DeviceLost, Some(700)));
    });
}

#[test]
fn streams_of_other_contexts_are_refused() {
    let name = "streams_of_other_contexts_are_refused";
    in_child(name, "all", Some(("devices=2", &[])), || {
        let Rig { context, device, .. } = rig();
        let other = own_context();
        let second = ours::context(1).unwrap();
        for stream in [
            other.new_stream().unwrap(),
            other.default_stream(),
            second.new_stream().unwrap(),
            second.per_thread_stream(),
        ] {
            let refused = ours::queue(&device, &stream).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Misuse, "{refused}");
            let line = device.line().unwrap();
            let refused = ours::port(&stream, &line, Slot::ALL[0], None).map(drop).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Misuse, "{refused}");
        }
        // Each on its own device is fine, and so is cudarc's on a device that was opened without it.
        for context in [&other, &second] {
            let stream = context.new_stream().unwrap();
            launch(&stream, c"spin_ns", 100_000);
            let device = ours::device(context).unwrap();
            smol::block_on(ours::queue(&device, &stream).unwrap().completion()).unwrap();
        }
        let stream = context.new_stream().unwrap();
        let opened = CudaDriver::load().unwrap().open(0).unwrap();
        smol::block_on(ours::queue(&opened, &stream).unwrap().completion()).unwrap();
        assert_eq!(opened.ordinal(), 0);
    });
}

#[test]
fn a_capture_is_refused_and_stays_valid() {
    let name = "a_capture_is_refused_and_stays_valid";
    in_child(name, "all", Some(("", &[])), || {
        let Rig { stream, device, .. } = rig();
        let mut queue = ours::queue(&device, &stream).unwrap();
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        assert_eq!(queue.store_next().unwrap_err().code(), ErrorCode::StreamCapturing);
        let refused = ours::queue(&device, &stream).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::StreamCapturing);
        // SAFETY: the stream is in capture.
        let graph = unsafe { result::stream::end_capture(stream.cu_stream()) };
        assert!(graph.is_ok(), "the capture was broken: {graph:?}");
        smol::block_on(queue.completion()).unwrap();
    });
}

#[test]
fn what_cudarc_would_panic_for_is_a_typed_error() {
    let name = "what_cudarc_would_panic_for_is_a_typed_error";
    let code = || ours::context(0).map(drop).unwrap_err().code();
    in_child(name, "no device", Some(("devices=0", &[])), || {
        assert_eq!(code(), ErrorCode::NoDevice);
    });
    in_child(name, "no such device", Some(("", &[])), || {
        assert_eq!(ours::context(3).map(drop).unwrap_err().code(), ErrorCode::NoDevice);
    });
    let symbols = [
        "cuInit",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuDeviceGetAttribute",
    ];
    for symbol in symbols {
        in_child(name, symbol, Some(("", &[symbol])), || {
            let error = ours::context(0).map(drop).unwrap_err();
            assert_eq!(error.code(), ErrorCode::SymbolMissing);
            assert!(error.to_string().contains(symbol), "{error}");
        });
    }
    let refusing = Some(("refuse=cuDevicePrimaryCtxRetain:2", &[] as &[&str]));
    in_child(name, "refused", refusing, || {
        let error = ours::context(0).map(drop).unwrap_err();
        assert_eq!((error.code(), error.driver_status()), (ErrorCode::DriverCall, Some(2)));
    });
    if ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .any(|folder| Path::new(folder).join("libcuda.so.1").exists())
    {
        eprintln!("SKIPPED {name}, no library: this machine has a driver");
        return;
    }
    in_child(name, "no library", None, || assert_eq!(code(), ErrorCode::LibraryMissing));
}

/// The port is a [`CompletionPort`] like any other.
#[allow(dead_code)]
fn is_a_port(port: CudaPort<'_>) -> impl CompletionPort {
    port
}
