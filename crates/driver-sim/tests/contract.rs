//! The simulated driver against what the vendors document, one test for each row of its table. Each test has a
//! copy of the library of its own.

use driver_sim::install::{Vendor, install};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PTX: &CStr = c".version 6.4\n.target sm_70\n.visible .entry spin_ns(.param .u64 ns) { ret; }\n\
    .visible .entry fault() { ret; }\n.visible .entry step() { ret; }\n.visible .entry unknown() { ret; }\n\
    .visible .entry trapped()\n{\n    trap;\n}\n";

struct Sim {
    _folder: tempfile::TempDir,
    library: libloading::Library,
}

/// Calls an entry point: each argument with its type.
macro_rules! call {
    ($sim:expr, $name:ident($($value:expr => $type:ty),*)) => {{
        // SAFETY: the entry points have these types, and the tests keep what the pointers point to.
        unsafe {
            let entry = $sim.library
                .get::<unsafe extern "C" fn($($type),*) -> i32>(concat!(stringify!($name), "\0").as_bytes());
            entry.unwrap()($($value),*)
        }
    }};
}

type Handle = usize;

impl Sim {
    fn new(vendor: Vendor, script: &str) -> Sim {
        let folder = tempfile::tempdir().unwrap();
        let path = install(folder.path(), vendor, &[]).unwrap();
        // SAFETY: the simulated driver has no initialisers.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        let sim = Sim { _folder: folder, library };
        sim.script(script);
        sim
    }

    /// With the first device's primary context current.
    fn cuda(script: &str) -> Sim {
        let sim = Sim::new(Vendor::Cuda, script);
        assert_eq!(call!(sim, cuInit(0 => u32)), 0);
        let mut context = 0;
        assert_eq!(call!(sim, cuDevicePrimaryCtxRetain(&mut context => *mut Handle, 0 => i32)), 0);
        assert_eq!(call!(sim, cuCtxSetCurrent(context => Handle)), 0);
        sim
    }

    fn hip(script: &str) -> Sim {
        let sim = Sim::new(Vendor::Hip, script);
        assert_eq!(call!(sim, hipInit(0 => u32)), 0);
        sim
    }

    fn script(&self, script: &str) {
        let script = CString::new(script).unwrap();
        assert_eq!(call!(self, gpuDriverSimScript(script.as_ptr() => *const c_char)), 0);
    }

    fn stream(&self) -> Handle {
        let mut stream = 0;
        assert_eq!(call!(self, cuStreamCreate(&mut stream => *mut Handle, 1 => u32)), 0);
        stream
    }

    fn hip_stream(&self) -> Handle {
        let mut stream = 0;
        assert_eq!(call!(self, hipStreamCreateWithFlags(&mut stream => *mut Handle, 1 => u32)), 0);
        stream
    }

    fn event(&self, flags: u32) -> Handle {
        let mut event = 0;
        assert_eq!(call!(self, cuEventCreate(&mut event => *mut Handle, flags => u32)), 0);
        event
    }

    /// A page of mapped host memory.
    fn page(&self) -> &'static [AtomicU64; 512] {
        let mut page = std::ptr::null_mut::<c_void>();
        assert_eq!(
            call!(self, cuMemHostAlloc(&mut page => *mut *mut c_void, 4096 => usize, 2 => u32)),
            0
        );
        // SAFETY: a page, which is never unmapped.
        unsafe { &*page.cast() }
    }

    fn function(&self, name: &CStr) -> Handle {
        let (mut module, mut function) = (0, 0);
        assert_eq!(
            call!(self, cuModuleLoadData(&mut module => *mut Handle, PTX.as_ptr() => *const c_char)),
            0
        );
        let found = call!(self, cuModuleGetFunction(&mut function => *mut Handle, module => Handle,
            name.as_ptr() => *const c_char));
        assert_eq!(found, 0);
        function
    }

    fn launch(&self, function: Handle, stream: Handle, parameters: &[*mut c_void]) -> i32 {
        call!(self, cuLaunchKernel(function => Handle, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32,
            1 => u32, 0 => u32, stream => Handle, parameters.as_ptr() => *const *mut c_void,
            std::ptr::null() => *const c_void))
    }

    fn spin(&self, stream: Handle, mut ns: u64) -> i32 {
        let function = self.function(c"spin_ns");
        self.launch(function, stream, &[(&raw mut ns).cast()])
    }

    /// Holds a stream until `gate` is no longer zero: "not done yet" that no busy machine outlasts.
    fn hold(&self, stream: Handle, gate: &AtomicU64) -> i32 {
        call!(self, cuStreamWaitValue64_v2(stream => Handle, address(gate) => u64, 1 => u64, 0 => u32))
    }

    fn store(&self, stream: Handle, word: &AtomicU64, value: u64) -> i32 {
        call!(self, cuStreamWriteValue64_v2(stream => Handle, address(word) => u64, value => u64, 0 => u32))
    }

    fn synchronize(&self, stream: Handle) -> i32 {
        call!(self, cuStreamSynchronize(stream => Handle))
    }

    fn query(&self, stream: Handle) -> i32 {
        call!(self, cuStreamQuery(stream => Handle))
    }
}

