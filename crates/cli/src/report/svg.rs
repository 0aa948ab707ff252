//! The report's plots. Colours are the page's, so that they follow its light or dark scheme.

use super::span;
use crate::run::stats::{PlanResult, at};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 90.0;

/// Wake lag: from the median to the 99th percentile and the maximum, on a logarithmic scale.
pub(super) fn lag(results: &[PlanResult]) -> Option<String> {
    let known: Vec<_> = results.iter().filter(|r| !r.tally.lags_ns.is_empty()).collect();
    let most = known.iter().filter_map(|r| r.tally.lags_ns.last()).max()?;
    let least = known.iter().map(|r| at(&r.tally.lags_ns, 0.01)).min()?;
    let scale = Log::over(least.max(50) as f64, *most as f64);
    let height = 46.0 * known.len() as f64 + 44.0;
    let mut out = open(height, "Wake lag of each plan");
    scale.grid(height, &mut out);
    for (i, result) in known.iter().enumerate() {
        let y = 30.0 + 46.0 * i as f64;
        let lags = &result.tally.lags_ns;
        let x = |share| scale.x(at(lags, share) as f64);
        label(&result.name, y, &mut out);
        // Outer to inner: the range up to the maximum, then 1 to 99 %, then the middle half.
        line(x(0.01), x(1.0), y, 1.5, i, &mut out);
        bar(x(0.01), x(0.99), y, 10.0, 0.35, i, &mut out);
        bar(x(0.25), x(0.75), y, 20.0, 0.8, i, &mut out);
        let (x, text) = (x(0.5), span(at(lags, 0.5) as f64));
        out += &format!(
            "<line x1='{x:.1}' x2='{x:.1}' y1='{:.1}' y2='{:.1}' class='median'/>\n\
             <text x='{:.1}' y='{:.1}' class='value' text-anchor='middle'>{text}</text>\n",
            y - 13.0,
            y + 13.0,
            x.clamp(LEFT + 20.0, WIDTH - RIGHT),
            y - 16.0
        );
    }
    Some(out + "</svg>\n")
}

/// The share of waits whose lag was at most so long.
pub(super) fn distribution(results: &[PlanResult]) -> Option<String> {
    let known: Vec<_> = results.iter().filter(|r| !r.tally.lags_ns.is_empty()).collect();
    let most = known.iter().filter_map(|r| r.tally.lags_ns.last()).max()?;
    let least = known.iter().map(|r| at(&r.tally.lags_ns, 0.01)).min()?;
    let scale = Log::over(least.max(50) as f64, *most as f64);
    let height = 300.0;
    let (top, bottom) = (16.0, height - 30.0);
    let mut out = open(height, "Distribution of the wake lag");
    scale.grid(height, &mut out);
    let y = |share: f64| bottom - share * (bottom - top);
    for percent in [0, 25, 50, 75, 100] {
        let y = y(f64::from(percent) / 100.0);
        out += &format!(
            "<line x1='{LEFT}' x2='{:.1}' y1='{y:.1}' y2='{y:.1}' class='grid'/>\n\
             <text x='{:.1}' y='{:.1}' text-anchor='end' class='tick'>{percent} %</text>\n",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
    }
    for (i, result) in known.iter().enumerate() {
        let points: Vec<_> = (0..=200)
            .map(|step| {
                let share = f64::from(step) / 200.0;
                let x = scale.x(at(&result.tally.lags_ns, share) as f64);
                format!("{x:.1},{:.1}", y(share))
            })
            .collect();
        out += &format!("<polyline points='{}' class='curve s{}'/>\n", points.join(" "), i % 6);
    }
    out += "</svg>\n<p class='legend'>";
    for (i, result) in known.iter().enumerate() {
        out += &format!("<span><i class='b{}'></i>{}</span> ", i % 6, result.name.clone());
    }
    Some(out + "</p>\n")
}

/// Host CPU for each wait, as bars.
pub(super) fn cpu(results: &[PlanResult]) -> Option<String> {
    let known: Vec<_> = results.iter().filter_map(|r| Some((r, r.cpu_per_wait_ns()?))).collect();
    let most = known.iter().map(|(_, cpu)| *cpu).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let height = 40.0 * known.len() as f64 + 14.0;
    let mut out = open(height, "Host CPU for each wait");
    for (i, (result, cpu)) in known.iter().enumerate() {
        let y = 26.0 + 40.0 * i as f64;
        let end = LEFT + (WIDTH - LEFT - RIGHT) * cpu / most;
        label(&result.name, y, &mut out);
        bar(LEFT, end.max(LEFT + 1.0), y, 20.0, 0.8, i, &mut out);
        let text = span(*cpu);
        out +=
            &format!("<text x='{:.1}' y='{:.1}' class='value'>{text}</text>\n", end + 8.0, y + 4.0);
    }
    Some(out + "</svg>\n")
}

/// A logarithmic scale over whole decades' ticks.
struct Log {
    from: f64,
    to: f64,
}

impl Log {
    fn over(least: f64, most: f64) -> Log {
        let from = (least * 0.8).log10();
        Log { from, to: (most * 1.2).log10().max(from + 0.5) }
    }

    fn x(&self, ns: f64) -> f64 {
        let share = (ns.max(1.0).log10() - self.from) / (self.to - self.from);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn grid(&self, height: f64, out: &mut String) {
        for decade in 1..=11 {
            let ns = 10f64.powi(decade);
            if ns.log10() < self.from || ns.log10() > self.to {
                continue;
            }
            let (x, text) = (self.x(ns), span(ns).replace(".00", "").replace(".0", ""));
            *out += &format!(
                "<line x1='{x:.1}' x2='{x:.1}' y1='10' y2='{:.1}' class='grid'/>\n\
                 <text x='{x:.1}' y='{:.1}' text-anchor='middle' class='tick'>{text}</text>\n",
                height - 26.0,
                height - 8.0
            );
        }
    }
}

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{title}' \
         xmlns='http://www.w3.org/2000/svg'>\n"
    )
}

fn label(text: &str, y: f64, out: &mut String) {
    *out += &format!(
        "<text x='{:.1}' y='{:.1}' text-anchor='end' class='name'>{text}</text>\n",
        LEFT - 12.0,
        y + 4.0
    );
}

fn bar(from: f64, to: f64, y: f64, thick: f64, opacity: f64, i: usize, out: &mut String) {
    let (width, top) = ((to - from).max(1.0), y - thick / 2.0);
    *out += &format!(
        "<rect x='{from:.1}' y='{top:.1}' width='{width:.1}' height='{thick}' rx='2' class='f{}' \
         opacity='{opacity}'/>\n",
        i % 6
    );
}

fn line(from: f64, to: f64, y: f64, thick: f64, i: usize, out: &mut String) {
    *out += &format!(
        "<line x1='{from:.1}' x2='{to:.1}' y1='{y:.1}' y2='{y:.1}' stroke-width='{thick}' class='s{}'/>\n",
        i % 6
    );
}
