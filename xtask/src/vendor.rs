//! The vendors' own libraries, on a machine without their devices: our errors on them are the typed ones.

use crate::run::{Outcome, cargo, is_there, must, output};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `doctor` says of such a library.
const FOUND: &str = "driver here, no device: ";

/// Debian's HIP library where it is installed, and NVIDIA's from Debian's archive, unpacked aside.
pub(crate) fn libraries() -> Outcome {
    let mut skipped = Vec::new();
    let mut parts = Vec::new();
    match libcuda(Path::new("target/vendor")) {
        Ok(folder) => parts.push(("cuda", Some(folder))),
        Err(why) => skipped.push(format!("cuda: {why}")),
    }
    match is_there("sh", &["-c", "ldconfig -p | grep -q libamdhip64"]) {
        true => parts.push(("hip", None)),
        false => skipped.push("hip: no libamdhip64 is installed".to_owned()),
    }
    for (kind, folder) in &parts {
        if let Err(why) = one(kind, folder.as_deref()) {
            return Outcome::Failed(format!("{kind}: {why}"));
        }
    }
    match skipped.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Skipped(skipped.join("; ")),
    }
}

fn one(kind: &str, folder: Option<&Path>) -> Result<(), String> {
    let mut doctor = cargo(&["run", "--quiet", "-p", "gpu-reactor", "--", "doctor", "--json"]);
    let mut tests = cargo(&["test", "--quiet", "-p", "gpu-async-reactor"]);
    tests.args(["--test", "vendor_libraries", kind]).env("GPU_REACTOR_REQUIRE_VENDOR", kind);
    if let Some(folder) = folder {
        for command in [&mut doctor, &mut tests] {
            command.env("LD_LIBRARY_PATH", folder);
        }
        tests.env("GPU_REACTOR_LIBCUDA", folder.join("libcuda.so.1"));
    }
    must(&mut tests)?;
    let rows = output(&mut doctor)?;
    let rows = rows.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of = |row: &serde_json::Value| row["kind"] == "device" && row["name"] == kind;
    let row = rows.into_iter().find(of).ok_or("doctor has no line on it")?;
    let found = row["found"].as_str().unwrap_or_default();
    match found.starts_with(FOUND) || row["ok"] == true {
        true => {
            println!("{kind}: {found}");
            Ok(())
        }
        false => Err(format!("doctor says \"{found}\"")),
    }
}

/// Fetches Debian's `libcuda1` under an apt configuration of its own, and unpacks it: its folder.
fn libcuda(folder: &Path) -> Result<PathBuf, String> {
    let library = folder.join("unpacked/usr/lib/x86_64-linux-gnu/nvidia/current");
    if library.join("libcuda.so.1").exists() {
        return std::path::absolute(library).map_err(|e| e.to_string());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("the library is fetched for x86-64 Linux only".into());
    }
    for tool in ["apt-get", "dpkg"] {
        if !is_there(tool, &["--version"]) {
            return Err(format!("{tool} is not here"));
        }
    }
    let say = |e: std::io::Error| e.to_string();
    for part in ["state/lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(folder.join(part)).map_err(say)?;
    }
    let folder = std::path::absolute(folder).map_err(say)?;
    let sources = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                   http://deb.debian.org/debian trixie non-free\n";
    std::fs::write(folder.join("sources.list"), sources).map_err(say)?;
    let apt = |deed: &[&str]| {
        let mut apt = Command::new("apt-get");
        let at = |name: &str, part: &str| format!("{name}={}", folder.join(part).display());
        apt.arg("-qq").current_dir(&folder);
        for setting in [
            at("Dir::Etc::sourcelist", "sources.list"),
            "Dir::Etc::sourceparts=-".to_owned(),
            at("Dir::State", "state"),
            "Dir::State::status=/dev/null".to_owned(),
            at("Dir::Cache", "cache"),
            "APT::Sandbox::User=root".to_owned(),
        ] {
            apt.args(["-o", &setting]);
        }
        output(apt.args(deed))
    };
    apt(&["update"]).and_then(|_| apt(&["download", "libcuda1"]))?;
    let package = std::fs::read_dir(&folder)
        .map_err(say)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .ok_or("the package could not be downloaded")?;
    must(Command::new("dpkg").arg("-x").arg(package).arg(folder.join("unpacked")))?;
    std::path::absolute(folder.join("unpacked/usr/lib/x86_64-linux-gnu/nvidia/current"))
        .map_err(say)
}