fn address(word: &AtomicU64) -> u64 {
    word.as_ptr() as u64
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn nothing_works_before_initialisation_but_what_is_said_to() {
    let sim = Sim::new(Vendor::Cuda, "version=12040");
    let (mut version, mut count) = (0, 0);
    assert_eq!(call!(sim, cuDriverGetVersion(&mut version => *mut i32)), 0);
    assert_eq!(version, 12_040);
    assert_eq!(call!(sim, cuDeviceGetCount(&mut count => *mut i32)), 3);
    assert_eq!(call!(sim, cuInit(1 => u32)), 1);
    assert_eq!(call!(sim, cuInit(0 => u32)), 0);
    assert_eq!(call!(sim, cuDeviceGetCount(&mut count => *mut i32)), 0);
    assert_eq!(count, 1);
    // A stream needs a context.
    let mut stream = 0;
    assert_eq!(call!(sim, cuStreamCreate(&mut stream => *mut Handle, 0 => u32)), 201);
    let none = Sim::new(Vendor::Cuda, "devices=0");
    assert_eq!(call!(none, cuInit(0 => u32)), 100);
    let none = Sim::new(Vendor::Hip, "devices=0");
    assert_eq!(call!(none, hipGetDeviceCount(&mut count => *mut i32)), 100);
    assert_eq!(count, 0);
}

#[test]
fn an_unknown_entry_point_is_a_success_with_a_null_pointer() {
    let sim = Sim::new(Vendor::Cuda, "");
    let find = |name: &CStr, version: i32| {
        let (mut address, mut result) = (std::ptr::null_mut::<c_void>(), -1);
        let status = call!(sim, cuGetProcAddress_v2(name.as_ptr() => *const c_char,
            &mut address => *mut *mut c_void, version => i32, 0 => u64, &mut result => *mut i32));
        (status, address, result)
    };
    assert_eq!(find(c"cuNothing", 12_000), (0, std::ptr::null_mut(), 1));
    let (status, old, result) = find(c"cuStreamWriteValue64", 11_070);
    assert!(status == 0 && !old.is_null() && result == 0);
    let (_, new, _) = find(c"cuStreamWriteValue64", 12_000);
    // SAFETY: only the addresses are compared.
    let second = unsafe { *sim.library.get::<*mut c_void>(b"cuStreamWriteValue64_v2\0").unwrap() };
    assert!(new == second && new != old, "12.0 made the second version the default");
}

#[test]
fn stores_are_refused_where_the_driver_refuses_them() {
    let sim = Sim::cuda("");
    let (stream, page) = (sim.stream(), sim.page());
    let word = address(&page[0]);
    let v1 = |at: u64, flags: u32| call!(sim, cuStreamWriteValue64(stream => Handle, at => u64, 1 => u64, flags => u32));
    let v2 = |at: u64, flags: u32| call!(sim, cuStreamWriteValue64_v2(stream => Handle, at => u64, 1 => u64, flags => u32));
    // NO_MEMORY_BARRIER is for the first version alone.
    assert_eq!((v1(word, 1), v2(word, 1), v1(word, 0), v2(word, 0)), (0, 1, 0, 0));
    assert_eq!(v2(word + 4, 0), 1, "unaligned");
    assert_eq!(v2(word + 4096, 0), 1, "beyond the page");
    let own = AtomicU64::new(0);
    assert_eq!(v2(address(&own), 0), 1, "the host's own memory");
    let mut managed = 0;
    assert_eq!(call!(sim, cuMemAllocManaged(&mut managed => *mut u64, 64 => usize, 1 => u32)), 0);
    assert_eq!(v2(managed, 0), 1, "managed memory");
    assert_eq!(sim.synchronize(stream), 0);
    // On a system without unified addressing the host's address is not the device's.
    sim.script("distinct_addresses");
    assert_eq!(v2(word, 0), 1);
    let mut device = 0;
    let found = call!(sim, cuMemHostGetDevicePointer_v2(&mut device => *mut u64, word as *mut c_void => *mut c_void, 0 => u32));
    assert_eq!((found, v2(device, 0)), (0, 0));
    assert_ne!(device, word);
}

#[test]
fn words_are_stored_in_order_behind_the_work_at_a_known_time() {
    let sim = Sim::cuda("");
    let (stream, page) = (sim.stream(), sim.page());
    assert_eq!((sim.hold(stream, &page[16]), sim.spin(stream, 20_000_000)), (0, 0));
    // A batch of a word and a doorbell.
    let mut ops = [[5, address(&page[0]), 7, 0, 0, 0], [5, address(&page[8]), 9, 0, 0, 0u64]];
    let batch = |count: u32, ops: *mut [u64; 6]| call!(sim, cuStreamBatchMemOp_v2(stream => Handle, count => u32, ops => *mut [u64; 6], 0 => u32));
    assert_eq!(batch(2, ops.as_mut_ptr()), 0);
    assert_eq!((page[0].load(Ordering::Acquire), sim.query(stream)), (0, 600));
    let begun = Instant::now();
    page[16].store(1, Ordering::Release);
    while page[8].load(Ordering::Acquire) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(page[0].load(Ordering::Acquire), 7, "the doorbell came before the word");
    assert!(begun.elapsed() > Duration::from_millis(10), "stored before the work");
    assert_eq!(sim.synchronize(stream), 0);
    let stored = |word: u64, value: u64| {
        // SAFETY: the function has this type.
        unsafe {
            let at = sim.library.get::<extern "C" fn(u64, u64) -> u64>(b"gpuDriverSimStoredAt\0");
            at.unwrap()(word, value)
        }
    };
    let (word, bell) = (stored(address(&page[0]), 7), stored(address(&page[8]), 9));
    assert!(word > 0 && bell >= word && stored(address(&page[0]), 8) == 0);
    // Fewer than 256 to a batch, and at least one.
    let mut many = vec![[5, address(&page[1]), 1, 0, 0, 0u64]; 256];
    assert_eq!(
        (batch(256, many.as_mut_ptr()), batch(255, many.as_mut_ptr()), batch(0, many.as_mut_ptr())),
        (1, 0, 1)
    );
}

#[test]
fn cudas_comparison_is_cyclic_and_hips_is_not() {
    // 5 is "at least" 2^64 - 5 as a signed difference, and less as a plain one.
    let (value, near) = (u64::MAX - 4, 5);
    let sim = Sim::cuda("");
    let (stream, page) = (sim.stream(), sim.page());
    page[0].store(near, Ordering::Release);
    let waits = call!(sim, cuStreamWaitValue64_v2(stream => Handle, address(&page[0]) => u64, value => u64, 0 => u32));
    assert_eq!((waits, sim.synchronize(stream)), (0, 0));

    let sim = Sim::hip("");
    let stream = sim.hip_stream();
    let mut host = std::ptr::null_mut::<c_void>();
    assert_eq!(
        call!(sim, hipHostMalloc(&mut host => *mut *mut c_void, 4096 => usize, 2 => u32)),
        0
    );
    // SAFETY: a page, which is never unmapped.
    let page: &[AtomicU64; 512] = unsafe { &*host.cast() };
    page[0].store(near, Ordering::Release);
    let waits = call!(sim, hipStreamWaitValue64(stream => Handle, host => *mut c_void, value => u64, 0 => u32, u64::MAX => u64));
    assert_eq!(waits, 0);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(call!(sim, hipStreamQuery(stream => Handle)), 600, "it did not wait");
    page[0].store(value, Ordering::Release);
    assert_eq!(call!(sim, hipStreamSynchronize(stream => Handle)), 0);
}

#[test]
fn hips_signal_memory_has_eight_bytes() {
    let sim = Sim::hip("");
    let mut signal = std::ptr::null_mut::<c_void>();
    let mut make = |bytes: usize| call!(sim, hipExtMallocWithFlags(&mut signal => *mut *mut c_void, bytes => usize, 2 => u32));
    assert_eq!((make(64), make(4), make(8)), (1, 1, 0));
    let stream = sim.hip_stream();
    let write = |at: *mut c_void| call!(sim, hipStreamWriteValue64(stream => Handle, at => *mut c_void, 3 => u64, 0 => u32));
    assert_eq!((write(signal), write(signal.wrapping_byte_add(8))), (0, 1));
}

#[test]
fn a_query_breaks_a_capture_and_a_store_in_one_is_replayed() {
    let sim = Sim::cuda("");
    let (stream, page) = (sim.stream(), sim.page());
    let begin = || assert_eq!(call!(sim, cuStreamBeginCapture_v2(stream => Handle, 2 => i32)), 0);
    let mut graph = 0;
    let status = || {
        let mut status = -1;
        assert_eq!(call!(sim, cuStreamIsCapturing(stream => Handle, &mut status => *mut i32)), 0);
        status
    };
    begin();
    assert_eq!(status(), 1);
    assert_eq!(sim.store(stream, &page[0], 5), 0);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(page[0].load(Ordering::Acquire), 0, "it ran in the capture");
    assert_eq!(call!(sim, cuStreamEndCapture(stream => Handle, &mut graph => *mut Handle)), 0);
    let mut exec = 0;
    assert_eq!(
        call!(sim, cuGraphInstantiateWithFlags(&mut exec => *mut Handle, graph => Handle, 0 => u64)),
        0
    );
    for _ in 0..2 {
        page[0].store(99, Ordering::Release);
        assert_eq!(call!(sim, cuGraphLaunch(exec => Handle, stream => Handle)), 0);
        assert_eq!(sim.synchronize(stream), 0);
        assert_eq!(page[0].load(Ordering::Acquire), 5, "a replay stores the same value");
    }
    begin();
    assert_eq!(sim.query(stream), 900);
    assert_eq!((status(), sim.store(stream, &page[0], 6)), (2, 901));
    assert_eq!(call!(sim, cuStreamEndCapture(stream => Handle, &mut graph => *mut Handle)), 901);
    assert_eq!((status(), sim.query(stream)), (0, 0));

    // In global mode a query of anything, on any thread that isn't relaxed, breaks it.
    let other = sim.stream();
    let event = sim.event(2);
    assert_eq!(call!(sim, cuStreamBeginCapture_v2(stream => Handle, 0 => i32)), 0);
    let mut mode = 2;
    assert_eq!(call!(sim, cuThreadExchangeStreamCaptureMode(&mut mode => *mut i32)), 0);
    assert_eq!((mode, call!(sim, cuEventQuery(event => Handle)), status()), (0, 0, 1));
    assert_eq!(call!(sim, cuThreadExchangeStreamCaptureMode(&mut mode => *mut i32)), 0);
    assert_eq!((sim.query(other), status()), (900, 2));
    assert_eq!(call!(sim, cuStreamEndCapture(stream => Handle, &mut graph => *mut Handle)), 901);

    // A release of HIP before the middle of 2026 stores at once.
    let sim = Sim::hip("");
    let stream = sim.hip_stream();
    let mut host = std::ptr::null_mut::<c_void>();
    assert_eq!(
        call!(sim, hipHostMalloc(&mut host => *mut *mut c_void, 4096 => usize, 2 => u32)),
        0
    );
    assert_eq!(call!(sim, hipStreamBeginCapture(stream => Handle, 2 => i32)), 0);
    assert_eq!(
        call!(sim, hipStreamWriteValue64(stream => Handle, host => *mut c_void, 4 => u64, 0 => u32)),
        0
    );
    // SAFETY: a page, which is never unmapped.
    assert_eq!(unsafe { &*host.cast::<AtomicU64>() }.load(Ordering::Acquire), 4);
}

static CALLED: AtomicU64 = AtomicU64::new(0);
static ANSWER: AtomicU64 = AtomicU64::new(u64::MAX);

unsafe extern "C" fn callback(query: *mut c_void) {
    CALLED.fetch_add(1, Ordering::AcqRel);
    if !query.is_null() {
        // SAFETY: the test gives the address of `cuCtxSynchronize`.
        let query = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(query) };
        ANSWER.store(query() as u64, Ordering::Release);
    }
}

