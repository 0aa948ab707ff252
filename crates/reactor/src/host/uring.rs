//! A thread that idles in io_uring: each sleep is one `IORING_OP_TIMEOUT`, ended from other threads
//! through an eventfd that the ring polls.
//!
//! Upholds invariants 3, 4 (marked asleep by a word that a waker swaps) and 12.
//!
//! No operation carries a buffer or a pointer that outlives its submission, so dropping the ring with
//! operations in flight is safe.

use super::std_host::{Napper, Naps, StdClock};
use crate::backend::wordwait::WordWait;
use crate::{Clock, CompletionLine, DurNs, Idle, LineSet, MonoNs, Result, error};
use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Marks the eventfd's completions; timeouts carry the sleep's number.
const DOOR: u64 = u64::MAX;
/// Marks completions that nobody waits for.
const NOBODY: u64 = u64::MAX - 1;
/// What the kernel says for a timeout that came to its end (`ETIME`), and for one that was taken back
/// (`ECANCELED`).
const CAME: i32 = -62;
const TAKEN_BACK: i32 = -125;

/// An [`Idle`] of the thread that made it, over a ring of its own.
pub struct UringIdle {
    ring: IoUring,
    door: Arc<Door>,
    unparker: Waker,
    clock: StdClock,
    word_wait: Option<WordWait>,
    napper: Napper,
    /// The number of the last sleep.
    sleeps: u64,
    refused: u64,
    /// The ring polls the eventfd.
    door_polled: bool,
}

/// What other threads see of the idle.
struct Door {
    fd: OwnedFd,
    state: AtomicU8,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

impl Wake for Door {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            // Full is as good as written: it is readable.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

impl UringIdle {
    /// An idle of the calling thread.
    ///
    /// # Errors
    ///
    /// `System` when the kernel has no io_uring or forbids it.
    pub fn new(clock: StdClock, word_wait: Option<WordWait>) -> Result<UringIdle> {
        let ring =
            IoUring::new(8).map_err(|e| error!(System, "setting up io_uring", e.to_string()))?;
        UringIdle::over(ring, clock, word_wait)
    }

    fn over(ring: IoUring, clock: StdClock, word_wait: Option<WordWait>) -> Result<UringIdle> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| error!(System, "making an eventfd", e.to_string()))?;
        let door = Arc::new(Door { fd, state: AtomicU8::new(AWAKE) });
        let unparker = Waker::from(door.clone());
        let (napper, door_polled) = (Napper::new(Naps::default()), false);
        let (sleeps, refused) = (0, 0);
        Ok(UringIdle {
            ring,
            door,
            unparker,
            clock,
            word_wait,
            napper,
            sleeps,
            refused,
            door_polled,
        })
    }

    /// Timeouts that the kernel refused so far; the thread slept without the ring in their place.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Sleeps until `at`, or until another thread rings.
    fn sleep(&mut self, at: MonoNs) {
        // Invariant 4: asleep is said before the last look, which is the exchange itself.
        if self.door.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            == Err(RUNG)
        {
            self.door.state.store(AWAKE, Ordering::Release);
            return;
        }
        self.sleeps += 1;
        let slept = self.in_ring(at);
        if self.door.state.swap(AWAKE, Ordering::AcqRel) == RUNG {
            let _ = rustix::io::read(&self.door.fd, &mut [0u8; 8]);
        } else if !slept {
            self.refused += 1;
            let left = at.since(self.clock.monotonic_ns());
            std::thread::sleep(Duration::from(left.min(DurNs::from_ms(1_000))));
        }
    }

