use crate::measure::Bench;
pub fn run(_: &Bench) {}
pub fn register(_: &Bench) {}
pub fn cross_thread(_: &Bench) {}
