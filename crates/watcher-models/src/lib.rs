//! The watcher's own files, compiled with loom's locks and atomics, and the models that run them in every
//! interleaving: `cargo xtask loom`. Without `--cfg loom` there is nothing here.
#![cfg(loom)]
#![allow(dead_code)] // the files serve more than the models use

pub(crate) use gpu_async_reactor_core::{DurNs, MonoNs};

#[path = "../../reactor/src/watcher/door.rs"]
mod door;
#[path = "../../reactor/src/watcher/entry.rs"]
mod entry;
#[path = "../../reactor/src/watcher/inbox.rs"]
mod inbox;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    pub(super) use loom::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

#[cfg(test)]
mod tests {
    use super::door::Asleep;
    use super::entry::{Entry, Phase};
    use super::inbox::{Inbox, Posted};
    use super::sync::{AtomicU64, Ordering};
    use crate::MonoNs;
    use loom::sync::{Arc, Notify};
    use loom::thread;
    use std::sync::atomic::AtomicU32;
    use std::task::{Wake, Waker};

    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    fn counted() -> (std::sync::Arc<Count>, Waker) {
        let count = std::sync::Arc::new(Count(AtomicU32::new(0)));
        (count.clone(), Waker::from(count))
    }
    fn woken(count: &Count) -> u32 {
        count.0.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// The wake word against the park: whoever posts is heard, or the thread sleeps for ever and loom
    /// says deadlock.
    #[test]
    fn loom_the_wake_word_against_the_park() {
        loom::model(|| {
            let shared = Arc::new((
                AtomicU64::new(0),
                Asleep::new(),
                Notify::new(),
                Inbox::<u32, ()>::new(),
            ));
            let poster = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (word, asleep, kernel, inbox) = &*shared;
                    assert_eq!(inbox.arrive(|_| 7), Some(7));
                    asleep.poke(word, MonoNs(5), || kernel.notify());
                })
            };
            let (word, asleep, kernel, inbox) = &*shared;
            let mut taken = Posted::new();
            loop {
                let seen = word.load(Ordering::Acquire);
                inbox.empty(&mut taken, false);
                if taken.arrivals.pop() == Some(7) {
                    break;
                }
                if asleep.about_to_sleep(word, seen, MonoNs::MAX) {
                    kernel.wait();
                }
                asleep.awake();
            }
            poster.join().unwrap();
        });
    }

    /// A sleep that ends by itself before what was posted is due is left to do so.
    #[test]
    fn loom_the_wake_word_against_a_sleep_that_ends_in_time() {
        loom::model(|| {
            let (word, asleep) = (Arc::new(AtomicU64::new(0)), Arc::new(Asleep::new()));
            let poster = {
                let (word, asleep) = (word.clone(), asleep.clone());
                thread::spawn(move || asleep.poke(&word, MonoNs(5), || panic!("woken for nothing")))
            };
            let slept = asleep.about_to_sleep(&word, 0, MonoNs(5));
            asleep.awake();
            poster.join().unwrap();
            assert!(slept || word.load(Ordering::Acquire) == 1);
        });
    }

    /// A future that leaves its waker and looks at the word, against a watcher that sees the word and
    /// ends the wait: woken, or it saw the result itself.
    #[test]
    fn loom_registering_against_the_completion() {
        loom::model(|| {
            let word = Arc::new(AtomicU64::new(0));
            let entry = Arc::new(Entry::<(), u32>::new());
            let (first, waker) = counted();
            {
                let mut state = entry.hold();
                state.phase = Phase::Waiting;
                state.waker = Some(waker);
            }
            let watcher = {
                let (word, entry) = (word.clone(), entry.clone());
                thread::spawn(move || {
                    word.store(1, Ordering::Release);
                    if let Some(waker) = entry.finish(5) {
                        waker.wake();
                    }
                })
            };
            // Polled again, with another waker.
            let (second, waker) = counted();
            let done = {
                let mut state = entry.hold();
                match state.phase {
                    Phase::Done(result) => Some(result),
                    _ => {
                        state.waker = Some(waker);
                        None
                    }
                }
            };
            watcher.join().unwrap();
            match done {
                Some(result) => assert_eq!((result, woken(&first)), (5, 1)),
                None => assert_eq!((woken(&first), woken(&second)), (0, 1)),
            }
        });
    }

    /// A dropped future against its completion: never woken once it left.
    #[test]
    fn loom_cancelling_against_the_completion() {
        loom::model(|| {
            let entry = Arc::new(Entry::<(), u32>::new());
            let (count, waker) = counted();
            {
                let mut state = entry.hold();
                state.phase = Phase::Waiting;
                state.waker = Some(waker);
            }
            let watcher = {
                let entry = entry.clone();
                thread::spawn(move || entry.finish(5).is_some())
            };
            let (_, held) = entry.leave(None);
            let finished = watcher.join().unwrap();
            // The waker is in one hand only.
            assert_ne!(finished, held.is_some());
            assert!(matches!(entry.hold().phase, Phase::Left));
            assert_eq!(woken(&count), 0);
        });
    }

    /// The last handle going against a registration, and a sweep's end against a burial: each is refused
    /// or taken in, and what was taken in is ended by the thread.
    #[test]
    fn loom_the_end_against_registrations_and_burials() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::<u32, u32>::new());
            let registering = {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.arrive(|_| 1).is_some())
            };
            let burying = {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.bury(2).is_ok())
            };
            let mut taken = Posted::new();
            inbox.empty(&mut taken, true);
            let (registered, buried) = (registering.join().unwrap(), burying.join().unwrap());
            assert_eq!(
                (taken.arrivals.len(), taken.graves.len()),
                (usize::from(registered), usize::from(buried))
            );
            assert_eq!(inbox.bury(3), Err(3));
        });
    }
}
