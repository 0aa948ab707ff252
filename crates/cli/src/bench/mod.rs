//! `gpu-reactor bench`.
use crate::args::BenchArgs;
use crate::exit::{Exit, Failure};
pub(crate) fn bench(_: &BenchArgs) -> Result<Exit, Failure> {
    Ok(Exit::Done)
}
