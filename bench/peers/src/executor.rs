//! Suite `executor`: what a wake and the poll that follows cost, a yield, and a task's life.

use crate::measure::{Bench, Subject, subject};
use crate::runtimes::*;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes itself so many times, then ends.
struct SelfWake {
    left: u64,
    latch: Latch,
}

impl Future for SelfWake {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.left == 0 {
            self.latch.done();
            return Poll::Ready(());
        }
        self.left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[derive(Default)]
struct Ring {
    wakers: Vec<Option<Waker>>,
    arrived: usize,
}

/// Wakes the next task of its ring through a waker it left there, so many times, then ends.
struct Relay {
    left: u64,
    ring: Rc<RefCell<Ring>>,
    place: usize,
    latch: Latch,
}

impl Future for Relay {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let ring = &mut *this.ring.borrow_mut();
        if ring.wakers[this.place].is_none() {
            ring.wakers[this.place] = Some(cx.waker().clone());
            ring.arrived += 1;
            // The last one to arrive starts the relay.
            if ring.arrived < ring.wakers.len() {
                return Poll::Pending;
            }
        }
        let next = (this.place + 1) % ring.wakers.len();
        if let Some(waker) = &ring.wakers[next] {
            waker.wake_by_ref();
        }
        if this.left == 0 {
            this.latch.done();
            return Poll::Ready(());
        }
        this.left -= 1;
        Poll::Pending
    }
}

/// Gives way so many times as the async functions of most libraries do.
async fn yields(times: u64, latch: Latch) {
    for _ in 0..times {
        gpu_async_reactor::yield_now().await;
    }
    latch.done();
}

fn wake_poll<'a, R: Runtime>(tasks: usize, wakes: u64) -> Subject<'a> {
    subject(R::NAME, move || {
        let took = R::run(1, tasks, |_, latch| SelfWake { left: wakes, latch });
        (took, tasks as u64 * wakes)
    })
}

fn relay<'a, R: Runtime>(tasks: usize, laps: u64) -> Subject<'a> {
    subject(R::NAME, move || {
        let ring = Ring { wakers: vec![None; tasks], arrived: 0 };
        let ring = Rc::new(RefCell::new(ring));
        let took =
            R::run(1, tasks, |place, latch| Relay { left: laps, ring: ring.clone(), place, latch });
        (took, tasks as u64 * laps)
    })
}

fn yielding<'a, R: Runtime>(times: u64) -> Subject<'a> {
    subject(R::NAME, move || (R::run(1, 64, |_, latch| yields(times, latch)), times * 64))
}

fn spawn<'a, R: Runtime>(batches: usize) -> Subject<'a> {
    subject(R::NAME, move || {
        let took = R::run(batches, 1_000, |_, latch| async move { latch.done() });
        (took, batches as u64 * 1_000)
    })
}

/// The same case for each executor.
macro_rules! each {
    ($case:ident($($args:expr),*)) => {{
        #[cfg_attr(not(feature = "heavy"), expect(unused_mut))]
        let mut subjects = vec![
            $case::<Ours>($($args),*),
            $case::<OursDyn>($($args),*),
            $case::<Embassy>($($args),*),
            $case::<TokioLocalSet>($($args),*),
            $case::<FuturesUnordered>($($args),*),
            $case::<LocalPool>($($args),*),
            $case::<AsyncExecutor>($($args),*),
            $case::<Compio>($($args),*),
        ];
        #[cfg(feature = "heavy")]
        subjects.extend([$case::<Monoio>($($args),*), $case::<Glommio>($($args),*)]);
        subjects
    }};
}

pub fn run(bench: &Bench) {
    let scale = bench.scale;
    bench.compare("executor", "wake_poll_1", each!(wake_poll(1, 1_000_000 / scale)));
    bench.compare("executor", "wake_poll_1000", each!(wake_poll(1_000, 1_000 / scale)));
    bench.compare("executor", "relay_2", each!(relay(2, 300_000 / scale)));
    bench.compare("executor", "relay_1000", each!(relay(1_000, 600 / scale)));
    bench.compare("executor", "yield", each!(yielding(10_000 / scale)));
    bench.compare("executor", "spawn_finish", each!(spawn((300 / scale) as usize)));
    crate::wake::cross_thread(bench);
}
