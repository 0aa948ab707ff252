//! The tests that NVIDIA's `cuda-async` publishes, on the simulated driver: what they find there is a gap in the
//! simulation, and none is left.

use crate::bench::MANIFEST;
use crate::headers;
use crate::run::{Outcome, cargo, must, output};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const PEER: &str = "cuda-async";
const FOLDER: &str = "target/cuda-async";
const DRIVER: &str = "target/cuda-async-driver";
/// It fills 32 GB and allows 200 ms for that, which no memory of a host has the bandwidth for.
const LEFT_OUT: &str = "drop_mid_flight_recycles_and_later_pipelines_work";

pub(crate) fn cuda_async() -> Outcome {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Outcome::Skipped(format!("{PEER} is built on x86-64 Linux only"));
    }
    let home = match headers::cuda() {
        Ok(home) => home,
        Err(why) => {
            return Outcome::Skipped(format!("no headers of CUDA to build {PEER} with: {why}"));
        }
    };
    let check = || -> Result<(), String> {
        unpack(&source()?)?;
        driver()?;
        let mut command = cargo(&["test", "--quiet", "--no-fail-fast", "--lib", "--tests"]);
        command.args(["--manifest-path", &format!("{FOLDER}/Cargo.toml")]);
        command.args(["--target-dir", "target/cuda-async-build"]);
        command.args(["--", "--skip", LEFT_OUT]);
        println!("SKIPPED {PEER}'s {LEFT_OUT}: needs a device's memory bandwidth");
        command.env("CUDA_HOME", &home).env("LD_LIBRARY_PATH", absolute(DRIVER)?);
        must(&mut command)
    };
    check().into()
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("finding {path}: {error}"))
}

/// Where cargo keeps the version that the benchmarks are built with.
fn source() -> Result<PathBuf, String> {
    let args = ["metadata", "--quiet", "--format-version", "1", "--manifest-path", MANIFEST];
    let text = output(cargo(&args).args(["--features", "cuda"]))?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|error| format!("reading cargo's metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|package| package["name"] == PEER)
        .find_map(|package| package["manifest_path"].as_str())
        .ok_or_else(|| format!("{MANIFEST} has no {PEER}"))?;
    Ok(Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned())
}

/// A copy, for cargo's own is not to be written to, as a workspace of its own.
fn unpack(source: &Path) -> Result<(), String> {
    let told = |what: &str, error: std::io::Error| format!("{what} {FOLDER}: {error}");
    match std::fs::remove_dir_all(FOLDER) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(told("removing", error));
        }
        _ => {}
    }
    must(Command::new("cp").args(["-r", "--no-preserve=mode"]).arg(source).arg(FOLDER))?;
    let manifest = format!("{FOLDER}/Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|error| told("reading", error))?;
    std::fs::write(&manifest, text + "\n[workspace]\n").map_err(|error| told("writing", error))
}

/// The simulated driver under the names that are looked for.
fn driver() -> Result<(), String> {
    // In a debug build a fill of megabytes takes longer than the tests are ready to wait.
    must(&mut cargo(&["build", "--quiet", "--release", "-p", "gpu-async-reactor-driver-sim"]))?;
    let told = |error: std::io::Error| format!("filling {DRIVER}: {error}");
    std::fs::create_dir_all(DRIVER).map_err(told)?;
    ["libcuda.so", "libcuda.so.1"].iter().try_for_each(|name| {
        let to = Path::new(DRIVER).join(name);
        std::fs::copy("target/release/libdriver_sim.so", to).map(|_| ()).map_err(told)
    })
}
