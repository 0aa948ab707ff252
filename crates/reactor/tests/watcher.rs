//! Completions for any runtime, on the simulated device: invariants 2, 3, 5, 7, 8 and 12, and the
//! situations that users met elsewhere.

use gpu_async_reactor::backend::sim::{Faults, SimDevice, SimOptions, SimQueue, Work};
use gpu_async_reactor::inflight::{InFlight, leaked};
use gpu_async_reactor::watcher::*;
use gpu_async_reactor::*;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Tells a hang from a busy machine.
const PATIENCE: DurNs = DurNs(20_000_000_000);

fn device(faults: Faults) -> SimDevice {
    SimDevice::start(SimOptions { faults, ..SimOptions::default() })
}

fn queue(faults: Faults) -> SimQueue {
    device(faults).queue().unwrap()
}

fn watcher() -> Watcher {
    Watcher::start(WatcherOptions::default()).unwrap()
}

fn work(ms: u64) -> Work {
    Work::lasting(DurNs::from_ms(ms))
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn until(holds: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE.into(), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Count(AtomicU32);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_completion_can_be_sent_anywhere() {
    fn any_runtime<T: Send + 'static>() {}
    any_runtime::<Completion>();
    any_runtime::<InFlight<Vec<u8>>>();
    any_runtime::<Watcher>();
}

#[test]
fn work_already_done_resolves_at_the_first_poll_without_a_wake() {
    let mut queue = queue(Faults::none());
    let number = queue.submit(Work::lasting(DurNs(0))).unwrap();
    until(|| queue.stored_at(number).is_some() && queue.status_is(number), "the work never ends");
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(count.clone());
    let done = pin!(queue.completion()).poll(&mut Context::from_waker(&waker));
    assert_eq!(done, Poll::Ready(Ok(())));
    assert_eq!((count.0.load(Ordering::Relaxed), Arc::strong_count(&count)), (0, 2));
}

trait StatusIs {
    fn status_is(&self, number: u64) -> bool;
}
impl StatusIs for SimQueue {
    fn status_is(&self, number: u64) -> bool {
        self.shared_status().status(number).unwrap()
    }
}

#[test]
fn every_runtime_is_woken() {
    let run = |name: &str, block: &dyn Fn(Completion) -> Result<(), WaitError>| {
        let mut queue = queue(Faults::none());
        for _ in 0..12 {
            queue.submit(work(2)).unwrap();
            let done = queue.completion().timeout(PATIENCE);
            assert_eq!(block(done), Ok(()), "{name}");
        }
    };
    run("smol", &|done| smol::block_on(done));
    let current = current_thread();
    run("tokio, current thread", &|done| current.block_on(done));
    let multi = multi_thread();
    run("tokio, several threads", &|done| {
        multi.block_on(async { tokio::spawn(done).await.unwrap() })
    });
    run("tokio, a local set", &|done| {
        let local = tokio::task::LocalSet::new();
        local.block_on(&current, async { tokio::task::spawn_local(done).await.unwrap() })
    });
}

#[test]
fn many_awaits_of_one_ticket_share_one_store() {
    let mut queue = queue(Faults::none());
    queue.submit_bare(work(20)).unwrap();
    let ticket = queue.ticket().unwrap();
    assert_eq!(queue.ticket().unwrap().number(), ticket.number());
    multi_thread().block_on(async {
        let awaits: Vec<_> =
            (0..100).map(|_| tokio::spawn(ticket.completion().timeout(PATIENCE))).collect();
        for done in awaits {
            assert_eq!(done.await.unwrap(), Ok(()));
        }
    });
    assert_eq!(queue.ticket().unwrap().number(), ticket.number());
    assert_eq!(queue.line().load(queue.slot()), ticket.number());
}

#[test]
fn a_result_says_what_was_awaited_and_for_how_long() {
    let mut queue = queue(Faults::none().hang(1));
    queue.submit(work(1)).unwrap();
    let failed = smol::block_on(queue.completion().timeout(DurNs::from_ms(15))).unwrap_err();
    let WaitError::Timeout(awaited) = &failed else { panic!("{failed:?}") };
    assert_eq!((&*awaited.queue, awaited.number), ("simulated queue 0", 1));
    assert!(awaited.waited >= DurNs::from_ms(15) && awaited.waited < PATIENCE, "{failed}");
    let text = failed.to_string();
    assert!(text.contains("number 1 of simulated queue 0") && text.contains("deadline"), "{text}");
    assert_eq!(Error::from(failed).code(), ErrorCode::DeviceHang);
}

#[test]
fn a_deadline_in_the_past_times_out_and_done_work_wins_over_it() {
    let mut queue = queue(Faults::none());
    queue.submit(work(10)).unwrap();
    let past = queue.completion().deadline(MonoNs(1));
    assert!(matches!(smol::block_on(past), Err(WaitError::Timeout(_))));
    assert_eq!(smol::block_on(queue.completion()), Ok(()));
    assert_eq!(smol::block_on(queue.completion().deadline(MonoNs(1))), Ok(()));
}

#[test]
fn a_word_cancels_a_wait_and_completion_wins() {
    let mut queue = queue(Faults::none());
    queue.submit(work(200)).unwrap();
    let word = Arc::new(CompletionLine::new());
    let done = queue.completion().until(word.clone(), Slot::ALL[2], 7).timeout(PATIENCE);
    let setter = std::thread::spawn({
        let word = word.clone();
        move || {
            std::thread::sleep(Duration::from_millis(20));
            word.store(Slot::ALL[2], 7);
        }
    });
    let failed = smol::block_on(done).unwrap_err();
    assert!(matches!(failed, WaitError::Cancelled(_)), "{failed}");
    setter.join().unwrap();
    assert_eq!(smol::block_on(queue.completion().timeout(PATIENCE)), Ok(()));
    assert_eq!(smol::block_on(queue.completion().until(word, Slot::ALL[2], 7)), Ok(()));
}

#[test]
fn a_hang_past_the_watchers_limit_is_said() {
    let options =
        WatcherOptions { hang_after: Some(DurNs::from_ms(30)), ..WatcherOptions::default() };
    let watcher = Watcher::start(options).unwrap();
    let mut queue = queue(Faults::none().hang(1));
    queue.submit(work(1)).unwrap();
    let failed = smol::block_on(queue.completion().on(&watcher)).unwrap_err();
    assert!(matches!(failed, WaitError::Hang(_)), "{failed}");
}

#[test]
fn a_lost_store_costs_one_backstop_and_a_late_one_none() {
    let lost = Faults::none().lost_store(1).late_store(2, DurNs::from_ms(400));
    let mut queue = queue(lost);
    for _ in 0..2 {
        queue.submit(work(2)).unwrap();
        let start = Instant::now();
        assert_eq!(smol::block_on(queue.completion().timeout(PATIENCE)), Ok(()));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_word_before_its_data_is_no_completion() {
    let ended = Arc::new(AtomicBool::new(false));
    let mut queue = queue(Faults::none().word_before_data(1, DurNs::from_ms(30)));
    let effect = ended.clone();
    queue.submit(work(5).effect(move || effect.store(true, Ordering::Release))).unwrap();
    assert_eq!(smol::block_on(queue.completion().timeout(PATIENCE)), Ok(()));
    assert!(ended.load(Ordering::Acquire), "resolved on the word alone");
}

#[test]
fn situation_3_the_word_is_never_stored_and_the_device_is_lost() {
    let device = device(Faults::none().lose_device(3));
    let mut queues: Vec<_> = (0..3).map(|_| device.queue().unwrap()).collect();
    let waits: Vec<_> = queues
        .iter_mut()
        .flat_map(|queue| {
            (0..3).map(|_| queue.submit(work(10)).unwrap()).for_each(drop);
            (0..4).map(|_| queue.completion()).collect::<Vec<_>>()
        })
        .collect();
    multi_thread().block_on(async {
        for wait in waits.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
            let failed = wait.await.unwrap().unwrap_err();
            assert!(matches!(&failed, WaitError::DeviceLost(..)), "{failed}");
            assert_eq!(failed.cause().unwrap().code(), ErrorCode::DeviceLost);
        }
    });
}

#[test]
fn situation_4_a_status_that_lies_after_the_loss_is_not_believed() {
    let mut queue = queue(Faults::none().lose_device(1).lie_after_loss());
    queue.submit(work(5)).unwrap();
    let failed = smol::block_on(queue.completion().timeout(PATIENCE)).unwrap_err();
    assert!(matches!(failed, WaitError::DeviceLost(..)), "{failed}");
}

#[test]
fn situation_7_a_refused_store_resolves_with_the_refusal() {
    let mut queue = queue(Faults::none().refuse_store(1));
    queue.submit_bare(work(1)).unwrap();
    let failed = smol::block_on(queue.completion()).unwrap_err();
    assert!(matches!(failed, WaitError::Refused(..)), "{failed}");
    assert_eq!(failed.cause().unwrap().code(), ErrorCode::StoreRefused);
    let before = leaked();
    let (body, done) = smol::block_on(queue.in_flight(vec![0u8; 16]));
    assert!(body.is_none() && matches!(done, Err(WaitError::Refused(..))));
    assert!(leaked() > before, "nothing can say when the device is done with it");
}

#[test]
fn a_queue_dropped_with_its_work_resolves_its_waits() {
    let mut queue = queue(Faults::none());
    queue.submit(work(60_000)).unwrap();
    let done = queue.completion().timeout(PATIENCE);
    drop(queue);
    let failed = smol::block_on(done).unwrap_err();
    assert!(matches!(failed, WaitError::DeviceLost(..)), "{failed}");
}

#[test]
fn situation_8_a_thousand_and_one_waits_on_one_queue() {
    let mut queue = queue(Faults::none());
    let waits: Vec<_> = (0..1_001)
        .map(|_| {
            queue.submit(Work::lasting(DurNs::from_us(20))).unwrap();
            queue.completion().timeout(PATIENCE)
        })
        .collect();
    multi_thread().block_on(async {
        for wait in waits.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
            assert_eq!(wait.await.unwrap(), Ok(()));
        }
    });
}

#[test]
fn situation_9_waits_resolve_in_order_while_the_workers_are_busy() {
    let runtime = multi_thread();
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let stop = stop.clone();
        runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(2) {
                    std::hint::spin_loop();
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let mut queue = queue(Faults::none());
    let order = Arc::new(Mutex::new(Vec::new()));
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for i in 0..20 {
            queue.submit(work(1)).unwrap();
            let (done, order) = (queue.completion().timeout(PATIENCE), order.clone());
            tasks.push(tokio::spawn(async move {
                done.await.unwrap();
                order.lock().unwrap().push(i);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut all = order.lock().unwrap().clone();
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>());
}

#[test]
fn situation_12_targets_resolve_in_the_order_of_the_word() {
    let mut queue = queue(Faults::none());
    let order = Arc::new(Mutex::new(Vec::new()));
    // The word moves on by one when the wait before it resolved: however busy the machine is, it is never
    // past a target that is still to be looked at.
    let (gates, waits): (Vec<_>, Vec<_>) = (0..5)
        .map(|_| {
            let (open, gate) = std::sync::mpsc::channel::<()>();
            queue.submit(Work::running(move || assert!(gate.recv().is_err()))).unwrap();
            (open, queue.completion().timeout(PATIENCE))
        })
        .unzip();
    current_thread().block_on(async {
        let local = tokio::task::LocalSet::new();
        let mut gates = gates.into_iter();
        let first = gates.next();
        let tasks: Vec<_> =
            waits.into_iter().enumerate().map(|wait| (wait, gates.next())).collect();
        for ((i, wait), next) in tasks.into_iter().rev() {
            let order = order.clone();
            local.spawn_local(async move {
                wait.await.unwrap();
                order.lock().unwrap().push(i);
                drop(next);
            });
        }
        local.spawn_local(async move { drop(first) });
        local.await;
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn dropped_at_every_await_point_a_wait_leaves_nothing_behind() {
    let watcher = watcher();
    for kept in 0..4 {
        let mut queue = queue(Faults::none());
        queue.submit(work(6)).unwrap();
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(count.clone());
        let mut done = Box::pin(queue.completion().on(&watcher));
        let mut polls = 0;
        while polls < kept {
            polls += 1;
            if done.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                break;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        drop(done);
        let woken = count.0.load(Ordering::Relaxed);
        assert_eq!(smol::block_on(queue.completion().timeout(PATIENCE)), Ok(()));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(count.0.load(Ordering::Relaxed), woken, "woken after its drop");
        drop(waker);
        until(|| Arc::strong_count(&count) == 1, "a waker is still held");
    }
}

#[test]
fn a_wait_polled_by_another_task_wakes_that_one() {
    let mut queue = queue(Faults::none());
    queue.submit(work(30)).unwrap();
    let mut done = Box::pin(queue.completion().timeout(PATIENCE));
    let first = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(first.clone());
    assert!(done.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(smol::block_on(done), Ok(()));
    assert_eq!(first.0.load(Ordering::Relaxed), 0);
}

#[test]
fn the_last_handle_gone_every_wait_is_refused_and_the_thread_ends() {
    let options = WatcherOptions { name: "ends-with-us".into(), ..WatcherOptions::default() };
    let watcher = Watcher::start(options).unwrap();
    let mut queue = queue(Faults::none().hang(1));
    queue.submit(work(1)).unwrap();
    let waits: Vec<_> = (0..8).map(|_| queue.completion().on(&watcher)).collect();
    let later = queue.completion().on(&watcher);
    let runtime = multi_thread();
    let waits: Vec<_> = waits.into_iter().map(|wait| runtime.spawn(wait)).collect();
    std::thread::sleep(Duration::from_millis(20));
    let clone = watcher.clone();
    drop(watcher);
    std::thread::sleep(Duration::from_millis(5));
    assert!(waits.iter().all(|wait| !wait.is_finished()), "a clone is a handle too");
    drop(clone);
    for wait in waits {
        let failed = runtime.block_on(wait).unwrap().unwrap_err();
        assert!(matches!(failed, WaitError::Refused(..)), "{failed}");
        assert!(failed.to_string().contains("watcher is gone"), "{failed}");
    }
    assert!(matches!(smol::block_on(later), Err(WaitError::Refused(..))));
    #[cfg(target_os = "linux")]
    until(|| thread_switches("ends-with-us").is_none(), "the thread is still there");
}

#[test]
fn a_runtime_shut_down_with_waits_pending_leaves_the_watcher_well() {
    let watcher = watcher();
    let mut queue = queue(Faults::none());
    queue.submit(work(80)).unwrap();
    let runtime = multi_thread();
    for _ in 0..20 {
        runtime.spawn(queue.completion().on(&watcher));
    }
    std::thread::sleep(Duration::from_millis(5));
    drop(runtime);
    assert_eq!(smol::block_on(queue.completion().on(&watcher).timeout(PATIENCE)), Ok(()));
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the test's");
        }
    }
    let watcher = watcher();
    let mut queue = queue(Faults::none());
    queue.submit(work(5)).unwrap();
    let waker = Waker::from(Arc::new(Panics));
    let mut bad = Box::pin(queue.completion().on(&watcher));
    assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(smol::block_on(queue.completion().on(&watcher).timeout(PATIENCE)), Ok(()));
}

/// Tells when it is dropped.
struct Body {
    bytes: Vec<u8>,
    drops: Arc<AtomicUsize>,
}
impl Drop for Body {
    fn drop(&mut self) {
        self.bytes.fill(0xdd);
        self.drops.fetch_add(1, Ordering::Release);
    }
}

fn body(drops: &Arc<AtomicUsize>) -> Body {
    Body { bytes: vec![0; 256], drops: drops.clone() }
}

#[test]
fn situation_2_a_body_abandoned_in_flight_is_freed_once_the_device_is_done() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut queue = queue(Faults::none());
    let at_the_end = Arc::new(AtomicUsize::new(usize::MAX));
    for polled in [false, true] {
        drops.store(0, Ordering::Release);
        let (seen, into) = (drops.clone(), at_the_end.clone());
        queue
            .submit(
                work(40)
                    .effect(move || into.store(seen.load(Ordering::Acquire), Ordering::Release)),
            )
            .unwrap();
        let mut owned = Box::pin(queue.in_flight((body(&drops), body(&drops))));
        if polled {
            assert!(owned.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let start = Instant::now();
        drop(owned);
        assert!(start.elapsed() < Duration::from_millis(35), "a drop waited for the device");
        until(|| drops.load(Ordering::Acquire) == 2, "never freed");
        assert_eq!(at_the_end.load(Ordering::Acquire), 0, "freed while the device used it");
    }
}

#[test]
fn awaited_to_its_end_a_body_comes_back_unharmed() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut queue = queue(Faults::none());
    queue.submit(work(3)).unwrap();
    let (back, done) = smol::block_on(queue.in_flight(body(&drops)).timeout(PATIENCE));
    assert_eq!(done, Ok(()));
    assert!(back.unwrap().bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn situation_5_a_timed_out_body_stays_in_flight_and_is_freed_by_the_completion() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut queue = queue(Faults::none());
    queue.submit(work(60)).unwrap();
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(count.clone());
    let mut owned = Box::pin(queue.in_flight(body(&drops)).timeout(DurNs::from_ms(10)));
    let mut context = Context::from_waker(&waker);
    assert!(owned.as_mut().poll(&mut context).is_pending());
    until(|| count.0.load(Ordering::Relaxed) == 1, "never woken");
    let Poll::Ready((back, done)) = owned.as_mut().poll(&mut context) else { panic!("pending") };
    assert!(back.is_none() && matches!(done, Err(WaitError::Timeout(_))));
    assert_eq!(drops.load(Ordering::Acquire), 0);
    until(|| drops.load(Ordering::Acquire) == 1, "never freed");
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "a second wake");
}

#[test]
fn with_the_device_lost_a_body_is_leaked_and_counted() {
    let drops = Arc::new(AtomicUsize::new(0));
    let device = device(Faults::none());
    let mut queue = device.queue().unwrap();
    queue.submit(work(60_000)).unwrap();
    let owned = queue.in_flight(body(&drops));
    let before = leaked();
    drop(owned);
    device.lose();
    until(|| leaked() > before, "never counted");
    assert_eq!(drops.load(Ordering::Acquire), 0);
}

#[test]
fn a_watcher_that_ends_with_graves_hands_nothing_back_too_early() {
    let drops = Arc::new(AtomicUsize::new(0));
    let watcher = watcher();
    let mut queue = queue(Faults::none());
    queue.submit(work(60_000)).unwrap();
    let owned = queue.in_flight(body(&drops)).on(&watcher);
    drop(owned);
    drop(watcher);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(drops.load(Ordering::Acquire), 0, "the device still uses it");
}

#[cfg(target_os = "linux")]
fn thread_switches(name: &str) -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().find_map(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        (comm.trim() == name).then(|| {
            let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
            switches.filter_map(|line| line.split(':').nth(1)?.trim().parse::<u64>().ok()).sum()
        })
    })
}

#[cfg(target_os = "linux")]
#[test]
fn with_nothing_in_flight_the_watcher_does_nothing() {
    let options = WatcherOptions { name: "idle-watcher".into(), ..WatcherOptions::default() };
    let watcher = Watcher::start(options).unwrap();
    let mut queue = queue(Faults::none());
    for _ in 0..8 {
        queue.submit(work(2)).unwrap();
        smol::block_on(queue.completion().on(&watcher).timeout(PATIENCE)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let before = thread_switches("idle-watcher").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(thread_switches("idle-watcher").unwrap(), before);
}

#[cfg(target_os = "linux")]
#[test]
fn in_a_forked_child_a_wait_is_refused_and_does_not_hang() {
    let watcher = watcher();
    let mut queue = queue(Faults::none());
    queue.submit(work(100)).unwrap();
    let done = queue.completion().on(&watcher);
    let mut done = pin!(done);
    let mut known = Box::pin(queue.completion().on(&watcher));
    assert!(known.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // SAFETY: the child polls two futures, which take no lock before they know of the fork, and leaves.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut refused = true;
        for wait in [&mut done, &mut known.as_mut()] {
            let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            refused &= matches!(polled, Poll::Ready(Err(WaitError::Refused(..))));
        }
        // SAFETY: leaves the child without running anything of the parent's.
        unsafe { libc::_exit(if refused { 7 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert!(waited == pid && libc::WIFEXITED(status), "the child ended with {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert_eq!(smol::block_on(done), Ok(()));
}

#[cfg(target_os = "linux")]
#[test]
fn situation_10_pinned_to_one_core_with_its_device_nothing_livelocks() {
    // The thread's mask is inherited by the threads it makes: the device's, the watcher's.
    std::thread::spawn(|| {
        let mut one = rustix::thread::CpuSet::new();
        one.set(0);
        if rustix::thread::sched_setaffinity(None, &one).is_err() {
            eprintln!("SKIPPED situation_10: the system refuses to pin a thread");
            return;
        }
        let watcher = watcher();
        let mut queue = queue(Faults::none());
        let runtime = multi_thread();
        for _ in 0..50 {
            queue.submit(work(1)).unwrap();
            let done = queue.completion().on(&watcher).timeout(PATIENCE);
            assert_eq!(runtime.block_on(done), Ok(()));
        }
    })
    .join()
    .unwrap();
}

#[test]
fn oversubscribed_every_wait_still_ends() {
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..8)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    let runtime = multi_thread();
    let mut queue = queue(Faults::none());
    for _ in 0..20 {
        queue.submit(work(1)).unwrap();
        assert_eq!(runtime.block_on(queue.completion().timeout(PATIENCE)), Ok(()));
    }
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn bodies_and_waits_race_with_their_drops() {
    // Completions, drops and abandoned bodies at every distance from the store.
    let watcher = watcher();
    let drops = Arc::new(AtomicUsize::new(0));
    let mut queue = queue(Faults::none());
    let rounds = 400;
    for i in 0..rounds {
        queue.submit(Work::lasting(DurNs::from_us(30))).unwrap();
        let mut owned = Box::pin(queue.in_flight(body(&drops)).on(&watcher));
        let done = queue.completion().on(&watcher).timeout(PATIENCE);
        let mut polled: Pin<&mut InFlight<Body>> = owned.as_mut();
        let _ = polled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(i % 80) {}
        drop(owned);
        assert_eq!(smol::block_on(done), Ok(()));
    }
    until(|| drops.load(Ordering::Acquire) == rounds as usize, "a body was never freed");
}

#[test]
fn a_sleep_of_the_watchers_is_finer_than_a_timer_wheel() {
    let watcher = watcher();
    let least = (0..20)
        .map(|_| {
            let start = Instant::now();
            smol::block_on(watcher.sleep(DurNs::from_us(200)));
            start.elapsed()
        })
        .min()
        .unwrap();
    assert!((Duration::from_micros(200)..Duration::from_millis(5)).contains(&least), "{least:?}");
}

#[test]
fn a_watcher_that_sleeps_for_another_wait_looks_at_a_sooner_one_in_time() {
    let watcher = watcher();
    let long = watcher.sleep(DurNs::from_ms(30_000));
    let mut long = pin!(long);
    let nobody = Waker::noop();
    assert!(long.as_mut().poll(&mut Context::from_waker(nobody)).is_pending());
    // It sleeps until then by now, and has to be woken for these.
    std::thread::sleep(Duration::from_millis(5));
    let start = Instant::now();
    smol::block_on(watcher.sleep(DurNs::from_ms(2)));
    let mut queue = queue(Faults::default());
    queue.submit(work(2)).unwrap();
    smol::block_on(queue.completion().on(&watcher)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// A status that stores the word just as it has said that it isn't done.
struct StoredMeanwhile {
    line: Arc<CompletionLine>,
    asked: AtomicU32,
}

impl QueueStatus for StoredMeanwhile {
    fn status(&self, number: u64) -> Result<bool> {
        let again = self.asked.fetch_add(1, Ordering::AcqRel) > 0;
        self.line.words[0].store(number, Ordering::Release);
        Ok(again)
    }
    fn confirm(&self, _number: u64) -> Result<()> {
        Ok(())
    }
    fn label(&self) -> &str {
        "a queue by hand"
    }
}

/// Between the look at the word and the registration with the reactor; a wait that missed it slept on to its
/// next backstop.
#[test]
fn a_word_stored_between_two_looks_of_the_watcher_is_seen_at_once() {
    let backstop = DurNs::from_ms(1_000);
    let watcher = Watcher::start(WatcherOptions { backstop, ..WatcherOptions::default() }).unwrap();
    let line = Arc::new(CompletionLine::new());
    let status = Arc::new(StoredMeanwhile { line: line.clone(), asked: AtomicU32::new(0) });
    let ticket = Ticket::new(line, Slot::ALL[0], 1, status);
    let start = Instant::now();
    assert_eq!(smol::block_on(ticket.completion().on(&watcher)), Ok(()));
    // The first backstop comes within a second, the next three quarters of one later.
    assert!(start.elapsed() < Duration::from_millis(1_600), "{:?}", start.elapsed());
}

/// A watcher that asks no status in time: who is missed hangs.
fn without_backstop() -> Watcher {
    let backstop = DurNs(3 * PATIENCE.0);
    Watcher::start(WatcherOptions { backstop, ..WatcherOptions::default() }).unwrap()
}

/// Each behind the one before it, as many in flight as `deep`; the tasks are woken early once the steps are known.
async fn pipeline(watcher: &Watcher, deep: usize, steps: usize, us: u64) {
    let mut queue = queue(Faults::none());
    let mut flying = std::collections::VecDeque::new();
    for _ in 0..steps {
        queue.submit(Work::lasting(DurNs::from_us(us))).unwrap();
        let done = queue.completion().on(watcher).timeout(PATIENCE);
        flying.push_back(tokio::spawn(done));
        if flying.len() == deep {
            assert_eq!(flying.pop_front().unwrap().await.unwrap(), Ok(()));
        }
    }
    for done in flying {
        assert_eq!(done.await.unwrap(), Ok(()));
    }
}

/// Nobody was found by the last question of its timeout only.
fn in_time(start: Instant) {
    assert!(start.elapsed() < PATIENCE.into());
}

#[test]
fn waits_behind_one_another_each_have_their_turn() {
    let (watcher, start) = (without_backstop(), Instant::now());
    multi_thread().block_on(async {
        for deep in [1, 2, 3, 16] {
            pipeline(&watcher, deep, 64, 700).await;
        }
        // Several queues, and steps too short to sleep through.
        let shared = &watcher;
        let queues = [1, 2, 5, 9].map(|deep| pipeline(shared, deep, 200, 60));
        let [a, b, c, d] = queues;
        tokio::join!(a, b, c, d);
    });
    in_time(start);
}

/// The watcher leaves a wait to its task once it has woken that; a task that doesn't look must not keep those
/// behind it from their turn.
#[test]
fn a_task_that_was_woken_early_and_is_busy_holds_up_nobody_behind_it() {
    let (watcher, start) = (without_backstop(), Instant::now());
    let mut queue = queue(Faults::none());
    let mut step = || {
        queue.submit(work(3)).unwrap();
        Box::pin(queue.completion().on(&watcher).timeout(PATIENCE))
    };
    for _ in 0..10 {
        for _ in 0..8 {
            assert_eq!(smol::block_on(step()), Ok(()));
        }
        let (mut busy, mut cx) = (step(), Context::from_waker(Waker::noop()));
        assert!(busy.as_mut().poll(&mut cx).is_pending());
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(smol::block_on(step()), Ok(()));
        assert_eq!(smol::block_on(busy), Ok(()));
    }
    in_time(start);
}

#[test]
fn one_that_leaves_gives_its_turn_to_the_next() {
    let (watcher, start) = (without_backstop(), Instant::now());
    let mut queue = queue(Faults::none());
    for round in 0..8 {
        let mut waits: Vec<_> = (0..9)
            .map(|_| {
                queue.submit(work(3)).unwrap();
                Box::pin(queue.completion().on(&watcher).timeout(PATIENCE))
            })
            .collect();
        let mut cx = Context::from_waker(Waker::noop());
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut cx).is_pending());
        }
        // The first, some between, the last: at different times of the first's step.
        std::thread::sleep(Duration::from_micros(400 * round));
        for at in [8, 5, 4, 1, 0] {
            drop(waits.remove(at));
        }
        for wait in waits {
            assert_eq!(smol::block_on(wait), Ok(()));
        }
    }
    in_time(start);
}

#[test]
fn a_lost_device_ends_every_wait_behind_the_first() {
    let watcher = watcher();
    let device = device(Faults::none().lose_device(2));
    let mut queue = device.queue().unwrap();
    let waits: Vec<_> = (0..50)
        .map(|_| {
            queue.submit(work(2)).unwrap();
            queue.completion().on(&watcher)
        })
        .collect();
    let runtime = multi_thread();
    let waits: Vec<_> = waits.into_iter().map(|wait| runtime.spawn(wait)).collect();
    let ends = waits.into_iter().map(|wait| runtime.block_on(wait).unwrap());
    let lost = ends.filter(|end| matches!(end, Err(WaitError::DeviceLost(..)))).count();
    assert!(lost >= 48, "{lost}");
}

/// What is ahead in the queue may be asked for last.
#[test]
fn numbers_may_be_awaited_in_any_order() {
    let (watcher, start) = (without_backstop(), Instant::now());
    let mut queue = queue(Faults::none());
    let mut tickets: Vec<_> = (0..20)
        .map(|_| {
            queue.submit(work(1)).unwrap();
            queue.ticket().unwrap()
        })
        .collect();
    tickets.rotate_left(7);
    tickets[2..15].reverse();
    let runtime = current_thread();
    let waits = tickets.iter().chain(&tickets).map(|ticket| ticket.completion().on(&watcher));
    let waits: Vec<_> = waits.map(|wait| runtime.spawn(wait.timeout(PATIENCE))).collect();
    for wait in waits {
        assert_eq!(runtime.block_on(wait).unwrap(), Ok(()));
    }
    in_time(start);
}
