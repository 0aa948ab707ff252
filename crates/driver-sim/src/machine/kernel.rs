//! Modules and the few kernels that the simulation knows by name. A module is PTX text; its kernels are the
//! entries in it, and one that isn't known can't be launched.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | `step` | out: u64, words: u32, seed: u64, ns: u64 | after `ns`, word `i` of `out` is a hundred rounds of a generator from `seed` and `i` |
//! | `timed_step` | those of `step`, stamp: u64 | the same, and at its end the device's clock goes to `stamp` |
//! | `tick` | go: u64, out: u64 | once the word `go` isn't 0, the device's clock goes to `out` |
//! | `spin_ns` | ns: u64 | takes `ns` |
//! | `fault` | | stores to an address that nobody has |
//! | any whose body has a `trap` | | fails at once: `CUDA_ERROR_LAUNCH_FAILED` |
//!
//! The device's clock (`%globaltimer`) is the host's monotonic one and a constant, so that nobody takes one
//! for the other.

use super::code::*;
use super::memory::Pinned;
use super::{Result, machine, now};
use std::ffi::c_void;
use std::sync::Arc;

pub(crate) struct Module {
    pub(crate) entries: Vec<Function>,
}

#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    traps: bool,
}

/// What a kernel computes once it ends.
pub(crate) type Effect = Arc<dyn Fn(&Pinned<'_>) -> Result<()> + Send + Sync>;

/// A kernel with its parameters: how long it takes and what it does.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) ns: u64,
    pub(crate) effect: Option<Effect>,
    pub(crate) fault: Option<Code>,
}

impl Module {
    /// Reads PTX text.
    pub(crate) fn read(text: &str) -> Result<Module> {
        if !text.contains(".version") || !text.contains(".target") {
            return Err(INVALID_IMAGE);
        }
        let entries = text.split(".entry").skip(1).filter_map(|rest| {
            let name =
                rest.trim_start().split(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
            let traps = rest.split([';', '{', '}']).any(|statement| statement.trim() == "trap");
            (!name.is_empty()).then(|| Function { name: name.to_owned(), traps })
        });
        Ok(Module { entries: entries.collect() })
    }
}

impl Function {
    /// Takes the parameters, as a launch does at once.
    ///
    /// # Safety
    ///
    /// `parameters` points to a pointer to each of the kernel's parameters.
    pub(crate) unsafe fn launch(&self, parameters: *const *const c_void) -> Result<Launch> {
        // SAFETY: the caller's promise; `index` is below the number of the kernel's parameters.
        let word = |index: usize| unsafe {
            if parameters.is_null() {
                Err(INVALID_VALUE)
            } else {
                Ok((*parameters.add(index)).cast::<u64>().read_unaligned())
            }
        };
        match self.name.as_str() {
            "step" | "timed_step" => {
                let out = word(0)?;
                let stamp = if self.name == "step" { None } else { Some(word(4)?) };
                // SAFETY: as above; this one has four bytes.
                let words = unsafe { (*parameters.add(1)).cast::<u32>().read_unaligned() };
                let (seed, ns) = (word(2)?, word(3)?);
                let effect = move |memory: &Pinned<'_>| {
                    let address = |i: u64| out + 8 * i;
                    (0..u64::from(words))
                        .try_for_each(|i| memory.store(address(i), rounds(seed, i), true))?;
                    stamp.map_or(Ok(()), |stamp| memory.store(stamp, device_clock(), true))
                };
                Ok(Launch { ns, effect: Some(Arc::new(effect)), fault: None })
            }
            "tick" => {
                let (go, out) = (word(0)?, word(1)?);
                let effect = move |memory: &Pinned<'_>| {
                    let begun = now();
                    while memory.load(go, true)? == 0 && now() - begun < TICK_MOST {
                        std::hint::spin_loop();
                    }
                    memory.store(out, device_clock(), true)
                };
                Ok(Launch { ns: 0, effect: Some(Arc::new(effect)), fault: None })
            }
            "spin_ns" => Ok(Launch { ns: word(0)?, effect: None, fault: None }),
            "fault" => Ok(failing(machine().script().fault_code)),
            _ if self.traps => Ok(failing(LAUNCH_FAILED)),
            _ => Err(NOT_SUPPORTED),
        }
    }
}

fn failing(status: Code) -> Launch {
    Launch { ns: 1_000, effect: None, fault: Some(status) }
}

/// How far the device's clock is ahead of the host's.
const AHEAD: u64 = 7_777_777_777;
/// The kernel `tick` waits for the host at most that long.
const TICK_MOST: u64 = 2_000_000_000;

fn device_clock() -> u64 {
    now() + AHEAD
}

/// A hundred rounds of a generator, one at a time, as the kernel runs them.
fn rounds(seed: u64, word: u64) -> u64 {
    const A: u64 = 6_364_136_223_846_793_005;
    const C: u64 = 1_442_695_040_888_963_407;
    (0..100).fold(seed ^ (word << 56), |x, _| x.wrapping_mul(A).wrapping_add(C))
}

/// Loads a module.
pub(crate) fn load(text: &str) -> Result<usize> {
    Ok(machine().modules.add(Module::read(text)?))
}

/// Finds a kernel of a module.
pub(crate) fn function(module: usize, name: &str) -> Result<usize> {
    let module = machine().modules.get(module)?;
    let function = module.entries.iter().find(|entry| entry.name == name).ok_or(NOT_FOUND)?;
    Ok(machine().functions.add(function.clone()))
}
