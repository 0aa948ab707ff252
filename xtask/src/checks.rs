//! The checks, each a few commands.

use crate::run::{Outcome, cargo, is_there, must, output};
use std::path::Path;
use std::process::Command;

const FEATURES: &[&str] = &[
    "", "std", "sim", "vulkan", "wordwait", "tokio", "io-uring", "compio", "cuda", "cudarc", "hip",
    "metal",
];

pub(crate) fn fmt() -> Outcome {
    let probe = "crates/core/no_std_probe/Cargo.toml";
    must(&mut cargo(&["fmt", "--all", "--check"]))
        .and_then(|()| must(&mut cargo(&["fmt", "--manifest-path", probe, "--check"])))
        .and_then(|()| {
            must(&mut cargo(&["fmt", "--manifest-path", crate::bench::MANIFEST, "--check"]))
        })
        .into()
}

pub(crate) fn clippy() -> Outcome {
    let args = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    must(&mut cargo(&args)).into()
}

pub(crate) fn features() -> Outcome {
    FEATURES
        .iter()
        .try_for_each(|feature| {
            let args = ["check", "--quiet", "-p", "gpu-async-reactor", "--no-default-features"];
            must(cargo(&args).args(["--features", feature]))
        })
        .into()
}

pub(crate) fn docs() -> Outcome {
    let args = ["doc", "--workspace", "--all-features", "--no-deps"];
    must(cargo(&args).env("RUSTDOCFLAGS", "-D warnings")).into()
}

/// Every relative link of every tracked Markdown file leads to a tracked file or folder.
pub(crate) fn links() -> Outcome {
    let check = || -> Result<(), String> {
        let files = output(Command::new("git").args(["ls-files", "*.md"]))?;
        let mut broken = Vec::new();
        for file in files.lines() {
            let text = std::fs::read_to_string(file).map_err(|e| format!("reading {file}: {e}"))?;
            let folder = Path::new(file).parent().unwrap_or(Path::new(""));
            for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = target.split('#').next().unwrap_or("");
                let outside = target.contains("://") || path.is_empty();
                if !outside && !folder.join(path).exists() {
                    broken.push(format!("{file}: {target}"));
                }
            }
        }
        if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
    };
    check().into()
}

/// Builds the probe, which defines its own panic handler and so can't be linked beside a standard
/// library, and runs it from a C program. With a bare-metal target at hand, checks that too.
pub(crate) fn no_std() -> Outcome {
    let check = || -> Result<(), String> {
        let (folder, target) = ("crates/core/no_std_probe", "target/no_std");
        let manifest = format!("{folder}/Cargo.toml");
        let args = ["build", "--quiet", "--locked", "--manifest-path", &manifest];
        must(cargo(&args).args(["--target-dir", target]))?;
        let (library, program) =
            (format!("{target}/debug/libno_std_probe.a"), format!("{target}/probe"));
        let main = format!("{folder}/main.c");
        must(Command::new("cc").args([&main, &library, "-o", &program]))?;
        must(&mut Command::new(program))?;
        let installed = output(Command::new("rustup").args(["target", "list", "--installed"]))
            .unwrap_or_default();
        match installed.lines().find(|target| target.contains("-none")) {
            Some(target) => {
                must(&mut cargo(&["check", "-p", "gpu-async-reactor-core", "--target", target]))
            }
            None => {
                println!("SKIPPED no-std on bare metal: no such target is installed");
                Ok(())
            }
        }
    };
    check().into()
}

