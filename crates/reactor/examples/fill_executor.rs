//! One thread fills the wait for a device with work of its own.
//!
//! Another thread stands for the device: it stores into a line 2, 4 and 6 ms after the start. Three
//! tasks await one slot each, and a fourth works in slices in between. No GPU is needed.

use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;
use std::cell::Cell;
use std::time::Duration;

const SLICE: DurNs = DurNs::from_us(20);

fn main() -> Result<()> {
    let line = CompletionLine::new();
    let clock = StdClock::new();
    let reactor = Reactor::new(clock);
    let worked = Cell::new(DurNs(0));
    let start = clock.monotonic_ns();

    let stats = std::thread::scope(|scope| {
        scope.spawn(|| {
            for (slot, after_ms) in Slot::ALL.into_iter().zip([2, 4, 6]) {
                std::thread::sleep(
                    Duration::from(DurNs::from_ms(after_ms))
                        .saturating_sub(Duration::from(clock.monotonic_ns().since(start))),
                );
                line.store(slot, 1);
            }
        });

        let mut executor = DynExecutor::new();
        let (reactor, worked) = (&reactor, &worked);
        let waits: Vec<_> = Slot::ALL[..3]
            .iter()
            .map(|&slot| {
                let work = MemoryDescriptor::new(&line, slot, 1);
                executor.spawn_dyn(async move {
                    reactor.ready(work, None).await;
                    let at = reactor.clock().monotonic_ns().since(start);
                    println!("slot {} completed, seen after {at}", slot.index());
                })
            })
            .collect();
        executor.spawn_dyn(async move {
            // Works for as long as somebody waits, and gives way after each slice.
            while waits.iter().any(|wait| !wait.is_finished()) {
                let begin = clock.monotonic_ns();
                let mut sum = 0u64;
                while clock.monotonic_ns().since(begin) < SLICE {
                    sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
                }
                worked.set(DurNs(worked.get().0 + clock.monotonic_ns().since(begin).0));
                yield_now().await;
            }
        });
        executor.run(reactor, &mut StdIdle::new(clock, None), DurNs::from_us(200))
    })?;

    let waited = clock.monotonic_ns().since(start);
    let share = 100.0 * worked.get().0 as f64 / waited.0 as f64;
    println!("waited {waited}, worked {} of it: {share:.1} % of the wait was filled", worked.get());
    println!("{} polls, {} idle", stats.polls, DurNs(stats.idle_ns));
    Ok(())
}
