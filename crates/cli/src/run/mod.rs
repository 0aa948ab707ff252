//! `gpu-reactor run`: the same device work, awaited by each plan.

pub(crate) mod devices;
mod drive;
mod on_tokio;
pub(crate) mod stats;

use crate::args::{Host, RunArgs};
use crate::exit::{Exit, Failure, of_error};
use crate::report::{self, Facts};
use crate::sys;
use crate::workload::Workload;
use devices::{Opened, StepDevice, Want, on_device};
use drive::{Shared, Way};
use gpu_async_reactor::replay::Recorder;
use gpu_async_reactor::{DurNs, StepBands, StepPlan, Strictness};
use indicatif::{ProgressBar, ProgressStyle};
use stats::PlanResult;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One of each kind, with the numbers that suit steps of about a millisecond.
pub(crate) const DEFAULT_PLANS: [&str; 5] = [
    "block",
    "poll",
    "flag:park_us=1000,backstop_us=20000",
    "flag:park_us=1000,backstop_us=20000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=20000,window=3",
    "flag:park_us=1000,backstop_us=20000+hazard:lag=5,cpu=1",
];

/// Runs, prints, writes the report.
pub(crate) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let (queues, steps) = (usize::from(args.queues), args.steps as usize);
    let work = match args.step_us {
        Some(us) => Workload::fixed(queues, steps, us),
        None => Workload::traced(queues, steps, args.trace.as_deref())?,
    };
    let (opened, passed) =
        devices::choose(args.device, Want { driver_sim: args.driver_sim, fault: args.sim_fault })?;
    let file = report::Writer::open(&args.report)?;
    let record = args.record.as_deref().map(report::Writer::open).transpose()?;
    let stop = stop_on_ctrl_c()?;
    on_device!(&opened, device => run_on(device, &passed, args, &work, (file, record), &stop))
}

/// Runs a workload once under one plan, and keeps its waits if there is a recorder.
pub(crate) fn once(
    opened: &Opened,
    bands: &StepBands,
    work: &Workload,
    recorder: Option<Arc<Recorder>>,
) -> Result<PlanResult, Failure> {
    let longest = work.queues.iter().flatten().map(|step| step.us).max().unwrap_or(0);
    let deadline = DurNs::from_us(4 * work.queues.len() as u64 * longest);
    let deadline = deadline.max(DurNs::from_ms(5_000));
    let shared = Shared { recorder, deadline, stop: Arc::default(), done: Arc::default() };
    let way = Way::Plan(Host::Std, bands.clone());
    let result =
        on_device!(opened, device => drive::drive(device, &work.queues, (&way, ""), &shared))?;
    match result.tally.error {
        Some(error) => Err(error.into()),
        None => Ok(result),
    }
}

fn run_on<D: StepDevice>(
    device: &D,
    passed: &[String],
    args: &RunArgs,
    work: &Workload,
    (file, record): (report::Writer, Option<report::Writer>),
    stop: &Arc<AtomicBool>,
) -> Result<Exit, Failure> {
    let about = device.about();
    let facts = Facts {
        device: about.clone(),
        machine: sys::Machine::here(),
        date: sys::date(),
        work: format!(
            "{} queues of {} {}; mean {:.2} ms",
            args.queues,
            args.steps,
            work.about,
            work.mean_us() / 1_000.0
        ),
    };
    let say =
        |line: &str| if args.json { eprintln!("{line}") } else { crate::sys::outln!("{line}") };
    report::text::opening(&facts, passed, &say);

    let ways = ways(args, about, &say)?;
    let rows = work.queues.iter().map(Vec::len).sum();
    let recorder = record.as_ref().map(|_| Arc::new(Recorder::new(rows)));
    let mut results = Vec::new();
    let mut exit = Exit::Done;
    for (way, name) in ways.iter().zip(stats::names(&ways)) {
        let shared = Shared {
            recorder: recorder.clone().filter(|_| results.is_empty()),
            deadline: deadline(args, work),
            stop: stop.clone(),
            done: Arc::default(),
        };
        let result = one_way(device, (way, &name), work, &shared)?;
        if args.json {
            report::json::rows(&result, &facts);
        }
        say(&report::text::plan_line(&result));
        exit = exit_of(&result, stop);
        let last = result.tally.error.is_some() || exit == Exit::Interrupted;
        let wrong = exit == Exit::Wrong;
        results.push(result);
        if last || wrong {
            break;
        }
    }
    report::text::closing(&results, &facts, &say);
    if let (Some(file), Some(recorder), Some(first)) = (record, &recorder, results.first()) {
        let recording = recorder.recording();
        let path = file.write(&recording.write())?;
        say(&format!("recording: {} waits under {} in {path}", recording.rows.len(), first.plan));
    }
    let path = file.write(&report::html::page(&results, &facts))?;
    say(&format!("report: {path}"));
    report::text::verdict(&results, ways.len(), exit);
    Ok(exit)
}

