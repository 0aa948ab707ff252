//! What goes wrong, by script.

use crate::{DurNs, MonoNs};

/// How a simulated device behaves.
#[derive(Clone, Debug, Default)]
pub struct SimOptions {
    /// Each piece of work takes up to this much longer, drawn evenly from a generator.
    pub jitter: DurNs,
    /// Where the generator starts: the same seed draws the same lengths.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// What a status query costs under virtual time; 0 is taken as 100 ns, so that polling moves
    /// time.
    pub query_cost: DurNs,
}

/// A script of faults. Numbers are those of each queue, so a fault hits every queue that gets there.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub(super) lost_store: Option<u64>,
    pub(super) late_store: Option<(u64, DurNs)>,
    pub(super) early_word: Option<(u64, DurNs)>,
    pub(super) hang: Option<u64>,
    pub(super) refuse: Option<u64>,
    pub(super) lose_at_number: Option<u64>,
    pub(super) lose_at: Option<MonoNs>,
    pub(super) lie_after_loss: bool,
    pub(super) slow_status: DurNs,
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// The store of `number` never happens; the status says done all the same.
    pub fn lost_store(mut self, number: u64) -> Faults {
        self.lost_store = Some(number);
        self
    }

    /// The store of `number` is seen that long after the status says done.
    pub fn late_store(mut self, number: u64, by: DurNs) -> Faults {
        self.late_store = Some((number, by));
        self
    }

    /// The word of `number` is stored that long before its work's effect and status.
    pub fn word_before_data(mut self, number: u64, by: DurNs) -> Faults {
        self.early_word = Some((number, by));
        self
    }

    /// The work of `number` never ends, and nothing behind it starts.
    pub fn hang(mut self, number: u64) -> Faults {
        self.hang = Some(number);
        self
    }

    /// The store of `number` is refused, each time it is asked for.
    pub fn refuse_store(mut self, number: u64) -> Faults {
        self.refuse = Some(number);
        self
    }

    /// The device is lost in place of completing `number`.
    pub fn lose_device(mut self, number: u64) -> Faults {
        self.lose_at_number = Some(number);
        self
    }

    /// The device is lost at that time.
    pub fn lose_device_at(mut self, at: MonoNs) -> Faults {
        self.lose_at = Some(at);
        self
    }

    /// After a loss the status says done for everything; [`confirm`](crate::Queue::confirm) tells
    /// the truth.
    pub fn lie_after_loss(mut self) -> Faults {
        self.lie_after_loss = true;
        self
    }

    /// Each status query takes that long.
    pub fn slow_status(mut self, cost: DurNs) -> Faults {
        self.slow_status = cost;
        self
    }
}

/// A small seeded generator (SplitMix64): the same numbers on every machine.
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64, queue: u64) -> Draw {
        Draw(seed ^ queue.wrapping_mul(0xA076_1D64_78BD_642F))
    }

    /// A number from 0 to `most`, both included.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // The high part of the product spreads evenly, to within one in 2^64.
        ((u128::from(z) * (u128::from(most) + 1)) >> 64) as u64
    }
}
