//! `gpu-reactor doctor`: what this machine offers, what it lacks and why, and a self-test of each
//! device found.
//!
//! Upholds invariants 9 (a device counts when it did the thing, not when it said so) and 14.

mod host;
mod libraries;
mod selftest;

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::report::json;
use serde_json::json;

/// One thing looked for.
pub(crate) struct Finding {
    /// `driver`, `entry`, `device`, `host` or `self-test`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) state: State,
    /// What was found, or why it is missing.
    pub(crate) found: String,
    /// What to do about it.
    pub(crate) advice: Option<String>,
    /// Found on something that is simulated.
    pub(crate) simulated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ok,
    Missing,
    Failed,
}

impl Finding {
    fn ok(kind: &'static str, name: impl Into<String>, found: impl Into<String>) -> Finding {
        let (state, advice) = (State::Ok, None);
        Finding { kind, name: name.into(), state, found: found.into(), advice, simulated: false }
    }

    fn missing(
        kind: &'static str,
        name: impl Into<String>,
        why: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        let advice = Some(advice.into());
        let (state, simulated) = (State::Missing, false);
        Finding { kind, name: name.into(), state, found: why.into(), advice, simulated }
    }

    fn simulated(self, simulated: bool) -> Finding {
        Finding { simulated, ..self }
    }
}

/// Looks, tests, prints.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<Exit, Failure> {
    let mut findings = libraries::look();
    findings.extend(host::look());
    let tests = selftest::test_all(args.driver_sim);
    let works =
        tests.iter().any(|finding| finding.kind == "self-test" && finding.state == State::Ok);
    let failed = tests.iter().any(|finding| finding.state == State::Failed);
    findings.extend(tests);
    for finding in &findings {
        if args.json {
            print_json(finding);
        } else {
            print_line(finding);
        }
    }
    let verdict = match (works, failed) {
        (false, _) => "no device passed its self-test: `gpu-reactor run` can't do its job here",
        (true, true) => "a device failed its self-test; `gpu-reactor run` works on another one",
        (true, false) => "`gpu-reactor run` can do its job here",
    };
    if args.json {
        eprintln!("{verdict}")
    } else {
        crate::sys::outln!("\n{verdict}")
    }
    Ok(if works { Exit::Done } else { Exit::Wrong })
}

fn print_line(finding: &Finding) {
    let state = match finding.state {
        State::Ok => "ok",
        State::Missing => "missing",
        State::Failed => "FAILED",
    };
    let advice = finding.advice.as_ref().map_or(String::new(), |advice| format!("; {advice}"));
    let simulated = if finding.simulated { " [SIMULATED]" } else { "" };
    let found = finding.found.replace(['\n', '\r'], " ") + simulated;
    crate::sys::outln!("{state:<8} {:<9} {:<34} {found}{advice}", finding.kind, finding.name);
}

fn print_json(finding: &Finding) {
    json::print(&json!({
        "suite": "doctor", "kind": finding.kind, "name": finding.name,
        "ok": finding.state == State::Ok, "failed": finding.state == State::Failed,
        "found": finding.found, "advice": finding.advice, "simulated": finding.simulated,
    }));
}
