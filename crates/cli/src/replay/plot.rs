//! Lag against CPU, each plan a point: nearer to the corner is better.

use gpu_async_reactor::replay::Replayed;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;

/// The picture, on logarithmic scales, complete in itself.
pub(crate) fn pareto(results: &[Replayed]) -> String {
    let lag = |r: &Replayed| (r.lag_mean_ns / 1e3).clamp(0.1, 1e5);
    let cpu = |r: &Replayed| (100.0 * r.cpu_share).clamp(0.01, 100.0);
    let x = |value: f64| LEFT + (value.log10() + 1.0) / 6.0 * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - (value.log10() + 2.0) / 4.0 * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' \
         aria-label='Mean wake lag against CPU of each plan' font-family='system-ui, sans-serif' \
         font-size='12'>\n<rect width='100%' height='100%' fill='#fff'/>\n"
    );
    for (decade, text) in
        (-1..=5).zip(["0.1 µs", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "0.1 s"])
    {
        let x = x(10f64.powi(decade));
        out += &format!(
            "<line x1='{x:.1}' x2='{x:.1}' y1='{TOP}' y2='{:.1}' stroke='#dde2ea'/>\n\
             <text x='{x:.1}' y='{:.1}' text-anchor='middle' fill='#5d6777'>{text}</text>\n",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 18.0
        );
    }
    for (decade, text) in (-2..=2).zip(["0.01 %", "0.1 %", "1 %", "10 %", "100 %"]) {
        let y = y(10f64.powi(decade));
        out += &format!(
            "<line x1='{LEFT}' x2='{:.1}' y1='{y:.1}' y2='{y:.1}' stroke='#dde2ea'/>\n\
             <text x='{:.1}' y='{:.1}' text-anchor='end' fill='#5d6777'>{text}</text>\n",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
    }
    out += &format!(
        "<text x='{:.1}' y='{:.1}' text-anchor='middle' fill='#1d2430'>mean wake lag</text>\n\
         <text x='16' y='{:.1}' text-anchor='middle' fill='#1d2430' \
         transform='rotate(-90 16 {:.1})'>CPU</text>\n",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0,
        HEIGHT / 2.0,
        HEIGHT / 2.0
    );
    let colours = [
        "#1d2430", "#d2543a", "#4269d0", "#c98a00", "#8a5cc2", "#8d6a4f", "#5d6777", "#e377c2",
        "#17a2b8", "#6b8e23",
    ];
    for (i, result) in results.iter().enumerate() {
        let (x, y) = (x(lag(result)), y(cpu(result)));
        let ours = result.subject.contains("hazard");
        let (colour, size) =
            if ours { ("#2f8f62", 7.0) } else { (colours[i % colours.len()], 5.0) };
        let name = result.subject.rsplit('+').next().unwrap_or(&result.subject);
        let name =
            name.split(':').next().unwrap_or(name).replace('<', "&lt;").replace('&', "&amp;");
        let row = 30.0 + 22.0 * i as f64;
        let legend = WIDTH - RIGHT + 24.0;
        out += &format!(
            "<circle cx='{x:.1}' cy='{y:.1}' r='{size}' fill='{colour}'/>\n\
             <circle cx='{legend:.1}' cy='{row:.1}' r='{size}' fill='{colour}'/>\n\
             <text x='{:.1}' y='{:.1}' fill='#1d2430'>{name}, {:.0} µs of cost</text>\n",
            legend + 14.0,
            row + 4.0,
            result.cost
        );
    }
    out + "</svg>\n"
}
