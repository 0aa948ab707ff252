use crate::measure::Bench;
pub fn run(_: &Bench) {}
pub fn scale(_: &Bench) {}
