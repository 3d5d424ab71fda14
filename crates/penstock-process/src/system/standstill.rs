//! What the kernel says about a process that does not go on: stopped, traced, frozen; and what it and all below it have read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::coordinator::hang::HoldKind;
use crate::system::kernel_file;
use crate::system::lineage::Process;

/// More levels of descent are not followed.
const DEPTH_MAX: usize = 64;

/// Where control groups are mounted; read once, because every look at every quiet rank asks.
static GROUP_MOUNTS: LazyLock<String> = LazyLock::new(|| {
    let mounts = kernel_file::read_text("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter(|line| line.contains(" - cgroup")).collect::<Vec<_>>().join("\n")
});

/// What holds a process, if anything does. Tracers that lead or are in the session `own` are ours and hold nobody.
pub fn hold_of(pid: i32, own: Option<i32>) -> Option<HoldKind> {
    let process = Process::read(pid)?;
    match process.state {
        'T' => return Some(HoldKind::Stopped),
        'Z' | 'X' => return None,
        _ => {}
    }
    if let Some(tracer) = tracer_of(pid) {
        let ours = own.is_some_and(|own| tracer == own || session_of(tracer) == Some(own));
        return (!ours).then_some(HoldKind::Traced);
    }
    if process.state == 't' {
        // Whoever traces it is not in our namespace of processes.
        return Some(HoldKind::Traced);
    }
    is_frozen(pid).then_some(HoldKind::Frozen)
}

/// Who traces a process: a debugger, `strace`, or `py-spy` while it reads.
fn tracer_of(pid: i32) -> Option<i32> {
    let status = kernel_file::read_text(format!("/proc/{pid}/status")).ok()?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    tracer.trim().parse().ok().filter(|tracer| *tracer > 0)
}

fn session_of(pid: i32) -> Option<i32> {
    let text = kernel_file::read_text(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// Whether the control group of a process is frozen, by itself or by one above it, in either version.
fn is_frozen(pid: i32) -> bool {
    let Ok(groups) = kernel_file::read_text(format!("/proc/{pid}/cgroup")) else { return false };
    freezers(&groups, &GROUP_MOUNTS).iter().any(|(folder, file)| {
        let text = kernel_file::read_text(folder.join(file)).unwrap_or_default();
        // FREEZING is frozen too: some sleep in the kernel already, and all of them will.
        text.lines().any(|line| matches!(line.trim(), "frozen 1" | "FROZEN" | "FREEZING"))
    })
}

/// The directories of a process's groups that can be frozen, each with the file that says whether it is.
fn freezers(groups: &str, mounts: &str) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (kind, file) = match controllers {
            "" => ("cgroup2", "cgroup.events"),
            names if names.split(',').any(|name| name == "freezer") => ("cgroup", "freezer.state"),
            _ => continue,
        };
        let place = mounts.lines().find_map(|mount| mounted(mount, kind, group));
        found.extend(place.map(|folder| (folder, file)));
    }
    found
}

/// Where a group is, if this line of `/proc/self/mountinfo` is the mount that has it.
fn mounted(mount: &str, kind: &str, group: &str) -> Option<PathBuf> {
    let (before, after) = mount.split_once(" - ")?;
    let mut about = after.split(' ');
    let (is_kind, options) = (about.next()? == kind, about.nth(1).unwrap_or_default());
    if !is_kind || (kind == "cgroup" && !options.split(',').any(|option| option == "freezer")) {
        return None;
    }
    let mut fields = before.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let below = group.strip_prefix(root).unwrap_or(group).trim_start_matches('/');
    Some(Path::new(point).join(below))
}

/// What is known about a worker and all below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Family {
    /// Bytes that its members have read and written, files, pipes and terminals alike.
    pub bytes: u64,
    /// A member below the worker is stopped or traced.
    pub held: Option<HoldKind>,
}

/// The families of some workers, by their processes.
pub fn families(all: &[Process], workers: &BTreeSet<i32>) -> BTreeMap<i32, Family> {
    let parents: BTreeMap<i32, i32> = all.iter().map(|process| (process.pid, process.parent)).collect();
    let mut found: BTreeMap<i32, Family> = BTreeMap::new();
    for process in all {
        let mut at = process.pid;
        let worker = (0..DEPTH_MAX).find_map(|_| {
            let here = at;
            at = parents.get(&here).copied().unwrap_or(0);
            workers.contains(&here).then_some(here)
        });
        let Some(worker) = worker else { continue };
        let family = found.entry(worker).or_default();
        family.bytes = family.bytes.saturating_add(moved_bytes(process.pid));
        if process.pid != worker {
            family.held = family.held.or(match process.state {
                'T' => Some(HoldKind::Stopped),
                't' => Some(HoldKind::Traced),
                _ => None,
            });
        }
    }
    found
}

/// What a process has read and written, with those of its children that it has waited for; 0 where we may not know.
fn moved_bytes(pid: i32) -> u64 {
    let text = kernel_file::read_text(format!("/proc/{pid}/io")).unwrap_or_default();
    let count = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    count("rchar").saturating_add(count("wchar"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::system::lineage::everyone;

    #[test]
    fn a_process_that_was_stopped_is_stopped_until_it_goes_on() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(hold_of(pid, None), None);
        let process = Process::read(pid).unwrap();
        assert!(process.signal(libc::SIGSTOP));
        while Process::read(pid).unwrap().state != 'T' {
            std::thread::yield_now();
        }
        assert_eq!(hold_of(pid, None), Some(HoldKind::Stopped));
        assert!(process.signal(libc::SIGCONT));
        while Process::read(pid).unwrap().state == 'T' {
            std::thread::yield_now();
        }
        assert_eq!(hold_of(pid, None), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn bytes_of_a_child_count_for_the_worker() {
        let mut cat = Command::new("sh");
        let mut cat =
            cat.args(["-c", "cat; true"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = cat.id() as i32;
        let bytes = || families(&everyone(), &BTreeSet::from([pid]))[&pid].bytes;
        let (mut input, mut output) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
        let mut answer = [0; 1000];
        input.write_all(&answer).unwrap();
        output.read_exact(&mut answer).unwrap();
        let before = bytes();
        input.write_all(&answer).unwrap();
        output.read_exact(&mut answer).unwrap();
        assert!(bytes() >= before + 2000);
        drop(input);
        cat.wait().unwrap();
    }

    #[test]
    fn groups_that_can_be_frozen_are_found_in_both_versions() {
        let mounts = "31 25 0:28 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                      32 25 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      26 25 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = freezers("6:freezer:/held\n4:cpu:/\n0::/user/me\n", mounts);
        let shown: Vec<String> = found.iter().map(|(folder, _)| folder.display().to_string()).collect();
        assert_eq!(shown, ["/sys/fs/cgroup/freezer/held", "/sys/fs/cgroup/unified/user/me"]);
    }
}
