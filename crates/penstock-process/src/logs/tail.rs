//! The end of what a worker wrote, as lines for people.

use crate::job::Stream;
use crate::job::state::WorkerState;
use crate::logs::pump::{Listing, log_name};

const LINES: usize = 20;
const TAIL_BYTES: u64 = 16 << 10;

/// The last lines of a rank's output in this incarnation; of a progress bar the last state.
pub fn last_lines(there: &Listing, role: &str, worker: &WorkerState, stream: Stream) -> Vec<String> {
    let from = if stream == Stream::Out { worker.stdout_from } else { worker.stderr_from };
    let text = there.tail(&log_name(role, worker.rank, stream), from, TAIL_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let state = |line: &'_ str| line.trim_end_matches('\r').rfind('\r').map_or(0, |at| at + 1);
    let lines: Vec<&str> = text.lines().map(|line| &line[state(line)..]).collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|line| (*line).to_owned()).collect()
}
