//! What others do, to measure against: half of the mean (Linux's block layer), half of the least
//! (io_uring), and a moving average less a margin.

use super::schedule::{Ending, Schedule, Step};

/// Sleeps shorter than this are not worth their cost.
const LEAST: u64 = 20_000;

/// One sleep, then watch.
fn sleep_once(sleep_ns: u64, elapsed_ns: u64) -> Step {
    match sleep_ns >= LEAST && elapsed_ns < sleep_ns {
        true => Step::Sleep(sleep_ns),
        false => Step::Watch(u64::MAX),
    }
}

/// The best guess of a length that an ending allows.
fn length(ending: Ending) -> u64 {
    match ending {
        Ending::At(at) => at,
        Ending::Between(_, by) => by,
    }
}

/// Sleeps half of the mean of all lengths, as Linux's block layer polls.
#[derive(Clone, Copy, Debug, Default)]
pub struct HalfMean {
    sum: u64,
    waits: u64,
}

impl Schedule for HalfMean {
    fn begin(&mut self, _rows: u64) {}

    fn step(&self, elapsed_ns: u64) -> Step {
        sleep_once(self.sum.checked_div(self.waits).unwrap_or(0) / 2, elapsed_ns)
    }

    fn overslept(&mut self, _by_ns: u64) {}

    fn ended(&mut self, ending: Ending) {
        self.sum = self.sum.saturating_add(length(ending));
        self.waits += 1;
    }
}

/// Sleeps half of the least length ever seen, as io_uring's hybrid polling does.
#[derive(Clone, Copy, Debug, Default)]
pub struct HalfMin {
    least: Option<u64>,
}

impl Schedule for HalfMin {
    fn begin(&mut self, _rows: u64) {}

    fn step(&self, elapsed_ns: u64) -> Step {
        sleep_once(self.least.unwrap_or(0) / 2, elapsed_ns)
    }

    fn overslept(&mut self, _by_ns: u64) {}

    fn ended(&mut self, ending: Ending) {
        let length = length(ending);
        self.least = Some(self.least.map_or(length, |least| least.min(length)));
    }
}

/// Sleeps to a moving average, a quarter of it new, less a margin; a late wake takes an eighth off.
#[derive(Clone, Copy, Debug)]
pub struct Ewma {
    margin_ns: u64,
    level: Option<u64>,
}

impl Ewma {
    /// A schedule that knows nothing yet.
    pub fn new(margin_ns: u64) -> Self {
        Self { margin_ns, level: None }
    }
}

impl Schedule for Ewma {
    fn begin(&mut self, _rows: u64) {}

    fn step(&self, elapsed_ns: u64) -> Step {
        sleep_once(self.level.unwrap_or(0).saturating_sub(self.margin_ns), elapsed_ns)
    }

    fn overslept(&mut self, _by_ns: u64) {}

    fn ended(&mut self, ending: Ending) {
        self.level = Some(match (self.level, ending) {
            (None, ending) => length(ending),
            (Some(level), Ending::At(at)) => level - level / 4 + at / 4,
            (Some(level), Ending::Between(..)) => level - level / 8,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn each_sleeps_what_its_rule_says(lengths in prop::collection::vec(1u64..1_000_000_000, 1..50)) {
            let (mut mean, mut least, mut ewma) = (HalfMean::default(), HalfMin::default(), Ewma::new(9_000));
            prop_assert_eq!(mean.step(0), Step::Watch(u64::MAX));
            let mut level = None;
            for (n, &length) in lengths.iter().enumerate() {
                for schedule in [&mut mean as &mut dyn Schedule, &mut least, &mut ewma] {
                    schedule.ended(Ending::At(length));
                }
                level = Some(level.map_or(length, |l: u64| l - l / 4 + length / 4));
                let so_far = &lengths[..=n];
                let expected = [
                    so_far.iter().sum::<u64>() / so_far.len() as u64 / 2,
                    so_far.iter().min().unwrap() / 2,
                    level.unwrap().saturating_sub(9_000),
                ];
                for (schedule, sleep) in [&mean as &dyn Schedule, &least, &ewma].into_iter().zip(expected) {
                    let step = if sleep >= LEAST { Step::Sleep(sleep) } else { Step::Watch(u64::MAX) };
                    prop_assert_eq!(schedule.step(0), step);
                    prop_assert_eq!(schedule.step(sleep), Step::Watch(u64::MAX));
                }
            }
        }
    }
}
