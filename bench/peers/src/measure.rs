//! Rounds that take turns, medians, and how far the rounds lie apart.

use std::sync::OnceLock;
use std::time::Duration;

/// One round of a subject: what it took, and for how many operations.
pub type Round = (Duration, u64);

pub struct Subject<'a> {
    pub name: &'static str,
    pub round: Box<dyn FnMut() -> Round + 'a>,
}

pub fn subject<'a>(name: &'static str, round: impl FnMut() -> Round + 'a) -> Subject<'a> {
    Subject { name, round: Box::new(round) }
}

pub struct Bench {
    pub rounds: usize,
    /// Divides the work of a round: for a quick look.
    pub scale: u64,
    /// Part of a case's name, and a subject's: to look at one alone.
    pub case: Option<String>,
    pub subject: Option<String>,
}

impl Bench {
    pub fn wants(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|part| case.contains(part))
    }

    /// Runs every subject once to warm up, then in turns, and prints a line for each.
    pub fn compare(&self, suite: &str, case: &str, mut subjects: Vec<Subject<'_>>) {
        if !self.wants(case) {
            return;
        }
        if let Some(part) = &self.subject {
            subjects.retain(|subject| subject.name.contains(part));
        }
        pin();
        let mut values = vec![Vec::new(); subjects.len()];
        let mut counts = vec![0; subjects.len()];
        for round in 0..=self.rounds {
            for (at, subject) in subjects.iter_mut().enumerate() {
                let (took, n) = (subject.round)();
                if round > 0 {
                    values[at].push(took.as_nanos() as f64 / n as f64);
                    counts[at] += n;
                }
            }
        }
        for (at, subject) in subjects.iter().enumerate() {
            line(suite, case, subject.name, "ns", &mut values[at], counts[at], false);
        }
    }
}

/// Prints the median of some values, of this machine or of the simulated device.
pub fn line(
    suite: &str,
    case: &str,
    subject: &str,
    metric: &str,
    values: &mut [f64],
    n: u64,
    simulated: bool,
) {
    let device = if simulated { "sim" } else { "cpu" };
    row((suite, case, subject, metric), values, n, (device, simulated));
}

/// Prints the median of some values. `noise` is half the distance between their quartiles, over
/// their median.
pub fn row(
    (suite, case, subject, metric): (&str, &str, &str, &str),
    values: &mut [f64],
    n: u64,
    (device, simulated): (&str, bool),
) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    let (value, rounds) = (at(0.5), values.len());
    let noise = if value > 0.0 { (at(0.75) - at(0.25)) / 2.0 / value } else { 0.0 };
    println!(
        "{{\"suite\":\"{suite}\",\"case\":\"{case}\",\"subject\":\"{subject}\",\"metric\":\"{metric}\",\
         \"value\":{value:.4},\"n\":{n},\"device\":\"{device}\",\"simulated\":{simulated},\
         \"noise\":{noise:.3},\"rounds\":{rounds}}}"
    );
}

/// The CPUs that the process may run on, as they were at its start: a pinned thread is told of its own
/// alone.
fn cores() -> &'static [core_affinity::CoreId] {
    static CORES: OnceLock<Vec<core_affinity::CoreId>> = OnceLock::new();
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

/// Keeps this thread on the last CPU, where that is allowed.
pub fn pin() {
    cores().last().map(|&core| core_affinity::set_for_current(core));
}

/// Keeps a helper thread on the first CPU, where that is allowed.
pub fn pin_first() {
    cores().first().map(|&core| core_affinity::set_for_current(core));
}
