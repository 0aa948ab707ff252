//! `ldxr` with `wfet` or `wfe` (Arm ARM, "Wait for Event" and FEAT_WFxT).
#![allow(unsafe_code)] // the instructions

use crate::monitor::{Monitor, TickRate};
use core::arch::asm;
use gpu_async_reactor_core::CompletionLine;

/// The instructions of this architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    Wfet,
    Wfe,
}

impl Instruction {
    pub(crate) const ALL: [Instruction; 2] = [Instruction::Wfet, Instruction::Wfe];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Instruction::Wfet => "wfet",
            Instruction::Wfe => "wfe",
        }
    }

    /// Runs the instruction once, for a moment.
    pub(crate) fn trial(self) -> fn() {
        fn once(monitor: &impl Monitor) {
            let line = CompletionLine::new();
            monitor.arm(&line);
            let now = monitor.now();
            monitor.wait(now, now + 100);
        }
        match self {
            Instruction::Wfet => || once(&Wfet(())),
            Instruction::Wfe => || once(&Wfe(())),
        }
    }
}

/// What the kernel says there is. A line must lie in one granule of the exclusive monitor, or a store
/// to a word beyond its first would end no wait.
pub(crate) fn claimed() -> [Option<Instruction>; 2] {
    const EVENT_STREAM: u64 = 1 << 2; // HWCAP_EVTSTRM
    const WFXT: u64 = 1 << 31; // HWCAP2_WFXT
    // SAFETY: reads this process's auxiliary vector.
    let (caps, caps2) =
        unsafe { (libc::getauxval(libc::AT_HWCAP), libc::getauxval(libc::AT_HWCAP2)) };
    let type_register: u64;
    // SAFETY: Linux lets programs read the cache type register.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) type_register, options(nomem, nostack)) };
    // Log2 of the granule in words of four bytes; 0 says nothing.
    let whole_line = (type_register >> 20) & 0xf >= 4;
    [
        (whole_line && caps2 & WFXT != 0).then_some(Instruction::Wfet),
        (whole_line && caps & EVENT_STREAM != 0).then_some(Instruction::Wfe),
    ]
}

/// The generic timer's rate, as the firmware set it.
pub(crate) fn tick_rate() -> Option<TickRate> {
    let hz: u64;
    // SAFETY: Linux lets programs read the timer's frequency.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack)) };
    (hz >= 1_000).then_some(TickRate { per_ms: hz / 1_000 })
}

#[inline(always)]
fn counter() -> u64 {
    let now: u64;
    // SAFETY: Linux lets programs read the counter. The barrier keeps it behind what came before.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) now, options(nostack)) };
    now
}

/// Spends an event that is already there, then arms the exclusive monitor for the line.
#[inline(always)]
fn arm(line: &CompletionLine) {
    // SAFETY: the line is live; a load and two hints.
    unsafe { asm!("sevl", "wfe", "ldxr {}, [{}]", out(reg) _, in(reg) line, options(nostack)) }
}

/// `ldxr` and `wfet`; made only where the probe found them, and by the trial.
pub(crate) struct Wfet(pub(super) ());

impl Monitor for Wfet {
    #[inline(always)]
    fn now(&self) -> u64 {
        counter()
    }

    #[inline(always)]
    fn arm(&self, line: &CompletionLine) {
        arm(line);
    }

    #[inline(always)]
    fn wait(&self, _now: u64, end: u64) {
        // SAFETY: the probe ran it. By its number, for the assembler knows the name only with the
        // feature turned on: `wfet x0`, whose deadline is all 64 bits, absolute.
        unsafe { asm!(".inst 0xd5031000", in("x0") end, options(nostack)) }
    }
}

/// `ldxr` and `wfe`, whose waits the kernel's event stream ends; made only where the probe found them,
/// and by the trial.
pub(crate) struct Wfe(pub(super) ());

impl Monitor for Wfe {
    #[inline(always)]
    fn now(&self) -> u64 {
        counter()
    }

    #[inline(always)]
    fn arm(&self, line: &CompletionLine) {
        arm(line);
    }

    #[inline(always)]
    fn wait(&self, _now: u64, _end: u64) {
        // SAFETY: a hint.
        unsafe { asm!("wfe", options(nostack)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::park;
    use gpu_async_reactor_core::Slot;
    use std::process::Command;

    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn pinned_park_wfet(line: &CompletionLine, target: u64, ticks: u64) -> bool {
        park(&Wfet(()), line, |l| l.load(Slot::ALL[3]) >= target, ticks)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn pinned_park_wfe(line: &CompletionLine, target: u64, ticks: u64) -> bool {
        park(&Wfe(()), line, |l| l.load(Slot::ALL[3]) >= target, ticks)
    }

    /// Spends the stale event, arms, looks at slot 3, waits, looks.
    fn arm_look_wait(test: &str, function: &str, is_wait: fn(&str) -> bool) {
        let program = std::env::current_exe().unwrap();
        let disassemble = format!("--disassemble={function}");
        let tools = ["aarch64-linux-gnu-objdump", "objdump"];
        let texts = tools.into_iter().filter_map(|tool| {
            let asked = Command::new(tool).args(["-d", &disassemble]).arg(&program).output();
            let text = String::from_utf8_lossy(&asked.ok()?.stdout).into_owned();
            text.contains("ldxr").then_some(text)
        });
        let Some(text) = texts.into_iter().next() else {
            eprintln!("SKIPPED {test}: no objdump for aarch64 is installed");
            return;
        };
        let code: Vec<_> = text.lines().filter(|line| line.contains(":\t")).collect();
        let find = |from: usize, is: &dyn Fn(&str) -> bool| {
            let found = code[from..].iter().position(|line| is(line));
            from + found.unwrap_or_else(|| panic!("a step is missing from {from} on:\n{text}"))
        };
        let spend = find(0, &|line| line.contains("sevl"));
        let armed = find(spend, &|line| line.contains("ldxr"));
        assert!(code[spend + 1].contains("wfe") && armed == spend + 2, "{text}");
        let looked = find(armed + 1, &|line| line.contains("lda"));
        find(looked, &|line| line.contains("cntvct_el0"));
        let waits = find(looked, &|line| is_wait(line));
        find(waits + 1, &|line| line.contains("lda"));
    }

    #[test]
    fn wfet_machine_code_arms_looks_waits() {
        let line = CompletionLine::new();
        line.store(Slot::ALL[3], 1);
        assert!(pinned_park_wfet(&line, 1, 0));
        arm_look_wait("wfet_machine_code_arms_looks_waits", "pinned_park_wfet", |line| {
            line.contains("d5031000")
        });
    }

    #[test]
    fn wfe_machine_code_arms_looks_waits() {
        let line = CompletionLine::new();
        line.store(Slot::ALL[3], 1);
        assert!(pinned_park_wfe(&line, 1, 0));
        arm_look_wait("wfe_machine_code_arms_looks_waits", "pinned_park_wfe", |line| {
            line.contains("wfe")
        });
    }
}