#[test]
fn a_fault_stays_and_nothing_behind_it_happens() {
    let sim = Sim::cuda("");
    let (stream, other, page) = (sim.stream(), sim.stream(), sim.page());
    let event = sim.event(2);
    let host = |data: *mut c_void| call!(sim, cuLaunchHostFunc(other => Handle, callback as *const () as *mut c_void => *mut c_void, data => *mut c_void));
    // A host function may not call the driver.
    // SAFETY: only its address is used here.
    let synchronize = unsafe { *sim.library.get::<*mut c_void>(b"cuCtxSynchronize\0").unwrap() };
    assert_eq!((host(synchronize), sim.synchronize(other)), (0, 0));
    assert_eq!((CALLED.load(Ordering::Acquire), ANSWER.load(Ordering::Acquire)), (1, 800));

    assert_eq!(sim.spin(other, 5_000_000_000), 0);
    assert_eq!(host(std::ptr::null_mut()), 0);
    let fault = sim.function(c"fault");
    assert_eq!(sim.launch(fault, stream, &[]), 0);
    assert_eq!(sim.store(stream, &page[0], 1), 0);
    assert_eq!(call!(sim, cuEventRecord(event => Handle, stream => Handle)), 0);
    assert_eq!(sim.synchronize(stream), 700);
    assert_eq!(
        (sim.query(stream), sim.query(other), call!(sim, cuEventQuery(event => Handle))),
        (700, 700, 700)
    );
    assert_eq!((sim.store(other, &page[0], 1), sim.launch(fault, other, &[])), (700, 700));
    let mut more = 0;
    assert_eq!(call!(sim, cuStreamCreate(&mut more => *mut Handle, 0 => u32)), 700);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(page[0].load(Ordering::Acquire), 0, "a store came after the fault");
    assert_eq!(CALLED.load(Ordering::Acquire), 1, "a host function was called after the fault");
}

