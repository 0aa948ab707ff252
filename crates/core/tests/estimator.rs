//! The published estimator: exact values, and against an oracle that keeps everything.

#![cfg(not(loom))]

use gpu_async_reactor_core::Outcome::{Exact, Immediate, Late};
use gpu_async_reactor_core::*;
use proptest::prelude::*;

fn plan(window: usize) -> DeadlinePlan {
    DeadlinePlan { margin_ns: 50, min_sleep_ns: 100, max_sleep_ns: 5_000, window }
}

fn exact(residual_ns: u64) -> Outcome {
    Exact { residual_ns }
}

#[test]
fn the_first_wait_never_sleeps() {
    assert_eq!(PointEstimate::new().predicted_ns(), None);
    let eager = DeadlinePlan { margin_ns: 0, min_sleep_ns: 0, max_sleep_ns: u64::MAX, window: 16 };
    assert_eq!(PointEstimate::new().sleep_ns(&eager), None);
}

#[test]
fn the_prediction_is_the_minimum_of_the_window() {
    let mut point = PointEstimate::new();
    for (residual, predicted) in
        [(900, 900), (700, 700), (800, 700), (850, 700), (860, 800), (870, 850)]
    {
        point.observe(&plan(3), exact(residual));
        assert_eq!(point.predicted_ns(), Some(predicted), "after {residual}");
    }
}

#[test]
fn the_sleep_is_less_a_margin_and_within_its_bounds() {
    for (residual, sleep) in [
        (149, None),
        (150, Some(100)),
        (1_000, Some(950)),
        (5_050, Some(5_000)),
        (9_999, Some(5_000)),
        (20, None),
    ] {
        let mut point = PointEstimate::new();
        point.observe(&plan(4), exact(residual));
        assert_eq!(point.sleep_ns(&plan(4)), sleep, "residual {residual}");
    }
}

#[test]
fn a_late_wake_enters_as_half_of_the_smaller() {
    let mut point = PointEstimate::new();
    point.observe(&plan(4), exact(1_000));
    point.observe(&plan(4), Late { woke_ns: 950 });
    assert_eq!(point.predicted_ns(), Some(475));
    point.observe(&plan(4), Late { woke_ns: 9_000 });
    assert_eq!(point.predicted_ns(), Some(237));
    point.observe(&plan(4), Immediate { residual_ns: 3 });
    assert_eq!(point.predicted_ns(), Some(3));
}

#[test]
fn the_window_may_change_between_calls() {
    let mut point = PointEstimate::new();
    for residual in [300, 600, 900] {
        point.observe(&plan(16), exact(residual));
    }
    assert_eq!(point.sleep_ns(&plan(1)), Some(850));
    assert_eq!(point.sleep_ns(&plan(2)), Some(550));
    assert_eq!(point.sleep_ns(&plan(3)), Some(250));
    point.observe(&plan(1), exact(800));
    assert_eq!(point.predicted_ns(), Some(800));
    assert_eq!(point.sleep_ns(&plan(16)), Some(250));
    // A window that no plan's text allows is taken as the nearest that one does.
    assert_eq!(point.sleep_ns(&plan(0)), Some(750));
    assert_eq!(point.sleep_ns(&plan(99)), Some(250));
}

#[test]
fn points_of_a_table_do_not_mix() {
    let mut table = PointTable::new();
    table.observe(&(0, "decode"), &plan(4), exact(400));
    table.observe(&(1, "decode"), &plan(4), exact(800));
    table.observe(&(0, "decode"), &plan(4), exact(500));
    assert_eq!(table.predicted_ns(&(0, "decode")), Some(400));
    assert_eq!(table.sleep_ns(&(1, "decode"), &plan(4)), Some(750));
    assert_eq!(table.predicted_ns(&(2, "decode")), None);
}

fn outcome() -> impl Strategy<Value = Outcome> {
    (0..3, 0..10_000u64).prop_map(|(kind, ns)| match kind {
        0 => Exact { residual_ns: ns },
        1 => Late { woke_ns: ns },
        _ => Immediate { residual_ns: ns },
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn behaves_as_a_list_of_all_outcomes(
        steps in prop::collection::vec((outcome(), 1..=WINDOW_MAX, 1..=WINDOW_MAX), 1..60),
    ) {
        let mut point = PointEstimate::new();
        let mut all: Vec<u64> = Vec::new();
        let least = |all: &[u64], window: usize| all.iter().rev().take(window).min().copied();
        for (outcome, window, asked) in steps {
            let before = least(&all, window);
            all.push(match outcome {
                Exact { residual_ns } | Immediate { residual_ns } => residual_ns,
                Late { woke_ns } => before.map_or(woke_ns, |p| p.min(woke_ns)) / 2,
            });
            point.observe(&plan(window), outcome);
            prop_assert_eq!(point.predicted_ns(), least(&all, window));
            if let (Late { .. }, Some(before)) = (outcome, before) {
                prop_assert!(point.predicted_ns().unwrap() <= before, "a late wake raised it");
            }
            let asked = plan(asked);
            let sleep = point.sleep_ns(&asked);
            let expected = least(&all, asked.window).unwrap().saturating_sub(50).min(5_000);
            prop_assert_eq!(sleep, (expected >= 100).then_some(expected));
        }
    }
}
