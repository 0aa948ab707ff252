//! The Vulkan backend on whatever device is here. Without one each test is skipped by name, unless
//! `GPU_REACTOR_REQUIRE_VULKAN=1` makes that a failure.

use ash::vk;
use gpu_async_reactor::backend::vulkan::{Job, Kernel, VulkanDevice, VulkanQueue};
use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
use gpu_async_reactor::*;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use testkit::conformance::{self, Rig};

/// Tells a hang from a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_NS: DurNs = DurNs(60_000_000_000);

fn required() -> bool {
    std::env::var_os("GPU_REACTOR_REQUIRE_VULKAN").is_some_and(|value| value == "1")
}

/// Held by the tests that leave things in the graveyards, whose count is the process's.
static GRAVEYARDS: Mutex<()> = Mutex::new(());

/// A device of the test's own, or `None` and a line that says so.
fn device(test: &str) -> Option<VulkanDevice> {
    match VulkanDevice::open_best() {
        Ok(device) => Some(device),
        Err(error) if required() => panic!("a Vulkan device is required here: {error}"),
        Err(error) => {
            eprintln!("SKIPPED {test}: {error}");
            None
        }
    }
}

macro_rules! device_or_skip {
    () => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here).trim_end_matches("::here");
        match device(name) {
            Some(device) => device,
            None => return,
        }
    }};
}

/// Rounds that keep the device busy for about a millisecond with that many elements.
fn rounds_per_ms(device: &VulkanDevice, kernel: &Kernel, elements: u32) -> u32 {
    let mut queue = device.queue().unwrap();
    let mut job = kernel.job(elements).unwrap();
    let mut timed = |rounds| {
        let start = Instant::now();
        let number = queue.run(&mut job, 1, rounds).unwrap();
        assert!(queue.block(number, PATIENCE_NS).unwrap());
        start.elapsed()
    };
    timed(1);
    let rounds = 400_000;
    let took = timed(rounds).as_secs_f64();
    ((f64::from(rounds) / took / 1_000.0) as u32).max(1)
}

struct Device {
    device: VulkanDevice,
    kernel: Kernel,
    per_ms: u32,
    jobs: Vec<Job>,
}

impl Rig for Device {
    type Queue = VulkanQueue;
    type Clock = StdClock;
    type Idle = StdIdle;
    fn queue(&mut self) -> VulkanQueue {
        self.device.queue().unwrap()
    }
    fn submit(&mut self, queue: &mut VulkanQueue, about: DurNs) -> u64 {
        let mut job = self.kernel.job(64).unwrap();
        let rounds = (u128::from(self.per_ms) * u128::from(about.0) / 1_000_000) as u32;
        let number = queue.run(&mut job, 7, rounds).unwrap();
        self.jobs.push(job);
        number
    }
    fn clock(&self) -> StdClock {
        StdClock::new()
    }
    fn idle(&self) -> StdIdle {
        StdIdle::new(StdClock::new(), None)
    }
}

fn rig(device: VulkanDevice) -> Device {
    let kernel = device.kernel().unwrap();
    let per_ms = rounds_per_ms(&device, &kernel, 64);
    Device { device, kernel, per_ms, jobs: Vec::new() }
}

fn wait_for(queue: &mut VulkanQueue, plan: &str, within: DurNs) -> Result<WaitReport> {
    let clock = StdClock::new();
    let line = queue.line().clone();
    let plan: WaitPlan = plan.parse()?;
    let idle = OnThread(StdIdle::new(clock, None));
    let mut port = QueuePort::new(queue, (*line).as_ref(), idle, clock).within(within);
    run_inline(wait(&plan, None, &mut port, &clock, &clock))
}

const PLANS: [&str; 3] = ["block", "poll", "flag:park_us=100,backstop_us=5000"];

/// Loses the device for real, by the one misuse that a driver answers with it: a timeline signalled
/// backwards.
fn lose(device: &VulkanDevice) {
    let raw = device.raw();
    let mut kind = vk::SemaphoreTypeCreateInfo::default()
        .semaphore_type(vk::SemaphoreType::TIMELINE)
        .initial_value(10);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: the device is live. Signalling backwards is invalid and the point: the driver answers
    // with a lost device and nothing worse, as the assertions that follow find.
    unsafe {
        let semaphore = raw.create_semaphore(&info, None).unwrap();
        let signal = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(5);
        let _ = raw.signal_semaphore(&signal);
    }
}