/// The word waits' tests: on this machine, and as aarch64 under an emulator where there is one.
pub(crate) fn word_waits() -> Outcome {
    let args = ["test", "--quiet", "-p", "gpu-async-reactor-park", "--features", "wordwait"];
    if let Err(failed) = must(&mut cargo(&args)) {
        return Err(failed).into();
    }
    let target = "aarch64-unknown-linux-gnu";
    if !has_std_of(target) {
        return Outcome::Skipped(format!(
            "aarch64: the standard library of {target} is not installed"
        ));
    }
    let (linker, emulator) = ("aarch64-linux-gnu-gcc", "qemu-aarch64");
    for tool in [linker, emulator] {
        if !is_there(tool, &["--version"]) {
            return Outcome::Skipped(format!("aarch64: {tool} is not installed"));
        }
    }
    let mut command = cargo(&args);
    command.args(["--lib", "--target", target]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", linker);
    let runner = format!("{emulator} -L /usr/aarch64-linux-gnu");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    must(&mut command).into()
}

/// The Metal backend's Apple side compiles without a lint; nothing runs it here.
pub(crate) fn metal() -> Outcome {
    let target = "aarch64-apple-darwin";
    if !has_std_of(target) {
        return Outcome::Skipped(format!("the standard library of {target} is not installed"));
    }
    let args = ["clippy", "--quiet", "-p", "gpu-async-reactor", "--lib", "--no-default-features"];
    let mut command = cargo(&args);
    command.args(["--features", "metal,sim,tokio,wordwait", "--target", target]);
    must(command.args(["--", "-D", "warnings"])).into()
}

/// Whether code for the target can be checked here.
fn has_std_of(target: &str) -> bool {
    let root = output(Command::new("rustc").args(["--print", "sysroot"])).unwrap_or_default();
    Path::new(root.trim()).join("lib/rustlib").join(target).is_dir()
}

pub(crate) fn loom() -> Outcome {
    ["gpu-async-reactor-core", "watcher-models"]
        .iter()
        .try_for_each(|package| {
            let mut command = cargo(&["test", "--quiet", "-p", package, "--lib", "--release"]);
            command.args(["--target-dir", "target/loom", "loom"]);
            command.env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", "3");
            must(&mut command)
        })
        .into()
}

pub(crate) fn msrv() -> Outcome {
    let manifest = std::fs::read_to_string("Cargo.toml").unwrap_or_default();
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .unwrap_or("?");
    let toolchain = format!("+{version}");
    if !is_there("cargo", &[&toolchain, "--version"]) {
        return Outcome::Skipped(format!("Rust {version} is not installed"));
    }
    // All but the host of compio, which itself needs a newer one.
    let features: Vec<_> =
        FEATURES.iter().copied().filter(|feature| !["", "compio"].contains(feature)).collect();
    let check = |args: &[&str]| {
        let mut command = Command::new("cargo");
        must(command.args([&toolchain, "check"]).args(args))
    };
    let workspace = ["--workspace", "--exclude", "gpu-reactor", "--exclude", "gpu-async-reactor"];
    check(&workspace)
        .and_then(|()| {
            check(&["-p", "gpu-async-reactor", "--lib", "--features", &features.join(",")])
        })
        .into()
}

pub(crate) fn deny() -> Outcome {
    if !is_there("cargo", &["deny", "--version"]) {
        return Outcome::Skipped("cargo-deny is not installed".into());
    }
    must(&mut cargo(&["deny", "check", "bans", "licenses", "sources"])).into()
}

pub(crate) fn examples() -> Outcome {
    let run = |name, features| {
        let args = ["run", "--quiet", "-p", "gpu-async-reactor", "--example", name];
        output(cargo(&args).args(["--features", features])).map(|text| print!("{text}"))
    };
    let on_driver = |name| {
        let args = ["run", "--quiet", "-p", "gpu-async-reactor", "--features", "cuda,hip"];
        must(cargo(&args).args(["--example", name, "--", "--driver-sim"]))
    };
    run("fill_executor", "std")
        .and_then(|()| run("vulkan_wait", "std,vulkan"))
        .and_then(|()| on_driver("cuda_wait"))
        .and_then(|()| on_driver("hip_wait"))
        .into()
}

/// The main job as README starts it, on the best device and on the simulated one.
pub(crate) fn main_job() -> Outcome {
    let report = "target/gpu-reactor-report.html";
    let job = |device: &[&str]| {
        let args = ["run", "--quiet", "--release", "--", "run", "--report", report];
        must(cargo(&args).args(device))?;
        let html = std::fs::read_to_string(report).map_err(|e| format!("reading {report}: {e}"))?;
        if html.contains("<svg") { Ok(()) } else { Err(format!("{report} has no plot")) }
    };
    job(&[]).and_then(|()| job(&["--device", "sim"])).into()
}

/// The script for a machine with a device, so that it can't rot without one.
pub(crate) fn hardware() -> Outcome {
    must(Command::new("tests/hardware/run").args(["--driver-sim", "--quick"])).into()
}

pub(crate) fn asan() -> Outcome {
    match sanitize("address") {
        Outcome::Passed => drivers_under_asan().into(),
        other => other,
    }
}

/// The suites over the simulated drivers: what is used after it was dropped, in any order of drops, is found.
/// A page that the driver freed is unmapped, and a touch of it ends the test.
fn drivers_under_asan() -> Result<(), String> {
    let mut run = Command::new("cargo");
    run.args(["+nightly", "test", "--quiet", "-p", "gpu-async-reactor", "--features", "cuda,hip"]);
    run.args(["--test", "cuda", "--test", "hip", "--target", "x86_64-unknown-linux-gnu"]);
    run.args(["--target-dir", "target/address"]);
    // The library of the simulated drivers is loaded at run time, and takes the sanitizer from the program.
    let flags = "-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer \
                 -Clink-arg=-Wl,--export-dynamic";
    // What a lost device may still write to is never freed, on purpose.
    run.env("RUSTFLAGS", flags).env("ASAN_OPTIONS", "detect_leaks=0");
    must(run.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO"))
}

pub(crate) fn tsan() -> Outcome {
    sanitize("thread")
}

/// The standard library is not built with the sanitizer, which doesn't know fences: the one before an
/// `Arc`'s memory is freed looks like none. Everything else of the library that the program uses
/// between threads is generic, and so built with it.
const SUPPRESSED: &str =
    "race:drop_slow\nrace:drop_glue<alloc::sync::Arc\nrace:drop_glue::<alloc::sync::Arc\n";

/// Runs the executor and the reactor under random load with a sanitizer.
fn sanitize(sanitizer: &str) -> Outcome {
    if !is_there("cargo", &["+nightly", "--version"]) {
        return Outcome::Skipped("no nightly toolchain is installed".into());
    }
    let (target, example) = ("x86_64-unknown-linux-gnu", "stress");
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Outcome::Skipped(format!("only on {target}"));
    }
    let flags = format!("-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer");
    let folder = format!("target/{sanitizer}");
    let mut run = Command::new("cargo");
    run.args(["+nightly", "run", "--quiet", "-p", "gpu-async-reactor-core", "--features", "std"]);
    run.args(["--release", "--example", example, "--target", target, "--target-dir", &folder]);
    // The toolchain that started this would otherwise be the one that is run.
    run.args(["--", "500"])
        .env("RUSTFLAGS", flags)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO");
    let list = "target/sanitizer-suppressions.txt";
    if let Err(error) = std::fs::write(list, SUPPRESSED) {
        return Outcome::Failed(format!("writing {list}: {error}"));
    }
    run.env("TSAN_OPTIONS", format!("suppressions={list}"));
    must(&mut run).into()
}
