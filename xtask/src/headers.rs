//! CUDA's headers, which NVIDIA's `cuda-async` is built with: those at `CUDA_HOME`, or fetched from PyPI.

use crate::run::{is_there, must};
use std::path::{Path, PathBuf};
use std::process::Command;

const WHEELS: [&str; 3] =
    ["nvidia-cuda-runtime==13.*", "nvidia-cuda-crt==13.*", "nvidia-curand==10.4.*"];

/// Where they are, for `CUDA_HOME`.
///
/// # Errors
///
/// Why they can't be had.
pub(crate) fn cuda() -> Result<PathBuf, String> {
    if let Some(home) = std::env::var_os("CUDA_HOME") {
        return Ok(home.into());
    }
    let folder = std::path::absolute("target/cuda-headers").map_err(|e| e.to_string())?;
    let home = folder.join("nvidia/cu13");
    if home.join("include/cuda.h").exists() {
        return Ok(home);
    }
    if !is_there("python3", &["-m", "pip", "--version"]) {
        return Err("CUDA_HOME is not set, and python3 has no pip to fetch the headers".into());
    }
    let wheels = folder.join("wheels");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]);
    must(pip.arg(&wheels).args(WHEELS))?;
    for wheel in std::fs::read_dir(&wheels).map_err(|e| e.to_string())? {
        let wheel = wheel.map_err(|e| e.to_string())?.path();
        unpack(&wheel, &folder)?;
    }
    Ok(home)
}

/// A wheel is a zip file.
fn unpack(wheel: &Path, folder: &Path) -> Result<(), String> {
    must(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder))
}