fn can_be_lost(device: &VulkanDevice) -> bool {
    let mesa = device.info().driver.contains("llvmpipe");
    if !mesa {
        eprintln!(
            "SKIPPED the loss: only Mesa's software device is known to survive asking for it"
        );
    }
    mesa
}

#[test]
fn queues_do_their_duties() {
    conformance::queue(&mut rig(device_or_skip!()));
}

#[test]
fn every_plan_waits_as_it_should() {
    conformance::plans(&mut rig(device_or_skip!()));
}

#[test]
fn tasks_of_a_reactor_wait_for_several_queues() {
    conformance::reactor_waits(&mut rig(device_or_skip!()));
}

#[test]
fn situation_8_a_thousand_and_one_waits_are_pending_on_one_queue() {
    conformance::pending_waits(&mut rig(device_or_skip!()));
}

#[test]
fn ci_has_the_device_that_it_installs() {
    let device = device_or_skip!();
    let info = device.info();
    assert!(!info.name.is_empty() && info.api >= (1, 2, 0) && info.fit.is_ok(), "{info:?}");
    let all = VulkanDevice::list().unwrap();
    assert!(all.iter().enumerate().all(|(i, info)| info.index == i));
    let opened = VulkanDevice::open(all.len()).unwrap_err();
    assert_eq!(opened.code(), ErrorCode::NoDevice);
}

#[test]
fn results_are_right_and_wrong_ones_are_seen() {
    let device = device_or_skip!();
    let kernel = device.kernel().unwrap();
    let mut queue = device.queue().unwrap();
    let mut job = kernel.job(1_000).unwrap();
    for (seed, rounds) in
        [(0, 0), (1, 1), (99, 4_096), (u32::MAX, 70_001), (8, 60_000), (8, 60_001), (5, 300_000)]
    {
        let number = queue.run(&mut job, seed, rounds).unwrap();
        assert!(queue.block(number, PATIENCE_NS).unwrap());
        assert!(job.verify(seed, rounds).unwrap(), "{rounds} rounds of {seed}");
        assert!(!job.verify(seed, rounds + 1).unwrap() && !job.verify(seed ^ 1, rounds).unwrap());
    }
    assert_eq!(kernel.job(0).unwrap_err().code(), ErrorCode::Misuse);
    // No device takes that many: a storage buffer's size in bytes is 32 bits.
    assert_eq!(kernel.job(u32::MAX).unwrap_err().code(), ErrorCode::Misuse);
}

#[test]
fn a_running_job_is_neither_run_nor_checked_and_a_foreign_one_is_refused() {
    let device = device_or_skip!();
    let mut queue = device.queue().unwrap();
    let mut job = device.kernel().unwrap().job(64).unwrap();
    let gate = queue.gate().unwrap();
    let number = queue.run(&mut job, 1, 10).unwrap();
    assert_eq!(queue.run(&mut job, 1, 10).unwrap_err().code(), ErrorCode::Misuse);
    assert_eq!(job.verify(1, 10).unwrap_err().code(), ErrorCode::Misuse);
    gate.open().unwrap();
    assert!(queue.block(number, PATIENCE_NS).unwrap() && job.verify(1, 10).unwrap());
    let other = device_or_skip!();
    let mut foreign = other.kernel().unwrap().job(64).unwrap();
    assert_eq!(queue.run(&mut foreign, 1, 10).unwrap_err().code(), ErrorCode::Misuse);
}

#[test]
fn a_gate_holds_what_is_behind_it_until_it_is_opened_or_dropped() {
    let device = device_or_skip!();
    let kernel = device.kernel().unwrap();
    let mut queue = device.queue().unwrap();
    for dropped in [false, true] {
        let mut job = kernel.job(64).unwrap();
        let gate = queue.gate().unwrap();
        assert_eq!(queue.gate().unwrap_err().code(), ErrorCode::Misuse);
        let number = queue.run(&mut job, 3, 10).unwrap();
        let line = queue.line().clone();
        assert!(!queue.block(number, DurNs::from_ms(30)).unwrap(), "the gate held nothing");
        assert!(!reached((*line).as_ref(), queue.slot(), number));
        if dropped {
            drop(gate)
        } else {
            gate.open().unwrap()
        }
        assert!(queue.block(number, PATIENCE_NS).unwrap());
        assert!(job.verify(3, 10).unwrap());
    }
}

