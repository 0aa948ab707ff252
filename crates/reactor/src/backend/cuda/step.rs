//! Real work for measurements and tests: a kernel of a stated length whose result the host can tell.

use super::table::Cuda;
use super::{CudaDevice, CudaQueue, MappedLine};
use crate::backend::mapped::{Handle, Raw};
use crate::{LINE_WORDS, Result};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

const PTX: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("step.ptx"), "\0").as_bytes()) {
        Ok(ptx) => ptx,
        Err(_) => panic!("the text has a zero in it"),
    };

/// The kernel, compiled by the driver for one device. Its module stays loaded: to unload one would wait for
/// what runs.
#[derive(Clone, Debug)]
pub struct StepKernel {
    device: CudaDevice,
    step: Handle,
    fault: Handle,
}

/// Where one step at a time leaves its result: eight words that the device writes.
#[derive(Debug)]
pub struct StepJob {
    kernel: StepKernel,
    result: MappedLine,
}

impl StepKernel {
    /// Compiles it.
    ///
    /// # Errors
    ///
    /// A failed driver call.
    pub fn new(device: &CudaDevice) -> Result<StepKernel> {
        let doing = || format!("compiling the step kernel for {}", device.name());
        let compile = |driver: &Cuda| -> Raw<(Handle, Handle)> {
            let module = driver.load(PTX)?;
            Ok((driver.function(module, c"step")?, driver.function(module, c"fault")?))
        };
        let (step, fault) = device.inner().call(doing, compile)?;
        Ok(StepKernel { device: device.clone(), step, fault })
    }

    /// A job, for one step at a time.
    ///
    /// # Errors
    ///
    /// The status of a refused allocation.
    pub fn job(&self) -> Result<StepJob> {
        Ok(StepJob { kernel: self.clone(), result: self.device.line()? })
    }

    /// Submits a kernel that stores to an address that nobody has: its context is lost with it, and every
    /// other user of the context. For tests of what happens then.
    ///
    /// # Errors
    ///
    /// As [`StepJob::run`].
    pub fn submit_fault(&self, queue: &mut CudaQueue) -> Result<u64> {
        let (inner, function) = (self.device.inner(), self.fault);
        queue.submit(|stream| {
            inner.call(
                || "launching a faulty kernel".to_owned(),
                // SAFETY: the kernel has no parameters.
                |driver| unsafe { driver.launch(function, 1, Handle(stream.as_raw()), &mut []) },
            )
        })
    }
}

impl StepJob {
    /// Runs a step that takes `ns` on the device, with the store of the next number behind it: the number.
    ///
    /// # Errors
    ///
    /// `Misuse` for a queue of another device, `DeviceLost`, or a failed driver call.
    pub fn run(&mut self, queue: &mut CudaQueue, seed: u64, ns: u64) -> Result<u64> {
        // Should the job be dropped, its memory stays until the number is reached.
        queue.keep(&self.result)?;
        let (inner, function) = (self.kernel.device.inner(), self.kernel.step);
        let (mut out, mut words, mut seed, mut ns) =
            (self.result.device_address(), LINE_WORDS as u32, seed, ns);
        queue.submit(|stream| {
            let mut parameters = [
                (&raw mut out).cast(),
                (&raw mut words).cast(),
                (&raw mut seed).cast(),
                (&raw mut ns).cast(),
            ];
            inner.call(
                || "launching a step".to_owned(),
                // SAFETY: the parameters are the kernel's four, in its order; it writes eight words at `out`,
                // which the queue keeps until the number behind the launch is reached.
                |driver| unsafe {
                    driver.launch(
                        function,
                        LINE_WORDS as u32,
                        Handle(stream.as_raw()),
                        &mut parameters,
                    )
                },
            )
        })
    }

    /// Whether the result of the last step, done by now, is that of the seed.
    pub fn verify(&self, seed: u64) -> bool {
        let words = self.result.line().words.iter();
        // Relaxed: the completion behind the step made them visible.
        (0..).zip(words).all(|(i, word)| word.load(Ordering::Relaxed) == expect(seed, i))
    }
}

/// A hundred rounds of x·A + C at once, as one multiplication and addition; the device runs them one by one.
const fn expect(seed: u64, word: u64) -> u64 {
    (seed ^ (word << 56)).wrapping_mul(HUNDRED.0).wrapping_add(HUNDRED.1)
}

const A: u64 = 6_364_136_223_846_793_005;
const C: u64 = 1_442_695_040_888_963_407;
const HUNDRED: (u64, u64) = {
    let (mut a, mut c, mut round) = (1u64, 0u64, 0);
    while round < 100 {
        a = a.wrapping_mul(A);
        c = c.wrapping_mul(A).wrapping_add(C);
        round += 1;
    }
    (a, c)
};

#[cfg(test)]
mod tests {
    #[test]
    fn the_hosts_formula_is_a_hundred_rounds() {
        for (seed, word) in [(0, 0), (7, 3), (u64::MAX, 7)] {
            let rounds = (0..100).fold(seed ^ (word << 56), |x: u64, _| {
                x.wrapping_mul(super::A).wrapping_add(super::C)
            });
            assert_eq!(super::expect(seed, word), rounds);
        }
    }
}
