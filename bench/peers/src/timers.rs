use crate::measure::Bench; pub fn run(_: &Bench) {}
