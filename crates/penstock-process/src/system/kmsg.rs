//! What the kernel said about processes that it killed for want of memory. Best effort: not every user may read it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use crate::system::now_ms;

/// Longest record that the kernel gives.
const RECORD_BYTES_MAX: usize = 8 << 10;
/// More than the kernel keeps, so a flood cannot hold us.
const RECORDS_MAX: usize = 100_000;
const LINES_MAX: usize = 20;
const SLACK_MS: u64 = 1000;

/// What an incident needs to know: lines since a moment of [`crate::system::now_ms`] that name a control group or a process of ours.
pub fn about_memory(since_ms: u64, group: &str, pids: &[i32]) -> Vec<String> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    let Ok(mut file) = file else { return Vec::new() };
    let mut records = Vec::new();
    let mut buffer = vec![0; RECORD_BYTES_MAX];
    for _ in 0..RECORDS_MAX {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => records.push(String::from_utf8_lossy(&buffer[..count]).into_owned()),
            // A record was overwritten before we came to it.
            Err(problem) if problem.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => break,
        }
    }
    // The kernel's clock does not count sleep, and drifts a little.
    let slept_ms = now_ms().saturating_sub(awake_ms());
    chosen(&records, since_ms.saturating_sub(slept_ms + SLACK_MS) * 1000, group, pids)
}

/// Milliseconds since the machine started, without those in which it slept.
fn awake_ms() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0) * 1000 + u64::try_from(at.tv_nsec).unwrap_or(0) / 1_000_000
}

/// A record is `priority,number,microseconds,flags;text` and lines that follow.
fn chosen(records: &[String], since_us: u64, group: &str, pids: &[i32]) -> Vec<String> {
    let mut ours: Vec<i32> = pids.to_vec();
    let mut found = Vec::new();
    for record in records {
        let Some((head, text)) = record.split_once(';') else { continue };
        let at_us = head.split(',').nth(2).and_then(|word| word.parse::<u64>().ok());
        let text = text.lines().next().unwrap_or_default();
        if at_us.is_none_or(|at_us| at_us < since_us) {
            continue;
        }
        let victim = number_after(text, ",pid=").filter(|_| text.starts_with("oom-kill:"));
        let victim = victim.or_else(|| number_after(text, "Killed process "));
        let Some(victim) = victim else { continue };
        let in_group = text.contains(&format!("/{group}/"));
        if in_group && !ours.contains(&victim) {
            // A child of a rank: the line that follows has its number only.
            ours.push(victim);
        }
        if ours.contains(&victim) {
            found.push(text.to_owned());
        }
    }
    found.split_off(found.len().saturating_sub(LINES_MAX))
}

fn number_after(text: &str, mark: &str) -> Option<i32> {
    let (_, rest) = text.split_once(mark)?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_about_our_processes_since_they_began_are_chosen() {
        let records: Vec<String> = [
            "6,1,1000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/penstock-a/rank-0,task=python,pid=7,uid=0",
            "6,2,5000,-;python invoked oom-killer: gfp_mask=0xcc0",
            "6,3,5000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/penstock-a/rank-0,task=python,pid=8,uid=0\n SUBSYSTEM=x",
            "3,4,5000,-;Memory cgroup out of memory: Killed process 8 (python) total-vm:1kB",
            "3,5,5001,-;Out of memory: Killed process 9 (stranger) total-vm:1kB",
            "3,6,5002,-;Out of memory: Killed process 11 (python) total-vm:1kB",
        ]
        .map(str::to_owned)
        .to_vec();
        let found = chosen(&records, 2000, "penstock-a", &[11]);
        let begins: Vec<&str> = found.iter().map(|line| &line[..12]).collect();
        assert_eq!(begins, ["oom-kill:con", "Memory cgrou", "Out of memor"]);
        assert!(found[2].contains("process 11 "));
    }
}