#[test]
fn a_full_stream_blocks_the_launch() {
    let sim = Sim::cuda("pending=8");
    let (stream, page) = (sim.stream(), sim.page());
    assert_eq!(sim.hold(stream, &page[8]), 0);
    let (full, opened) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while !full.load(Ordering::Acquire) && begun.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(40));
            opened.store(true, Ordering::Release);
            page[8].store(1, Ordering::Release);
        });
        (1..8).for_each(|value| assert_eq!(sim.store(stream, &page[0], value), 0));
        assert!(!opened.load(Ordering::Acquire), "blocked too soon");
        full.store(true, Ordering::Release);
        (8..=20).for_each(|value| assert_eq!(sim.store(stream, &page[0], value), 0));
        assert!(opened.load(Ordering::Acquire), "did not block");
    });
    assert_eq!((sim.synchronize(stream), page[0].load(Ordering::Acquire)), (0, 20));
}

#[test]
fn a_blocking_wait_sleeps_and_another_spins() {
    let sim = Sim::cuda("");
    let stream = sim.stream();
    let cost = |flags: u32| {
        let event = sim.event(flags);
        assert_eq!(sim.spin(stream, 60_000_000), 0);
        assert_eq!(call!(sim, cuEventRecord(event => Handle, stream => Handle)), 0);
        let before = thread_cpu();
        assert_eq!(call!(sim, cuEventSynchronize(event => Handle)), 0);
        thread_cpu() - before
    };
    let (spinning, blocking) = (cost(2), cost(3));
    assert!(blocking < spinning / 3, "{blocking:?} blocking, {spinning:?} spinning");
    // The context's flags decide for a stream.
    let cost = |flags: u32| {
        assert_eq!(call!(sim, cuDevicePrimaryCtxSetFlags_v2(0 => i32, flags => u32)), 0);
        assert_eq!(sim.spin(stream, 60_000_000), 0);
        let before = thread_cpu();
        assert_eq!(sim.synchronize(stream), 0);
        thread_cpu() - before
    };
    let (spinning, blocking) = (cost(0), cost(4));
    assert!(blocking < spinning / 3, "{blocking:?} blocking, {spinning:?} spinning");
}

