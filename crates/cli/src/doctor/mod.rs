//! `gpu-reactor doctor`.
use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
pub(crate) fn doctor(_: &DoctorArgs) -> Result<Exit, Failure> {
    Ok(Exit::Done)
}