/// Each host with each plan; completions take none, and a blocking wait is the same on every host.
fn ways(args: &RunArgs, about: &devices::About, say: &dyn Fn(&str)) -> Result<Vec<Way>, Failure> {
    let plans = plans(args, about, say)?;
    let mut ways = Vec::new();
    for &host in &args.hosts {
        if host == Host::Tokio {
            if !args.plans.is_empty() {
                say("note: tokio: a completion takes no plan, the watcher finds its own");
            }
            ways.push(Way::Completions);
            continue;
        }
        for plan in &plans {
            if drive::blocks(plan)
                && ways.iter().any(|way| matches!(way, Way::Plan(_, p) if p == plan))
            {
                continue;
            }
            ways.push(Way::Plan(host, plan.clone()));
        }
    }
    Ok(ways)
}

/// The plans that this host can run, in the place of those asked for.
fn plans(
    args: &RunArgs,
    about: &devices::About,
    say: &dyn Fn(&str),
) -> Result<Vec<StepBands>, Failure> {
    let mut asked = args.plans.clone();
    if asked.is_empty() {
        for text in DEFAULT_PLANS {
            asked.push(text.parse::<StepPlan>()?.into());
        }
    }
    let mut plans = Vec::new();
    for bands in asked {
        let mut here: Option<StepBands> = None;
        for band in bands.bands() {
            let (plan, warning) = band.plan.resolve(&about.caps, Strictness::Lenient)?;
            if let Some(warning) = warning {
                say(&format!("note: {warning}"));
            }
            here = Some(match here {
                None => plan.into(),
                Some(here) => here.with_band(band.from_rows, plan)?,
            });
        }
        plans.extend(here);
    }
    Ok(plans)
}

fn one_way<D: StepDevice>(
    device: &D,
    (way, name): (&Way, &str),
    work: &Workload,
    shared: &Shared,
) -> Result<PlanResult, Failure> {
    if !std::io::stderr().is_terminal() {
        return Ok(drive::drive(device, &work.queues, (way, name), shared)?);
    }
    let total = work.queues.iter().map(|steps| steps.len() as u64).sum();
    let bar = ProgressBar::new(total).with_message(format!("{}: {way}", way.host().name()));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos:>6}/{len} {msg}") {
        bar.set_style(style);
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Ten looks a second: the bar costs the measurement nothing that shows.
        let shown = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                bar.set_position(shared.done.load(Ordering::Relaxed));
                std::thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let result = drive::drive(device, &work.queues, (way, name), shared);
        over.store(true, Ordering::Relaxed);
        shown.thread().unpark();
        Ok(result?)
    })
}

/// After how long a wait is given up.
fn deadline(args: &RunArgs, work: &Workload) -> DurNs {
    let longest = work.queues.iter().flatten().map(|step| step.us).max().unwrap_or(0);
    let by_default =
        DurNs::from_us(4 * u64::from(args.queues) * longest).max(DurNs::from_ms(5_000));
    args.deadline_ms.map_or(by_default, DurNs::from_ms)
}

fn exit_of(result: &PlanResult, stop: &AtomicBool) -> Exit {
    let tally = &result.tally;
    match &tally.error {
        Some(e) => match of_error(e) {
            Exit::DeviceLost => Exit::DeviceLost,
            _ => Exit::Wrong,
        },
        None if tally.wrong > 0 => Exit::Wrong,
        None if tally.waits == result.asked && tally.verified == result.asked => Exit::Done,
        None if stop.load(Ordering::Relaxed) => Exit::Interrupted,
        None => Exit::Wrong,
    }
}

/// Set by the first Ctrl-C; the second ends the process at once.
fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    let handler = ctrlc::set_handler(move || {
        if set.swap(true, Ordering::Relaxed) {
            std::process::exit(Exit::Interrupted as i32);
        }
    });
    handler.map_err(|e| Failure::bad_input(format!("listening for Ctrl-C: {e}")))?;
    Ok(stop)
}
