//! The core on a machine with nothing: its own clock, its own idle, its own allocator.
//!
//! That this links is the proof that no dependency brings the standard library in: a second panic
//! handler would be refused.

#![no_std]

extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use gpu_async_reactor_core::*;

/// Hands out an array from one end to the other, and takes nothing back.
struct Bump {
    used: AtomicUsize,
    memory: UnsafeCell<[u8; 1 << 16]>,
}

// SAFETY: each allocation is a part of the array that no other one has, claimed atomically.
unsafe impl Sync for Bump {}

// SAFETY: a block is aligned and inside the array, or null; none is handed out twice.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let needed = layout.size() + layout.align();
        let start = self.used.fetch_add(needed, Ordering::Relaxed);
        if start + needed > 1 << 16 {
            return core::ptr::null_mut();
        }
        let base = self.memory.get().cast::<u8>();
        // SAFETY: `start + needed` is within the array, as checked.
        let block = unsafe { base.add(start) };
        // SAFETY: aligning moves by less than `align`, which `needed` has room for.
        unsafe { block.add(block.align_offset(layout.align())) }
    }
    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static MEMORY: Bump = Bump { used: AtomicUsize::new(0), memory: UnsafeCell::new([0; 1 << 16]) };

#[panic_handler]
fn stop(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// A tick counter that an interrupt would count up; here each reading does.
struct Ticks<'t>(&'t AtomicU64);

impl Clock for Ticks<'_> {
    fn monotonic_ns(&self) -> MonoNs {
        MonoNs(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Spins, as a machine without a wait instruction does.
struct Spin<'t>(&'t AtomicU64);

impl Idle for Spin<'_> {
    fn sleep_until(&mut self, at: MonoNs) {
        self.0.fetch_max(at.0, Ordering::Relaxed);
    }
    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.0.fetch_add(bound.0, Ordering::Relaxed);
        ready(line)
    }
}

/// Runs two waits to their end: 0 when both ended as they should.
#[unsafe(no_mangle)]
pub extern "C" fn probe() -> i32 {
    let ticks = AtomicU64::new(0);
    let line = CompletionLine::new();
    let reactor = Reactor::new(Ticks(&ticks));
    let mut executor = DynExecutor::new();
    executor.spawn_dyn(async {
        reactor.alarm(MonoNs(1_000)).await;
        line.store(Slot::ALL[0], 1);
    });
    let seen = executor.spawn_dyn(async {
        reactor.ready(MemoryDescriptor::new(&line, Slot::ALL[0], 1), None).await
    });
    let ran = executor.run(&reactor, &mut Spin(&ticks), DurNs(100));
    i32::from(ran.is_err() || run_inline(seen) != Ok(true))
}
