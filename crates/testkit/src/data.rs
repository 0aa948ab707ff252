//! Lengths of device work to judge estimators by: seeded, and the same on every machine.
//!
//! | set | what |
//! |---|---|
//! | steady | 10 ms, normal jitter of 20 µs |
//! | alternating | 5 and 45 ms in turn, the same jitter |
//! | random | 5 or 45 ms by a coin |
//! | log-normal | median 8 ms, σ 0.5 |
//! | pareto | from 4 ms, exponent 2.5, at most 0.5 s |
//! | throttle | 10 ms, then 16 ms, changing every 200 steps |
//! | drift | 10 ms and a sine of 3 ms over 600 steps |
//! | checkpoint | 10 ms, every hundredth 60 ms |
//! | vulkan | recorded: steps of a serving trace on a Vulkan device in software (`data/README.md`) |
//! | batcher, conversation | a trace of requests through a continuous batcher: 10 ms + 0.25 ms a decoding request + 0.02 ms a prompt token, at most 512 tokens a step and 64 requests; rows are requests and tokens together |
//!
//! Sets of one seed are for designing an estimator, those of another for reporting on it.

use std::collections::VecDeque;

/// One step: what the program knew of its size, and how long it took in nanoseconds.
pub type Step = (u64, u64);

/// A small seeded generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Draw(pub u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly from 0 up to 1, which is never drawn.
    pub fn even(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From the normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.even()).ln()).sqrt();
        radius * (core::f64::consts::TAU * self.even()).cos()
    }
}

/// The sets that need no trace, by name: `steps` each.
pub fn sets(seed: u64, steps: usize) -> Vec<(&'static str, Vec<Step>)> {
    let mut draw = Draw(seed);
    let mut set = |length: &mut dyn FnMut(usize, &mut Draw) -> f64| -> Vec<Step> {
        (0..steps).map(|i| (0, length(i, &mut draw).max(1_000.0) as u64)).collect()
    };
    let ms = 1e6;
    let jitter = |draw: &mut Draw| 20e3 * draw.normal();
    let sine = |i: usize| (core::f64::consts::TAU * i as f64 / 600.0).sin();
    vec![
        ("steady", set(&mut |_, d| 10.0 * ms + jitter(d))),
        ("alternating", set(&mut |i, d| if i % 2 == 0 { 5.0 } else { 45.0 } * ms + jitter(d))),
        ("random", set(&mut |_, d| if d.even() < 0.5 { 5.0 } else { 45.0 } * ms + jitter(d))),
        ("log-normal", set(&mut |_, d| 8.0 * ms * (0.5 * d.normal()).exp())),
        ("pareto", set(&mut |_, d| (4.0 * ms * (1.0 - d.even()).powf(-0.4)).min(500.0 * ms))),
        ("throttle", set(&mut |i, d| if i / 200 % 2 == 0 { 10.0 } else { 16.0 } * ms + jitter(d))),
        ("drift", set(&mut |i, d| (10.0 + 3.0 * sine(i)) * ms + jitter(d))),
        ("checkpoint", set(&mut |i, d| if i % 100 == 99 { 60.0 } else { 10.0 } * ms + jitter(d))),
    ]
}

/// Every set: for designing estimators on (`false`), or for reporting on them (`true`: another seed, another
/// trace, the other half of the recording).
pub fn all(reported: bool, steps: usize) -> Vec<(&'static str, Vec<Step>)> {
    let seed = if reported { 2_026 } else { 1 };
    let mut all = sets(seed, steps);
    let traced = |text| batcher(&trace(text), seed, steps);
    if reported {
        all.push(("batcher", traced(include_str!("../data/azure-llm-2023-code-excerpt.csv"))));
        let later = include_str!("../data/azure-llm-2023-conv-later-excerpt.csv");
        all.push(("conversation", traced(later)));
    } else {
        all.push(("batcher", traced(include_str!("../data/azure-llm-2023-conv-excerpt.csv"))));
    }
    let mut vulkan = recorded(include_str!("../data/vulkan-llvmpipe.csv"));
    let later = vulkan.split_off(vulkan.len() / 2);
    let half = if reported { later } else { vulkan };
    all.push(("vulkan", half.into_iter().take(steps).collect()));
    all
}

/// The steps of a recording, as `gpu-reactor run --record` writes it.
///
/// # Panics
///
/// At a line that is not of that form.
pub fn recorded(text: &str) -> Vec<Step> {
    let line = |line: &str| {
        let fields: Vec<u64> = line.split(',').map(|field| field.parse().unwrap()).collect();
        (fields[1], fields[3])
    };
    text.lines().skip(2).map(line).collect()
}

/// A request of a trace: when it comes in nanoseconds, its prompt tokens, the tokens it generates.
pub type Request = (u64, u64, u64);

