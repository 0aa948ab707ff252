//! compio as a host: its idle does its duties, its I/O ends an idle at once, and GPU words are seen beside
//! it on the same thread.
#![cfg(target_os = "linux")]

use compio::buf::BufResult;
use compio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use compio::runtime::Runtime;
use gpu_async_reactor::backend::sim::{SimDevice, SimOptions, Work};
use gpu_async_reactor::host::compio::CompioIdle;
use gpu_async_reactor::host::std_host::{Naps, StdClock};
use gpu_async_reactor::watcher::CompletionExt;
use gpu_async_reactor::*;
use std::cell::Cell;
use std::future::Future;
use std::io::{Read, Write};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use testkit::conformance;

/// Tells a hang from a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// A bound, or a nap, that no test may wait for.
const NEVER: DurNs = DurNs::from_ms(600_000);

fn runtime(test: &str) -> Option<Runtime> {
    match Runtime::new() {
        Ok(runtime) => Some(runtime),
        Err(e) => {
            eprintln!("SKIPPED {test}: io_uring: {e}");
            None
        }
    }
}

/// An idle whose naps last until something ends them.
fn long_napping(runtime: Runtime) -> CompioIdle {
    let naps = Naps { least: NEVER, most: NEVER, ..Naps::default() };
    CompioIdle::with_naps(runtime, StdClock::new(), naps)
}

#[test]
fn the_idle_does_its_duties() {
    let Some(runtime) = runtime("the_idle_does_its_duties") else { return };
    conformance::idle(&StdClock::new(), &mut CompioIdle::new(runtime, StdClock::new()));
}

/// A client of the system's own sockets, on a thread: sends and expects each number back.
fn client(address: std::net::SocketAddr, times: u32) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for n in 0..times {
            stream.write_all(&n.to_ne_bytes()).unwrap();
            let mut back = [0; 4];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(u32::from_ne_bytes(back), n);
        }
    })
}

/// Echoes until the client goes.
async fn echo(listener: std::net::TcpListener) -> u32 {
    let listener = TcpListener::from_std(listener).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut echoed = 0;
    loop {
        let BufResult(read, bytes) = stream.read_exact([0u8; 4]).await;
        if read.is_err() {
            return echoed;
        }
        let BufResult(written, _) = stream.write_all(bytes).await;
        written.unwrap();
        echoed += 1;
    }
}

