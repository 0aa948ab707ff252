//! The service of the example `server`, on one thread: compio serves its sockets, and the same thread
//! awaits the device, woken by whichever has something.
//!
//! It batches requests, streams a line for each step, cancels when its clients go away, and answers 503
//! once the device is lost. `GET /run?rows=N`; the device is simulated. Linux, with io_uring.
//!
//! ```sh
//! cargo run -p gpu-async-reactor --features sim,compio --example server_compio   # then: curl localhost:8080/run?rows=3
//! ```
#![cfg_attr(not(target_os = "linux"), allow(unused))]

#[cfg(target_os = "linux")]
pub(crate) mod service {
    use compio::buf::BufResult;
    use compio::io::{AsyncRead, AsyncWriteExt};
    use compio::net::{TcpListener, TcpStream};
    use compio::runtime::Runtime;
    use gpu_async_reactor::backend::sim::{SimQueue, Work};
    use gpu_async_reactor::host::compio::CompioIdle;
    use gpu_async_reactor::host::std_host::StdClock;
    use gpu_async_reactor::watcher::CompletionExt;
    use gpu_async_reactor::*;
    use smol::channel::{Receiver, Sender, bounded};
    use smol::future::or;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Steps of one request.
    pub(crate) const STEPS: u32 = 5;
    /// Requests in one batch.
    const BATCH: usize = 8;
    /// What a step of any batch takes.
    const STEP: DurNs = DurNs::from_ms(4);
    /// A step that takes longer is given up.
    const LIMIT: DurNs = DurNs::from_ms(10_000);
    /// Steps take about as long each time: sleep to the least of the last, then watch.
    const PLAN: &str = "flag:park_us=1000,backstop_us=20000\
                        +predict:margin_us=100,min_sleep_us=50,max_sleep_us=20000,window=4";

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

    struct Request {
        rows: u64,
        reply: Sender<Result<String>>,
    }

