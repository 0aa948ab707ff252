//! What waiting costs on a host, as a model: how late its sleeps end, and what they take.

use super::Wait;

/// A host, for a replay. Where several values are given, each is as likely as the others; an empty list is
/// taken as one 0.
#[derive(Clone, Debug)]
pub struct HostModel {
    /// How late sleeps ended, in nanoseconds.
    pub overshoots_ns: Vec<u64>,
    /// CPU of one sleep, in nanoseconds.
    pub sleep_cpu_ns: u64,
    /// CPU of a wait besides its sleeps and its watching, in nanoseconds.
    pub wait_cpu_ns: u64,
    /// From a store that is watched for to the next instruction behind the wait, in nanoseconds.
    pub looks_ns: Vec<u64>,
    /// From a driver's signal to the next instruction of a thread blocked on it, in nanoseconds.
    pub block_lags_ns: Vec<u64>,
    /// CPU of one such wake, in nanoseconds.
    pub block_cpu_ns: u64,
}

impl Default for HostModel {
    /// Two-core virtual machines of the kind that tests run on: sleeps overshoot by 55 µs and an
    /// exponential tail of 20 µs, a sleep takes 4 µs of CPU, a blocked thread wakes after 45 µs.
    fn default() -> HostModel {
        // The quantiles of the exponential, a thousand of them.
        let tail = |n: u32| -20_000.0 * (1.0 - (f64::from(n) + 0.5) / 1_000.0).ln();
        HostModel {
            overshoots_ns: (0..1_000).map(|n| 55_000 + tail(n) as u64).collect(),
            sleep_cpu_ns: 4_000,
            wait_cpu_ns: 0,
            looks_ns: vec![200],
            block_lags_ns: vec![45_000],
            block_cpu_ns: 10_000,
        }
    }
}

/// A model with a generator that draws from it.
pub(super) struct Host<'m> {
    pub(super) model: &'m HostModel,
    draw: u64,
}

impl<'m> Host<'m> {
    pub(super) fn new(model: &'m HostModel, seed: u64) -> Host<'m> {
        Host { model, draw: seed }
    }

    /// How late the next sleep ends.
    pub(super) fn overshoot(&mut self) -> u64 {
        self.pick(&self.model.overshoots_ns)
    }

    /// How long after its store the next watched wait goes on.
    pub(super) fn look(&mut self) -> u64 {
        self.pick(&self.model.looks_ns)
    }

    /// One of the values (SplitMix64 picks it), without drawing where there is no choice.
    fn pick(&mut self, values: &'m [u64]) -> u64 {
        if let [] | [_] = values {
            return values.first().copied().unwrap_or(0);
        }
        self.draw = self.draw.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.draw;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        let index = (u128::from(z) * values.len() as u128) >> 64;
        values.get(index as usize).copied().unwrap_or(0)
    }

    pub(super) fn overshoot_quantile(&self, share: f64) -> u64 {
        let mut sorted = self.model.overshoots_ns.clone();
        sorted.sort_unstable();
        let index = (sorted.len() as f64 * share) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
    }

    pub(super) fn block(&mut self) -> Wait {
        let lag_ns = self.pick(&self.model.block_lags_ns);
        Wait { lag_ns, cpu_ns: self.model.block_cpu_ns, late: false }
    }

    /// A park on a silent word, as the std host does it: a short spin, then naps that grow with the
    /// time parked.
    pub(super) fn park(&mut self, from: u64, end: u64) -> Wait {
        const SPIN: u64 = 5_000;
        if end <= from + SPIN {
            let cpu_ns = end.saturating_sub(from);
            return Wait { lag_ns: self.look(), cpu_ns, late: false };
        }
        let (mut now, mut cpu_ns) = (from + SPIN, SPIN);
        while now < end {
            now += ((now - from) / 32).clamp(40_000, 250_000) + self.overshoot();
            cpu_ns += self.model.sleep_cpu_ns;
        }
        Wait { lag_ns: now - end, cpu_ns, late: false }
    }
}
