//! Writes the reported data sets as recordings: `cargo run -p gpu-async-reactor-testkit --example data -- FOLDER`.

use std::fmt::Write as _;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/data".into());
    std::fs::create_dir_all(&folder)?;
    for (name, steps) in testkit::data::all(true, 3_000) {
        let mut text = String::from("# gpu-reactor recording 1\npoint,rows,start_ns,duration_ns\n");
        let mut start = 0;
        for (rows, duration) in steps {
            let _ = writeln!(text, "0,{rows},{start},{duration}");
            start += duration;
        }
        std::fs::write(format!("{folder}/{name}.csv"), text)?;
    }
    Ok(())
}