/// Reads a trace of the Azure Public Dataset: `TIMESTAMP,ContextTokens,GeneratedTokens`.
///
/// # Panics
///
/// At a line that is not of that form.
pub fn trace(text: &str) -> Vec<Request> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.trim().split(',').collect();
        let clock: Vec<f64> =
            fields[0][11..].split(':').map(|part| part.parse().unwrap()).collect();
        let seconds = clock[0] * 3_600.0 + clock[1] * 60.0 + clock[2];
        ((seconds * 1e9) as u64, fields[1].parse().unwrap(), fields[2].parse().unwrap())
    };
    text.lines()
        .skip(1)
        .filter(|text| !text.is_empty() && !text.starts_with('#'))
        .map(line)
        .collect()
}

/// The steps of one continuous batcher under that trace, which starts again when it is over.
pub fn batcher(requests: &[Request], seed: u64, steps: usize) -> Vec<Step> {
    let mut draw = Draw(seed);
    let first = requests.first().map_or(0, |request| request.0);
    let span = requests.last().map_or(0, |request| request.0 - first) + 1_000_000_000;
    let mut arrivals = (0u64..).flat_map(|lap| {
        requests.iter().map(move |&(at, prompt, out)| (at - first + lap * span, prompt, out))
    });
    let mut next = arrivals.next();
    let mut waiting: VecDeque<Request> = VecDeque::new();
    let mut decoding: Vec<u64> = Vec::new();
    let (mut prompt_left, mut to_generate, mut now) = (0, 0, 0u64);
    let mut out = Vec::with_capacity(steps);
    while out.len() < steps {
        while let Some(request) = next.filter(|request| request.0 <= now) {
            waiting.push_back(request);
            next = arrivals.next();
        }
        let rows = decoding.len() as u64;
        decoding.iter_mut().for_each(|left| *left -= 1);
        decoding.retain(|left| *left > 0);
        let mut prefill = 0;
        while prefill < 512 && decoding.len() < 64 {
            if prompt_left == 0 {
                let Some((_, prompt, generated)) = waiting.pop_front() else { break };
                (prompt_left, to_generate) = (prompt.max(1), generated.max(1));
            }
            let taken = prompt_left.min(512 - prefill);
            prefill += taken;
            prompt_left -= taken;
            if prompt_left == 0 {
                decoding.push(to_generate);
            }
        }
        if rows + prefill == 0 {
            now = next.map_or(now, |request| request.0);
            continue;
        }
        let ns = 10e6 + 0.25e6 * rows as f64 + 0.02e6 * prefill as f64 + 20e3 * draw.normal();
        now += ns as u64;
        out.push((rows + prefill, ns as u64));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first steps of each set in rows and microseconds, and the mean length of all: a set that
    /// changed can't be compared with earlier figures. First the reported ones.
    #[test]
    fn the_sets_are_the_same_everywhere() {
        let rows: Vec<String> = all(true, 3_000)
            .into_iter()
            .chain(all(false, 3_000))
            .map(|(name, steps)| {
                let first: Vec<_> = steps[..3].iter().map(|&(n, ns)| (n, ns / 1_000)).collect();
                let total: u64 = steps.iter().map(|step| step.1).sum();
                format!("{name} {first:?} {} {}", steps.len(), total / 1_000 / steps.len() as u64)
            })
            .collect();
        assert_eq!(rows.join("\n"), REGRESSION.trim());
    }

    const REGRESSION: &str = "
steady [(0, 9961), (0, 9977), (0, 9994)] 3000 9999
alternating [(0, 5022), (0, 44997), (0, 4997)] 3000 25000
random [(0, 4985), (0, 4973), (0, 44985)] 3000 24692
log-normal [(0, 14739), (0, 7575), (0, 12649)] 3000 9007
pareto [(0, 5540), (0, 4595), (0, 5450)] 3000 6576
throttle [(0, 10026), (0, 9996), (0, 9983)] 3000 12799
drift [(0, 10025), (0, 10046), (0, 10072)] 3000 10000
checkpoint [(0, 10007), (0, 10001), (0, 9974)] 3000 10500
batcher [(512, 20201), (512, 20217), (512, 20234)] 3000 16669
conversation [(512, 20201), (512, 20217), (512, 20234)] 3000 17394
vulkan [(500, 2115), (4, 1165), (4, 1142)] 1500 1222
steady [(0, 9999), (0, 9949), (0, 10001)] 3000 9999
alternating [(0, 4998), (0, 44994), (0, 4992)] 3000 24999
random [(0, 4997), (0, 4994), (0, 4977)] 3000 25093
log-normal [(0, 5073), (0, 13838), (0, 7007)] 3000 9069
pareto [(0, 16926), (0, 6775), (0, 5267)] 3000 6752
throttle [(0, 9980), (0, 9971), (0, 9998)] 3000 12799
drift [(0, 10015), (0, 10040), (0, 10093)] 3000 10000
checkpoint [(0, 9990), (0, 10026), (0, 10003)] 3000 10499
batcher [(374, 17479), (1, 10199), (1, 10251)] 3000 11632
vulkan [(521, 3335), (535, 2662), (535, 2637)] 1500 1190
";
}
