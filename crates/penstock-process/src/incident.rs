//! What is known about a failure, in one file: the first cause, how every rank ended, its last lines, and what was decided.

use serde_json::json;

use crate::error::Result;
use crate::job::{Job, Room, Stream};
use crate::pump;
use crate::state::{RankState, State, wall_s, write_whole};
use crate::verdict::Verdict;

const LINES: usize = 20;
const TAIL_BYTES: u64 = 16 << 10;
/// Variables whose values never go into an incident.
const SECRET: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "ACCESS_KEY"];
/// Shorter values would be found everywhere.
const SECRET_BYTES_MIN: usize = 8;

/// The last lines of a rank's output in this incarnation.
pub fn last_lines(room: &Room, rank: &RankState, stream: Stream) -> Vec<String> {
    let from = if stream == Stream::Out { rank.stdout_from } else { rank.stderr_from };
    let text = tail(room, rank.rank, stream, from).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

fn tail(room: &Room, rank: u32, stream: Stream, from: u64) -> std::io::Result<Vec<u8>> {
    pump::tail(&room.log("rank", rank, stream), from, TAIL_BYTES)
}

/// What a failure has in common with the same one at another time: how the rank ended, and its last words.
pub fn likeness(room: &Room, rank: &RankState) -> Option<String> {
    let exit = rank.exit.as_ref()?;
    let lines = last_lines(room, rank, Stream::Err);
    let last = lines.iter().rev().find(|line| !line.trim().is_empty())?;
    exit.code.map(|code| format!("rank {} code {code}: {last}", rank.rank))
}

/// Writes the incident of the incarnation that just failed; its name in the room.
pub fn write(room: &Room, job: &Job, state: &State, verdict: &Verdict) -> Result<String> {
    let secrets: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, value)| {
            value.len() >= SECRET_BYTES_MIN && SECRET.iter().any(|word| name.to_uppercase().contains(word))
        })
        .collect();
    let shown =
        |lines: Vec<String>| -> Vec<String> { lines.iter().map(|line| redacted(line, &secrets)).collect() };
    // Causal order: as noticed. Ranks that ended only because we asked come after those that ended by themselves.
    let mut order: Vec<&RankState> = state.ranks.iter().collect();
    order.sort_by_key(|rank| (rank.asked, rank.exit_ms.unwrap_or(u64::MAX)));
    let ranks: Vec<_> = order
        .iter()
        .map(|rank| {
            json!({
                "rank": rank.rank, "pid": rank.pid, "exit": rank.exit, "asked_to_end": rank.asked,
                "ended": rank.exit.as_ref().map(ToString::to_string), "exit_ms": rank.exit_ms,
                "cpu_s": rank.cpu_s, "rss_max_bytes": rank.rss_max_bytes,
                "stdout": shown(last_lines(room, rank, Stream::Out)),
                "stderr": shown(last_lines(room, rank, Stream::Err)),
            })
        })
        .collect();
    let cause = state.failures.iter().find(|failure| failure.incarnation == state.incarnation);
    let command: Vec<String> = job.command.iter().map(|word| redacted(word, &secrets)).collect();
    let document = json!({
        "job": job.id, "incarnation": state.incarnation, "at": wall_s(), "command": command,
        "first_cause": cause.map(|cause| redacted(&cause.what, &secrets)),
        "verdict": format!("{:?}", verdict.action), "reason": redacted(&verdict.reason, &secrets),
        "ranks": ranks,
    });
    let path = room.incident(state.incarnation);
    write_whole(&path, &serde_json::to_vec_pretty(&document).expect("plain values"))?;
    Ok(format!("incidents/{}.json", state.incarnation))
}

fn redacted(text: &str, secrets: &[(String, String)]) -> String {
    secrets.iter().fold(text.to_owned(), |text, (name, value)| {
        if text.contains(value) { text.replace(value, &format!("[{name}]")) } else { text }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_replaced_by_its_name() {
        let secrets = [("HF_TOKEN".to_owned(), "hf_0123456789".to_owned())];
        assert_eq!(redacted("login hf_0123456789 failed", &secrets), "login [HF_TOKEN] failed");
    }
}
