//! How fast a jsonl file is scanned, against reading it and doing nothing: a ratio from one run on one machine.
//!
//! `cargo run --release -p penstock-data --example scan_speed -- [FILE]` makes a file of about 1 GB when none is given.
//! The file is read warm, so the ratio is the hardest one: any disk slower than memory only improves it.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use penstock_data::scan::{Format, LineFormat, ScanOptions, ScanRequest, scan};

const FILE_BYTES: usize = 1_000_000_000;
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir();
    let argument = std::env::args_os().nth(1).map(PathBuf::from);
    let path =
        argument.clone().unwrap_or_else(|| dir.join(format!("scan-speed-{}.jsonl", std::process::id())));
    if argument.is_none() {
        generate(&path)?;
    }
    let index_path = dir.join(format!("scan-speed-{}.index", std::process::id()));
    let mut out = std::io::stdout().lock();
    for _ in 0..ROUNDS {
        let read_s = plain_read(&path)?;
        let begun = Instant::now();
        let options = ScanOptions::default();
        let request =
            ScanRequest { shard: "scan-speed", index_path: &index_path, options: &options, progress: None };
        let summary = scan(Format::Lines(LineFormat::Jsonl), File::open(&path)?, request)?;
        let scan_s = begun.elapsed().as_secs_f64();
        let gigabytes = summary.bytes as f64 / 1e9;
        writeln!(
            out,
            "read {:.2} GB/s   scan {:.2} GB/s   {} rows   index {:.2} % of the file",
            gigabytes / read_s,
            gigabytes / scan_s,
            summary.rows,
            100.0 * summary.index_bytes as f64 / summary.bytes as f64,
        )?;
    }
    std::fs::remove_file(&index_path)?;
    if argument.is_none() {
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn plain_read(path: &Path) -> std::io::Result<f64> {
    let begun = Instant::now();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(begun.elapsed().as_secs_f64())
}

/// Web-like rows: an address, a language, a score, and a text of varying length with some escapes and accents.
fn generate(path: &Path) -> std::io::Result<()> {
    let words = [
        "the",
        "penstock",
        "caf\u{e9}",
        "brings",
        "water\\n",
        "to",
        "a",
        "turbine",
        "\\\"at\\\"",
        "full",
        "pressure",
    ];
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut written, mut state, mut row) = (0, 17_u64, 0_u64);
    let mut line = String::new();
    while written < FILE_BYTES {
        line.clear();
        line.push_str(&format!("{{\"id\": {row}, \"url\": \"https://example.org/{row}\", \"lang\": \"en\", \"score\": 0.{row}, \"text\": \""));
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for step in 0..40 + (state >> 55) {
            line.push_str(words[((state >> 20).wrapping_add(step * step) % words.len() as u64) as usize]);
            line.push(' ');
        }
        line.push_str("\"}\n");
        out.write_all(line.as_bytes())?;
        written += line.len();
        row += 1;
    }
    out.flush()
}
