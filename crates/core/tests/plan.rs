//! Plan and band texts: what is read, what is printed, and the code of each refusal.

#![cfg(not(loom))]

use gpu_async_reactor_core::*;
use proptest::prelude::*;

fn plan(text: &str) -> WaitPlan {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> Error {
    text.parse::<WaitPlan>().expect_err(text)
}

const FULL: &str = "flag:park_us=100,backstop_us=2000+predict:margin_us=60,min_sleep_us=100,max_sleep_us=50000,window=8";

#[test]
fn each_shape_is_read() {
    assert_eq!(plan("block"), WaitPlan { park: Park::Block, predict: None });
    assert_eq!(plan("poll"), WaitPlan { park: Park::QueryPoll, predict: None });
    let predict = DeadlinePlan {
        margin_ns: 60_000,
        min_sleep_ns: 100_000,
        max_sleep_ns: 50_000_000,
        window: 8,
    };
    let park = Park::FlagWait { park_ns: 100_000, backstop_ns: 2_000_000 };
    assert_eq!(plan(FULL), WaitPlan { park, predict: Some(predict) });
    let any_order = "flag:backstop_us=2000,park_us=100+predict:window=8,max_sleep_us=50000,margin_us=60,min_sleep_us=100";
    assert_eq!(plan(any_order), plan(FULL));
    assert_eq!(plan(FULL).to_string(), FULL);
}

#[test]
fn the_ends_of_each_range_are_in_and_one_beyond_is_out() {
    for good in [
        "flag:park_us=1,backstop_us=1",
        "flag:park_us=10000,backstop_us=10000",
        "flag:park_us=10000,backstop_us=1000000",
        "poll+predict:margin_us=0,min_sleep_us=0,max_sleep_us=0,window=1",
        "poll+predict:margin_us=0,min_sleep_us=5,max_sleep_us=5,window=16",
    ] {
        plan(good);
    }
    for (bad, part) in [
        ("flag:park_us=0,backstop_us=1", "park_us=0"),
        ("flag:park_us=10001,backstop_us=20000", "park_us=10001"),
        ("flag:park_us=100,backstop_us=99", "backstop_us=99"),
        ("flag:park_us=1,backstop_us=1000001", "backstop_us=1000001"),
        ("poll+predict:margin_us=0,min_sleep_us=0,max_sleep_us=0,window=0", "window=0"),
        ("poll+predict:margin_us=0,min_sleep_us=0,max_sleep_us=0,window=17", "window=17"),
        ("poll+predict:margin_us=0,min_sleep_us=6,max_sleep_us=5,window=1", "min_sleep_us=6"),
        (
            "poll+predict:margin_us=3600000001,min_sleep_us=6,max_sleep_us=9,window=1",
            "margin_us=3600000001",
        ),
    ] {
        let error = refusal(bad);
        assert_eq!(error.code(), ErrorCode::PlanRange, "{bad}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn each_violation_has_its_code_and_quotes_the_part() {
    use ErrorCode::*;
    for (text, code, part) in [
        ("", PlanSyntax, "``"),
        ("spin", PlanSyntax, "`spin`"),
        ("Poll", PlanSyntax, "`Poll`"),
        (" poll", PlanSyntax, "` poll`"),
        ("flag", PlanSyntax, "`flag`"),
        ("poll+predict", PlanSyntax, "`predict`"),
        ("poll+sleep:window=1", PlanSyntax, "`sleep:window=1`"),
        ("poll+", PlanSyntax, "``"),
        ("flag:", PlanUnknownKey, "``"),
        ("flag:park_us=1", PlanMissingKey, "`backstop_us`"),
        ("flag:backstop_us=1", PlanMissingKey, "`park_us`"),
        ("flag:park_us=1,backstop_us=2,park_us=1", PlanRepeatedKey, "`park_us`"),
        ("flag:park_us=1,backstop_us=2,spin_us=1", PlanUnknownKey, "`spin_us`"),
        ("flag:park_us=1,backstop_us=2,", PlanUnknownKey, "``"),
        ("flag:park_us=1,backstop_us=2+predict:", PlanUnknownKey, "``"),
        ("flag:park_us=ten,backstop_us=2", PlanValue, "`ten`"),
        ("flag:park_us=,backstop_us=2", PlanValue, "``"),
        ("flag:park_us,backstop_us=2", PlanValue, "`park_us`"),
        ("flag:park_us=+1,backstop_us=2", PlanSyntax, "`1,backstop_us=2`"),
        ("flag:park_us=-1,backstop_us=2", PlanValue, "`-1`"),
        ("flag:park_us=1.5,backstop_us=2", PlanValue, "`1.5`"),
        ("flag:park_us=99999999999999999999,backstop_us=2", PlanValue, "`99999999999999999999`"),
        ("poll+predict:window=3", PlanMissingKey, "`margin_us`"),
        (
            "block+predict:margin_us=0,min_sleep_us=0,max_sleep_us=1,window=1",
            PlanPredictOnBlock,
            "block+predict",
        ),
    ] {
        let error = refusal(text);
        assert_eq!(error.code(), code, "{text}: {error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_flag_plan_without_a_word_polls_with_the_same_prediction_or_is_refused() {
    let caps = HostCaps { flag_wait: Err("the driver refused the store".into()) };
    let got = plan(FULL).resolve(&caps, Strictness::Lenient).unwrap();
    assert_eq!(got.plan, WaitPlan { park: Park::QueryPoll, predict: plan(FULL).predict });
    let warning = got.warning.unwrap();
    assert_eq!(warning.code(), ErrorCode::PlanFallback);
    assert!(warning.to_string().contains("the driver refused the store"));
    let refused = plan(FULL).resolve(&caps, Strictness::Strict).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::PlanRefused);
    for text in ["block", "poll"] {
        let got = plan(text).resolve(&caps, Strictness::Strict).unwrap();
        assert_eq!(got, Resolved { plan: plan(text), warning: None });
    }
    let able = HostCaps { flag_wait: Ok(()) };
    let got = plan(FULL).resolve(&able, Strictness::Strict).unwrap();
    assert_eq!(got, Resolved { plan: plan(FULL), warning: None });
}

#[test]
fn bands_select_by_rows_and_refuse_bad_edges() {
    let text = format!("poll;rows>=8:{FULL};rows>=64:block");
    let bands: WaitBands = text.parse().unwrap();
    assert_eq!(bands.to_string(), text);
    for (rows, expected) in
        [(0, "poll"), (7, "poll"), (8, FULL), (63, FULL), (64, "block"), (u64::MAX, "block")]
    {
        assert_eq!(*bands.select(rows), plan(expected), "{rows} rows");
    }
    use ErrorCode::*;
    for (text, code) in [
        ("poll;rows>=0:block", BandsOrder),
        ("poll;rows>=8:block;rows>=8:poll", BandsOrder),
        ("poll;rows>=8:block;rows>=7:poll", BandsOrder),
        ("poll;rows>=1:poll;rows>=2:poll;rows>=3:poll;rows>=4:poll", BandsCount),
        ("poll;rows>8:block", BandsSyntax),
        ("poll;rows>=x:block", BandsSyntax),
        ("poll;rows>=:block", BandsSyntax),
        ("poll;rows>=+8:block", BandsSyntax),
        ("poll;rows>=99999999999999999999:block", BandsSyntax),
        ("poll;", BandsSyntax),
        ("poll;rows>=8:", PlanSyntax),
        ("poll;rows>=8:flag:park_us=0,backstop_us=1", PlanRange),
        (";rows>=8:poll", PlanSyntax),
    ] {
        assert_eq!(text.parse::<WaitBands>().expect_err(text).code(), code, "{text}");
    }
    assert!(Bands::single('a').with_band(3, 'b').unwrap().with_band(3, 'c').is_err());
}

#[test]
fn step_rows_are_shared_by_clones() {
    let bands: WaitBands = "poll;rows>=8:block".parse().unwrap();
    let rows = StepRows::new();
    let reader = rows.clone();
    assert_eq!(reader.select(&bands).park, Park::QueryPoll);
    std::thread::spawn(move || rows.publish(9)).join().unwrap();
    assert_eq!((reader.rows(), reader.select(&bands).park), (9, Park::Block));
}

fn any_plan() -> impl Strategy<Value = WaitPlan> {
    let flag = (1..=10_000u64, 0..=1_000_000u64).prop_map(|(park, more)| Park::FlagWait {
        park_ns: park * 1_000,
        backstop_ns: (park + more).min(1_000_000) * 1_000,
    });
    let predict = (0..=3_600_000_000u64, 0..=3_600_000_000u64, 0..=3_600_000_000u64, 1..=16usize)
        .prop_map(|(margin, a, b, window)| DeadlinePlan {
            margin_ns: margin * 1_000,
            min_sleep_ns: a.min(b) * 1_000,
            max_sleep_ns: a.max(b) * 1_000,
            window,
        });
    let park = prop_oneof![Just(Park::Block), Just(Park::QueryPoll), flag];
    (park, prop::option::of(predict)).prop_map(|(park, predict)| WaitPlan {
        park,
        predict: predict.filter(|_| park != Park::Block),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_printed_is_read_back(plan in any_plan()) {
        prop_assert_eq!(plan.to_string().parse::<WaitPlan>().unwrap(), plan);
    }

    #[test]
    fn banded_texts_are_read_back(
        first in any_plan(),
        rest in prop::collection::btree_map(1..1_000u64, any_plan(), 0..4),
    ) {
        let mut bands = WaitBands::from(first);
        for (&edge, &plan) in &rest {
            bands = bands.with_band(edge, plan).unwrap();
        }
        prop_assert_eq!(&bands.to_string().parse::<WaitBands>().unwrap(), &bands);
        // Exactly one band holds for any number of rows: the last whose edge is not above it.
        for rows in 0..1_001 {
            let expected = rest.range(..=rows).next_back().map_or(&first, |(_, plan)| plan);
            prop_assert_eq!(bands.select(rows), expected);
        }
    }

    #[test]
    fn no_text_panics_and_every_refusal_has_a_text(text in "[a-z:=,+;>0-9_ ]{0,60}") {
        if let Err(error) = text.parse::<WaitBands>() {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn a_damaged_text_is_refused_or_means_what_it_says(
        plan in any_plan(), at in any::<prop::sample::Index>(), with in "[a-z:=,+0-9]",
    ) {
        let mut text = plan.to_string();
        let at = at.index(text.len());
        text.replace_range(at..at + 1, &with);
        if let Ok(read) = text.parse::<WaitPlan>() {
            prop_assert_eq!(read.to_string().parse::<WaitPlan>().unwrap(), read);
        }
    }
}