#[test]
fn situation_5_past_its_deadline_a_wait_ends_and_the_work_ends_later() {
    let device = device_or_skip!();
    let kernel = device.kernel().unwrap();
    for plan in PLANS {
        let mut queue = device.queue().unwrap();
        let mut job = kernel.job(64).unwrap();
        let gate = queue.gate().unwrap();
        let number = queue.run(&mut job, 3, 10).unwrap();
        let error = wait_for(&mut queue, plan, DurNs::from_ms(10)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceHang, "{plan}: {error}");
        gate.open().unwrap();
        assert!(queue.block(number, PATIENCE_NS).unwrap() && job.verify(3, 10).unwrap());
    }
}

#[test]
fn situation_12_two_waits_on_one_slot_resolve_in_the_order_of_their_numbers() {
    let device = device_or_skip!();
    let kernel = device.kernel().unwrap();
    let mut queue = device.queue().unwrap();
    let gate = queue.gate().unwrap();
    let mut jobs: Vec<_> = (0..2).map(|_| kernel.job(64).unwrap()).collect();
    for job in &mut jobs {
        queue.run(job, 1, 100_000).unwrap();
    }
    let line = queue.line().clone();
    let reactor = Reactor::new(StdClock::new());
    let order = std::cell::RefCell::new(Vec::new());
    let mut executor = DynExecutor::new();
    for target in [2, 1] {
        let (reactor, order) = (&reactor, &order);
        let work = MemoryDescriptor::new((*line).as_ref(), queue.slot(), target);
        executor.spawn_dyn(async move {
            assert!(reactor.ready(work, None).await);
            order.borrow_mut().push(target);
        });
    }
    gate.open().unwrap();
    let mut idle = StdIdle::new(StdClock::new(), None);
    executor.run(&reactor, &mut idle, DurNs::from_ms(1)).unwrap();
    drop(executor);
    assert_eq!(*order.borrow(), [1, 2]);
    assert!(queue.block(2, PATIENCE_NS).unwrap());
}

