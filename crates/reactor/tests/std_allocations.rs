//! Invariant 11 on the std host: once warm, neither a watch nor its thread touches the allocator, nor
//! does a wait on an idling thread.

use gpu_async_reactor::host::std_host::{StdClock, StdIdle, Watcher};
use gpu_async_reactor::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

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

/// Wakes this thread, as `block_on` of any small runtime does.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F, waker: &Waker) -> F::Output {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(std::time::Duration::from_secs(20)),
        }
    }
}

// One test, for the count is the whole process's.
#[test]
fn a_warm_watch_and_a_warm_wait_allocate_nothing() {
    let watcher = Watcher::new(None);
    let line = Arc::new(CompletionLine::new());
    let slot = Slot::ALL[5];
    // The stores come from another thread, so that each watch really is registered and woken.
    let device = {
        let line = line.clone();
        std::thread::spawn(move || {
            while line.load(Slot::ALL[0]) == 0 {
                let wanted = line.load(Slot::ALL[1]);
                if wanted > line.load(slot) {
                    std::thread::sleep(std::time::Duration::from_micros(100));
                    line.store(slot, wanted);
                }
                std::thread::yield_now();
            }
        })
    };
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let clock = StdClock::new();
    let mut idle = StdIdle::new(clock, None);
    let mut one = |number: u64| {
        line.store(Slot::ALL[1], 2 * number - 1);
        block_on(watcher.watch(line.clone(), slot, 2 * number - 1), &waker);
        line.store(Slot::ALL[1], 2 * number);
        let ready = |line: &CompletionLine| line.load(slot) >= 2 * number;
        assert!(idle.park_line(&line, ready, DurNs::from_ms(20_000)));
    };
    (1..=200).for_each(&mut one);
    let warm = COUNT.load(Ordering::Relaxed);
    assert!(warm > 0, "the allocator is counted");
    (201..=700).for_each(&mut one);
    assert_eq!(
        COUNT.load(Ordering::Relaxed) - warm,
        0,
        "allocations in 500 warm watches and waits"
    );
    line.store(Slot::ALL[0], 1);
    device.join().unwrap();
}
