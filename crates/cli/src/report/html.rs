//! The report as one HTML file that needs nothing else.

use super::{Facts, svg, text};
use crate::run::stats::PlanResult;
use crate::workload::COST_MODEL;

const STYLE: &str = include_str!("style.css");

const MEANINGS: [(&str, &str); 11] = [
    (
        "threads",
        "host threads that waited: one for all queues, or, since a blocking wait blocks its thread, one for each",
    ),
    ("waits", "waits that ended with the device's own status saying done"),
    ("verified", "results that the host computed too and found the same"),
    (
        "lag p50, p99, max",
        "wake lag: from the store of the completion number to the waiter's next instruction",
    ),
    (
        "CPU/wait",
        "CPU time of the threads that waited, over the waits done, less what submitting and checking took; the device's own threads are not in it",
    ),
    ("wall", "from the first submission to the last check"),
    ("sleeps", "sleeps to a predicted completion"),
    ("parks", "times that a word was watched, each up to the plan's bound"),
    ("queries", "times that the device's status was asked; a blocking wait asks in the driver"),
    ("middle half, 1 to 99 %, maximum", "the plot's thick bar, thin bar and line"),
    ("unknown", "this device or system doesn't say"),
];

/// The page.
pub(crate) fn page(results: &[PlanResult], facts: &Facts) -> String {
    let device = &facts.device;
    let kind = match device.simulated {
        true => {
            "<span class='badge sim'>simulated: says how the host waits, and nothing about a GPU</span>"
        }
        false => "<span class='badge'>not simulated</span>",
    };
    let mut out = format!(
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n\
         <meta name='viewport' content='width=device-width, initial-scale=1'>\n\
         <title>gpu-reactor: wake lag and CPU of each wait plan</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<h1>Waiting for device work</h1>\n<p>{kind}</p>\n<dl class='facts'>\n"
    );
    let mut fact = |name: &str, value: &str| {
        out += &format!("<dt>{name}</dt><dd>{}</dd>\n", escape(value));
    };
    fact("device", &device.name);
    fact("machine", &facts.machine.to_string());
    fact("date", &facts.date);
    fact("version", concat!("gpu-reactor ", env!("CARGO_PKG_VERSION")));
    fact("work", &facts.work);
    if let Some(note) = &device.note {
        fact("note", note);
    }
    if facts.work.contains("batcher") {
        fact("cost model", COST_MODEL);
    }
    out += "</dl>\n<h2>Wake lag</h2>\n";
    match (svg::lag(results), svg::distribution(results)) {
        (Some(ranges), Some(curves)) => {
            out += "<p class='note'>Line: the median. Thick: the middle half. Thin: 1 to 99 %, and a line to the maximum.</p>\n";
            out += &ranges;
            out += "<p class='note'>Share of the waits with at most that lag.</p>\n";
            out += &curves;
        }
        _ => {
            let why = device.no_store_times.as_deref().unwrap_or("no wait was done");
            out += &format!("<p>Unknown: {}.</p>\n", escape(why));
        }
    }
    out += "<h2>Host CPU for each wait</h2>\n";
    out += &svg::cpu(results).unwrap_or_else(|| "<p>Unknown on this system.</p>\n".to_owned());
    table(results, &mut out);
    out += "<h2>Plans</h2>\n<dl class='plans'>\n";
    for result in results {
        out +=
            &format!("<dt>{}</dt><dd><code>{}</code>", result.name.clone(), escape(&result.plan));
        if let Some(e) = &result.tally.error {
            out += &format!("<br><strong>ended early:</strong> {}", escape(&e.to_string()));
        }
        out += "</dd>\n";
    }
    out += "</dl>\n<h2>What the columns mean</h2>\n<dl class='plans'>\n";
    for (name, meaning) in MEANINGS {
        out += &format!("<dt>{name}</dt><dd>{meaning}</dd>\n");
    }
    out += "</dl>\n";
    if facts.work.contains("Azure") {
        out += "<footer>Step lengths follow an excerpt of the Azure LLM inference trace 2023 (Azure Public Dataset, CC-BY 4.0). \
                Patel et al., “Splitwise: Efficient generative LLM inference using phase splitting”, ISCA 2024.</footer>\n";
    }
    out + "</body>\n</html>\n"
}

fn table(results: &[PlanResult], out: &mut String) {
    *out += "<h2>Numbers</h2>\n<div class='wide'><table>\n<thead><tr>";
    for name in text::COLUMNS {
        *out += &format!("<th>{name}</th>");
    }
    *out += "</tr></thead>\n<tbody>\n";
    for result in results {
        *out += "<tr>";
        for cell in text::cells(result) {
            *out += &format!("<td>{}</td>", escape(&cell));
        }
        *out += "</tr>\n";
    }
    *out += "</tbody>\n</table></div>\n";
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('\'', "&#39;").replace('"', "&quot;")
}
