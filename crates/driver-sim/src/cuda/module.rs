//! Modules and launches.

use super::Handle;
use crate::machine::context::{current, stream};
use crate::machine::stream::Deed;
use crate::machine::{kernel, machine};
use crate::{answer, entries, text};
use std::ffi::{c_char, c_void};

entries! { TABLE;
    fn cuModuleLoadData(to: *mut Handle, image: *const c_char) {
        current()?;
        answer(to, kernel::load(text(image)?)?)
    }
    fn cuModuleLoadDataEx(
        to: *mut Handle, image: *const c_char, _count: u32, _options: *mut c_void, _values: *mut c_void,
    ) {
        current()?;
        answer(to, kernel::load(text(image)?)?)
    }
    fn cuModuleUnload(module: Handle) { machine().modules.remove(module).map(|_| ()) }
    fn cuModuleGetFunction(to: *mut Handle, module: Handle, name: *const c_char) {
        answer(to, kernel::function(module, text(name)?)?)
    }
    fn cuLaunchKernel(
        function: Handle, _gx: u32, _gy: u32, _gz: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32,
        on: Handle, parameters: *const *const c_void, _extra: *const *const c_void,
    ) {
        let launch = machine().functions.get(function)?.launch(parameters)?;
        stream(on, current)?.submit(Deed::Kernel(launch))
    }
}
