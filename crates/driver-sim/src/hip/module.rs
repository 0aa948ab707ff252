//! Modules and launches. What a real runtime compiles from source, the simulation reads for its kernels'
//! names: "code" is the source itself, between the marks that make a module of it.

use super::Handle;
use crate::machine::context::{current_hip, stream};
use crate::machine::stream::Deed;
use crate::machine::{kernel, machine};
use crate::{answer, entries, text};
use std::ffi::{c_char, c_void};

entries! { TABLE;
    fn hipModuleLoadData(to: *mut Handle, image: *const c_char) {
        current_hip()?;
        answer(to, kernel::load(text(image)?)?)
    }
    fn hipModuleUnload(module: Handle) { machine().modules.remove(module).map(|_| ()) }
    fn hipModuleGetFunction(to: *mut Handle, module: Handle, name: *const c_char) {
        answer(to, kernel::function(module, text(name)?)?)
    }
    fn hipModuleLaunchKernel(
        function: Handle, _gx: u32, _gy: u32, _gz: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32,
        on: Handle, parameters: *const *const c_void, _extra: *const *const c_void,
    ) {
        let launch = machine().functions.get(function)?.launch(parameters)?;
        stream(on, current_hip)?.submit(Deed::Kernel(launch))
    }
}
