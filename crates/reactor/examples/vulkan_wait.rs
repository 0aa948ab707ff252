//! Awaits a Vulkan device's work by each kind of plan, side by side.

use gpu_async_reactor::backend::vulkan::VulkanDevice;
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;

const PLANS: [&str; 4] = [
    "block",
    "poll",
    "flag:park_us=1000,backstop_us=20000",
    "flag:park_us=1000,backstop_us=20000+predict:margin_us=150,min_sleep_us=100,max_sleep_us=50000,window=8",
];
const STEPS: u32 = 40;
const ROUNDS: u32 = 900_000;

fn main() -> Result<()> {
    let device = match VulkanDevice::open_best() {
        Ok(device) => device,
        Err(error) => {
            println!("no Vulkan device to wait for: {error}");
            return Ok(());
        }
    };
    let info = device.info();
    println!("{} ({:?}, {})", info.name, info.kind, info.driver);
    match device.store_times() {
        Some(ns) => println!("store times are known to {ns} ns"),
        None => println!("store times are not known here, so neither is the wake lag"),
    }
    let clock = StdClock::new();
    let mut queue = device.queue()?;
    let line = queue.line().clone();
    let mut job = device.kernel()?.job(64)?;
    for text in PLANS {
        let plan: WaitPlan = text.parse()?;
        let mut points = PointTable::new();
        let (mut lags, mut slept, mut right) = (Vec::new(), 0, 0);
        for step in 0..STEPS {
            let number = queue.run(&mut job, step, ROUNDS)?;
            let sleep = plan.predict.and_then(|predict| points.sleep_ns(&0, &predict));
            let idle = OnThread(StdIdle::new(clock, None));
            let mut port = QueuePort::new(&mut queue, (*line).as_ref(), idle, clock)
                .within(DurNs::from_ms(5_000));
            let report = run_inline(wait(&plan, sleep, &mut port, &clock, &clock))?;
            let woke = clock.monotonic_ns();
            if let Some(predict) = &plan.predict {
                points.observe(&0, predict, report.outcome);
            }
            slept += report.slept_ns;
            lags.extend(queue.stored_at(number).map(|stored| woke.since(stored)));
            right += u32::from(job.verify(step, ROUNDS)?);
        }
        lags.sort_unstable();
        let lag = lags.get(lags.len() / 2).map_or("unknown".into(), DurNs::to_string);
        println!("{text}\n    {right} of {STEPS} right, median lag {lag}, slept {}", DurNs(slept));
    }
    Ok(())
}
