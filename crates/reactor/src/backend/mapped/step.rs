//! Real work for measurements and tests: a kernel of a stated length whose result the host can tell.

use super::{Device, Handle, MappedLine, Raw, Stream, StreamQueue, Vendor};
use crate::{LINE_WORDS, Result};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// A vendor whose driver compiles the step kernel.
pub trait Compile: Vendor {
    /// Compiles the kernels `step` and `fault` for the entered device.
    fn compile(&self, ordinal: usize) -> Raw<Kernels>;

    /// Launches one block of `threads`.
    ///
    /// # Safety
    ///
    /// `parameters` points to each of the function's parameters, and what they point to on the device stays
    /// until the launch has ended.
    unsafe fn launch(
        &self,
        function: Handle,
        threads: u32,
        stream: Handle,
        parameters: &mut [*mut c_void],
    ) -> Raw<()>;
}

/// What was compiled. The module stays loaded: to unload one would wait for what runs.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    pub(crate) step: Handle,
    pub(crate) fault: Handle,
    /// Ticks of the device's clock in a millisecond, as the kernel counts time.
    pub(crate) ticks_per_ms: u64,
}

/// The kernel, compiled by the driver for one device.
pub struct StepKernel<V: Vendor> {
    device: Device<V>,
    kernels: Kernels,
}

/// Where one step at a time leaves its result: eight words that the device writes.
#[derive(Debug)]
pub struct StepJob<V: Vendor> {
    kernel: StepKernel<V>,
    result: MappedLine<V>,
}

impl<V: Compile> StepKernel<V> {
    /// Compiles it.
    ///
    /// # Errors
    ///
    /// A failed driver call.
    pub fn new(device: &Device<V>) -> Result<StepKernel<V>> {
        let doing = || format!("compiling the step kernel for {}", device.name());
        let kernels = device.inner().call(doing, |driver| driver.compile(device.ordinal()))?;
        Ok(StepKernel { device: device.clone(), kernels })
    }

    /// A job, for one step at a time.
    ///
    /// # Errors
    ///
    /// The status of a refused allocation.
    pub fn job(&self) -> Result<StepJob<V>> {
        Ok(StepJob { kernel: self.clone(), result: self.device.line()? })
    }

    /// Submits a kernel that stores to an address that nobody has: its context is lost with it, and every
    /// other user of the context. For tests of what happens then.
    ///
    /// # Errors
    ///
    /// As [`StepJob::run`].
    pub fn submit_fault(&self, queue: &mut StreamQueue<V>) -> Result<u64> {
        let (inner, function) = (self.device.inner(), self.kernels.fault);
        queue.submit(|stream: Stream<V>| {
            inner.call(
                || "launching a faulty kernel".to_owned(),
                // SAFETY: the kernel has no parameters.
                |driver| unsafe { driver.launch(function, 1, Handle(stream.as_raw()), &mut []) },
            )
        })
    }
}

impl<V: Compile> StepJob<V> {
    /// Runs a step that takes `ns` on the device, with the store of the next number behind it: the number.
    ///
    /// # Errors
    ///
    /// `Misuse` for a queue of another device, `DeviceLost`, or a failed driver call.
    pub fn run(&mut self, queue: &mut StreamQueue<V>, seed: u64, ns: u64) -> Result<u64> {
        // Should the job be dropped, its memory stays until the number is reached.
        queue.keep(&self.result)?;
        let StepKernel { device, kernels } = &self.kernel;
        let ns = u128::from(ns) * u128::from(kernels.ticks_per_ms) / 1_000_000;
        let (inner, function) = (device.inner(), kernels.step);
        let (mut out, mut words, mut seed, mut ticks) =
            (self.result.device_address(), LINE_WORDS as u32, seed, ns as u64);
        queue.submit(|stream: Stream<V>| {
            let mut parameters = [
                (&raw mut out).cast(),
                (&raw mut words).cast(),
                (&raw mut seed).cast(),
                (&raw mut ticks).cast(),
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

impl<V: Vendor> Clone for StepKernel<V> {
    fn clone(&self) -> Self {
        StepKernel { device: self.device.clone(), kernels: self.kernels }
    }
}

impl<V: Vendor> std::fmt::Debug for StepKernel<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepKernel").field("device", &self.device).finish_non_exhaustive()
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