#[test]
fn a_primary_context_is_counted_and_takes_its_memory_with_it() {
    let sim = Sim::cuda("");
    let (stream, page) = (sim.stream(), sim.page());
    let mut context = 0;
    assert_eq!(call!(sim, cuDevicePrimaryCtxRetain(&mut context => *mut Handle, 0 => i32)), 0);
    assert_eq!(call!(sim, cuDevicePrimaryCtxRelease_v2(0 => i32)), 0);
    assert_eq!((sim.store(stream, &page[0], 1), sim.synchronize(stream)), (0, 0));
    assert_eq!(call!(sim, cuDevicePrimaryCtxRelease_v2(0 => i32)), 0);
    assert_eq!(call!(sim, cuDevicePrimaryCtxRelease_v2(0 => i32)), 201);
    assert_eq!(sim.query(stream), 709);
    // SAFETY: the function has this type.
    let pages = unsafe {
        let tally = sim.library.get::<extern "C" fn(*const c_char) -> u64>(b"gpuDriverSimTally\0");
        tally.unwrap()(c"pages".as_ptr())
    };
    assert_eq!(pages, 0, "the page outlived its context");
    // A store that was accepted finds no page: a fault, and no write to somebody else's memory.
    let sim = Sim::cuda("");
    let (stream, page) = (sim.stream(), sim.page());
    assert_eq!(sim.spin(stream, 20_000_000), 0);
    assert_eq!(sim.store(stream, &page[0], 1), 0);
    assert_eq!(call!(sim, cuMemFreeHost(page.as_ptr() as *mut c_void => *mut c_void)), 0);
    assert_eq!(sim.synchronize(stream), 700);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let sim = Sim::cuda("");
    let (free, page) = (sim.stream(), sim.page());
    let mut blocking = 0;
    assert_eq!(call!(sim, cuStreamCreate(&mut blocking => *mut Handle, 0 => u32)), 0);
    assert_eq!(sim.hold(blocking, &page[8]), 0);
    assert_eq!(sim.store(0, &page[0], 1), 0);
    assert_eq!(sim.store(free, &page[1], 1), 0);
    assert_eq!(sim.synchronize(free), 0);
    assert_eq!((page[0].load(Ordering::Acquire), page[1].load(Ordering::Acquire)), (0, 1));
    page[8].store(1, Ordering::Release);
    assert_eq!(sim.synchronize(0), 0);
    assert_eq!((page[0].load(Ordering::Acquire), sim.query(blocking)), (1, 0));
    assert_eq!(sim.spin(1, 50_000_000), 0);
    assert_eq!(sim.store(blocking, &page[2], 1), 0);
    assert_eq!(
        (sim.synchronize(blocking), sim.query(0)),
        (0, 0),
        "it did not wait for the legacy stream"
    );
}

