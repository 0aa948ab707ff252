//! A small continuous batcher: requests in, one device step after another out.

use super::Step;
use super::trace::Request;
use std::collections::VecDeque;

/// The cost model, in words, for the report.
pub(crate) const COST_MODEL: &str = "a step takes 10 ms + 0.25 ms for each decoding request + 0.02 ms \
     for each prompt token admitted (at most 512 a step, at most 64 requests at a time); each queue is \
     one server under the whole trace's load, run at a tenth of the model's time";

const BASE_US: u64 = 10_000;
const ROW_US: u64 = 250;
const TOKEN_US: u64 = 20;
const TOKENS_A_STEP: u64 = 512;
const ROWS_MOST: usize = 64;
/// The device runs this many times faster than the model, so that a run takes seconds.
const FASTER: u64 = 10;

/// The first `steps` steps of each queue. Requests are dealt to the queues in turn and come that many
/// times faster, so that each queue carries the load of the whole trace; a queue that runs out of
/// requests starts again with its first. The first lap is left out: in it the batch only fills.
pub(super) fn replay(requests: &[Request], queues: usize, steps: usize) -> Vec<Vec<Step>> {
    let share = |queue| {
        let mine: Vec<Request> = (requests.iter().cycle().skip(queue).step_by(queues))
            .take(requests.len().div_ceil(queues))
            .map(|request| Request { at_us: request.at_us / queues as u64, ..*request })
            .collect();
        one_queue(mine, steps)
    };
    (0..queues).map(share).collect()
}

fn one_queue(mut requests: Vec<Request>, steps: usize) -> Vec<Step> {
    requests.sort_by_key(|request| request.at_us);
    let span = requests.last().map_or(0, |last| last.at_us) + 1;
    let mut arrivals = (0..).flat_map(|lap| {
        requests.iter().map(move |r| Request { at_us: r.at_us + lap * span, ..*r })
    });
    let mut next = arrivals.next();
    let mut waiting: VecDeque<Request> = VecDeque::new();
    let mut prefilling: Option<(u64, u64)> = None; // prompt tokens and output tokens left
    let mut decoding: Vec<u64> = Vec::new(); // output tokens left of each
    let mut now = 0;
    let mut out = Vec::with_capacity(steps);
    while out.len() < steps {
        if waiting.is_empty() && prefilling.is_none() && decoding.is_empty() {
            now = now.max(next.map_or(now, |request| request.at_us));
        }
        while let Some(request) = next.filter(|request| request.at_us <= now) {
            waiting.push_back(request);
            next = arrivals.next();
        }
        let rows = decoding.len() as u64;
        decoding.iter_mut().for_each(|left| *left -= 1);
        decoding.retain(|left| *left > 0);
        let mut prefill = 0;
        while prefill < TOKENS_A_STEP && decoding.len() < ROWS_MOST {
            let begun = prefilling.take().or_else(|| {
                let request = waiting.pop_front()?;
                Some((request.context.max(1), request.generated.max(1)))
            });
            let Some((tokens, generated)) = begun else { break };
            let taken = tokens.min(TOKENS_A_STEP - prefill);
            prefill += taken;
            match tokens - taken {
                0 => decoding.push(generated),
                left => prefilling = Some((left, generated)),
            }
        }
        let us = BASE_US + ROW_US * rows + TOKEN_US * prefill;
        now += us;
        if now > span {
            out.push(Step { us: us / FASTER, rows, prefill });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_is_prefilled_then_decoded() {
        let requests = [Request { at_us: 0, context: 600, generated: 2 }];
        let steps = replay(&requests, 1, 40).remove(0);
        // Its prompt comes in full chunks, mixed with the next lap's, and then it decodes.
        assert!(steps.iter().all(|s| s.prefill <= 512));
        assert!(steps.iter().any(|s| s.rows > 0 && s.prefill > 0));
        assert!(steps.iter().all(|s| s.us == (10_000 + 250 * s.rows + 20 * s.prefill) / 10));
    }

    #[test]
    fn every_queue_gets_its_steps_within_the_stated_lengths() {
        let requests = crate::workload::trace::excerpt().unwrap();
        for queues in [1, 8, 401] {
            let all = replay(&requests, queues, 300);
            assert!(all.len() == queues && all.iter().all(|steps| steps.len() == 300));
            let all = all.iter().flatten();
            assert!(all.clone().map(|s| s.us).max() > all.clone().map(|s| s.us).min());
            assert!(
                all.clone().all(|s| (1_000..=3_700).contains(&s.us)),
                "{:?}",
                all.max_by_key(|s| s.us)
            );
        }
    }
}
