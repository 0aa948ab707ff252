//! The example service on compio, driven by a client over loopback.
#![cfg(target_os = "linux")]

#[path = "../examples/server_compio.rs"]
mod server;

use gpu_async_reactor::backend::sim::{SimDevice, SimOptions};
use server::service::{Counts, STEPS, serve};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The service on a thread of its own, which ends with the process.
fn start(test: &str) -> Option<(SocketAddr, SimDevice, Arc<Counts>)> {
    if let Err(e) = compio::runtime::Runtime::new() {
        eprintln!("SKIPPED {test}: io_uring: {e}");
        return None;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), Arc::new(Counts::default()));
    let device = SimDevice::start(SimOptions::default());
    let (queue, counted) = (device.queue().unwrap(), counts.clone());
    std::thread::spawn(move || serve(listener, queue, counted));
    Some((address, device, counts))
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut text = String::new();
    let mut stream = ask(address, path).await;
    let read = stream.read_to_string(&mut text);
    tokio::time::timeout(Duration::from_secs(20), read).await.unwrap().unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_batched_and_streamed() {
    let Some((address, _device, counts)) = start("requests_are_batched_and_streamed") else {
        return;
    };
    let clients: Vec<_> = (1..=20)
        .map(|rows| tokio::spawn(async move { get(address, &format!("/run?rows={rows}")).await }))
        .collect();
    for (i, client) in clients.into_iter().enumerate() {
        let text = client.await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("0\r\n\r\n"), "{text}");
        for step in 1..=STEPS {
            assert!(text.contains(&format!("step {step}: {} rows, ", i + 1)), "{text}");
        }
    }
    let steps = counts.steps.load(Ordering::Relaxed);
    assert!(steps < 20 * u64::from(STEPS), "nothing was batched: {steps} steps");
    assert_eq!(counts.rows.load(Ordering::Relaxed), (1..=20).sum::<u64>() * u64::from(STEPS));
}

#[tokio::test]
async fn another_path_is_not_found() {
    let Some((address, _device, _counts)) = start("another_path_is_not_found") else { return };
    for path in ["/", "/run?rows=0", "/run?rows=x"] {
        assert!(get(address, path).await.starts_with("HTTP/1.1 404"));
    }
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_step_and_others_are_served() {
    let Some((address, _device, counts)) =
        start("a_client_that_goes_away_cancels_its_step_and_others_are_served")
    else {
        return;
    };
    let mut stream = ask(address, "/run?rows=7").await;
    let mut first = [0; 16];
    stream.read_exact(&mut first).await.unwrap();
    drop(stream);
    let start = std::time::Instant::now();
    while counts.steps.load(Ordering::Relaxed) + counts.cancelled.load(Ordering::Relaxed) < 2 {
        assert!(start.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(get(address, "/run?rows=3").await.contains("step 5: 3 rows, 6"));
    assert!(counts.steps.load(Ordering::Relaxed) < 2 * u64::from(STEPS), "it was not cancelled");
}

#[tokio::test]
async fn a_lost_device_is_answered_with_503() {
    let Some((address, device, _counts)) = start("a_lost_device_is_answered_with_503") else {
        return;
    };
    assert!(get(address, "/run?rows=1").await.starts_with("HTTP/1.1 200"));
    device.lose();
    for _ in 0..2 {
        let text = get(address, "/run?rows=1").await;
        assert!(text.starts_with("HTTP/1.1 503") && text.contains("lost"), "{text}");
    }
}
