//! Copies of the library under the vendors' names, for the ordinary loading path. Each copy is a machine of
//! its own, so that tests of one process don't meet. A copy may lack entry points: their names are struck
//! from its symbol table, and the system's loader finds them no more.

use std::io;
use std::path::{Path, PathBuf};

/// The names under which the vendors' loaders look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// `libcuda.so.1`.
    Cuda,
    /// `libamdhip64.so.7`.
    Hip,
}

impl Vendor {
    /// The library's file name.
    pub fn file(self) -> &'static str {
        match self {
            Vendor::Cuda => "libcuda.so.1",
            Vendor::Hip => "libamdhip64.so.7",
        }
    }
}

/// The library as cargo built it, next to the running test, example or program.
///
/// # Errors
///
/// `NotFound` where it was not built.
pub fn library() -> io::Result<PathBuf> {
    let name =
        format!("{}driver_sim{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe()?;
    let folders = program.ancestors().skip(1).take(3);
    let places = folders.flat_map(|folder| [folder.join("deps").join(&name), folder.join(&name)]);
    let newest = places
        .filter_map(|path| Some((path.metadata().and_then(|m| m.modified()).ok()?, path)))
        .max();
    newest.map(|(_, path)| path).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name))
}

/// Copies the library into a folder under a vendor's name, without the entry points in `missing`: the copy.
///
/// # Errors
///
/// As [`library`]; `InvalidInput` for a name that the library doesn't export; the system's for a failed copy.
pub fn install(folder: &Path, vendor: Vendor, missing: &[&str]) -> io::Result<PathBuf> {
    let mut bytes = std::fs::read(library()?)?;
    for name in missing {
        strike(&mut bytes, name)?;
    }
    let path = folder.join(vendor.file());
    std::fs::write(&path, bytes)?;
    Ok(path)
}

/// Changes the first letter of a name wherever it stands as a whole in a string table.
fn strike(bytes: &mut [u8], name: &str) -> io::Result<()> {
    let whole: Vec<u8> = [&[0], name.as_bytes(), &[0]].concat();
    let mut found = false;
    let mut from = 0;
    while let Some(at) = find(&bytes[from..], &whole) {
        bytes[from + at + 1] = b'_';
        from += at + 1;
        found = true;
    }
    if found { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, name.to_owned())) }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
