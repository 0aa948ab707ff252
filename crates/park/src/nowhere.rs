//! Where there is no instruction that this crate can use: no value of [`Kind`] exists.

use gpu_async_reactor_core::{CompletionLine, DurNs};

pub(crate) type Kind = core::convert::Infallible;

pub(crate) fn probe() -> Option<Kind> {
    None
}

pub(crate) fn park<R>(kind: Kind, _: &CompletionLine, _: R, _: DurNs) -> bool {
    match kind {}
}

pub(crate) fn name(kind: Kind) -> &'static str {
    match kind {}
}
