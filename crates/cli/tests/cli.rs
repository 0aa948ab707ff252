//! The command, from outside: what it prints, what it writes, and the code it ends with.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// An empty folder of this test's own.
fn folder(test: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn command(test: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-reactor"));
    command.args(args).current_dir(folder(test)).env("RUST_BACKTRACE", "1");
    command
}

fn run(test: &str, args: &[&str]) -> Output {
    command(test, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

fn value(rows: &[Value], case: &str, metric: &str) -> f64 {
    let row = rows
        .iter()
        .find(|row| row["case"].as_str().unwrap().starts_with(case) && row["metric"] == metric);
    row.unwrap_or_else(|| panic!("no {metric} of {case} in {rows:?}"))["value"].as_f64().unwrap()
}

#[track_caller]
fn one_line(output: &Output, code: i32, parts: &[&str]) {
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(!err.contains("panicked") && !err.contains("backtrace"), "{err}");
    for part in parts {
        assert!(err.contains(part), "`{part}` is not in {err}");
    }
}

#[test]
fn run_awaits_and_verifies_every_step_under_each_plan() {
    let args = ["run", "--device", "sim", "--queues", "2", "--steps", "40", "--json"];
    let output = run("run_json", &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = rows(&output);
    for case in [
        "block",
        "poll",
        "flag:park_us=1000,backstop_us=20000",
        "flag:park_us=1000,backstop_us=20000+predict",
    ] {
        assert_eq!(value(&rows, case, "waits"), 80.0);
        assert_eq!(value(&rows, case, "verified"), 80.0);
        assert_eq!(value(&rows, case, "wrong"), 0.0);
        let [p50, p99, max] =
            ["lag_p50_ns", "lag_p99_ns", "lag_max_ns"].map(|m| value(&rows, case, m));
        assert!(p50 > 0.0 && p50 <= p99 && p99 <= max, "{case}: {p50} {p99} {max}");
    }
    for row in &rows {
        assert_eq!(row["suite"], "run");
        assert_eq!(row["subject"], "ours");
        assert_eq!(row["simulated"], true);
        assert!(row["device"].as_str().unwrap().contains("simulated"));
        assert_eq!(row["n"], 80);
    }
    // What tells the plans apart.
    assert_eq!(value(&rows, "block", "queries"), 0.0);
    assert!(value(&rows, "poll", "queries") > 10.0 * value(&rows, "flag:", "queries"));
    assert_eq!(value(&rows, "poll", "parks"), 0.0);
    assert!(value(&rows, "flag:", "parks") > 0.0);
    assert!(value(&rows, "flag:park_us=1000,backstop_us=20000+predict", "sleeps") > 0.0);
}

/// On a real driver, where there is one; `GPU_REACTOR_REQUIRE_VULKAN=1` makes its lack a failure.
#[test]
fn run_on_vulkan_verifies_every_step() {
    let args = ["run", "--device", "vulkan", "--queues", "2", "--steps", "20", "--json"];
    let output = run("vulkan", &args);
    let err = text(&output.stderr);
    let required = std::env::var_os("GPU_REACTOR_REQUIRE_VULKAN").is_some_and(|value| value == "1");
    if output.status.code() == Some(2) && !required {
        one_line(&output, 2, &[]);
        eprintln!("SKIPPED run_on_vulkan_verifies_every_step: {}", err.trim());
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{err}");
    let rows = rows(&output);
    for case in [
        "block",
        "poll",
        "flag:park_us=1000,backstop_us=20000",
        "flag:park_us=1000,backstop_us=20000+predict",
    ] {
        assert_eq!(value(&rows, case, "waits"), 40.0);
        assert_eq!(value(&rows, case, "verified"), 40.0);
    }
    assert!(rows.iter().all(|row| row["simulated"] == false));
}

const FLAG: &str = "flag:park_us=1000,backstop_us=20000";

#[test]
fn run_on_the_simulated_drivers_says_so_and_verifies_every_step() {
    for kind in ["cuda", "hip"] {
        let args =
            ["run", "--driver-sim", "--device", kind, "--queues", "2", "--steps", "30", "--json"];
        let output = run(&format!("driver_sim_{kind}"), &args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{err}");
        assert!(err.contains("SIMULATED"), "{err}");
        let rows = rows(&output);
        for case in ["block", "poll", FLAG] {
            assert_eq!(value(&rows, case, "waits"), 60.0);
            assert_eq!(value(&rows, case, "verified"), 60.0);
            // The simulator's own time of each store.
            let [p50, max] = ["lag_p50_ns", "lag_max_ns"].map(|m| value(&rows, case, m));
            assert!(p50 <= max && max < 1e9, "{case}: {p50} {max}");
        }
        assert!(value(&rows, "poll", "cpu_per_wait_ns") > value(&rows, "block", "cpu_per_wait_ns"));
        for row in &rows {
            assert_eq!(row["simulated"], true);
            let device = row["device"].as_str().unwrap();
            assert!(device.contains(kind) && device.contains("no GPU"), "{device}");
        }
        let path = format!("driver_sim_{kind}/gpu-reactor-report.html");
        let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(path);
        assert!(std::fs::read_to_string(page).unwrap().contains("simulated"));
    }
}

#[test]
fn a_simulated_driver_shows_the_faults_it_is_told_to() {
    let args =
        ["run", "--driver-sim", "--queues", "2", "--steps", "20", "--step-us", "200", "--json"];
    let output = run(
        "driver_sim_lost",
        &[&args[..], &["--plan", "poll", "--sim-fault", "lose@11"]].concat(),
    );
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("700") && err.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{err}");
    assert!(value(&rows(&output), "poll", "verified") >= 10.0);

    let lost = ["--plan", "flag:park_us=1000,backstop_us=2000", "--sim-fault", "lost-store@4"];
    let output = run("driver_sim_lost_store", &[&args[..], &lost].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(value(&rows(&output), "flag", "verified"), 40.0);

    // By the variable, as for any process that has the simulated driver.
    let mut command = command("driver_sim_script", &args);
    let output = command.env("GPU_DRIVER_SIM", "devices=0").output().unwrap();
    one_line(&output, 2, &["E038", "100", "CUDA_ERROR_NO_DEVICE"]);
}

#[test]
fn doctor_tests_the_simulated_drivers_and_says_that_they_are() {
    let output = run("doctor_sim", &["doctor", "--driver-sim", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = rows(&output);
    for kind in ["cuda", "hip", "sim"] {
        let of = |row: &&Value| row["kind"] == "self-test" && row["name"] == kind;
        let test = rows.iter().find(of).unwrap_or_else(|| panic!("no self-test of {kind}"));
        assert!(test["ok"] == true && test["simulated"] == true, "{test}");
    }
    let real = |row: &&Value| row["kind"] == "driver" || row["kind"] == "host";
    assert!(rows.iter().filter(real).all(|row| row["simulated"] == false));
}

/// Situation 11: a library that is absent, one that has no device and one that lacks an entry point are three
/// findings, each with what to do.
#[cfg(target_os = "linux")]
#[test]
fn situation_11_doctor_tells_three_reasons_apart() {
    use driver_sim::install::{Vendor, install};
    let cases: [(&str, Option<&[&str]>, &str, &str); 3] = [
        ("absent", None, "no driver: ", "install the driver"),
        ("no_device", Some(&[]), "driver here, no device: ", "/dev"),
        (
            "entry",
            Some(&["cuEventQuery", "hipEventQuery"]),
            "an entry point is missing: ",
            "newer driver",
        ),
    ];
    for (case, missing, found, advice) in cases {
        let folder = folder(&format!("reasons_{case}"));
        // Read by others: the question is asked as an ordinary user.
        if let Some(missing) = missing {
            let lacks = |vendor: &str| {
                missing.iter().copied().filter(|name| name.starts_with(vendor)).collect::<Vec<_>>()
            };
            install(&folder, Vendor::Cuda, &lacks("cu")).unwrap();
            install(&folder, Vendor::Hip, &lacks("hip")).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-reactor"));
        command.args(["doctor", "--json"]).current_dir(&folder);
        command.env("LD_LIBRARY_PATH", &folder).env("GPU_DRIVER_SIM", "devices=0");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let rows = rows(&output);
        for kind in ["cuda", "hip"] {
            let row =
                rows.iter().find(|row| row["kind"] == "device" && row["name"] == kind).unwrap();
            if missing.is_none() && !row["found"].as_str().unwrap().starts_with(found) {
                // This machine has the vendor's own driver.
                eprintln!("SKIPPED {kind} absent: {row}");
                continue;
            }
            assert!(row["found"].as_str().unwrap().starts_with(found), "{row}");
            assert!(row["advice"].as_str().unwrap().contains(advice), "{row}");
            assert_eq!(row["ok"], false);
        }
        if case == "entry" {
            let row =
                rows.iter().find(|row| row["kind"] == "entry" && row["name"] == "cuEventQuery");
            assert_eq!(row.unwrap()["ok"], false);
        }
    }
}

/// With nobody asking for CUDA its driver isn't initialised as root, for that creates a device node.
#[cfg(target_os = "linux")]
#[test]
fn a_driver_is_asked_as_an_ordinary_user() {
    use driver_sim::install::{Vendor, install};
    let is_there = |path: &str| std::path::Path::new(path).exists();
    if !rustix::process::geteuid().is_root()
        || is_there("/dev/nvidiactl")
        || is_there("/proc/driver/nvidia/version")
    {
        eprintln!(
            "SKIPPED a_driver_is_asked_as_an_ordinary_user: not root, or an NVIDIA driver is here"
        );
        return;
    }
    let folder = folder("ordinary");
    install(&folder, Vendor::Cuda, &[]).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-reactor"));
        command
            .args(args)
            .args(["--queues", "1", "--steps", "2", "--plan", "poll"])
            .current_dir(&folder);
        command.env("LD_LIBRARY_PATH", &folder).env("GPU_DRIVER_SIM", "devices=0").output().unwrap()
    };
    let output = run(&["run"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    assert!(out.contains("not used: cuda: ") && out.contains("asked as an ordinary user"), "{out}");
    // Asked for by name, it is initialised as who asks.
    let output = run(&["run", "--device", "cuda"]);
    one_line(&output, 2, &["E038", "100"]);
    assert!(!text(&output.stderr).contains("ordinary user"));
}

/// What the plans are for. Other tests run beside this one, so it only asks for the order; the stated
/// shares are measured on a quiet machine, by `cargo xtask numbers`.
#[cfg(target_os = "linux")]
#[test]
fn prediction_costs_less_cpu_than_a_flag_and_a_flag_less_than_polling() {
    let flag = "flag:park_us=1000,backstop_us=20000";
    let predict =
        format!("{flag}+predict:margin_us=100,min_sleep_us=50,max_sleep_us=20000,window=3");
    let args = [
        "run",
        "--device",
        "sim",
        "--queues",
        "1",
        "--steps",
        "50",
        "--step-us",
        "4000",
        "--json",
        "--plan",
        "poll",
        "--plan",
        flag,
        "--plan",
        &predict,
    ];
    let mut seen = Vec::new();
    for _ in 0..5 {
        let output = run("shares", &args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let rows = rows(&output);
        let cpu = ["poll", flag, &predict].map(|case| {
            let row =
                rows.iter().find(|row| row["case"] == *case && row["metric"] == "cpu_per_wait_ns");
            row.unwrap()["value"].as_f64().unwrap()
        });
        if cpu[2] < cpu[1] && cpu[1] < cpu[0] {
            return;
        }
        seen.push(cpu);
    }
    panic!("CPU of a wait in ns under poll, flag, predict: {seen:?}");
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let args = ["run", "--device", "sim", "--queues", "1", "--steps", "20", "--plan", "poll"];
    let mut command = command("pipe", &args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn the_default_is_run_and_says_what_it_chose_and_wrote() {
    let args = [
        "--queues", "1", "--steps", "5", "--plan", "poll", "--report", "out.html", "--device",
        "sim",
    ];
    let output = run("default", &args);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    for part in
        ["SIMULATED", "poll: 5 of 5 waits, 5 results right", "lag p50", "CPU/wait", "out.html"]
    {
        assert!(out.contains(part), "`{part}` is not in {out}");
    }
    let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("default/out.html");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("simulated") && page.contains("<svg") && page.ends_with("</html>\n"));
    // Self-contained: nothing is fetched, and the one address is the name of SVG.
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("url("));
    assert_eq!(page.replace("http://www.w3.org/2000/svg", "").matches("://").count(), 0);
}

#[test]
fn with_no_device_named_each_kind_passed_over_has_its_reason() {
    let args = ["--queues", "1", "--steps", "3", "--plan", "poll"];
    let output = run("reasons", &args);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    assert!(out.contains("device:   "), "{out}");
    // What is used is the first kind that can be, and each before it has its reason.
    let used = ["cuda", "hip", "metal", "vulkan"]
        .into_iter()
        .find(|kind| out.contains(&format!("({kind}:")));
    for kind in ["cuda", "hip", "metal"] {
        if Some(kind) == used {
            break;
        }
        assert!(out.contains(&format!("not used: {kind}: ")), "{out}");
    }
}

#[test]
fn banded_plans_and_fixed_steps_run() {
    let plan = "poll;rows>=1:flag:park_us=100,backstop_us=2000";
    let args = [
        "run",
        "--device",
        "sim",
        "--queues",
        "1",
        "--steps",
        "5",
        "--step-us",
        "300",
        "--plan",
        plan,
        "--json",
    ];
    let output = run("bands", &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = rows(&output);
    assert_eq!(value(&rows, plan, "verified"), 5.0);
    assert!(value(&rows, plan, "wall_ns") >= 5.0 * 300_000.0);
}

#[test]
fn bad_input_is_one_clear_line_and_code_2() {
    let cases: [(&str, &[&str], &[&str]); 13] = [
        ("device", &["run", "--device", "abacus"], &["abacus", "vulkan"]),
        ("index", &["run", "--device", "sim:7"], &["sim:7"]),
        ("not_built", &["run", "--device", "metal"], &["metal"]),
        ("plan", &["run", "--plan", "flag:park_us=0,backstop_us=5"], &["park_us=0", "E006"]),
        ("bands", &["run", "--plan", "poll;rows>=8:poll;rows>=8:poll"], &["rows>=8"]),
        ("number", &["run", "--steps", "many"], &["many", "--steps"]),
        ("option", &["run", "--stepz", "1"], &["--stepz"]),
        ("csv", &["run", "--device", "sim", "--trace", "nowhere.csv"], &["nowhere.csv"]),
        (
            "report",
            &["run", "--device", "sim", "--report", "no/such/folder/r.html"],
            &["no/such/folder/r.html"],
        ),
        ("fault", &["run", "--device", "sim", "--sim-fault", "lose@0"], &["lose@0"]),
        ("no_driver_of", &["run", "--driver-sim", "--device", "vulkan"], &["vulkan", "E040"]),
        ("sim_index", &["run", "--driver-sim", "--device", "cuda:7"], &["no device 7", "E038"]),
        ("no_such_fault", &["run", "--driver-sim", "--sim-fault", "wrong@3"], &["lost-store@N"]),
    ];
    for (name, args, parts) in cases {
        let output = run(&format!("bad_{name}"), args);
        one_line(&output, 2, parts);
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    }
}

#[test]
fn a_malformed_trace_is_named_with_its_line() {
    let head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    let good = "2023-11-16 18:15:46.6805900,374,44\n";
    let cases: [(String, &[&str]); 7] = [
        (String::new(), &["line 1", "header"]),
        ("when,what\n".to_owned(), &["line 1", "header", "when,what"]),
        (head.to_owned(), &["line 2", "row"]),
        (format!("{head}{good}2023-11-16 18:15:47.0,9\n"), &["line 3", "3 fields", "found 2"]),
        (
            format!("{head}{good}{good}2023-11-16 18:15:47.0,-9,1\n"),
            &["line 4", "ContextTokens", "-9"],
        ),
        (format!("{head}noon,9,1\n"), &["line 2", "TIMESTAMP", "noon"]),
        (format!("{head}{good}2023-11-15 18:15:47.0,9,1\n"), &["line 3", "before"]),
    ];
    for (i, (csv, parts)) in cases.into_iter().enumerate() {
        let mut command =
            command(&format!("csv_{i}"), &["run", "--device", "sim", "--trace", "t.csv"]);
        std::fs::write(command.get_current_dir().unwrap().join("t.csv"), csv).unwrap();
        let output = command.output().unwrap();
        one_line(&output, 2, parts);
        one_line(&output, 2, &["t.csv"]);
    }
}

#[test]
fn a_device_lost_mid_run_is_reported_with_what_completed_and_code_3() {
    let args = [
        "run",
        "--device",
        "sim",
        "--queues",
        "2",
        "--steps",
        "20",
        "--step-us",
        "200",
        "--sim-fault",
        "lose@11",
        "--json",
    ];
    for plan in ["block", "poll", "flag:park_us=1000,backstop_us=2000"] {
        let output = run("lost", &[&args[..], &["--plan", plan]].concat());
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{err}");
        assert!(err.contains("the device is lost") && !err.contains("panicked"), "{err}");
        let rows = rows(&output);
        let (waits, verified) = (value(&rows, plan, "waits"), value(&rows, plan, "verified"));
        assert!((10.0..40.0).contains(&waits) && waits == verified, "{waits} {verified}");
        assert_eq!(value(&rows, plan, "error"), 32.0);
        let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lost/gpu-reactor-report.html");
        assert!(std::fs::read_to_string(page).unwrap().contains("ended early"));
    }
}

#[test]
fn a_wrong_result_and_a_missing_completion_are_code_1() {
    let args = [
        "run",
        "--device",
        "sim",
        "--queues",
        "2",
        "--steps",
        "6",
        "--step-us",
        "200",
        "--plan",
        "poll",
        "--deadline-ms",
        "300",
        "--json",
    ];
    for (fault, wrong, said) in [
        ("wrong@4", 2.0, "2 wrong results"),
        ("hang@4", 0.0, "not complete after"),
        ("refuse@4", 0.0, "refused"),
    ] {
        let output = run("wrong", &[&args[..], &["--sim-fault", fault]].concat());
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(said) && !err.contains("panicked"), "{err}");
        assert_eq!(value(&rows(&output), "poll", "wrong"), wrong);
    }
}

#[test]
fn a_lost_store_costs_a_backstop_and_no_result() {
    let plan = "flag:park_us=1000,backstop_us=2000";
    let args = [
        "run",
        "--device",
        "sim",
        "--queues",
        "1",
        "--steps",
        "6",
        "--step-us",
        "200",
        "--plan",
        plan,
        "--sim-fault",
        "lost-store@4",
        "--json",
    ];
    let output = run("lost_store", &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(value(&rows(&output), "flag", "verified"), 6.0);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_what_was_measured() {
    use std::io::{BufRead, BufReader, Read};
    let args = [
        "run",
        "--device",
        "sim",
        "--queues",
        "1",
        "--steps",
        "1000000",
        "--step-us",
        "500",
        "--plan",
        "block",
        "--json",
    ];
    let mut command = command("ctrl_c", &args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // From its first words on it listens.
    while !line.starts_with("work:") {
        line.clear();
        assert!(err.read_line(&mut line).unwrap() > 0, "it ended before its work began");
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted") && rest.contains("report: "), "{rest}");
    let rows = rows(&output);
    let waits = value(&rows, "block", "waits");
    assert!(waits > 0.0 && waits < 1_000_000.0);
    assert_eq!(value(&rows, "block", "verified"), waits);
}

#[test]
fn doctor_names_each_thing_and_tests_the_devices() {
    let output = run("doctor", &["doctor"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    for part in [
        "CUDA",
        "HIP",
        "Vulkan",
        "Metal",
        "word wait",
        "timer slack",
        "io_uring",
        "clock source",
        "cores",
        "self-test sim",
    ] {
        assert!(out.contains(part), "`{part}` is not in {out}");
    }

    let output = run("doctor_json", &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let rows = rows(&output);
    let test = rows.iter().find(|row| row["kind"] == "self-test" && row["name"] == "sim").unwrap();
    assert_eq!(test["ok"], true);
    for row in &rows {
        assert!(!row["found"].as_str().unwrap().is_empty(), "{row}");
        // What is missing has its reason and what to do.
        assert!(row["ok"] == true || row["advice"].is_string(), "{row}");
    }
}

#[test]
fn help_lists_the_exit_codes() {
    for args in [&["--help"][..], &["run", "--help"]] {
        let output = run("help", args);
        assert_eq!(output.status.code(), Some(0));
        let out = text(&output.stdout);
        assert!(out.contains("Exit codes:") && out.contains("130"), "{out}");
    }
}

#[test]
fn bench_rows_parse() {
    let output = run("bench", &["bench", "timers", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = rows(&output);
    assert!(value(&rows, "insert", "ns") > 0.0 && value(&rows, "cancel", "ns") > 0.0);
    assert!(rows.iter().all(|row| row["suite"] == "timers"
        && row["simulated"] == false
        && row["device"] == "cpu"));
}

/// Runs the command in a folder that is there.
fn here(folder: &std::path::Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-reactor"));
    command.args(args).current_dir(folder).output().unwrap()
}

#[test]
fn a_recording_is_made_and_replayed() {
    let folder = folder("replay");
    let args =
        ["run", "--device", "sim", "--queues", "2", "--steps", "60", "--record", "waits.csv"];
    let output = here(&folder, &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("recording: 120 waits under block"));
    let output = here(&folder, &["replay", "waits.csv", "--json", "--plot", "plot.svg"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = rows(&output);
    for case in ["oracle", "spin", "block", "poll+nap", "poll+hazard:lag=5,cpu=1"] {
        let cost = rows.iter().find(|row| row["case"] == case && row["metric"] == "cost");
        let cost = cost.unwrap_or_else(|| panic!("no cost of {case}"));
        assert!(cost["value"].as_f64().unwrap() > 0.0 && cost["n"] == 120);
    }
    let plot = std::fs::read_to_string(folder.join("plot.svg")).unwrap();
    assert!(plot.starts_with("<svg") && plot.contains("hazard"));
    // The same seed gives the same answer.
    let again = || here(&folder, &["replay", "waits.csv", "--seed", "7"]).stdout;
    assert_eq!(again(), again());
}

#[test]
fn a_bad_recording_or_cost_is_one_line() {
    let folder = folder("bad_recording");
    let path = folder.join("bad.csv");
    std::fs::write(&path, "# gpu-reactor recording 1\npoint,rows,start_ns,duration_ns\n0,0,0,x\n")
        .unwrap();
    one_line(&here(&folder, &["replay", "bad.csv"]), 2, &["bad.csv, line 3", "`x`"]);
    one_line(&here(&folder, &["replay", "none.csv"]), 2, &["none.csv"]);
    one_line(&here(&folder, &["replay", "bad.csv", "--cost", "lag=0,cpu=1"]), 2, &["lag=0"]);
    one_line(&here(&folder, &["replay", "bad.csv", "--plan", "guess"]), 2, &["`guess`"]);
}

#[test]
fn tune_ends_with_a_plan_that_it_tried() {
    let args = ["tune", "--device", "sim", "--steps", "150", "--json", "--plot", "plot.svg"];
    let output = run("tune", &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = rows(&output);
    let plan = rows[0]["case"].as_str().unwrap();
    assert!(plan.parse::<gpu_async_reactor::StepPlan>().is_ok(), "{plan}");
    for metric in ["expected_cost", "cost", "lag_p50_ns"] {
        let row = rows.iter().find(|row| row["metric"] == metric && row["simulated"] == true);
        assert!(row.unwrap_or_else(|| panic!("no {metric}"))["value"].as_f64().unwrap() > 0.0);
    }
    let said = text(&output.stderr);
    for part in ["host:", "waits:  150", "plan:   ", "why: ", "tried: "] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

#[test]
fn run_compares_hosts_and_each_verifies_every_step() {
    let hosts = if cfg!(target_os = "linux") { "std,uring,compio,tokio" } else { "std,tokio" };
    let flag = "flag:park_us=1000,backstop_us=20000";
    let args = [
        "run", "--device", "sim", "--host", hosts, "--plan", "block", "--plan", flag, "--queues",
        "2", "--steps", "30", "--json",
    ];
    let output = run("hosts", &args);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("a completion takes no plan"), "{err}");
    let rows = rows(&output);
    let of = |host: &str, case: &str, metric: &str| {
        let row = rows.iter().find(|row| {
            (row["host"].as_str(), row["case"].as_str()) == (Some(host), Some(case))
                && row["metric"] == metric
        });
        row.and_then(|row| row["value"].as_f64())
    };
    for host in hosts.split(',') {
        let case = if host == "tokio" { "completion" } else { flag };
        assert_eq!(of(host, case, "verified"), Some(60.0), "{host}");
        assert!(of(host, case, "lag_p50_ns") > Some(0.0), "{host}");
        if cfg!(target_os = "linux") {
            assert!(of(host, case, "cpu_per_wait_ns") > Some(0.0), "{host}");
        }
    }
    // A blocking wait has a thread of its own on every host, and is run once.
    assert_eq!(of("std", "block", "verified"), Some(60.0));
    assert_eq!(of("uring", "block", "verified"), None);
}

#[test]
fn completions_end_with_the_devices_own_error_and_are_recorded() {
    let args = ["run", "--device", "sim", "--host", "tokio", "--queues", "1", "--steps", "20"];
    let lost = run("tokio_lost", &[&args[..], &["--sim-fault", "lose@5"]].concat());
    assert_eq!(lost.status.code(), Some(3), "{}", text(&lost.stderr));
    assert!(
        text(&lost.stdout).contains("4 of 20 waits, 4 results right"),
        "{}",
        text(&lost.stdout)
    );
    let hung = [&args[..], &["--sim-fault", "hang@5", "--deadline-ms", "300"]].concat();
    let hung = run("tokio_hung", &hung);
    assert_eq!(hung.status.code(), Some(1), "{}", text(&hung.stderr));
    let file = folder("tokio_recorded").join("waits.csv");
    let recorded =
        command("tokio_recording", &[&args[..], &["--record", file.to_str().unwrap()]].concat());
    let recorded = { recorded }.output().unwrap();
    assert!(text(&recorded.stdout).contains("recording: 20 waits under completion"));
    let replayed = run("tokio_replayed", &["replay", file.to_str().unwrap(), "--json"]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
}
