//! Invariant 11 on a Vulkan queue: once warm, neither a submit nor a wait for it touches the allocator.
//! What the driver takes from the C library's own isn't counted.

use gpu_async_reactor::backend::vulkan::VulkanDevice;
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;
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
    let device = match VulkanDevice::open_best() {
        Ok(device) => device,
        Err(error) => {
            let required = std::env::var_os("GPU_REACTOR_REQUIRE_VULKAN");
            assert!(required.is_none_or(|value| value != "1"), "a device is required: {error}");
            eprintln!("SKIPPED a_warm_submit_and_its_wait_allocate_nothing: {error}");
            return;
        }
    };
    let clock = StdClock::new();
    let mut queue = device.queue().unwrap();
    let line = queue.line().clone();
    let mut job = device.kernel().unwrap().job(64).unwrap();
    let mut round = |plan: &WaitPlan, seed| {
        queue.run(&mut job, seed, 1_000).unwrap();
        let idle = OnThread(StdIdle::new(clock, None));
        let mut port = QueuePort::new(&mut queue, (*line).as_ref(), idle, clock);
        run_inline(wait(plan, None, &mut port, &clock, &clock)).unwrap();
        assert!(job.verify(seed, 1_000).unwrap());
    };
    for text in ["block", "poll", "flag:park_us=100,backstop_us=5000"] {
        let plan: WaitPlan = text.parse().unwrap();
        (0..20).for_each(|seed| round(&plan, seed));
        let before = COUNT.load(Ordering::Relaxed);
        (0..200).for_each(|seed| round(&plan, seed));
        assert_eq!(COUNT.load(Ordering::Relaxed) - before, 0, "{text}: allocations in 200 rounds");
    }
}