fn listener() -> (std::net::TcpListener, std::net::SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn a_socket_is_served_at_once_beside_a_pending_wait_for_a_word() {
    let test = "a_socket_is_served_at_once_beside_a_pending_wait_for_a_word";
    let Some(runtime) = runtime(test) else { return };
    let (listener, address) = listener();
    let line = CompletionLine::new();
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    let (reactor_, line_) = (&reactor, &line);
    executor.spawn(Box::pin(async move {
        assert!(reactor_.ready(MemoryDescriptor::new(line_, Slot::ALL[0], 1), None).await);
    }));
    let echoed = executor.spawn_dyn(async move {
        let echoed = echo(listener).await;
        line_.store(Slot::ALL[0], 1);
        echoed
    });
    let client = client(address, 50);
    let start = Instant::now();
    // Were I/O seen only between naps, each of a hundred reads and writes would take ten minutes.
    long_napping(runtime).run(&mut executor, &reactor, NEVER).unwrap();
    client.join().unwrap();
    assert_eq!(run_inline(echoed).unwrap(), 50);
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn a_word_is_seen_within_the_naps_while_a_socket_waits() {
    let Some(runtime) = runtime("a_word_is_seen_within_the_naps_while_a_socket_waits") else {
        return;
    };
    let (listener, address) = listener();
    let mut queue = SimDevice::start(SimOptions::default()).queue().unwrap();
    let seen = Cell::new(0);
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    let _silent = std::net::TcpStream::connect(address).unwrap();
    let (reactor_, seen_) = (&reactor, &seen);
    executor.spawn(Box::pin(async move {
        let listener = TcpListener::from_std(listener).unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut never = pin!(stream.read([0u8; 4]));
        let mut steps = pin!(async {
            for _ in 0..20 {
                let number = queue.submit(Work::lasting(DurNs::from_ms(2))).unwrap();
                let (line, slot) = (queue.line().clone(), queue.slot());
                assert!(reactor_.ready_shared(line, slot, number, None).await);
                seen_.set(seen_.get() + 1);
            }
        });
        std::future::poll_fn(|cx| {
            assert!(never.as_mut().poll(cx).is_pending(), "nobody wrote");
            steps.as_mut().poll(cx)
        })
        .await;
    }));
    let mut idle = CompioIdle::new(runtime, StdClock::new());
    let start = Instant::now();
    idle.run(&mut executor, &reactor, DurNs::from_ms(1)).unwrap();
    assert_eq!(seen.get(), 20);
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn a_predicted_wait_sleeps_in_the_ring_and_ends_at_its_prediction() {
    let test = "a_predicted_wait_sleeps_in_the_ring_and_ends_at_its_prediction";
    let Some(runtime) = runtime(test) else { return };
    let mut queue = SimDevice::start(SimOptions::default()).queue().unwrap();
    let line = queue.line().clone();
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    let plan: WaitPlan = "flag:park_us=1000,backstop_us=20000+predict:margin_us=500,min_sleep_us=50,max_sleep_us=50000,window=4"
        .parse()
        .unwrap();
    let (reactor_, line_) = (&reactor, &line);
    let reports = executor.spawn_dyn(async move {
        let (mut point, mut slept) = (PointEstimate::new(), 0);
        let predict = plan.predict.unwrap();
        for _ in 0..10 {
            let number = queue.submit(Work::lasting(DurNs::from_ms(5))).unwrap();
            let sleep = point.sleep_ns(&predict);
            let port = QueuePort::new(&mut queue, line_, reactor_, reactor_);
            let mut port = port.number(number);
            let report = wait(&plan, sleep, &mut port, reactor_, reactor_).await.unwrap();
            point.observe(&predict, report.outcome);
            slept += report.sleeps;
        }
        slept
    });
    let mut idle = CompioIdle::new(runtime, StdClock::new());
    let stats = idle.run(&mut executor, &reactor, DurNs::from_ms(1)).unwrap();
    let slept = run_inline(reports).unwrap();
    // All but the first do; a busy machine has some wake late, and what follows predict less.
    assert!(slept >= 2, "{slept} of ten slept");
    assert!(stats.slept >= u64::from(slept), "{stats:?}");
}

#[test]
fn another_thread_ends_its_sleep_and_its_nap() {
    let Some(runtime) = runtime("another_thread_ends_its_sleep_and_its_nap") else { return };
    for watching in [false, true] {
        let line = CompletionLine::new();
        let reactor = Reactor::new(StdClock::new());
        let (sender, receiver) = smol::channel::bounded::<u32>(1);
        let mut executor = DynExecutor::new();
        let (reactor_, line_) = (&reactor, &line);
        if watching {
            executor.spawn(Box::pin(async move {
                reactor_.ready(MemoryDescriptor::new(line_, Slot::ALL[0], 1), None).await;
            }));
        }
        let sum = executor.spawn_dyn(async move {
            let mut sum = 0;
            while let Ok(number) = receiver.recv().await {
                sum += number;
            }
            line_.store(Slot::ALL[0], 1);
            sum
        });
        let other = std::thread::spawn(move || {
            for number in 1..=20 {
                std::thread::sleep(Duration::from_millis(1));
                sender.send_blocking(number).unwrap();
            }
        });
        let start = Instant::now();
        long_napping(runtime.clone()).run(&mut executor, &reactor, NEVER).unwrap();
        other.join().unwrap();
        assert_eq!(run_inline(sum).unwrap(), 210);
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn a_file_is_written_and_read_back_between_waits() {
    let Some(runtime) = runtime("a_file_is_written_and_read_back_between_waits") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result");
    let mut queue = SimDevice::start(SimOptions::default()).queue().unwrap();
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    let reactor_ = &reactor;
    let back = executor.spawn_dyn(async move {
        for step in 0..5u8 {
            let number = queue.submit(Work::lasting(DurNs::from_ms(1))).unwrap();
            let (line, slot) = (queue.line().clone(), queue.slot());
            assert!(reactor_.ready_shared(line, slot, number, None).await);
            compio::fs::write(&path, vec![step; 5_000]).await.0.unwrap();
            assert_eq!(compio::fs::read(&path).await.unwrap(), [step; 5_000]);
        }
        true
    });
    let mut idle = CompioIdle::new(runtime, StdClock::new());
    idle.run(&mut executor, &reactor, DurNs::from_ms(1)).unwrap();
    assert!(run_inline(back).unwrap());
}

#[test]
fn an_executor_that_never_idles_serves_sockets_all_the_same() {
    let Some(runtime) = runtime("an_executor_that_never_idles_serves_sockets_all_the_same") else {
        return;
    };
    let (listener, address) = listener();
    let over = Cell::new(false);
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    let over_ = &over;
    let start = Instant::now();
    executor.spawn(Box::pin(async move {
        while !over_.get() {
            assert!(start.elapsed() < PATIENCE, "the socket is never served");
            yield_now().await;
        }
    }));
    let echoed = executor.spawn_dyn(async move {
        let echoed = echo(listener).await;
        over_.set(true);
        echoed
    });
    let client = client(address, 20);
    let mut idle = CompioIdle::new(runtime, StdClock::new());
    idle.run(&mut executor, &reactor, DurNs::from_ms(1)).unwrap();
    client.join().unwrap();
    assert_eq!(run_inline(echoed).unwrap(), 20);
}

#[test]
fn tasks_and_timers_of_the_runtime_run_while_the_executor_idles() {
    let Some(runtime) = runtime("tasks_and_timers_of_the_runtime_run_while_the_executor_idles")
    else {
        return;
    };
    let reactor = Reactor::new(StdClock::new());
    let mut executor = DynExecutor::new();
    let task = runtime.spawn(async {
        for _ in 0..100 {
            let mut again = true;
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut again, false) { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        }
        compio::runtime::time::sleep(Duration::from_millis(5)).await;
        7
    });
    let seven = executor.spawn_dyn(async move { task.await.ok() });
    let start = Instant::now();
    long_napping(runtime).run(&mut executor, &reactor, NEVER).unwrap();
    assert_eq!(run_inline(seven).unwrap(), Some(7));
    assert!(start.elapsed() >= Duration::from_millis(5) && start.elapsed() < PATIENCE);
}

#[test]
fn a_task_of_compios_own_executor_awaits_a_completion() {
    let Some(runtime) = runtime("a_task_of_compios_own_executor_awaits_a_completion") else {
        return;
    };
    let mut queue = SimDevice::start(SimOptions::default()).queue().unwrap();
    let (listener, address) = listener();
    runtime.block_on(async {
        let echoing = compio::runtime::spawn(echo(listener));
        for _ in 0..5 {
            queue.submit(Work::lasting(DurNs::from_ms(2))).unwrap();
            let done = queue.completion().timeout(PATIENCE);
            compio::runtime::spawn(done).await.ok().unwrap().unwrap();
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"ping").await.0.unwrap();
        let BufResult(read, back) = stream.read_exact([0u8; 4]).await;
        read.unwrap();
        assert_eq!(&back, b"ping");
        drop(stream);
        assert_eq!(echoing.await.ok(), Some(1));
    });
}