#[test]
fn events_order_streams_and_tell_times() {
    let sim = Sim::cuda("");
    let (first, second, page) = (sim.stream(), sim.stream(), sim.page());
    let (begin, end) = (sim.event(0), sim.event(0));
    assert_eq!(call!(sim, cuEventQuery(begin => Handle)), 0, "one never recorded is done");
    assert_eq!(call!(sim, cuEventRecord(begin => Handle, first => Handle)), 0);
    assert_eq!((sim.hold(first, &page[8]), sim.spin(first, 30_000_000)), (0, 0));
    assert_eq!(call!(sim, cuEventRecord(end => Handle, first => Handle)), 0);
    assert_eq!(call!(sim, cuStreamWaitEvent(second => Handle, end => Handle, 0 => u32)), 0);
    assert_eq!(sim.store(second, &page[0], 1), 0);
    assert_eq!(
        (call!(sim, cuEventQuery(end => Handle)), page[0].load(Ordering::Acquire)),
        (600, 0)
    );
    page[8].store(1, Ordering::Release);
    assert_eq!((sim.synchronize(second), call!(sim, cuEventQuery(end => Handle))), (0, 0));
    let mut ms = 0f32;
    assert_eq!(
        call!(sim, cuEventElapsedTime(&mut ms => *mut f32, begin => Handle, end => Handle)),
        0
    );
    assert!((29.0..30_000.0).contains(&ms), "{ms} ms");
    let untimed = sim.event(2);
    assert_eq!(
        call!(sim, cuEventElapsedTime(&mut ms => *mut f32, begin => Handle, untimed => Handle)),
        400
    );
}

