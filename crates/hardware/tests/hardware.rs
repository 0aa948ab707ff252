//! The program on the simulated driver: right on a sound one, and violations are found where there are some.

use std::process::{Command, Output};

fn checks(script: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-hardware"));
    command.args(["--driver-sim", "--checks-only", "--quick", "--script", script]);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_sound_driver_violates_nothing() {
    let output = checks("devices=2");
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("simulated driver, no GPU") && said.contains("violations: 0"), "{said}");
    assert_eq!(said.matches("\nok ").count(), 6, "{said}");
}

/// A store that overtakes its data is what the visibility checks are there for. It overtakes by more than a busy
/// machine keeps a watching thread from its core.
#[test]
fn a_word_before_its_data_is_a_violation() {
    let output = checks("late_data=20:100000");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("VIOLATED visibility-mapped"), "{said}");
    assert!(said.contains("its number was seen, and word"), "{said}");
}

#[test]
fn a_store_that_never_comes_is_a_violation() {
    let output = checks("lost_store=40");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("never reached"), "{said}");
}

#[test]
fn a_machine_without_a_driver_is_told_so() {
    let program = env!("CARGO_BIN_EXE_gpu-hardware");
    let output =
        Command::new(program).args(["--driver", "/nowhere/libcuda.so.1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("libcuda.so.1"), "{said}");
}

#[test]
fn a_way_is_measured_by_the_device_clock() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-hardware"));
    let folder = tempfile::tempdir().unwrap();
    let vendor = driver_sim::install::Vendor::Cuda;
    let driver = driver_sim::install::install(folder.path(), vendor, &[]).unwrap();
    command.arg("--driver").arg(driver).args(["measure", "plan-poll", "--quick"]);
    let output = command.output().unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let rows: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2 * 5 * 5);
    let lags = rows.iter().filter(|row| row["metric"] == "lag_p50_ns");
    for row in lags {
        // A clock that was compared wrongly is off by many seconds: the simulated device's is. A busy machine
        // compares clocks to within a few of its time slices.
        let lag = row["value"].as_i64().unwrap();
        assert!((-1_000_000_000..1_000_000_000).contains(&lag), "{row}");
        assert_eq!(row["simulated"], true);
    }
}
