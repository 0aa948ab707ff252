//! Plans that name their estimator, and waits in steps.

#![cfg(not(loom))]

use gpu_async_reactor_core::*;
use proptest::prelude::*;
use std::cell::RefCell;

#[test]
fn every_old_text_means_what_it_meant() {
    for text in [
        "block",
        "poll",
        "flag:park_us=100,backstop_us=2000",
        "poll+predict:margin_us=60,min_sleep_us=100,max_sleep_us=50000,window=8",
    ] {
        let (old, new): (WaitPlan, StepPlan) = (text.parse().unwrap(), text.parse().unwrap());
        assert_eq!(new, StepPlan::from(old));
        assert_eq!(new.to_string(), text);
    }
}

#[test]
fn each_violation_has_its_code() {
    use ErrorCode::*;
    for (text, code) in [
        ("poll+hazard", PlanUnknownKey),
        ("poll+hazard:lag=5", PlanMissingKey),
        ("poll+hazard:lag=5,cpu=1,lag=2", PlanRepeatedKey),
        ("poll+hazard:lag=5,cpu=0", PlanRange),
        ("poll+hazard:lag=1001,cpu=1", PlanRange),
        ("poll+hazard:lag=x,cpu=1", PlanValue),
        ("poll+ewma", PlanUnknownKey),
        ("poll+ewma:margin_us=10001", PlanRange),
        ("poll+nap:", PlanUnknownKey),
        ("poll+half-mean:x=1", PlanUnknownKey),
        ("block+nap", PlanPredictOnBlock),
        ("spin+nap", PlanSyntax),
        ("poll+guess", PlanSyntax),
        ("poll+nap+nap", PlanSyntax),
        ("poll+predict:window=3", PlanMissingKey),
    ] {
        let error = text.parse::<StepPlan>().expect_err(text);
        assert_eq!(error.code(), code, "{text}: {error}");
    }
}

fn any_plan() -> impl Strategy<Value = StepPlan> {
    let park = prop_oneof![
        Just("poll".to_owned()),
        (1..10_000u64, 0..900_000u64)
            .prop_map(|(park, more)| format!("flag:park_us={park},backstop_us={}", park + more)),
    ];
    let estimator = prop_oneof![
        Just(String::new()),
        Just("+nap".into()),
        Just("+half-mean".into()),
        Just("+half-min".into()),
        (0..=10_000u64).prop_map(|us| format!("+ewma:margin_us={us}")),
        (1..=1_000u64, 1..=1_000u64).prop_map(|(lag, cpu)| format!("+hazard:cpu={cpu},lag={lag}")),
        (1..=16u64)
            .prop_map(|w| format!("+predict:margin_us=1,min_sleep_us=2,max_sleep_us=3,window={w}")),
    ];
    (park, estimator).prop_map(|(park, estimator)| format!("{park}{estimator}").parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_printed_is_read_back(plan in any_plan()) {
        prop_assert_eq!(plan.to_string().parse::<StepPlan>().unwrap(), plan);
        let banded = format!("{plan};rows>=8:{plan}");
        prop_assert_eq!(banded.parse::<StepBands>().unwrap().to_string(), banded);
    }

    #[test]
    fn no_text_panics(text in "[a-z:=,+;>0-9_ -]{0,60}") {
        if let Err(error) = text.parse::<StepBands>() {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// Whatever it was taught, each step of the hazard schedule ends after it is asked for, and a
    /// wait comes to its end in a bounded number of steps.
    #[test]
    fn a_hazard_schedule_always_goes_on(
        lengths in prop::collection::vec((0..100_000u64, 1..2_000_000_000u64, any::<bool>()), 1..80),
        over in prop::collection::vec(0..10_000_000u64, 1..20),
        (lag, cpu) in (1..=1_000u32, 1..=1_000u32),
    ) {
        let mut schedule = HazardSchedule::new(Costs { lag, cpu });
        let mut over = over.into_iter().cycle();
        for (rows, length, _) in lengths {
            schedule.begin(rows);
            let (mut now, mut steps) = (0, 0);
            loop {
                steps += 1;
                prop_assert!(steps < 300_000, "{length} ns took {steps} steps");
                let step = schedule.step(now);
                prop_assert_eq!(step, schedule.step(now), "asking changes nothing");
                let until = match step { Step::Sleep(until) | Step::Watch(until) => until };
                prop_assert!(until > now, "{step:?} at {now}");
                match step {
                    Step::Sleep(until) => {
                        let late = over.next().unwrap();
                        schedule.overslept(late);
                        let from = now;
                        now = until.saturating_add(late);
                        if now >= length {
                            schedule.ended(Ending::Between(from, now));
                            break;
                        }
                    }
                    Step::Watch(until) if until >= length => {
                        schedule.ended(Ending::At(length));
                        break;
                    }
                    Step::Watch(until) => now = until,
                }
            }
        }
    }
}

/// Ten times longer lengths and lateness give about ten times longer sleeps before the first watch.
#[test]
fn a_steady_length_is_slept_to_and_watched_for() {
    for length in [1_000_000u64, 10_000_000, 100_000_000] {
        let mut schedule = HazardSchedule::new(Costs { lag: 5, cpu: 1 });
        for n in 0..60 {
            schedule.begin(0);
            schedule.overslept(60_000);
            schedule.ended(Ending::At(length + n % 7 * 1_000));
        }
        schedule.begin(0);
        // Naps until close by, then a watch that covers the length.
        let mut now = 0;
        while let Step::Sleep(until) = schedule.step(now) {
            now = until;
        }
        assert!(now > length - 300_000 && now < length, "{length}: slept to {now}");
        match schedule.step(length - 20_000) {
            Step::Watch(until) => assert!((length..length + 200_000).contains(&until), "{until}"),
            step => panic!("{length}: {step:?}"),
        }
    }
}

/// One outlier moves the next wait's watch by nothing: the level stays where the others are.
#[test]
fn one_outlier_does_not_move_the_rest() {
    let mut schedule = HazardSchedule::new(Costs { lag: 5, cpu: 1 });
    for n in 0..60 {
        schedule.begin(0);
        let length = if n == 58 { 400_000_000 } else { 10_000_000 + n % 5 * 1_000 };
        schedule.ended(Ending::At(length));
    }
    schedule.begin(0);
    assert!(matches!(schedule.step(9_990_000), Step::Watch(until) if until < 10_300_000));
}

/// A port under manual time that writes down what it is asked.
struct Script<'c> {
    clock: &'c ManualClock,
    done_at: u64,
    trace: RefCell<Vec<String>>,
}

impl Script<'_> {
    fn note(&self, what: &str) {
        self.trace.borrow_mut().push(format!("{what}@{}", self.clock.monotonic_ns().0));
    }
    fn is_done(&self) -> bool {
        self.clock.monotonic_ns().0 >= self.done_at
    }
}

impl CompletionPort for Script<'_> {
    type Error = Error;
    fn query(&mut self) -> Result<bool> {
        self.note("query");
        self.clock.advance(DurNs(10));
        Ok(self.is_done())
    }
    async fn block(&mut self) -> Result<()> {
        self.note("block");
        Ok(())
    }
    async fn poll(&mut self) -> Result<()> {
        self.note("poll");
        Ok(())
    }
    fn arm(&mut self) -> Result<()> {
        self.note("arm");
        Ok(())
    }
    async fn park(&mut self, bound: DurNs) -> Result<bool> {
        self.note(&format!("park({})", bound.0));
        self.clock.advance(bound);
        Ok(self.is_done())
    }
    async fn watch<C: Clock>(&mut self, bound: DurNs, _clock: &C) -> Result<bool> {
        self.note(&format!("watch({})", bound.0));
        self.clock.advance(bound);
        Ok(self.is_done())
    }
}