#[test]
fn copies_and_fills_are_done_in_turn() {
    let sim = Sim::cuda("");
    let (stream, page) = (sim.stream(), sim.page());
    let (mut device, from) = (0, [7u64, 8, 9]);
    assert_eq!(call!(sim, cuMemAlloc_v2(&mut device => *mut u64, 64 => usize)), 0);
    assert_eq!(sim.hold(stream, &page[8]), 0);
    assert_eq!(
        call!(sim, cuMemcpyHtoDAsync_v2(device => u64, from.as_ptr() => *const u64, 24 => usize, stream => Handle)),
        0
    );
    assert_eq!(
        call!(sim, cuMemsetD8Async(device + 8 => u64, 0xFF => u8, 8 => usize, stream => Handle)),
        0
    );
    assert_eq!(
        call!(sim, cuMemcpyDtoHAsync_v2(page.as_ptr() as *mut c_void => *mut c_void, device => u64, 24 => usize, stream => Handle)),
        0
    );
    assert_eq!(page[0].load(Ordering::Acquire), 0);
    page[8].store(1, Ordering::Release);
    assert_eq!(sim.synchronize(stream), 0);
    let found = [0, 1, 2].map(|i: usize| page[i].load(Ordering::Acquire));
    assert_eq!(found, [7, u64::MAX, 9]);
    assert_eq!(call!(sim, cuMemFree_v2(device => u64)), 0);
    assert_eq!(
        call!(sim, cuMemsetD8Async(device => u64, 0 => u8, 8 => usize, stream => Handle)),
        1
    );
}

#[test]
fn a_pool_counts_what_it_gave_and_keeps_what_it_may() {
    const PIECE: u64 = 2 << 20;
    let sim = Sim::cuda("");
    let stream = sim.stream();
    let attribute = |pool: Handle, which: i32| {
        let mut value = 0u64;
        assert_eq!(
            call!(sim, cuMemPoolGetAttribute(pool => Handle, which => i32, &mut value => *mut u64)),
            0
        );
        value
    };
    let set = |pool: Handle, which: i32, mut value: u64| call!(sim, cuMemPoolSetAttribute(pool => Handle, which => i32, &mut value => *mut u64));
    let counts = |pool| [5, 6, 7, 8].map(|which| attribute(pool, which));
    let props = |device: i32, place: i32| {
        let mut props = [0i32; 22];
        props[..4].copy_from_slice(&[1, 0, place, device]);
        props
    };
    let (mut pool, mut whole, mut memory) = (0, 0, 0u64);
    let create = |pool: &mut Handle, props: [i32; 22]| call!(sim, cuMemPoolCreate(pool => *mut Handle, props.as_ptr() => *const i32));
    assert_eq!((create(&mut pool, props(9, 1)), create(&mut pool, props(0, 2))), (101, 801));
    assert_eq!(create(&mut pool, props(0, 1)), 0);
    assert_eq!(call!(sim, cuDeviceGetDefaultMemPool(&mut whole => *mut Handle, 0 => i32)), 0);
    assert_ne!(pool, whole);
    let allocate = |memory: &mut u64| call!(sim, cuMemAllocFromPoolAsync(memory => *mut u64, 1000 => usize, pool => Handle, stream => Handle));
    let free = |memory: u64| {
        assert_eq!(call!(sim, cuMemFreeAsync(memory => u64, stream => Handle)), 0);
        assert_eq!(sim.synchronize(stream), 0);
    };
    assert_eq!(allocate(&mut memory), 0);
    assert_eq!((counts(pool), counts(whole)), ([PIECE, PIECE, 1000, 1000], [0; 4]));
    free(memory);
    assert_eq!(counts(pool), [0, PIECE, 0, 1000]);
    // Below the threshold it is kept.
    assert_eq!((set(pool, 4, u64::MAX), allocate(&mut memory)), (0, 0));
    free(memory);
    assert_eq!(counts(pool), [PIECE, PIECE, 0, 1000]);
    // A high mark is set back by a zero only, and what is can't be set.
    assert_eq!((set(pool, 8, 5), set(pool, 7, 0), set(pool, 8, 0)), (1, 1, 0));
    assert_eq!(counts(pool), [PIECE, PIECE, 0, 0]);
    assert_eq!(
        call!(sim, cuMemAllocAsync(&mut memory => *mut u64, 8 => usize, stream => Handle)),
        0
    );
    assert_eq!((attribute(whole, 7), attribute(pool, 7)), (8, 0));
    assert_eq!(call!(sim, cuMemPoolDestroy(whole => Handle)), 1);
    assert_eq!(call!(sim, cuMemPoolDestroy(pool => Handle)), 0);
    assert_eq!(allocate(&mut memory), 400);
}

