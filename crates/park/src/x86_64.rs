//! `umonitor`/`umwait` (Intel SDM, WAITPKG) and `monitorx`/`mwaitx` (AMD APM volume 3).
#![allow(unsafe_code)] // the instructions
#![allow(unused_unsafe)] // `__cpuid` became safe after the least supported compiler

use crate::monitor::{Monitor, TickRate};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};
use gpu_async_reactor_core::CompletionLine;

/// The instructions of this architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    Umwait,
    Mwaitx,
}

impl Instruction {
    pub(crate) const ALL: [Instruction; 2] = [Instruction::Umwait, Instruction::Mwaitx];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Instruction::Umwait => "umwait",
            Instruction::Mwaitx => "mwaitx",
        }
    }

    /// Runs the instruction once, for a moment.
    pub(crate) fn trial(self) -> fn() {
        fn once(monitor: &impl Monitor) {
            let line = CompletionLine::new();
            monitor.arm(&line);
            let now = monitor.now();
            monitor.wait(now, now + 1_000);
        }
        match self {
            Instruction::Umwait => || once(&Umwait(())),
            Instruction::Mwaitx => || once(&Mwaitx(())),
        }
    }
}

/// What the CPU says it has. Without a TSC of constant rate no deadline can be kept, and nothing is
/// taken.
pub(crate) fn claimed() -> [Option<Instruction>; 2] {
    // SAFETY: every x86-64 CPU has `cpuid`; leaves are read only up to the last there is.
    unsafe {
        let (basic, extended) = (__cpuid(0).eax, __cpuid(0x8000_0000).eax);
        let waitpkg = basic >= 7 && __cpuid_count(7, 0).ecx & 1 << 5 != 0;
        let monitorx = extended >= 0x8000_0001 && __cpuid(0x8000_0001).ecx & 1 << 29 != 0;
        let constant = extended >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0;
        [
            (waitpkg && constant).then_some(Instruction::Umwait),
            (monitorx && constant).then_some(Instruction::Mwaitx),
        ]
    }
}

/// The TSC against the system's clock, over two milliseconds: what CPUID says of its rate is 0 under
/// many hypervisors.
pub(crate) fn tick_rate() -> Option<TickRate> {
    let (ticks_from, ns_from) = reading()?;
    loop {
        let (ticks, ns) = reading()?;
        let (ticks, ns) = (ticks.checked_sub(ticks_from)?, ns.checked_sub(ns_from)?);
        if ns >= 2_000_000 {
            let per_ms = u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(ns)).ok()?;
            return (per_ms > 0).then_some(TickRate { per_ms });
        }
    }
}

/// Both counters at one moment: the closest of a few readings, for a thread may lose its core between.
fn reading() -> Option<(u64, u64)> {
    let clock = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time to where it is told.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        (failed == 0).then_some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    };
    let mut best: Option<(u64, (u64, u64))> = None;
    for _ in 0..4 {
        let before = clock()?;
        let ticks = tsc();
        let after = clock()?;
        let width = after.saturating_sub(before);
        if best.is_none_or(|(least, _)| width < least) {
            best = Some((width, (ticks, before + width / 2)));
        }
    }
    best.map(|(_, reading)| reading)
}

#[inline(always)]
fn tsc() -> u64 {
    // SAFETY: every x86-64 CPU has `rdtsc`; a system that forbids it fails the trial.
    unsafe { _rdtsc() }
}

/// `umonitor` and `umwait`; made only where the probe found them, and by the trial.
pub(crate) struct Umwait(pub(super) ());

impl Monitor for Umwait {
    #[inline(always)]
    fn now(&self) -> u64 {
        tsc()
    }

    #[inline(always)]
    fn arm(&self, line: &CompletionLine) {
        // SAFETY: the probe ran it. It arms a monitor and writes nothing; as it may be ordered with
        // memory by the compiler like any access, later looks stay behind it.
        unsafe { asm!("umonitor {}", in(reg) line, options(nostack, preserves_flags)) }
    }

    #[inline(always)]
    fn wait(&self, _now: u64, end: u64) {
        let (low, high) = (end as u32, (end >> 32) as u32);
        // SAFETY: the probe ran it. Control 1 is C0.1, which wakes sooner than C0.2. The deadline is
        // all 64 bits, absolute.
        unsafe {
            asm!("umwait {:e}", in(reg) 1u32, in("eax") low, in("edx") high, options(nostack))
        }
    }
}

/// `monitorx` and `mwaitx`; made only where the probe found them, and by the trial.
pub(crate) struct Mwaitx(pub(super) ());

/// The timeout in ticks from now, in the 32 bits that the instruction takes: cut to the most there is,
/// never wrapped.
#[inline(always)]
fn timeout(now: u64, end: u64) -> u32 {
    u32::try_from(end.saturating_sub(now)).unwrap_or(u32::MAX)
}

impl Monitor for Mwaitx {
    #[inline(always)]
    fn now(&self) -> u64 {
        tsc()
    }

