//! One wait: what it asks of its port, in which order, and how it ends.

#![cfg(not(loom))]

use gpu_async_reactor_core::*;
use std::cell::RefCell;

/// A port whose work is done, and whose word is stored, at given times; every call costs time and is
/// written down.
struct Script<'c> {
    clock: &'c ManualClock,
    done_at: u64,
    word_at: u64,
    fails_at: u64,
    trace: RefCell<Vec<String>>,
}

impl Script<'_> {
    fn now(&self) -> u64 {
        self.clock.monotonic_ns().0
    }
    fn note(&self, what: &str) {
        self.trace.borrow_mut().push(format!("{what}@{}", self.now()));
    }
    fn check(&self) -> core::result::Result<(), &'static str> {
        if self.now() >= self.fails_at { Err("lost") } else { Ok(()) }
    }
}

impl CompletionPort for Script<'_> {
    type Error = &'static str;
    fn query(&mut self) -> core::result::Result<bool, &'static str> {
        self.note("query");
        self.check()?;
        Ok(self.now() >= self.done_at)
    }
    async fn block(&mut self) -> core::result::Result<(), &'static str> {
        self.note("block");
        self.clock.set_monotonic(MonoNs(self.done_at.min(self.fails_at)));
        self.check()
    }
    async fn poll(&mut self) -> core::result::Result<(), &'static str> {
        self.note("poll");
        self.clock.set_monotonic(MonoNs(self.done_at.min(self.fails_at)));
        self.check()
    }
    fn arm(&mut self) -> core::result::Result<(), &'static str> {
        self.note("arm");
        self.check()
    }
    async fn park(&mut self, bound: DurNs) -> core::result::Result<bool, &'static str> {
        self.note(&format!("park({})", bound.0));
        let until = (self.now() + bound.0).min(self.word_at.max(self.now()));
        self.clock.set_monotonic(MonoNs(until));
        self.check()?;
        Ok(self.now() >= self.word_at)
    }
}

/// A timer under manual time that moves it.
struct Sleeper<'c>(&'c ManualClock);
impl Timer for Sleeper<'_> {
    async fn sleep_until(&self, at: MonoNs) {
        self.0.set_monotonic(at);
    }
}

struct Times {
    done: u64,
    word: u64,
    fails: u64,
}

const DONE_AT_1000: Times = Times { done: 1_000, word: 1_000, fails: u64::MAX };

fn run(
    plan: &str,
    sleep: Option<u64>,
    times: Times,
) -> (core::result::Result<WaitReport, &'static str>, String) {
    let clock = ManualClock::new();
    let mut port = Script {
        clock: &clock,
        done_at: times.done,
        word_at: times.word,
        fails_at: times.fails,
        trace: RefCell::default(),
    };
    let plan: WaitPlan = plan.parse().unwrap();
    let report = run_inline(wait(&plan, sleep, &mut port, &clock, &Sleeper(&clock)));
    (report, port.trace.into_inner().join(" "))
}

// In microseconds, so that 1 µs is the least a plan's text can say.
const FLAG: &str = "flag:park_us=1,backstop_us=3";

#[test]
fn block_is_the_blocking_wait_and_nothing_else() {
    let (report, trace) = run("block", Some(500), DONE_AT_1000);
    assert_eq!(trace, "block@0");
    let report = report.unwrap();
    assert_eq!(report.outcome, Outcome::Exact { residual_ns: 1_000 });
    assert_eq!((report.queries, report.sleeps, report.parks), (0, 0, 0));
}

#[test]
fn done_at_the_first_query_is_immediate_and_never_arms() {
    for plan in ["poll", FLAG] {
        let (report, trace) = run(plan, Some(500), Times { done: 0, ..DONE_AT_1000 });
        assert_eq!(trace, "query@0");
        assert_eq!(report.unwrap().outcome, Outcome::Immediate { residual_ns: 0 });
    }
}

#[test]
fn poll_polls_to_done() {
    let (report, trace) = run("poll", None, DONE_AT_1000);
    assert_eq!(trace, "query@0 poll@0");
    assert_eq!(report.unwrap().outcome, Outcome::Exact { residual_ns: 1_000 });
}

#[test]
fn a_sleep_comes_after_arming_and_before_a_query() {
    let (report, trace) = run(FLAG, Some(600), DONE_AT_1000);
    assert_eq!(trace, "query@0 arm@0 query@600 park(1000)@600 poll@1000");
    let report = report.unwrap();
    assert_eq!(report.outcome, Outcome::Exact { residual_ns: 1_000 });
    assert_eq!((report.sleeps, report.slept_ns), (1, 600));
    assert_eq!((report.parks, report.parked_ns, report.queries), (1, 400, 2));
}

#[test]
fn a_sleep_past_the_end_is_late() {
    for plan in ["poll", FLAG] {
        let (report, _) = run(plan, Some(1_500), DONE_AT_1000);
        assert_eq!(report.unwrap().outcome, Outcome::Late { woke_ns: 1_500 });
    }
}

#[test]
fn a_silent_word_is_asked_about_each_backstop_and_no_sooner() {
    // Invariant 3: the word never comes; the status says done at 7 µs.
    let (report, trace) = run(FLAG, None, Times { done: 7_000, word: u64::MAX, fails: u64::MAX });
    assert_eq!(
        trace,
        "query@0 arm@0 park(1000)@0 park(1000)@1000 park(1000)@2000 query@3000 \
         park(1000)@3000 park(1000)@4000 park(1000)@5000 query@6000 \
         park(1000)@6000 park(1000)@7000 park(1000)@8000 query@9000"
    );
    assert_eq!(report.unwrap().outcome, Outcome::Exact { residual_ns: 9_000 });
}

#[test]
fn a_word_before_the_status_is_not_believed() {
    // Invariant 2: the word says done at 200 ns, the status only at 1,000.
    let (report, trace) = run(FLAG, None, Times { done: 1_000, word: 200, fails: u64::MAX });
    assert_eq!(trace, "query@0 arm@0 park(1000)@0 poll@200");
    assert_eq!(report.unwrap().outcome, Outcome::Exact { residual_ns: 1_000 });
}

#[test]
fn a_park_never_runs_past_the_backstop() {
    let (_, trace) = run(
        "flag:park_us=2,backstop_us=3",
        None,
        Times { done: 4_000, word: u64::MAX, fails: u64::MAX },
    );
    assert!(trace.contains("park(2000)@0 park(1000)@2000 query@3000"), "{trace}");
}

#[test]
fn the_ports_error_ends_the_wait_unchanged_wherever_it_is_met() {
    for (plan, sleep, fails) in [
        ("block", None, 500),
        ("poll", None, 0),
        ("poll", None, 500),
        ("poll", Some(600), 500),
        (FLAG, None, 0),
        (FLAG, None, 500),
        (FLAG, Some(600), 500),
        (FLAG, None, 3_000),
    ] {
        let times = Times { done: 9_000, word: u64::MAX, fails };
        assert_eq!(run(plan, sleep, times).0, Err("lost"), "{plan} failing at {fails}");
    }
}

#[test]
fn run_inline_drives_a_future_that_yields() {
    let mut turns = 0;
    run_inline(async {
        for _ in 0..3 {
            yield_now().await;
            turns += 1;
        }
    });
    assert_eq!(turns, 3);
}