#[test]
fn kernels_are_known_by_name() {
    let sim = Sim::cuda("");
    let (stream, page) = (sim.stream(), sim.page());
    let (mut out, mut words, mut seed, mut ns) = (address(&page[0]), 2u32, 5u64, 1_000u64);
    let step = sim.function(c"step");
    let parameters = [
        (&raw mut out).cast(),
        (&raw mut words).cast(),
        (&raw mut seed).cast(),
        (&raw mut ns).cast(),
    ];
    assert_eq!((sim.launch(step, stream, &parameters), sim.synchronize(stream)), (0, 0));
    let found = [0, 1, 2].map(|i: usize| page[i].load(Ordering::Acquire));
    assert!(found[0] != 0 && found[1] != found[0] && found[2] == 0, "{found:?}");
    let unknown = sim.function(c"unknown");
    assert_eq!(sim.launch(unknown, stream, &[]), 801);
    let (mut module, mut function) = (0, 0);
    let load = |module: &mut Handle, text: &CStr| call!(sim, cuModuleLoadData(module => *mut Handle, text.as_ptr() => *const c_char));
    assert_eq!((load(&mut module, c"not PTX"), load(&mut module, PTX)), (200, 0));
    let none = call!(sim, cuModuleGetFunction(&mut function => *mut Handle, module => Handle, c"none".as_ptr() => *const c_char));
    assert_eq!(none, 500);
    let trap = sim.function(c"trapped");
    assert_eq!((sim.launch(trap, stream, &[]), sim.synchronize(stream)), (0, 719));
}

#[test]
fn a_copy_without_an_entry_point_loads_and_lacks_it() {
    let folder = tempfile::tempdir().unwrap();
    let path =
        install(folder.path(), Vendor::Cuda, &["cuStreamWriteValue64_v2", "cuInit"]).unwrap();
    // SAFETY: the simulated driver has no initialisers.
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    // SAFETY: only looked up.
    let has = |name: &[u8]| unsafe { library.get::<*mut c_void>(name) }.is_ok();
    assert!(has(b"cuStreamWriteValue64\0") && has(b"hipInit\0"));
    assert!(!has(b"cuStreamWriteValue64_v2\0") && !has(b"cuInit\0"));
    let unknown = install(folder.path(), Vendor::Cuda, &["cuNothing"]).unwrap_err();
    assert_eq!(unknown.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_machine_of_two_processes_is_refused_in_the_child() {
    let sim = Sim::cuda("");
    let stream = sim.stream();
    // SAFETY: the child makes one call that takes no lock, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = sim.query(stream) == 3 && call!(sim, cuInit(0 => u32)) == 3;
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: our own child, which makes two calls and ends.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(sim.query(stream), 0);
}
