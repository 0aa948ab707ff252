//! Waiting on a word in hardware: a capability that only a probe makes.

pub use gpu_async_reactor_park::WordWait;
