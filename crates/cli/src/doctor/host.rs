//! The host: how it can watch a word, sleep, and tell the time.

use super::Finding;
use crate::sys::read;
use gpu_async_reactor::backend::wordwait::WordWait;

pub(super) fn look() -> Vec<Finding> {
    vec![word_wait(), timer_slack(), io_uring(), clock_source(), cores()]
}

fn word_wait() -> Finding {
    const NAME: &str = "word wait";
    if let Some(word_wait) = WordWait::probe() {
        return Finding::ok("host", NAME, word_wait.name());
    }
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let has = |flag: &str| flags.is_some_and(|flags| flags.split_whitespace().any(|f| f == flag));
    let seen: Vec<_> = ["waitpkg", "monitorx", "wfxt"].into_iter().filter(|f| has(f)).collect();
    let why = match (flags, seen.as_slice()) {
        (None, _) => "this system doesn't list the CPU's instructions, and this build uses none".to_owned(),
        (Some(_), []) if has("hypervisor") => {
            "the CPU shows neither waitpkg (umwait) nor monitorx (mwaitx); a hypervisor hides them or the CPU lacks them".to_owned()
        }
        (Some(_), []) => "the CPU has neither waitpkg (umwait), monitorx (mwaitx) nor wfxt (wfet)".to_owned(),
        (Some(_), seen) => format!("the CPU has {}, and this build doesn't use it yet", seen.join(", ")),
    };
    Finding::missing("host", NAME, why, "nothing to do: parks spin a little and then nap")
}

/// What the least timer slack gives: how late a sleep of a millisecond ends.
fn timer_slack() -> Finding {
    use gpu_async_reactor::host::std_host::{StdClock, StdIdle};
    use gpu_async_reactor::{Clock, DurNs, Idle};
    let clock = StdClock::new();
    let mut idle = StdIdle::new(clock, None);
    let mut late: Vec<u64> = (0..21)
        .map(|_| {
            let at = clock.monotonic_ns() + DurNs::from_ms(1);
            while clock.monotonic_ns() < at {
                idle.sleep_until(at);
            }
            clock.monotonic_ns().since(at).0
        })
        .collect();
    late.sort_unstable();
    let measured =
        format!("a sleep of 1 ms ends {} late (median of {})", DurNs(late[10]), late.len());
    let slack = read("/proc/self/timerslack_ns");
    let slack = slack.map_or(String::new(), |ns| {
        format!("the system's default is {ns} ns, a sleeping thread asks for the least; ")
    });
    Finding::ok("host", "timer slack", format!("{slack}{measured}"))
}

#[cfg(target_os = "linux")]
fn io_uring() -> Finding {
    use rustix::io::Errno;
    use rustix::io_uring::{io_uring_params, io_uring_setup};
    const NAME: &str = "io_uring";
    let mut params = io_uring_params::default();
    // SAFETY: a small ring with no flags; the descriptor it gives is owned, and closed when dropped.
    match unsafe { io_uring_setup(2, &mut params) } {
        Ok(_ring) => Finding::ok("host", NAME, "the kernel gives a ring"),
        Err(Errno::NOSYS) => Finding::missing(
            "host",
            NAME,
            "the kernel has none, or a sandbox hides it",
            "nothing to do: the std host serves",
        ),
        Err(e) => {
            let switch = read("/proc/sys/kernel/io_uring_disabled");
            let switch = switch
                .map_or(String::new(), |value| format!(" (kernel.io_uring_disabled is {value})"));
            Finding::missing(
                "host",
                NAME,
                format!("the kernel refuses a ring: {e}{switch}"),
                "set kernel.io_uring_disabled to 0, or use the std host",
            )
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn io_uring() -> Finding {
    Finding::missing(
        "host",
        "io_uring",
        "it is Linux's alone",
        "nothing to do: the std host serves",
    )
}

fn clock_source() -> Finding {
    const NAME: &str = "clock source";
    const PATH: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match read(PATH) {
        Some(source)
            if ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"]
                .contains(&source.as_str()) =>
        {
            Finding::ok("host", NAME, format!("{source}, read without a system call"))
        }
        Some(source) => Finding::missing(
            "host",
            NAME,
            format!("a fast one: {source} may need a system call for each reading"),
            "see available_clocksource beside it for a faster one, such as tsc",
        ),
        None if cfg!(target_os = "linux") => {
            Finding::missing("host", NAME, format!("{PATH} can't be read"), "nothing to do")
        }
        None => Finding::ok("host", NAME, "the system's monotonic clock"),
    }
}

fn cores() -> Finding {
    let usable = std::thread::available_parallelism().map_or(1, |n| n.get());
    let status = read("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed = allowed.map_or(String::new(), |list| format!(", affinity to {}", list.trim()));
    let found = format!("{usable} usable{allowed}");
    if usable == 1 {
        let why =
            format!("a second one ({found}): the host and a device's driver threads share it");
        return Finding::missing(
            "host",
            "cores",
            why,
            "allow the process more cores; polling would starve the driver",
        );
    }
    Finding::ok("host", "cores", found)
}
