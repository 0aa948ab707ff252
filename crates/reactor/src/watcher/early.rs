//! How long to sleep through a step, and whether to wake its task ahead of the completion.
//!
//! Pure: spans in, spans out. What a machine's sleeps and wakes cost is learnt from what they took; of
//! the ways to wait, the one that would have cost least over the last steps is taken.

use super::EarlyOptions;
use super::turns::Turns;
use crate::DurNs;

/// Samples kept.
const KEPT: usize = 16;
/// Steps before anything is predicted.
const LEAST: usize = 4;

/// The last few samples of something.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    samples: [u64; KEPT],
    count: usize,
    next: usize,
}

impl Ring {
    pub(super) fn push(&mut self, sample: u64) {
        self.samples[self.next] = sample;
        self.next = (self.next + 1) % KEPT;
        self.count = (self.count + 1).min(KEPT);
    }

    fn sorted(&self) -> ([u64; KEPT], usize) {
        let mut sorted = self.samples;
        sorted[..self.count].sort_unstable();
        (sorted, self.count)
    }

    /// The sample that so many thousandths of them don't exceed.
    fn quantile(&self, permille: usize) -> Option<u64> {
        let (sorted, count) = self.sorted();
        (count > 0).then(|| sorted[(count - 1) * permille / 1_000])
    }
}

/// A cost that depends on how long the machine idled before: learnt for each power of four of it.
#[derive(Debug, Default)]
struct ByIdle([Ring; 10]);

impl ByIdle {
    fn at(idled: DurNs) -> usize {
        // From 64 µs on, each fourfold has its own.
        ((idled.0 >> 16).checked_ilog2().map_or(0, |log| log as usize / 2 + 1)).min(9)
    }

    fn push(&mut self, idled: DurNs, cost: DurNs) {
        self.0[Self::at(idled)].push(cost.0);
    }

    fn quantile(&self, idled: DurNs, permille: usize, otherwise: DurNs) -> u64 {
        self.0[Self::at(idled)].quantile(permille).unwrap_or(otherwise.0)
    }
}

/// What this machine's sleeps and wakes really cost.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    overshoot: ByIdle,
    wake: ByIdle,
}

impl Learnt {
    /// A sleep of `slept` ended `late` after its time.
    pub(super) fn sleep_took(&mut self, slept: DurNs, late: DurNs) {
        self.overshoot.push(slept, late);
    }

    /// A task that idled so long ran that long after its waker was called.
    pub(super) fn wake_took(&mut self, idled: DurNs, took: DurNs) {
        self.wake.push(idled, took);
    }

    /// How much before its time a sleep must end for the watcher to be awake then.
    fn margin(&self, slept: DurNs) -> u64 {
        let learnt = self.overshoot.quantile(slept, 800, DurNs::from_us(60));
        learnt.clamp(5_000, 300_000)
    }

    /// What a wake takes: at best, mostly, and at worst.
    fn wakes(&self, idled: DurNs) -> [u64; 3] {
        [100, 500, 900].map(|permille| {
            let learnt = self.wake.quantile(idled, permille, DurNs::from_us(40));
            learnt.clamp(2_000, 200_000)
        })
    }
}

/// Who saw a step's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Somebody who was watching.
    InTime,
    /// A task that was woken early and not early enough.
    LateByTask,
    /// The watcher, when its sleep ended.
    LateBySleep,
}

/// How one queue's steps went.
#[derive(Clone, Debug, Default)]
pub(super) struct Point {
    lengths: Ring,
    /// Looks one behind the other that came when the step was over.
    late: u32,
    pub(super) turns: Turns,
}

impl Point {
    /// A step was seen to end after that long, and how.
    pub(super) fn observe(&mut self, length: DurNs, seen: Seen) {
        // A late look says only that the step was shorter. Were it taken as it is, the next look would be
        // as late: something is taken off, so that looks come earlier until one is in time.
        self.late = if seen == Seen::LateBySleep { self.late + 1 } else { 0 };
        let off = match seen {
            Seen::InTime => 0,
            Seen::LateByTask => 25_000 + length.0 / 512,
            // A sleep that overshot, most likely; several in a row mean that the steps got shorter.
            Seen::LateBySleep if self.late < 3 => 0,
            Seen::LateBySleep => length.0 >> (9 - self.late.min(6)),
        };
        self.lengths.push(length.0.saturating_sub(off));
    }
}

/// How to wait for one step, in spans from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Watch the word at once.
    Watch,
    /// Sleep until then, and watch, first in a spin for so long.
    Sleep { to: DurNs, spin: DurNs },
    /// Sleep until then, spin until `wake`, wake the task, which watches for at most `watch`.
    Early { to: DurNs, wake: DurNs, watch: DurNs },
}

impl Plan {
    /// For how long nobody looks.
    pub(super) fn slept(self) -> DurNs {
        match self {
            Plan::Watch => DurNs(0),
            Plan::Sleep { to, .. } | Plan::Early { to, .. } => to,
        }
    }
}