struct Sleeper<'c>(&'c ManualClock);
impl Timer for Sleeper<'_> {
    async fn sleep_until(&self, at: MonoNs) {
        self.0.set_monotonic(at + DurNs(3));
    }
}

/// Sleeps to 1,000, watches to 1,500, sleeps to 3,000, then watches for good.
#[derive(Default)]
struct Fixed {
    heard: Vec<String>,
}

impl Schedule for Fixed {
    fn begin(&mut self, rows: u64) {
        self.heard.push(format!("begin({rows})"));
    }
    fn step(&self, elapsed_ns: u64) -> Step {
        match elapsed_ns {
            0..1_000 => Step::Sleep(1_000),
            1_000..1_500 => Step::Watch(1_500),
            1_500..3_000 => Step::Sleep(3_000),
            _ => Step::Watch(u64::MAX),
        }
    }
    fn overslept(&mut self, by_ns: u64) {
        self.heard.push(format!("overslept({by_ns})"));
    }
    fn ended(&mut self, ending: Ending) {
        self.heard.push(format!("{ending:?}"));
    }
}

fn steps(park: &str, done_at: u64) -> (WaitReport, String, String) {
    let clock = ManualClock::new();
    let mut port = Script { clock: &clock, done_at, trace: RefCell::default() };
    let park = park.parse::<WaitPlan>().unwrap().park;
    let mut schedule = Fixed::default();
    let timer = Sleeper(&clock);
    let waited = wait_steps(park, &mut schedule, 9, &mut port, &clock, &timer);
    let report = run_inline(waited).unwrap();
    (report, port.trace.into_inner().join(" "), schedule.heard.join(" "))
}

#[test]
fn a_wait_sleeps_watches_sleeps_and_watches() {
    const FLAG: &str = "flag:park_us=1,backstop_us=3";
    let (report, trace, heard) = steps(FLAG, 3_500);
    assert_eq!(
        trace,
        "query@0 arm@10 query@1003 watch(487)@1013 query@3003 park(1000)@3013 poll@4013"
    );
    assert_eq!(heard, "begin(9) overslept(3) overslept(3) At(4013)");
    assert_eq!(report.outcome, Outcome::Exact { residual_ns: 4_013 });
    assert_eq!((report.sleeps, report.parks, report.queries), (2, 2, 3));
    // Ended in the watch, in a sleep, before the first step.
    let (report, trace, heard) = steps(FLAG, 1_200);
    assert!(trace.ends_with("watch(487)@1013 poll@1500"), "{trace}");
    assert_eq!(heard, "begin(9) overslept(3) At(1500)");
    assert_eq!(report.outcome, Outcome::Exact { residual_ns: 1_500 });
    let (report, _, heard) = steps(FLAG, 2_000);
    assert_eq!(heard, "begin(9) overslept(3) overslept(3) Between(1500, 3003)");
    assert_eq!(report.outcome, Outcome::Late { woke_ns: 3_003 });
    let (report, trace, _) = steps(FLAG, 0);
    assert_eq!((trace.as_str(), report.queries), ("query@0", 1));
    // `poll` watches by queries and neither arms nor parks; `block` is the port's own.
    let (_, trace, _) = steps("poll", 1_030);
    assert_eq!(trace, "query@0 query@1003 query@1013 query@1023");
    assert_eq!(steps("block", 99).1, "block@0");
}