#[test]
fn situations_3_and_4_a_lost_device_resolves_every_wait_and_a_new_one_works() {
    let device = device_or_skip!();
    if !can_be_lost(&device) {
        return;
    }
    let _alone = GRAVEYARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = device.kernel().unwrap();
    let waiters: Vec<_> = PLANS
        .iter()
        .map(|plan| {
            let mut queue = device.queue().unwrap();
            let mut job = kernel.job(64).unwrap();
            let gate = queue.gate().unwrap();
            queue.run(&mut job, 1, 10).unwrap();
            std::thread::spawn(move || {
                let error = wait_for(&mut queue, plan, PATIENCE_NS).unwrap_err();
                drop(gate);
                (plan, error, queue)
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(30));
    lose(&device);
    for waiter in waiters {
        let (plan, error, mut queue) = waiter.join().unwrap();
        assert_eq!(error.code(), ErrorCode::DeviceLost, "{plan}: {error}");
        // And from then on, every call says so.
        assert_eq!(queue.status(1).unwrap_err().code(), ErrorCode::DeviceLost);
        assert_eq!(queue.block(1, DurNs(1)).unwrap_err().code(), ErrorCode::DeviceLost);
        assert_eq!(queue.confirm(1).unwrap_err().code(), ErrorCode::DeviceLost);
    }
    let fresh = device_or_skip!();
    let mut queue = fresh.queue().unwrap();
    let mut job = fresh.kernel().unwrap().job(64).unwrap();
    queue.run(&mut job, 1, 10).unwrap();
    wait_for(&mut queue, PLANS[2], PATIENCE_NS).unwrap();
    assert!(job.verify(1, 10).unwrap());
}

#[test]
fn the_word_is_never_torn_nor_ahead_of_its_data() {
    let device = device_or_skip!();
    let kernel = device.kernel().unwrap();
    let mut queue = device.queue().unwrap();
    let line = queue.line().clone();
    let mut jobs: Vec<_> = (0..4).map(|_| kernel.job(64).unwrap()).collect();
    let mut last = 0;
    for round in 0..300u32 {
        let job = &mut jobs[round as usize % 4];
        let number = queue.run(job, round, 100).unwrap();
        let start = Instant::now();
        loop {
            let word = (*line).as_ref().load(queue.slot());
            assert!((last..=number).contains(&word), "a torn word: {word:#x} after {last:#x}");
            last = word;
            if word == number {
                break;
            }
            assert!(start.elapsed() < PATIENCE);
        }
        // Confirmed by the timeline, as every wait does, the data is there.
        assert!(queue.block(number, PATIENCE_NS).unwrap());
        assert!(job.verify(round, 100).unwrap(), "round {round}");
    }
}

#[test]
fn store_times_lie_between_the_submit_and_the_sight_of_the_word() {
    let device = device_or_skip!();
    let Some(deviation) = device.store_times() else {
        eprintln!("SKIPPED store times: the device's clock can't be told on the host's");
        return;
    };
    let kernel = device.kernel().unwrap();
    let mut queue = device.queue().unwrap();
    let line = queue.line().clone();
    let clock = StdClock::new();
    let mut job = kernel.job(64).unwrap();
    for round in 0..50 {
        let submitted = clock.monotonic_ns();
        let number = queue.run(&mut job, round, 50_000).unwrap();
        while !reached((*line).as_ref(), queue.slot(), number) {
            std::hint::spin_loop();
        }
        let seen = clock.monotonic_ns();
        assert!(queue.block(number, PATIENCE_NS).unwrap());
        let ended = clock.monotonic_ns();
        let stored = queue.stored_at(number).expect("the time of a reached store");
        // The stamp is written behind the store: after it was seen at the latest by what the device
        // takes from one to the other.
        assert!(stored + DurNs(deviation + 1_000) >= submitted, "{stored:?} {submitted:?}");
        assert!(stored.0 <= ended.0 + deviation + 1_000, "{stored:?} {seen:?} {ended:?}");
    }
    assert_eq!(queue.stored_at(0), None);
    assert_eq!(queue.stored_at(10_000), None);
}

#[test]
fn dropping_everything_while_work_is_held_back_waits_for_nothing() {
    let device = device_or_skip!();
    let _alone = GRAVEYARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = device.kernel().unwrap();
    let start = Instant::now();
    let kept = VulkanDevice::kept();
    let mut queue = device.queue().unwrap();
    let mut job = kernel.job(64).unwrap();
    let gate = queue.gate().unwrap();
    queue.run(&mut job, 1, 10).unwrap();
    drop(job);
    drop(queue);
    assert!(start.elapsed() < PATIENCE);
    assert!(VulkanDevice::kept() > kept, "what the device still uses was freed");
    gate.open().unwrap();
    // Freed later, by whoever comes next.
    let start = Instant::now();
    loop {
        drop(device.queue().unwrap());
        if VulkanDevice::kept() <= kept {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the graveyard was never swept");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn queues_are_used_from_several_threads_at_once() {
    let device = device_or_skip!();
    let kernel = device.kernel().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mut queue, kernel) = (device.queue().unwrap(), &kernel);
            scope.spawn(move || {
                let mut job = kernel.job(64).unwrap();
                for round in 0..50 {
                    queue.run(&mut job, round, 1_000 + thread).unwrap();
                    wait_for(&mut queue, PLANS[2], PATIENCE_NS).unwrap();
                    assert!(job.verify(round, 1_000 + thread).unwrap());
                }
            });
        }
    });
}

#[test]
fn a_callers_device_queue_and_pool_are_borrowed_and_left_alone() {
    drop(device_or_skip!());
    // SAFETY: plain use of the API, in order, on handles made here and destroyed at the end.
    unsafe {
        let entry = ash::Entry::load().unwrap();
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        let instance = entry.create_instance(&info, None).unwrap();
        let physical = instance.enumerate_physical_devices().unwrap()[0];
        let families = instance.get_physical_device_queue_family_properties(physical);
        let computes =
            |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::COMPUTE);
        let family = families.iter().position(computes).unwrap() as u32;
        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&priorities)];
        let mut timeline =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let info =
            vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut timeline);
        let raw = instance.create_device(physical, &info, None).unwrap();
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        let pool = raw.create_command_pool(&info, None).unwrap();
        let handle = Arc::new(Mutex::new(raw.get_device_queue(family, 0)));

        let device =
            VulkanDevice::borrow(entry.clone(), instance.clone(), physical, raw.clone(), family)
                .unwrap();
        assert_eq!(device.queue().unwrap_err().code(), ErrorCode::Misuse);
        for pool in [None, Some(pool)] {
            let mut queue = device.borrow_queue(handle.clone(), pool).unwrap();
            let mut job = device.kernel().unwrap().job(64).unwrap();
            queue.run(&mut job, 1, 1_000).unwrap();
            wait_for(&mut queue, PLANS[2], PATIENCE_NS).unwrap();
            assert!(job.verify(1, 1_000).unwrap());
            // Work of the owner's own, behind our back: the next number covers it.
            raw.queue_submit(*handle.lock().unwrap(), &[], vk::Fence::null()).unwrap();
            let number = queue.store_next().unwrap();
            assert_eq!((number, queue.store_next().unwrap()), (3, 4));
            assert!(queue.block(4, PATIENCE_NS).unwrap());
        }
        // A queue dropped before its work has ended: once it has, the pool may go before the device
        // frees what it kept.
        let mut queue = device.borrow_queue(handle.clone(), Some(pool)).unwrap();
        let gate = queue.gate().unwrap();
        queue.store_next().unwrap();
        drop(queue);
        gate.open().unwrap();
        // All of it is still the caller's.
        raw.device_wait_idle().unwrap();
        raw.destroy_command_pool(pool, None);
        drop(device);
        raw.destroy_device(None);
        instance.destroy_instance(None);
    }
}

