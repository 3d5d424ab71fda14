//! Who descends from whom, read from /proc, and signals that reach exactly the process that was meant.
//!
//! A process is known by its number *and* its start time, because numbers are used again. A signal goes through a
//! pidfd after the start time was compared, so it can never reach a stranger (P6).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::system::kernel_file;

/// How often the list of children is read in one go: a few milliseconds.
pub const CHILDREN_ROUNDS: u32 = 300;

/// A process as /proc shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent, or the subreaper that adopted it.
    pub parent: i32,
    /// When it started, in ticks since the machine did; with the number, its identity.
    pub start_ticks: u64,
    /// `R`, `S`, `D`, `Z` and so on.
    pub state: char,
    /// Processor time so far, in ticks.
    pub cpu_ticks: u64,
    /// Memory that it holds now, in pages.
    pub rss_pages: u64,
}

impl Process {
    /// Reads one; nothing when it is gone.
    pub fn read(pid: i32) -> Option<Self> {
        let text = kernel_file::read(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may itself hold parentheses and spaces: fields begin after the last one.
        let after = text.iter().rposition(|byte| *byte == b')')?;
        let fields: Vec<&str> =
            std::str::from_utf8(text.get(after + 2..)?).ok()?.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            cpu_ticks: number(11)? + number(12)?,
            start_ticks: number(19)?,
            rss_pages: number(21)?,
        })
    }

    /// Whether it still does something; a zombie only waits for its parent to notice.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// Sends a signal to this process and to no other; says whether it was there.
    pub fn signal(&self, signal: i32) -> bool {
        // SAFETY: plain integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        let Ok(fd) = i32::try_from(fd) else { return false };
        if fd < 0 {
            return false;
        }
        // SAFETY: the kernel just gave it to us.
        let handle = unsafe { OwnedFd::from_raw_fd(fd) };
        // The handle is fixed now; if the number has the same start time, the handle is the process that we saw.
        if Self::read(self.pid).is_none_or(|now| now.start_ticks != self.start_ticks) {
            return false;
        }
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the handle is open, and no further information is passed.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), signal, none, 0) == 0 }
    }
}

/// Every process that we may see.
pub fn everyone() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// Those that descend from `root`, without `root`, without zombies, and without those below `except`.
pub fn descendants(all: &[Process], root: i32, except: &BTreeSet<i32>) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            // /proc is not read at one moment, so a number may show up twice; each is followed once.
            if except.contains(&child.pid) || !seen.insert(child.pid) {
                continue;
            }
            open.push(child.pid);
            if child.is_alive() {
                found.push((*child).clone());
            }
        }
    }
    found
}

/// Our own children but `except`, also those that ended and were not reaped. None where the kernel keeps no such list.
pub fn strangers(except: &BTreeSet<i32>) -> Vec<i32> {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let pids = text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter(|pid| !except.contains(pid)).collect()
}

/// Sends SIGKILL to our own children, but those `spared`, as fast as they show up; for those that fork and end all the time.
///
/// A whole look at /proc takes longer than such a process lives. The list of our own children is short, and a child
/// that was not reaped keeps its number, so the signal needs no further care. Only for the thread that reaps.
pub fn kill_children(spared: &dyn Fn(i32) -> bool, rounds_max: u32) {
    for _ in 0..rounds_max {
        let mut found = strangers(&BTreeSet::new());
        found.retain(|pid| !spared(*pid));
        if found.is_empty() {
            return;
        }
        for pid in found {
            // SAFETY: plain integers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// Sends SIGKILL to all that descend from us, again and again while new ones show up; how many are left.
///
/// A process that forks while it is killed leaves a child, which we adopt; the next round finds it.
pub fn kill_all(rounds_max: u32) -> usize {
    let me = std::process::id() as i32;
    let mut left = 0;
    for round in 0..rounds_max {
        while crate::system::reap().is_some() {}
        let found = descendants(&everyone(), me, &BTreeSet::new());
        left = found.len().max(usize::from(crate::system::has_children()));
        if left == 0 {
            break;
        }
        for process in &found {
            process.signal(libc::SIGKILL);
        }
        kill_children(&|_| false, CHILDREN_ROUNDS);
        if round > 0 {
            std::thread::sleep(std::time::Duration::from_millis(u64::from(round.min(20))));
        }
    }
    left
}

/// What a variable was when a process was started; nothing when it is gone or not ours to look at.
pub fn variable_of(pid: i32, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let start = format!("{name}=").into_bytes();
    let entry = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(&start[..]))?;
    String::from_utf8(entry.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, state: char) -> Process {
        Process { pid, parent, start_ticks: 1, state, cpu_ticks: 0, rss_pages: 0 }
    }

    #[test]
    fn descendants_are_found_through_zombies_and_not_below_the_excepted() {
        let all = [
            process(2, 1, 'S'),
            process(3, 2, 'Z'),
            process(4, 3, 'S'),
            process(5, 1, 'S'),
            process(6, 5, 'S'),
        ];
        let found: Vec<i32> =
            descendants(&all, 1, &BTreeSet::from([5])).iter().map(|process| process.pid).collect();
        assert_eq!(found, [2, 4]);
    }

    #[test]
    fn a_signal_does_not_reach_a_process_that_took_over_the_number() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let seen = Process::read(child.id() as i32).unwrap();
        let earlier = Process { start_ticks: seen.start_ticks - 1, ..seen.clone() };

        assert!(!earlier.signal(libc::SIGKILL));
        assert!(child.try_wait().unwrap().is_none());
        assert!(seen.signal(libc::SIGKILL));
        assert!(!child.wait().unwrap().success());
    }
}
