//! Invariant 11 on CUDA and HIP queues: once warm, neither a submit nor a wait for it touches the allocator.
//! The simulated driver has an allocator of its own, which isn't counted.

mod driver;

use driver::suite::{Machine, PATIENCE, Tested, machine, wait_for};
use gpu_async_reactor::backend::cuda::Cuda;
use gpu_async_reactor::backend::hip::Hip;
use gpu_async_reactor::backend::mapped::StepKernel;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what every thread of the process allocates.
struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: each call is the system allocator's own, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above; what is freed came from `alloc`, thus from the system allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_submit_and_its_wait_allocate_nothing() {
    rounds::<Cuda>();
    rounds::<Hip>();
}

fn rounds<V: Tested>() {
    let Machine { device, sim: _sim } = machine::<V>("");
    let kernel = StepKernel::new(&device).unwrap();
    let (mut queue, mut job) = (device.queue().unwrap(), kernel.job().unwrap());
    for plan in ["block", "poll", "flag:park_us=100,backstop_us=5000"] {
        let mut round = |seed| {
            job.run(&mut queue, seed, 20_000).unwrap();
            wait_for(&mut queue, plan, None, PATIENCE).unwrap();
            assert!(job.verify(seed));
        };
        (0..20).for_each(&mut round);
        let before = COUNT.load(Ordering::Relaxed);
        (0..200).for_each(&mut round);
        let count = COUNT.load(Ordering::Relaxed) - before;
        assert_eq!(count, 0, "{}, {plan}: allocations in 200 rounds", V::NAME);
    }
}
