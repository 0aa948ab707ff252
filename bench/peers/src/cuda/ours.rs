//! This crate's completions, from the process's own watcher.

use super::round::Subject;
use gpu_async_reactor::backend::cuda::{CudaDriver, CudaQueue};
use gpu_async_reactor::watcher::{self, CompletionExt};
use gpu_async_reactor_hardware::api::{Answer, Ptr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A number of its own for each wait.
pub struct Completion {
    lanes: Vec<Mutex<CudaQueue>>,
}

impl Completion {
    fn submit(
        &self,
        lane: usize,
        launch: impl FnOnce(Ptr) -> Answer<()>,
    ) -> Answer<watcher::Completion> {
        let mut queue = hold(&self.lanes[lane]);
        queue.submit(|stream| launch(stream.as_raw()))?;
        Ok(queue.completion())
    }
}

impl Subject for Completion {
    fn new(lanes: usize) -> Answer<Completion> {
        let device = CudaDriver::load_from(Path::new("libcuda.so.1"))?.open(0)?;
        let lane = |_| Ok(Mutex::new(device.queue()?));
        Ok(Completion { lanes: (0..lanes).map(lane).collect::<Answer<_>>()? })
    }

    async fn step<L>(&self, lane: usize, launch: L) -> Answer<()>
    where
        L: FnOnce(Ptr) -> Answer<()> + Send,
    {
        let completion = self.submit(lane, launch)?;
        Ok(completion.await?)
    }
}

/// One number for the first wait of a stream and those behind it, which wait for what is armed.
pub struct Ticket {
    numbers: Completion,
    tickets: Vec<Mutex<Option<watcher::Ticket>>>,
}

impl Subject for Ticket {
    fn new(lanes: usize) -> Answer<Ticket> {
        let tickets = (0..lanes).map(|_| Mutex::new(None)).collect();
        Ok(Ticket { numbers: Completion::new(lanes)?, tickets })
    }

    async fn step<L>(&self, lane: usize, launch: L) -> Answer<()>
    where
        L: FnOnce(Ptr) -> Answer<()> + Send,
    {
        let armed = hold(&self.tickets[lane]).as_ref().map(watcher::Ticket::completion);
        let completion = match armed {
            Some(armed) => armed,
            None => {
                let completion = self.numbers.submit(lane, launch)?;
                *hold(&self.tickets[lane]) = completion.ticket().cloned();
                completion
            }
        };
        let done = completion.await;
        *hold(&self.tickets[lane]) = None;
        Ok(done?)
    }
}

fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
