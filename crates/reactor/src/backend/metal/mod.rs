//! Metal devices: a queue whose completion word is stored by the handler of each command buffer, and a port
//! that watches the value of a shared event.
//!
//! | what | how |
//! |---|---|
//! | the device's word | `signaledValue` of an `MTLSharedEvent`, signalled behind the work by its own command buffer |
//! | the status | the command buffer's: an errored one may never signal, and one that signalled may yet have to complete |
//! | the line's word | stored by the buffer's completed handler, for a shared buffer's memory may not be watched before then |
//! | the blocking wait | `waitUntilSignaledValue:timeoutMS:`, always bounded, then the status |
//!
//! [`SharedEventPort`] and [`MetalQueue`] are generic over [`SharedEvent`], [`CommandBuffer`] and [`Commands`],
//! so that their states are tested on any machine with a simulated event. On Apple's targets
//! `MetalDevice`, `MetalEvent` and `MetalCommands` implement the three over objc2-metal; that part has been
//! compiled and has **not run on a Mac**.

#[cfg(target_vendor = "apple")]
mod apple;
mod event;
mod ledger;
mod port;
mod queue;

#[cfg(target_vendor = "apple")]
pub use apple::{MetalBuffer, MetalCommands, MetalDevice, MetalEvent};
pub use event::{BufferError, BufferStatus, CommandBuffer, Commands, SharedEvent};
pub use ledger::Report;
pub use port::SharedEventPort;
pub use queue::{MetalQueue, Places};

use crate::{Error, error};

/// What a command buffer that failed means for whoever awaits it.
fn failed(doing: impl Into<String>, failure: &BufferError) -> Error {
    let cause = format!("its command buffer ended with error {} ({})", failure.code, failure.text);
    error!(DeviceLost, doing.into(), cause, failure.code)
}
