//! What a watcher may be told.

use crate::DurNs;
use crate::backend::wordwait::WordWait;

/// How a watcher's thread is set up and how it watches.
#[derive(Clone, Debug)]
pub struct WatcherOptions {
    /// The thread's name.
    pub name: String,
    /// Parks in hardware, where a probe found the instruction.
    pub word_wait: Option<WordWait>,
    /// How often the device's status is asked for a word that stays silent. Default 20 ms.
    pub backstop: DurNs,
    /// Work that takes longer than this is a hang: [`WaitError::Hang`](super::WaitError::Hang). Default
    /// none.
    pub hang_after: Option<DurNs>,
    /// The longest single park. Default 5 ms.
    pub park_bound: DurNs,
    /// The shortest and the longest nap between two looks. Default 40 µs and 250 µs.
    pub naps: (DurNs, DurNs),
    /// The most of a core that napping may use, in thousandths: beyond it naps get longer, up to the
    /// longest. Default 300.
    pub share_permille: u64,
    /// Waking tasks ahead of their completion. Default on.
    pub early: Option<EarlyOptions>,
    /// The thread's nice value, -20 to 19 (Linux). Default none: the starter's. A refusal by the system
    /// changes nothing.
    pub nice: Option<i32>,
    /// The CPUs that the thread may run on (Linux). Default empty: the starter's.
    pub cpus: Vec<usize>,
}

impl Default for WatcherOptions {
    fn default() -> Self {
        WatcherOptions {
            name: "gpu-watcher".to_owned(),
            word_wait: None,
            backstop: DurNs::from_ms(20),
            hang_after: None,
            park_bound: DurNs::from_ms(5),
            naps: (DurNs::from_us(40), DurNs::from_us(250)),
            share_permille: 300,
            early: Some(EarlyOptions::default()),
            nice: None,
            cpus: Vec::new(),
        }
    }
}

/// Bounds of the early wake. Within them its times are learnt.
#[derive(Clone, Copy, Debug)]
pub struct EarlyOptions {
    /// The longest that a worker, once woken early, watches the word. Default 200 µs; with 0 workers
    /// never watch, and only the watcher spins, for its share.
    pub watch_most: DurNs,
    /// What a worker gives whatever the step's length. Default 50 µs.
    pub watch_free: DurNs,
    /// Beyond that, at most this share of the step's length, in thousandths. Default 20.
    pub watch_permille: u64,
    /// What a microsecond of CPU costs, in thousandths of what a microsecond of lag does. Default 200:
    /// five microseconds of CPU for one of lag.
    pub cpu_price_permille: u64,
    /// With more waits than this at once, none is woken early, so that they don't each buy a spin.
    /// Default 4.
    pub most_waits: usize,
    /// The most of a core, in thousandths, that the watcher spins where it expects completions and wakes
    /// no task early. Default 20.
    pub spin_permille: u64,
}

impl Default for EarlyOptions {
    fn default() -> Self {
        EarlyOptions {
            watch_most: DurNs::from_us(200),
            watch_free: DurNs::from_us(50),
            watch_permille: 20,
            cpu_price_permille: 200,
            most_waits: 4,
            spin_permille: 20,
        }
    }
}
