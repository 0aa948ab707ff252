//! What `cuda_wait` and `hip_wait` do: the two vendors' devices have the same shape.

use gpu_async_reactor::backend::mapped::{Compile, Driver, Load, StepKernel};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::watcher::CompletionExt;
use gpu_async_reactor::*;
use std::ffi::{CStr, c_void};

const PLANS: [&str; 4] = [
    "block",
    "poll",
    "flag:park_us=1000,backstop_us=20000",
    "flag:park_us=1000,backstop_us=20000+hazard:lag=5,cpu=1",
];
const STEPS: u64 = 60;
const STEP: DurNs = DurNs::from_us(3_000);

/// The address of an entry point of the simulated driver inside.
fn simulated(name: &CStr) -> *mut c_void {
    let entry = name.to_str().ok().and_then(driver_sim::entry);
    entry.map_or(std::ptr::null_mut(), |entry| entry.as_ptr())
}

pub(crate) fn main<V: Load + Compile>() -> Result<()> {
    let sim = std::env::args().any(|arg| arg == "--driver-sim");
    let driver = match sim {
        // SAFETY: the simulated driver keeps to the vendor's signatures, and is never unloaded.
        true => unsafe { Driver::<V>::from_lookup("the simulated driver", &simulated) },
        false => Driver::load(),
    };
    let device = match driver.and_then(|driver| driver.open(0)) {
        Ok(device) => device,
        Err(error) => {
            println!("no {} device to wait for (try --driver-sim): {error}", V::NAME);
            return Ok(());
        }
    };
    let simulated = if sim { " [SIMULATED]" } else { "" };
    println!("{}{simulated}: {STEPS} kernels of {STEP}", device.name());
    println!("{:>10} {:>10} {:>8}  plan", "over", "CPU", "right");

    let kernel = StepKernel::new(&device)?;
    let (mut queue, mut job, clock) = (device.queue()?, kernel.job()?, StdClock::new());
    let line = queue.line().clone();
    for text in PLANS {
        let plan: StepPlan = text.parse()?;
        let mut schedule = plan.schedule();
        let mut measured = Measured::begin();
        for seed in 0..STEPS {
            let began = clock.monotonic_ns();
            let number = job.run(&mut queue, seed, STEP.0)?;
            let idle = OnThread(StdIdle::new(clock, None));
            let mut port = QueuePort::new(&mut queue, (*line).as_ref(), idle, clock)
                .number(number)
                .within(DurNs::from_ms(5_000));
            run_inline(wait_steps(plan.park, &mut schedule, 1, &mut port, &clock, &clock))?;
            measured.waited(clock.monotonic_ns().since(began), job.verify(seed));
        }
        measured.print(text);
    }

    // The same stream from any runtime: a future that a watcher's thread wakes.
    let mut measured = Measured::begin();
    for seed in 0..STEPS {
        let began = clock.monotonic_ns();
        job.run(&mut queue, seed, STEP.0)?;
        let done = smol::block_on(queue.completion().timeout(DurNs::from_ms(5_000)));
        measured.waited(clock.monotonic_ns().since(began), done.is_ok() && job.verify(seed));
    }
    measured.print("a completion on smol");
    Ok(())
}

/// What the waits of one plan came to.
struct Measured {
    over: Vec<DurNs>,
    right: u64,
    cpu_ns: u64,
}

impl Measured {
    fn begin() -> Measured {
        Measured { over: Vec::new(), right: 0, cpu_ns: cpu_ns() }
    }

    /// `took` from the submission to the instruction behind the wait.
    fn waited(&mut self, took: DurNs, right: bool) {
        self.over.push(DurNs(took.0.saturating_sub(STEP.0)));
        self.right += u64::from(right);
    }

    fn print(mut self, what: &str) {
        self.over.sort_unstable();
        let (median, cpu) = (self.over[self.over.len() / 2], (cpu_ns() - self.cpu_ns) / STEPS);
        let (median, cpu) = (median.to_string(), DurNs(cpu).to_string());
        println!("{median:>10} {cpu:>10} {:>5}/{STEPS}  {what}", self.right);
    }
}

/// CPU time of the process, without that of a simulated device.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let all = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    all.saturating_sub(driver_sim::device_cpu_ns())
}
