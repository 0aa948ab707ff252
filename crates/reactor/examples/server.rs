//! A small HTTP service on tokio that batches requests to a device, awaits each step, streams results,
//! cancels when its clients go away, and answers 503 once the device is lost.
//!
//! `GET /run?rows=N` streams a line for each step. The device is simulated.
//!
//! ```sh
//! cargo run -p gpu-async-reactor --features sim,tokio --example server   # then: curl localhost:8080/run?rows=3
//! ```

use gpu_async_reactor::backend::sim::{SimDevice, SimOptions, SimQueue, Work};
use gpu_async_reactor::watcher::{CompletionExt, WaitError};
use gpu_async_reactor::{DurNs, Error};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Steps of one request.
pub(crate) const STEPS: u32 = 5;
/// Requests in one batch.
const BATCH: usize = 8;
/// What a step of any batch takes.
const STEP: DurNs = DurNs::from_ms(4);
/// A step that takes longer is given up.
const LIMIT: DurNs = DurNs::from_ms(10_000);

/// What the service has done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Steps that the device ran.
    pub(crate) steps: AtomicU64,
    /// Rows in them.
    pub(crate) rows: AtomicU64,
    /// Steps abandoned in flight, for nobody waited for them any more.
    pub(crate) cancelled: AtomicU64,
}

type Line = Result<String, WaitError>;

struct Request {
    rows: u64,
    reply: mpsc::Sender<Line>,
}

/// Serves until the listener fails.
pub(crate) async fn serve(
    listener: TcpListener,
    queue: SimQueue,
    counts: Arc<Counts>,
) -> std::io::Result<()> {
    let (requests, inbox) = mpsc::channel(64);
    tokio::spawn(batches(queue, inbox, counts));
    loop {
        let (stream, _) = listener.accept().await?;
        let requests = requests.clone();
        tokio::spawn(async move {
            // A client that went away is nobody's failure.
            let _ = answer(stream, requests).await;
        });
    }
}

/// Takes what has arrived as one batch, step by step.
async fn batches(mut queue: SimQueue, mut inbox: mpsc::Receiver<Request>, counts: Arc<Counts>) {
    while let Some(first) = inbox.recv().await {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(more) = inbox.try_recv()
        {
            batch.push(more);
        }
        for step in 1..=STEPS {
            batch.retain(|request| !request.reply.is_closed());
            if batch.is_empty() {
                break;
            }
            match run_step(&mut queue, &batch, &counts).await {
                Some(Ok(sum)) => {
                    for request in &batch {
                        let line = format!("step {step}: {} rows, {sum}\n", request.rows);
                        // A full or closed channel is the client's own affair.
                        let _ = request.reply.try_send(Ok(line));
                    }
                }
                Some(Err(failed)) => {
                    for request in &batch {
                        let _ = request.reply.try_send(Err(failed.clone()));
                    }
                    break;
                }
                None => break,
            }
        }
    }
}

/// One step on the device; `None` when every client has gone. The memory that the device writes is owned
/// by the wait: dropped in flight, it is freed when the device is done.
async fn run_step(
    queue: &mut SimQueue,
    batch: &[Request],
    counts: &Counts,
) -> Option<Result<u64, WaitError>> {
    let rows: u64 = batch.iter().map(|request| request.rows).sum();
    let memory = Arc::new(AtomicU64::new(0));
    let device_memory = memory.clone();
    let work = Work::lasting(STEP)
        .effect(move || device_memory.store((1..=rows).sum(), Ordering::Release));
    if let Err(refused) = queue.submit(work) {
        return Some(Err(refuse(queue, refused)));
    }
    let mut step = pin!(queue.in_flight(memory).timeout(LIMIT));
    let mut gone = pin!(async {
        for request in batch {
            request.reply.closed().await;
        }
    });
    let ended = poll_fn(|cx| match step.as_mut().poll(cx) {
        std::task::Poll::Ready(ended) => std::task::Poll::Ready(Some(ended)),
        std::task::Poll::Pending => gone.as_mut().poll(cx).map(|()| None),
    })
    .await;
    let Some((memory, done)) = ended else {
        counts.cancelled.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    counts.steps.fetch_add(1, Ordering::Relaxed);
    counts.rows.fetch_add(rows, Ordering::Relaxed);
    Some(done.map(|()| memory.map_or(0, |memory| memory.load(Ordering::Acquire))))
}

/// A submit that failed, as the error of a wait.
fn refuse(queue: &mut SimQueue, refused: Error) -> WaitError {
    let queue = gpu_async_reactor::Queue::label(queue).into();
    let awaited = gpu_async_reactor::watcher::Awaited { queue, number: 0, waited: DurNs(0) };
    WaitError::of(awaited, refused)
}

async fn answer(mut stream: TcpStream, requests: mpsc::Sender<Request>) -> std::io::Result<()> {
    let Some(path) = read_path(&mut stream).await? else { return Ok(()) };
    let rows = path.strip_prefix("/run?rows=").and_then(|rows| rows.parse::<u64>().ok());
    let Some(rows) = rows.filter(|rows| (1..=1_000_000).contains(rows)) else {
        return whole(&mut stream, "404 Not Found", "GET /run?rows=1 to 1000000\n").await;
    };
    let (reply, mut lines) = mpsc::channel(STEPS as usize + 1);
    if requests.send(Request { rows, reply }).await.is_err() {
        return whole(&mut stream, "503 Service Unavailable", "the service has ended\n").await;
    }
    let mut started = false;
    let mut unused = [0; 64];
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            // The end of the client's half is the end of the client.
            read = stream.read(&mut unused) => match read? {
                0 => return Ok(()),
                _ => continue,
            },
        };
        match line {
            Some(Ok(line)) => {
                if !std::mem::replace(&mut started, true) {
                    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\
                                Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
                    stream.write_all(head.as_bytes()).await?;
                }
                stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await?;
            }
            Some(Err(failed)) if !started => {
                return whole(&mut stream, "503 Service Unavailable", &format!("{failed}\n")).await;
            }
            // A stream that was promised and can't be kept ends without its last chunk.
            Some(Err(_)) => return Ok(()),
            None => return stream.write_all(b"0\r\n\r\n").await,
        }
    }
}

async fn whole(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// The path of a GET, or `None` for anything else.
async fn read_path(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 8_192 {
            return Ok(None);
        }
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    Ok(path.map(str::to_owned))
}

#[tokio::main]
#[allow(dead_code)] // the tests of the service have their own
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}/run?rows=3, on the simulated device", listener.local_addr()?);
    let queue = SimDevice::start(SimOptions::default()).queue()?;
    serve(listener, queue, Arc::new(Counts::default())).await?;
    Ok(())
}
