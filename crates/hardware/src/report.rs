//! One table, the lines of JSON, and what was violated.

use crate::api::Answer;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;

pub(crate) struct Report {
    json: Option<File>,
    device: String,
    simulated: bool,
    head: bool,
    violations: Vec<String>,
}

impl Report {
    pub(crate) fn new(json: Option<&Path>, device: &str, simulated: bool) -> Answer<Report> {
        let json = json.map(File::create).transpose()?;
        let (device, violations) = (device.to_owned(), Vec::new());
        Ok(Report { json, device, simulated, head: false, violations })
    }

    fn line(&mut self, line: &str) -> Answer<()> {
        if let Some(file) = &mut self.json {
            writeln!(file, "{line}")?;
        }
        Ok(())
    }

    pub(crate) fn check(&mut self, name: &str, right: bool, said: &str) -> Answer<()> {
        println!("{} {name:<18} {said}", if right { "ok      " } else { "VIOLATED" });
        if !right {
            self.violations.push(format!("{name}: {said}"));
        }
        let row = json!({
            "suite": "hardware", "case": name, "subject": "ours", "metric": "violations",
            "value": u8::from(!right), "n": 1, "device": self.device, "simulated": self.simulated,
        });
        self.line(&row.to_string())
    }

    /// The lines of a way, as rows of the table.
    pub(crate) fn way(&mut self, name: &str, right: bool, said: &str) -> Answer<()> {
        if !self.head {
            println!(
                "{:<14} {:<14} {:>12} {:>12} {:>14} {:>8}",
                "way", "kernels", "lag p50", "lag p99", "CPU a wait", "CPU"
            );
            self.head = true;
        }
        let mut case = (String::new(), [Value::Null, Value::Null, Value::Null, Value::Null]);
        for line in said.lines() {
            let Ok(row) = serde_json::from_str::<Value>(line) else {
                self.violations.push(format!("{name}: {line}"));
                println!("{name:<14} {line}");
                continue;
            };
            self.line(line)?;
            let at = match row["metric"].as_str() {
                Some("lag_p50_ns") => 0,
                Some("lag_p99_ns") => 1,
                Some("cpu_per_wait_ns") => 2,
                Some("cpu_share") => 3,
                _ => continue,
            };
            case.0 = row["case"].as_str().unwrap_or_default().to_owned();
            case.1[at] = row["value"].clone();
            if at == 3 {
                let us = |value: &Value| {
                    value.as_f64().map_or("?".into(), |ns| format!("{:.1} us", ns / 1e3))
                };
                let [p50, p99, cpu, share] = &case.1;
                let share =
                    share.as_f64().map_or("?".into(), |share| format!("{:.1} %", 100.0 * share));
                println!(
                    "{name:<14} {:<14} {:>12} {:>12} {:>14} {share:>8}",
                    case.0,
                    us(p50),
                    us(p99),
                    us(cpu)
                );
            }
        }
        if !right && self.violations.is_empty() {
            self.violations.push(format!("{name}: ended badly and said nothing"));
        }
        Ok(())
    }

    /// Whether nothing was violated.
    pub(crate) fn end(self) -> Answer<bool> {
        for violation in &self.violations {
            println!("VIOLATED {violation}");
        }
        println!("\nviolations: {}", self.violations.len());
        Ok(self.violations.is_empty())
    }
}