    /// Sleeps in the ring: whether it took the operations.
    fn in_ring(&mut self, at: MonoNs) -> bool {
        // The kernel copies it when the entry is submitted.
        let time =
            types::Timespec::new().sec(at.0 / 1_000_000_000).nsec((at.0 % 1_000_000_000) as u32);
        let mut wanted = Vec::new();
        if !self.door_polled {
            let fd = types::Fd(self.door.fd.as_raw_fd());
            wanted.push(opcode::PollAdd::new(fd, POLLIN).build().user_data(DOOR));
        }
        if at != MonoNs::MAX {
            let timeout = opcode::Timeout::new(&time).flags(types::TimeoutFlags::ABS);
            wanted.push(timeout.build().user_data(self.sleeps));
        }
        for entry in &wanted {
            // SAFETY: the entries point at nothing but the time, which lives through the submission,
            // and name a descriptor that the idle owns.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                return false;
            }
        }
        let timed = at != MonoNs::MAX;
        self.door_polled = true;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                // A signal: asked again; what is submitted stays so.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            }
            let (mut came, mut refused, mut rung) = (false, false, false);
            for done in self.ring.completion() {
                match (done.user_data(), done.result()) {
                    (DOOR, result) => {
                        self.door_polled = false;
                        rung = true;
                        refused |= result < 0;
                    }
                    (sleep, CAME | TAKEN_BACK) if sleep == self.sleeps => came = true,
                    (sleep, _) if sleep == self.sleeps => refused = true,
                    _ => {} // of an earlier sleep
                }
            }
            if refused {
                return false;
            }
            if came {
                return true;
            }
            if rung {
                if timed {
                    self.take_back();
                }
                return true;
            }
        }
    }

    /// Takes back the timeout of a sleep that ended early; submitted with the next sleep.
    fn take_back(&mut self) {
        let remove = opcode::TimeoutRemove::new(self.sleeps).build().user_data(NOBODY);
        // SAFETY: the entry points at nothing. With no room the timeout comes to its end unheard.
        let _ = unsafe { self.ring.submission().push(&remove) };
    }

    fn park(&mut self, ready: impl Fn() -> bool, bound: DurNs) -> bool {
        // Taken out for the while: a nap needs the ring.
        let mut napper = std::mem::replace(&mut self.napper, Napper::new(Naps::default()));
        let seen = napper.park(self.clock, ready, bound, |now, nap| self.sleep(now + nap));
        self.napper = napper;
        seen
    }
}

const POLLIN: u32 = 1;

impl Idle for UringIdle {
    fn sleep_until(&mut self, at: MonoNs) {
        if at > self.clock.monotonic_ns() {
            self.sleep(at);
        }
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        match self.word_wait {
            Some(word_wait) => word_wait.park(line, ready, bound),
            None => self.park(|| ready(line), bound),
        }
    }

    fn park_lines(&mut self, set: &LineSet<'_>, bound: DurNs) -> bool {
        let mut lines = set.lines();
        match (self.word_wait, lines.next(), lines.next()) {
            (Some(word_wait), Some(only), None) => {
                word_wait.park(only.line(), |_| set.any_ready(), bound)
            }
            _ => self.park(|| set.any_ready(), bound),
        }
    }

    fn unparker(&self) -> Option<&Waker> {
        Some(&self.unparker)
    }
}

impl std::fmt::Debug for UringIdle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sleeps, refused) = (self.sleeps, self.refused);
        f.debug_struct("UringIdle")
            .field("sleeps", &sleeps)
            .field("refused", &refused)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_refused_timeout_is_counted_and_slept_through() {
        let test = "a_refused_timeout_is_counted_and_slept_through";
        let ring = match IoUring::builder().setup_r_disabled().build(8) {
            Ok(ring) => ring,
            Err(e) => return eprintln!("SKIPPED {test}: io_uring: {e}"),
        };
        // A ring that takes polls and nothing else.
        let mut only = [io_uring::register::Restriction::sqe_op(opcode::PollAdd::CODE)];
        let restricted = ring.submitter().register_restrictions(&mut only);
        if let Err(e) = restricted.and_then(|()| ring.submitter().register_enable_rings()) {
            return eprintln!("SKIPPED {test}: restricting a ring: {e}");
        }
        let clock = StdClock::new();
        let mut idle = UringIdle::over(ring, clock, None).unwrap();
        for refused in 1..=3 {
            let at = clock.monotonic_ns() + DurNs::from_ms(3);
            idle.sleep_until(at);
            assert!(clock.monotonic_ns() >= at);
            assert_eq!(idle.refused(), refused);
        }
    }

    #[test]
    fn sleeps_ended_early_leave_no_timeout_that_ends_a_later_one() {
        let test = "sleeps_ended_early_leave_no_timeout_that_ends_a_later_one";
        let clock = StdClock::new();
        let mut idle = match UringIdle::new(clock, None) {
            Ok(idle) => idle,
            Err(e) => return eprintln!("SKIPPED {test}: {e}"),
        };
        let unparker = idle.unparker().unwrap().clone();
        for _ in 0..20 {
            let ringer = {
                let unparker = unparker.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(1));
                    unparker.wake();
                })
            };
            let start = Instant::now();
            idle.sleep_until(clock.monotonic_ns() + DurNs::from_ms(60_000));
            assert!(start.elapsed() < Duration::from_secs(20));
            ringer.join().unwrap();
        }
        let at = clock.monotonic_ns() + DurNs::from_ms(30);
        idle.sleep_until(at);
        assert!(clock.monotonic_ns() >= at, "an old timeout or an old ring ended the sleep");
        assert_eq!(idle.refused(), 0);
    }
}
