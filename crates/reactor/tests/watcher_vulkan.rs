//! Completions of a Vulkan device, on tokio. Without a device each test is skipped by name, unless
//! `GPU_REACTOR_REQUIRE_VULKAN=1` makes that a failure.

use gpu_async_reactor::backend::vulkan::VulkanDevice;
use gpu_async_reactor::watcher::CompletionExt;
use gpu_async_reactor::*;

const PATIENCE: DurNs = DurNs(60_000_000_000);
const ROUNDS: u32 = 200_000;

fn device(test: &str) -> Option<VulkanDevice> {
    let required = std::env::var_os("GPU_REACTOR_REQUIRE_VULKAN").is_some_and(|value| value == "1");
    match VulkanDevice::open_best() {
        Ok(device) => Some(device),
        Err(error) if required => panic!("a Vulkan device is required here: {error}"),
        Err(error) => {
            eprintln!("SKIPPED {test}: {error}");
            None
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

#[test]
fn tasks_await_real_work_and_verify_it() {
    let Some(device) = device("tasks_await_real_work_and_verify_it") else { return };
    let kernel = device.kernel().unwrap();
    let runtime = runtime();
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let (mut queue, mut job) = (device.queue().unwrap(), kernel.job(64).unwrap());
            runtime.spawn(async move {
                for step in 0..8 {
                    let number = queue.run(&mut job, step, ROUNDS).unwrap();
                    queue.completion().timeout(PATIENCE).await.unwrap();
                    assert!(queue.shared_status().status(number).unwrap());
                    assert!(job.verify(step, ROUNDS).unwrap(), "the data was not there");
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
}

#[test]
fn a_job_in_flight_outlives_its_queue_and_comes_back() {
    let Some(device) = device("a_job_in_flight_outlives_its_queue_and_comes_back") else { return };
    let kernel = device.kernel().unwrap();
    let (mut queue, mut job) = (device.queue().unwrap(), kernel.job(64).unwrap());
    queue.run(&mut job, 3, ROUNDS).unwrap();
    let owned = queue.in_flight(job).timeout(PATIENCE);
    drop(queue);
    let (job, done) = runtime().block_on(owned);
    assert_eq!(done, Ok(()));
    assert!(job.unwrap().verify(3, ROUNDS).unwrap());
}