    /// Serves on this thread until the listener fails.
    pub(crate) fn serve(
        listener: std::net::TcpListener,
        queue: SimQueue,
        counts: Arc<Counts>,
    ) -> std::io::Result<()> {
        let mut idle = CompioIdle::new(Runtime::new()?, StdClock::new());
        let line = queue.line().clone();
        let reactor = Reactor::new(StdClock::new());
        let mut executor = DynExecutor::new();
        let (requests, inbox) = bounded(64);
        let (reactor_, tasks) = (&reactor, executor.spawner());
        executor.spawn(Box::pin(batches(queue, &line, inbox, counts, reactor_)));
        let failed = executor.spawn_dyn(async move {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let (stream, _) = listener.accept().await?;
                let requests = requests.clone();
                tasks.spawn(Box::pin(async move {
                    // A client that went away is nobody's failure.
                    let _ = answer(stream, requests).await;
                }));
            }
        });
        let ran = idle.run(&mut executor, &reactor, DurNs::from_ms(1));
        ran.and_then(|_| run_inline(failed)).map_err(std::io::Error::other)?
    }

    /// Takes what has arrived as one batch, step by step.
    async fn batches<'l>(
        mut queue: SimQueue,
        line: &'l CompletionLine,
        inbox: Receiver<Request>,
        counts: Arc<Counts>,
        reactor: &Reactor<'l, StdClock>,
    ) {
        let mut point = PointEstimate::new();
        while let Ok(first) = inbox.recv().await {
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
                let learnt = (&mut point, reactor);
                let said = run_step(&mut queue, line, &batch, &counts, learnt).await;
                let Some(said) = said else { break };
                for request in &batch {
                    let rows = request.rows;
                    let line = said.clone().map(|sum| format!("step {step}: {rows} rows, {sum}\n"));
                    // A full or closed channel is the client's own affair.
                    let _ = request.reply.try_send(line);
                }
                if said.is_err() {
                    break;
                }
            }
        }
    }

    /// One step on the device; `None` when every client has gone. The memory that the device writes is
    /// in flight: let go early, it is freed when the device is done.
    async fn run_step<'l>(
        queue: &mut SimQueue,
        line: &'l CompletionLine,
        batch: &[Request],
        counts: &Counts,
        (point, reactor): (&mut PointEstimate, &Reactor<'l, StdClock>),
    ) -> Option<Result<u64>> {
        let rows: u64 = batch.iter().map(|request| request.rows).sum();
        let memory = Arc::new(AtomicU64::new(0));
        let device_memory = memory.clone();
        let work = Work::lasting(STEP)
            .effect(move || device_memory.store((1..=rows).sum(), Ordering::Release));
        let number = match queue.submit(work) {
            Ok(number) => number,
            Err(refused) => return Some(Err(refused)),
        };
        let in_flight = queue.in_flight(memory);
        let gone = async {
            for request in batch {
                request.reply.closed().await;
            }
            None
        };
        let done = async { Some(step_done(queue, line, number, point, reactor).await) };
        match or(done, gone).await {
            Some(Ok(())) => {}
            Some(Err(failed)) => return Some(Err(failed)),
            None => {
                counts.cancelled.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        counts.steps.fetch_add(1, Ordering::Relaxed);
        counts.rows.fetch_add(rows, Ordering::Relaxed);
        // It is done, so this resolves at once.
        let (memory, done) = in_flight.await;
        let sum = memory.map_or(0, |memory| memory.load(Ordering::Acquire));
        Some(done.map(|()| sum).map_err(Error::from))
    }

    async fn step_done<'l>(
        queue: &mut SimQueue,
        line: &'l CompletionLine,
        number: u64,
        point: &mut PointEstimate,
        reactor: &Reactor<'l, StdClock>,
    ) -> Result<()> {
        let plan: WaitPlan = PLAN.parse()?;
        let sleep = plan.predict.as_ref().and_then(|predict| point.sleep_ns(predict));
        let port = QueuePort::new(queue, line, reactor, reactor);
        let mut port = port.number(number).within(LIMIT);
        let report = wait(&plan, sleep, &mut port, reactor, reactor).await?;
        if let Some(predict) = &plan.predict {
            point.observe(predict, report.outcome);
        }
        Ok(())
    }

    async fn answer(mut stream: TcpStream, requests: Sender<Request>) -> std::io::Result<()> {
        let Some(path) = read_path(&mut stream).await? else { return Ok(()) };
        let rows = path.strip_prefix("/run?rows=").and_then(|rows| rows.parse::<u64>().ok());
        let Some(rows) = rows.filter(|rows| (1..=1_000_000).contains(rows)) else {
            return whole(&mut stream, "404 Not Found", "GET /run?rows=1 to 1000000\n").await;
        };
        let (reply, lines) = bounded(STEPS as usize + 1);
        if requests.send(Request { rows, reply }).await.is_err() {
            return whole(&mut stream, "503 Service Unavailable", "the service has ended\n").await;
        }
        // The end of the client's half is the end of the client: what it reads from ends with it.
        let mut half = stream.clone();
        let gone = async {
            loop {
                if let BufResult(Ok(0) | Err(_), _) = half.read(vec![0; 64]).await {
                    return Ok(());
                }
            }
        };
        or(stream_lines(&mut stream, &lines), gone).await
    }

    async fn stream_lines(
        stream: &mut TcpStream,
        lines: &Receiver<Result<String>>,
    ) -> std::io::Result<()> {
        let mut started = false;
        while let Ok(line) = lines.recv().await {
            match line {
                Ok(line) => {
                    if !std::mem::replace(&mut started, true) {
                        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\
                                    Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
                        stream.write_all(head).await.0?;
                    }
                    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
                    stream.write_all(chunk).await.0?;
                }
                Err(failed) if !started => {
                    return whole(stream, "503 Service Unavailable", &format!("{failed}\n")).await;
                }
                // A stream that was promised and can't be kept ends without its last chunk.
                Err(_) => return Ok(()),
            }
        }
        stream.write_all("0\r\n\r\n").await.0
    }

    async fn whole(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        stream.write_all(head + body).await.0
    }

    /// The path of a GET, or `None` for anything else.
    async fn read_path(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
        let (mut head, mut bytes) = (Vec::new(), vec![0; 1_024]);
        while !head.ends_with(b"\r\n\r\n") {
            let BufResult(read, back) = stream.read(bytes).await;
            bytes = back;
            match read? {
                0 => return Ok(None),
                _ if head.len() > 8_192 => return Ok(None),
                count => head.extend_from_slice(&bytes[..count]),
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
        Ok(path.map(str::to_owned))
    }
}

#[cfg(target_os = "linux")]
#[allow(dead_code)] // the tests of the service have their own
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use gpu_async_reactor::backend::sim::{SimDevice, SimOptions};
    let listener = std::net::TcpListener::bind("127.0.0.1:8080")?;
    println!("http://{}/run?rows=3, on the simulated device", listener.local_addr()?);
    let queue = SimDevice::start(SimOptions::default()).queue()?;
    service::serve(listener, queue, Default::default())?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("only on Linux");
}