/// A nap's CPU: going to sleep, waking up, looking.
const NAP_CPU: u64 = 6_000;
/// Sleeps shorter than this are not worth one.
const LEAST_SLEEP: u64 = 100_000;
/// A spin goes on for so long after the last of the steps it is for should have ended.
const SPIN_BEYOND: u64 = 10_000;
/// The longest that the watcher spins for one wait.
const SPIN_MOST: u64 = 200_000;

/// The plan that would have cost least over the last steps.
pub(super) fn plan(
    point: &Point,
    learnt: &Learnt,
    options: Option<&EarlyOptions>,
    waits: usize,
) -> Plan {
    let (sorted, count) = point.lengths.sorted();
    let lengths = &sorted[..count];
    if count < LEAST {
        return Plan::Watch;
    }
    // Too short for any sleep: what is below would find the same, in microseconds.
    if lengths[count * 3 / 4] < LEAST_SLEEP {
        return Plan::Watch;
    }
    let middle = DurNs(lengths[count / 2]);
    let (margin, wakes) = (learnt.margin(middle), learnt.wakes(middle));
    let [_, wake, slow_wake] = wakes;
    let price = options.map_or(200, |options| options.cpu_price_permille);
    let cost = |lag: u64, cpu: u64| u128::from(lag) * 1_000 + u128::from(cpu) * u128::from(price);
    // Watching in naps from `from` on: half a nap late, then the wake.
    let napped = |length: u64, from: u64| {
        let left = length.saturating_sub(from);
        let late = from.saturating_sub(length);
        cost(late + wake + 20_000, left / 48_000 * NAP_CPU + NAP_CPU)
    };
    let watch_cost: u128 = lengths.iter().map(|&length| napped(length, 0)).sum();
    let mut best = (watch_cost, Plan::Watch);
    // The shortest, and a few up to three quarters: aiming beyond that never costs least.
    for aim in [0, count / 8, count / 4, count / 2, count * 3 / 4].map(|i| lengths[i]) {
        let to = aim.saturating_sub(margin);
        if to < LEAST_SLEEP {
            continue;
        }
        let from = to + margin / 2;
        let sleep_cost = lengths.iter().map(|&length| napped(length, from)).sum();
        if sleep_cost < best.0 {
            best = (sleep_cost, Plan::Sleep { to: DurNs(to), spin: DurNs(0) });
        }
        let Some(options) = options else { continue };
        // Up to where three quarters have ended; waits share a spin.
        let spin = (lengths[count * 3 / 4].saturating_sub(to) + SPIN_BEYOND).min(SPIN_MOST);
        if options.spin_permille > 0 {
            let spun = |&length: &u64| match length.checked_sub(from) {
                Some(beyond) if beyond <= spin => cost(wake, beyond / waits as u64),
                _ => napped(length, from) + cost(0, spin / waits as u64),
            };
            let spin_cost = lengths.iter().map(spun).sum();
            if spin_cost < best.0 {
                best = (spin_cost, Plan::Sleep { to: DurNs(to), spin: DurNs(spin) });
            }
        }
        if waits > options.most_waits {
            continue;
        }
        let share = u128::from(aim) * u128::from(options.watch_permille) / 1_000;
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        let watch = options.watch_most.0.min(options.watch_free.0.saturating_add(share));
        if watch == 0 {
            continue;
        }
        for lead in [wake, slow_wake, slow_wake + 15_000, slow_wake + 40_000] {
            let wake_at = aim.saturating_sub(lead);
            let to = wake_at.saturating_sub(margin);
            if to < LEAST_SLEEP {
                continue;
            }
            let one = |length: u64, wake: u64| {
                // When the task starts to watch.
                let from = wake_at + wake;
                match length.checked_sub(from) {
                    None => cost(from - length, margin / 2),
                    Some(beyond) if beyond <= watch => cost(300, margin / 2 + beyond),
                    Some(beyond) => cost(
                        wake + 20_000,
                        margin / 2 + watch + beyond / 48_000 * NAP_CPU + 2 * NAP_CPU,
                    ),
                }
            };
            let each = lengths.iter().flat_map(|&length| wakes.map(|wake| one(length, wake)));
            let early_cost = each.sum::<u128>() / wakes.len() as u128;
            if early_cost < best.0 {
                let (to, wake, watch) = (DurNs(to), DurNs(wake_at), DurNs(watch));
                best = (early_cost, Plan::Early { to, wake, watch });
            }
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lengths_us: &[u64]) -> Point {
        let mut point = Point::default();
        lengths_us.iter().for_each(|&us| point.observe(DurNs::from_us(us), Seen::InTime));
        point
    }

    fn learnt() -> Learnt {
        let mut learnt = Learnt::default();
        for _ in 0..KEPT {
            for ms in [1, 10, 45] {
                learnt.sleep_took(DurNs::from_ms(ms), DurNs::from_us(70));
                learnt.wake_took(DurNs::from_ms(ms), DurNs::from_us(50));
            }
        }
        learnt
    }

    #[test]
    fn nothing_is_slept_before_something_is_known() {
        let options = EarlyOptions::default();
        let few = point(&[10_000; LEAST - 1]);
        assert_eq!(plan(&few, &learnt(), Some(&options), 1), Plan::Watch);
    }

    #[test]
    fn steady_steps_are_slept_through_and_woken_early_within_the_bounds() {
        let options = EarlyOptions::default();
        for (ms, most_watch) in [(1, 71), (10, 200), (45, 200)] {
            let steady: Vec<_> = (0..16).map(|i| ms * 1_000 + i % 4 * 10).collect();
            let Plan::Early { to, wake, watch } =
                plan(&point(&steady), &learnt(), Some(&options), 1)
            else {
                panic!("{ms} ms steps are not woken early")
            };
            assert!(to < wake && wake.0 + 50_000 < ms * 1_000_000 + 30_000, "{to} {wake}");
            assert!(watch <= DurNs::from_us(most_watch), "{watch}");
            assert!(wake.0 - to.0 >= 70_000, "the margin covers the overshoot");
        }
    }

    #[test]
    fn a_crowd_is_not_woken_early() {
        let options = EarlyOptions::default();
        let steady = point(&[45_000; 16]);
        let found = plan(&steady, &learnt(), Some(&options), options.most_waits + 1);
        assert!(matches!(found, Plan::Sleep { .. }), "{found:?}");
        assert!(matches!(plan(&steady, &learnt(), None, 1), Plan::Sleep { .. }));
    }

    #[test]
    fn two_modes_are_aimed_at_the_shorter_and_irregular_steps_never_slept_far_beyond() {
        let options = EarlyOptions::default();
        let modes: Vec<_> = (0..16).map(|i| if i % 2 == 0 { 5_000 } else { 45_000 }).collect();
        let (Plan::Sleep { to, .. } | Plan::Early { to, .. }) =
            plan(&point(&modes), &learnt(), Some(&options), 1)
        else {
            panic!("nothing is slept")
        };
        assert!(to < DurNs::from_us(5_000), "{to}");
    }

    #[test]
    fn a_late_look_lowers_what_is_predicted() {
        let mut steps = point(&[10_000; 16]);
        for _ in 0..KEPT {
            steps.observe(DurNs::from_us(9_900), Seen::LateBySleep);
        }
        let (Plan::Sleep { to, .. } | Plan::Early { to, .. }) =
            plan(&steps, &learnt(), Some(&EarlyOptions::default()), 1)
        else {
            panic!("nothing is slept")
        };
        assert!(to < DurNs::from_us(8_700), "{to}");
    }

    #[test]
    fn where_no_task_may_watch_the_watcher_spins_to_the_completion() {
        let options =
            EarlyOptions { watch_most: DurNs(0), watch_free: DurNs(0), ..EarlyOptions::default() };
        for (options, waits) in [(options, 1), (EarlyOptions::default(), 8)] {
            let found = plan(&point(&[10_000; 16]), &learnt(), Some(&options), waits);
            let Plan::Sleep { to, spin } = found else { panic!("{found:?}") };
            let end = to.0 + spin.0;
            assert!(to.0 < 9_950_000 && end > 10_000_000 && end < 10_050_000, "{to} {spin}");
            let never = EarlyOptions { spin_permille: 0, ..options };
            let found = plan(&point(&[10_000; 16]), &learnt(), Some(&never), waits);
            assert!(matches!(found, Plan::Sleep { spin: DurNs(0), .. }), "{found:?}");
        }
    }

    #[test]
    fn late_looks_are_taken_as_they_are_until_several_come_in_a_row() {
        let mut steps = Point::default();
        let taken = [0; 7].map(|_| {
            steps.observe(DurNs::from_us(12_800), Seen::LateBySleep);
            12_800_000 - steps.lengths.samples[(steps.lengths.next + KEPT - 1) % KEPT]
        });
        assert_eq!(taken, [0, 0, 200_000, 400_000, 800_000, 1_600_000, 1_600_000]);
        steps.observe(DurNs::from_us(12_800), Seen::InTime);
        steps.observe(DurNs::from_us(12_800), Seen::LateBySleep);
        assert_eq!(steps.lengths.samples[8], 12_800_000);
    }

    #[test]
    fn steps_that_get_much_shorter_are_soon_seen_in_time() {
        let mut steps = point(&[45_000; 16]);
        let short = DurNs::from_ms(5);
        let late = (0..64).take_while(|_| {
            let found = plan(&steps, &learnt(), Some(&EarlyOptions::default()), 1);
            let slept = found.slept();
            if slept <= short {
                return false;
            }
            // The sleep overshoots, and then the word is there.
            steps.observe(DurNs(slept.0 + 70_000), Seen::LateBySleep);
            true
        });
        assert!(late.count() < 24);
    }

    #[test]
    fn idle_spans_have_their_own_costs() {
        let at = |us| ByIdle::at(DurNs::from_us(us));
        assert_eq!(at(0), 0);
        assert!(at(1_000) < at(10_000) && at(10_000) < at(45_000));
        assert_eq!(ByIdle::at(DurNs(u64::MAX)), 9);
    }
}
