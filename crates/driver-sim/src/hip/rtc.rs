//! The runtime compiler, which real HIP libraries export too or keep beside them. Nothing is compiled: the
//! code of a program is the list of its kernels' names.

use crate::entries;
use crate::machine::{Result, hold};
use crate::{answer, text};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::{LazyLock, Mutex};

/// `HIPRTC_ERROR_INVALID_INPUT` and `HIPRTC_ERROR_INVALID_PROGRAM`.
const INVALID_INPUT: i32 = 3;
const INVALID_PROGRAM: i32 = 4;

static PROGRAMS: LazyLock<Mutex<(usize, HashMap<usize, String>)>> = LazyLock::new(Mutex::default);

entries! { TABLE;
    #[uninit]
    fn hiprtcCreateProgram(
        to: *mut usize, source: *const c_char, _name: *const c_char, _headers: i32, _sources: *mut c_void,
        _names: *mut c_void,
    ) {
        let code = code(text(source)?)?;
        let mut programs = hold(&PROGRAMS);
        programs.0 += 16;
        let handle = programs.0;
        programs.1.insert(handle, code);
        answer(to, handle)
    }
    #[uninit]
    fn hiprtcCompileProgram(program: usize, _count: i32, _options: *mut *const c_char) { find(program).map(|_| ()) }
    #[uninit]
    fn hiprtcGetCodeSize(program: usize, to: *mut usize) { answer(to, find(program)?.len() + 1) }
    #[uninit]
    fn hiprtcGetCode(program: usize, to: *mut c_char) {
        let code = find(program)?;
        if to.is_null() {
            return Err(INVALID_INPUT);
        }
        to.cast::<u8>().copy_from_nonoverlapping(code.as_ptr(), code.len());
        to.add(code.len()).write(0);
        Ok(())
    }
    #[uninit]
    fn hiprtcDestroyProgram(program: *mut usize) {
        if program.is_null() || hold(&PROGRAMS).1.remove(&*program).is_none() {
            return Err(INVALID_PROGRAM);
        }
        Ok(())
    }
}

fn find(program: usize) -> Result<String> {
    hold(&PROGRAMS).1.get(&program).cloned().ok_or(INVALID_PROGRAM)
}

/// The entries of a source, as a module has them.
fn code(source: &str) -> Result<String> {
    let kernels = source.split("__global__ void ").skip(1);
    let names = kernels.filter_map(|rest| rest.split('(').next()).map(str::trim);
    let entries: String = names.map(|name| format!(".visible .entry {name}()\n")).collect();
    if entries.is_empty() {
        Err(INVALID_INPUT)
    } else {
        Ok(format!(".version 1.0\n.target simulated\n{entries}"))
    }
}
