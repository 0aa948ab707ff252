//! A simulated queue's status, from any thread.

use super::lost;
use super::threads::{Shared, SimQueue};
use crate::{DurNs, QueueStatus, Result, SharedStatus, error};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl QueueStatus for Shared {
    fn status(&self, number: u64) -> Result<bool> {
        let faults = &self.device.options.faults;
        if faults.slow_status > DurNs(0) {
            std::thread::sleep(faults.slow_status.into());
        }
        if self.is_lost() {
            return if faults.lie_after_loss { Ok(true) } else { Err(lost(&self.label)) };
        }
        if self.done.load(Ordering::Acquire) >= number {
            return Ok(true);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(error!(DeviceLost, &*self.label, "the queue was dropped with its work"));
        }
        Ok(false)
    }

    fn confirm(&self, _number: u64) -> Result<()> {
        if self.is_lost() { Err(lost(&self.label)) } else { Ok(()) }
    }

    fn label(&self) -> &str {
        &self.label
    }
}

impl SharedStatus for SimQueue {
    fn shared_status(&self) -> Arc<dyn QueueStatus> {
        self.shared.clone()
    }
}