/// Runs this program's child test with another environment: a driver can't be taken away in process.
fn child(envs: &[(&str, &str)]) -> (String, bool) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_says_what_opening_gives", "--nocapture", "--include-ignored"])
        .envs(envs.iter().copied())
        .env("GPU_REACTOR_REQUIRE_VULKAN", "0")
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.success())
}

#[test]
#[ignore = "run by no_library_no_driver_and_no_device_are_typed_errors"]
fn child_says_what_opening_gives() {
    match VulkanDevice::open_best() {
        Ok(device) => eprintln!("opened {}", device.info().name),
        Err(error) => eprintln!("code {:?} text {error}", error.code()),
    }
    assert_eq!(VulkanDevice::open_best().is_ok(), VulkanDevice::list().is_ok());
}

#[test]
fn no_library_no_driver_and_no_device_are_typed_errors() {
    drop(device_or_skip!());
    let missing = "/nonexistent/icd.json";
    let (text, ended) = child(&[("VK_DRIVER_FILES", missing), ("VK_ICD_FILENAMES", missing)]);
    assert!(ended && text.contains("code NoDevice"), "{text}");
    // A loader that can't be loaded: an empty file in its place.
    if cfg!(target_os = "linux") {
        let folder = std::env::temp_dir().join(format!("no-loader-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libvulkan.so.1"), "").unwrap();
        let (text, ended) = child(&[("LD_LIBRARY_PATH", folder.to_str().unwrap())]);
        let _ = std::fs::remove_dir_all(&folder);
        assert!(ended && text.contains("code LibraryMissing"), "{text}");
    } else {
        eprintln!("SKIPPED a missing loader: it is taken away by Linux's means");
    }
    // Another vendor's driver alone, where Mesa has installed one.
    let other = "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json";
    if std::path::Path::new(other).exists() {
        let (text, ended) = child(&[("VK_DRIVER_FILES", other), ("VK_ICD_FILENAMES", other)]);
        assert!(ended && text.contains("code NoDevice"), "{text}");
    } else {
        eprintln!("SKIPPED a driver without its device: no second driver is installed");
    }
}

/// Runs tests of this program under the validation layers: what they printed.
fn validated(args: &[&str]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(args)
        .args(["--nocapture", "--include-ignored", "--test-threads=1"])
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
        .env("VK_LAYER_ENABLES", "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
#[ignore = "run by the_validation_layers_find_nothing, which it must make fire"]
fn child_signals_backwards() {
    lose(&device_or_skip!());
}

#[test]
fn the_validation_layers_find_nothing() {
    drop(device_or_skip!());
    // A layer that isn't there is ignored in silence: the control finds out.
    let control = validated(&["--exact", "child_signals_backwards"]);
    if !control.contains("VUID-VkSemaphoreSignalInfo-value-03258") {
        assert!(
            !required(),
            "the validation layers are required here and did not fire:\n{control}"
        );
        eprintln!("SKIPPED the_validation_layers_find_nothing: no validation layers are installed");
        return;
    }
    let found = validated(&[
        "--skip",
        "child_",
        "--skip",
        "the_validation_layers",
        "--skip",
        "no_library_no_driver",
        "--skip",
        "situations_3_and_4",
    ]);
    assert!(found.contains("queues_do_their_duties ... "), "nothing ran:\n{found}");
    let messages: Vec<_> = found
        .lines()
        .filter(|line| line.contains("VUID-") || line.contains("SYNC-HAZARD"))
        .collect();
    assert!(messages.is_empty(), "{messages:#?}");
}
