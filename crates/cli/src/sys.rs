//! What the system says: about the machine, and how much CPU a thread has used.

/// As `println!`, but a reader that went away (`| head`) is no panic: the rest goes nowhere.
macro_rules! outln {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($what)*);
    }};
}
pub(crate) use outln;

/// CPU time of the calling thread, in nanoseconds; `None` where the system doesn't say.
#[cfg(unix)]
pub(crate) fn thread_cpu_ns() -> Option<u64> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some((used.tv_sec as u64) * 1_000_000_000 + used.tv_nsec as u64)
}

#[cfg(not(unix))]
pub(crate) fn thread_cpu_ns() -> Option<u64> {
    None
}

/// CPU time of the whole process, in nanoseconds; `None` where the system doesn't say.
#[cfg(unix)]
pub(crate) fn process_cpu_ns() -> Option<u64> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some((used.tv_sec as u64) * 1_000_000_000 + used.tv_nsec as u64)
}

#[cfg(not(unix))]
pub(crate) fn process_cpu_ns() -> Option<u64> {
    None
}

/// CPU time of this process's threads of these names, in nanoseconds; `None` where the system doesn't say.
#[cfg(target_os = "linux")]
pub(crate) fn named_threads_cpu_ns(names: &[&str]) -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let mut sum = 0;
    for task in tasks.flatten() {
        let task = task.path();
        let file = |name| read(&task.join(name).to_string_lossy());
        if file("comm").is_some_and(|name| names.contains(&name.as_str())) {
            sum += file("schedstat")?.split(' ').next()?.parse::<u64>().ok()?;
        }
    }
    Some(sum)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn named_threads_cpu_ns(_names: &[&str]) -> Option<u64> {
    None
}

/// The machine a report is about.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) system: String,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        Machine {
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            system: system(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} cores, {}", self.cpu, self.cores, self.system)
    }
}

fn cpu_model() -> String {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

fn system() -> String {
    let os = std::env::consts::OS;
    read("/proc/sys/kernel/osrelease")
        .map_or_else(|| os.to_owned(), |kernel| format!("{os} {kernel}"))
}

/// A small file of the kernel's, trimmed.
pub(crate) fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Now, as `YYYY-MM-DD hh:mm UTC`.
pub(crate) fn date() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let minutes = since.map_or(0, |since| since.as_secs() / 60);
    let (year, month, day) = civil(minutes / 1_440);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_453), (2025, 12, 31));
    }
}
