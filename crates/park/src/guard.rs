//! Runs an instruction once where its fault hurts nobody: in a child process.
//!
//! A signal handler in this process would race with the host program's own. The child is made by a
//! plain `clone` that tells nobody of its end, so that a host's `SIGCHLD` handler never hears of it.
#![allow(unsafe_code)] // system calls

use core::ptr::{null, null_mut};

/// How long the child may take before the instruction is taken for one that never returns.
const PATIENCE_MS: u32 = 500;

/// Whether `trial` returns in a child process. It may call nothing that takes a lock.
pub(crate) fn survives(trial: fn()) -> bool {
    let clone = |exit_signal: libc::c_int| {
        // SAFETY: no flag but the exit signal: a fork. The child has this one thread, and until it ends
        // it only resets signals, runs the trial and leaves.
        unsafe {
            libc::syscall(libc::SYS_clone, exit_signal as usize, 0usize, 0usize, 0usize, 0usize)
        }
    };
    let mut pid = clone(0);
    if pid < 0 && errno() == libc::EINVAL {
        pid = clone(libc::SIGCHLD); // an emulator that knows only this kind of fork
    }
    if pid == 0 {
        // SAFETY: in the child; async-signal-safe calls only.
        unsafe { run(trial) }
    }
    match libc::pid_t::try_from(pid) {
        Ok(pid) if pid > 0 => exited_well(pid),
        _ => false,
    }
}

/// # Safety
///
/// Only in a child of its own.
unsafe fn run(trial: fn()) -> ! {
    // SAFETY: as the caller promises. The host's handlers must not run here, and a fault leaves no
    // core file.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        for signal in [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS, libc::SIGTRAP] {
            libc::sigaction(signal, &action, null_mut());
        }
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    trial();
    // SAFETY: leaves without running anything of the host's.
    unsafe { libc::_exit(0) }
}

fn errno() -> libc::c_int {
    // SAFETY: the calling thread's error number.
    unsafe { *libc::__errno_location() }
}

fn exited_well(pid: libc::pid_t) -> bool {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let mut waited_ms = 0;
    loop {
        let mut status = 0;
        let flags = if waited_ms < PATIENCE_MS { libc::WNOHANG } else { 0 };
        // SAFETY: the child is ours and nobody else's: it signals no end that others wait for.
        match unsafe { libc::waitpid(pid, &mut status, flags | libc::__WALL) } {
            0 => {
                // SAFETY: plain calls with valid arguments.
                unsafe { libc::nanosleep(&pause, null::<libc::timespec>().cast_mut()) };
                waited_ms += 1;
                if waited_ms == PATIENCE_MS {
                    // SAFETY: not reaped yet, so the number still names the child.
                    unsafe { libc::kill(pid, libc::SIGKILL) };
                }
            }
            reaped if reaped == pid => {
                return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            }
            // Interrupted by a signal: asked again. Anything else: nothing is known, so no.
            _ if errno() == libc::EINTR => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_returns_survives() {
        assert!(survives(|| {}));
    }

    #[test]
    fn an_instruction_that_is_not_there_kills_only_the_child() {
        fn undefined() {
            // SAFETY: raises the fault that this tests.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                core::arch::asm!("ud2")
            }
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                core::arch::asm!("udf #0")
            }
        }
        assert!(!survives(undefined));
    }

    #[test]
    fn an_instruction_that_never_returns_is_killed() {
        assert!(!survives(|| loop {
            core::hint::spin_loop();
        }));
    }
}