    #[inline(always)]
    fn arm(&self, line: &CompletionLine) {
        // SAFETY: as `Umwait::arm`; no extensions, no hints.
        unsafe {
            asm!("monitorx", in("rax") line, in("ecx") 0u32, in("edx") 0u32,
                options(nostack, preserves_flags))
        }
    }

    #[inline(always)]
    fn wait(&self, now: u64, end: u64) {
        // SAFETY: the probe ran it. ECX bit 1 turns the timer on, EBX is its count; EAX 0xf0 asks for
        // the shallowest state, as Linux does for its delays. RBX is the compiler's, so it is put back.
        unsafe {
            asm!("xchg {t:r}, rbx", "mwaitx", "xchg {t:r}, rbx",
                t = inout(reg) u64::from(timeout(now, end)) => _,
                in("eax") 0xf0u32, in("ecx") 2u32, options(nostack))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::park;
    use gpu_async_reactor_core::Slot;
    use std::process::Command;

    #[test]
    fn a_relative_timeout_is_cut_and_never_wrapped() {
        assert_eq!(timeout(10, 15), 5);
        assert_eq!(timeout(0, u64::from(u32::MAX)), u32::MAX);
        assert_eq!(timeout(0, 1 << 32), u32::MAX);
        assert_eq!(timeout(7, (1 << 32) + 8), u32::MAX);
        assert_eq!(timeout(u64::MAX - 3, u64::MAX), 3);
        assert_eq!(timeout(9, 3), 0);
    }

    #[test]
    fn the_counters_rate_is_measured_alike_twice() {
        let (a, b) = (tick_rate().unwrap().per_ms, tick_rate().unwrap().per_ms);
        assert!((100_000..100_000_000).contains(&a), "{a} ticks a millisecond");
        assert!(a.abs_diff(b) < a / 20, "{a} and {b} ticks a millisecond");
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn pinned_park_umwait(line: &CompletionLine, target: u64, ticks: u64) -> bool {
        park(&Umwait(()), line, |l| l.load(Slot::ALL[3]) >= target, ticks)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn pinned_park_mwaitx(line: &CompletionLine, target: u64, ticks: u64) -> bool {
        park(&Mwaitx(()), line, |l| l.load(Slot::ALL[3]) >= target, ticks)
    }

    /// The instructions of a function of this test program, or `None` with the reason printed.
    fn disassembled(test: &str, function: &str) -> Option<Vec<String>> {
        let program = std::env::current_exe().unwrap();
        let asked = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn", &format!("--disassemble={function}")])
            .arg(program)
            .output();
        let Ok(asked) = asked else {
            eprintln!("SKIPPED {test}: objdump is not installed");
            return None;
        };
        let text = String::from_utf8_lossy(&asked.stdout).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once(":\t"));
        Some(lines.map(|(_, code)| code.trim().to_owned()).collect())
    }

    /// Between the arming and the wait there is a look at the word, slot 3 of the line, and nothing is
    /// armed again; the deadline check is there too.
    fn arm_look_wait(code: &[String], arm: &str, wait: &str) {
        let at = |name: &str| code.iter().position(|line| line.starts_with(name));
        let all = code.join("\n");
        let armed = at(arm).unwrap_or_else(|| panic!("no {arm} in\n{all}"));
        let waits = armed + code[armed..].iter().position(|l| l.starts_with(wait)).unwrap();
        let look = code[armed + 1..waits].iter().find(|line| line.contains("0x18(%"));
        assert!(look.is_some(), "no look at the word between {arm} and {wait}:\n{all}");
        assert!(code[armed + 1..waits].iter().any(|line| line.starts_with("rdtsc")), "{all}");
        let after = code[waits + 1..].iter().chain(&code[..armed]);
        assert!(after.into_iter().any(|line| line.contains("0x18(%")), "no look after:\n{all}");
        assert!(!all.contains("call"), "a park calls nothing:\n{all}");
    }

    #[test]
    fn umwait_machine_code_arms_looks_waits() {
        let line = CompletionLine::new();
        line.store(Slot::ALL[3], 1);
        assert!(pinned_park_umwait(&line, 1, 0)); // done: runs none of the instructions
        let name = "umwait_machine_code_arms_looks_waits";
        let Some(code) = disassembled(name, "pinned_park_umwait") else { return };
        arm_look_wait(&code, "umonitor", "umwait");
        // The deadline's high half is made by a shift: all 64 bits are used.
        assert!(code.iter().any(|line| line.starts_with("shr") && line.contains("$0x20")));
    }

    #[test]
    fn mwaitx_machine_code_arms_looks_waits() {
        let line = CompletionLine::new();
        line.store(Slot::ALL[3], 1);
        assert!(pinned_park_mwaitx(&line, 1, 0));
        let name = "mwaitx_machine_code_arms_looks_waits";
        let Some(code) = disassembled(name, "pinned_park_mwaitx") else { return };
        arm_look_wait(&code, "monitorx", "mwaitx");
        let wait = code.iter().position(|line| line.starts_with("mwaitx")).unwrap();
        for around in [&code[wait - 1], &code[wait + 1]] {
            assert!(around.starts_with("xchg") && around.contains("%rbx"), "{around}");
        }
    }
}
