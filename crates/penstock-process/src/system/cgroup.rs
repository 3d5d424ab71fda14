//! A control group per worker, where the system lets us: killed with one write, and it knows who ran out of memory.
//!
//! Lineage finds every descendant without it; the group makes killing atomic, also for a process that forks faster than it is
//! looked for, and keeps what a killed keeper *and* agent leave behind together. Only version 2 is used: it alone can kill.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::job::JobDirectory;

/// The group of a job, below our own, with a group for each rank.
#[derive(Debug, Clone)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes the group of a job; nothing where that is not allowed, which is usual and no error. With `limits`, one that can
    /// limit memory is preferred: a group with processes in it cannot pass that on, and ours has us, so it may lie beside ours.
    pub fn make(directory: &JobDirectory, limits: bool) -> Option<Self> {
        let (own, name) = (own()?, name(directory));
        let beside = own.parent().filter(|parent| limits && is_unlimited(&own) && may_move(parent));
        let limiting = [Some(own.as_path()), beside].into_iter().flatten().find_map(|folder| {
            let group = Self::at_place(&folder.join(&name))?;
            if passes_memory_on(&group.0) {
                return Some(group);
            }
            let _ = fs::remove_dir(&group.0);
            None
        });
        limiting.or_else(|| Self::at_place(&own.join(&name)))
    }

    fn at_place(path: &Path) -> Option<Self> {
        if !path.is_dir() {
            fs::create_dir(path).ok()?;
        }
        // Kernels before 5.14 cannot kill a group.
        if !path.join("cgroup.kill").exists() {
            let _ = fs::remove_dir(path);
            return None;
        }
        // Counts deaths for want of memory, and limits it; works where whoever made the group above lets us.
        let _ = fs::write(path.join("cgroup.subtree_control"), "+memory");
        Some(Self(path.to_owned()))
    }

    /// The group that an agent wrote down, if it is there.
    pub fn at(path: &str) -> Option<Self> {
        Some(Self(PathBuf::from(path))).filter(|group| group.0.join("cgroup.kill").exists())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The group of a rank, as the file to write a process into.
    pub fn door(&self, role: &str, rank: u32) -> Option<File> {
        let path = self.worker(role, rank);
        if !path.is_dir() {
            fs::create_dir(&path).ok()?;
        }
        File::options().write(true).open(path.join("cgroup.procs")).ok()
    }

    /// How often the kernel killed in the group of a rank for want of memory; nothing where it does not count.
    pub fn memory_kills(&self, role: &str, rank: u32) -> Option<u64> {
        let text = fs::read_to_string(self.worker(role, rank).join("memory.events")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    /// Kills everybody in it, at once.
    pub fn kill(&self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// Kills everybody in the group of a worker, at once.
    pub fn kill_worker(&self, role: &str, rank: u32) {
        let _ = fs::write(self.worker(role, rank).join("cgroup.kill"), "1");
    }

    /// Removes it, if nobody is in it any more.
    pub fn remove(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let _ = fs::remove_dir(&self.0);
    }

    fn worker(&self, role: &str, rank: u32) -> PathBuf {
        self.0.join(format!("{role}-{rank}"))
    }
}

/// Of all jobs this one's alone: names of jobs are unique in their home only, the inode of their directory everywhere.
pub fn name(directory: &JobDirectory) -> String {
    use std::os::unix::fs::MetadataExt;
    let folder =
        directory.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (device, inode) = fs::metadata(directory.path()).map_or((0, 0), |about| (about.dev(), about.ino()));
    format!("penstock-{folder}-{device:x}-{inode:x}")
}

/// Whether a group passes the memory controller on to those below it.
pub fn passes_memory_on(group: &Path) -> bool {
    let passed = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    passed.split_ascii_whitespace().any(|controller| controller == "memory")
}

/// Whether a group sets no limit of its own, so that nothing is escaped by who is beside it.
fn is_unlimited(group: &Path) -> bool {
    let text = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
    let limits = ["memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max"];
    let free = |name: &&str| text(name).is_empty() || text(name).starts_with("max");
    limits.iter().all(free) && ["cpuset.cpus", "cpuset.mems"].iter().all(|name| text(name).trim().is_empty())
}

/// Whether we may move processes between groups below this one.
fn may_move(group: &Path) -> bool {
    File::options().write(true).open(group.join("cgroup.procs")).is_ok()
}

/// The group that we are in, as a directory.
fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    directory(&groups, &mounts).filter(|path| path.is_dir())
}

/// Where the group of `/proc/self/cgroup` is mounted, according to `/proc/self/mountinfo`.
fn directory(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if !after.starts_with("cgroup2 ") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = group.strip_prefix(root)?.trim_start_matches('/');
        Some(Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_any_limit_is_not_left() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path();
        assert!(is_unlimited(group));
        for (name, free, limit) in [
            ("memory.max", "max\n", "1000000\n"),
            ("cpu.max", "max 100000\n", "50000 100000\n"),
            ("pids.max", "max\n", "64\n"),
            ("cpuset.cpus", "\n", "0-3\n"),
        ] {
            fs::write(group.join(name), limit).unwrap();
            assert!(!is_unlimited(group), "{name}");
            fs::write(group.join(name), free).unwrap();
            assert!(is_unlimited(group), "{name}");
        }
    }

    #[test]
    fn the_own_group_is_found_under_every_kind_of_mount() {
        let hybrid = "26 25 0:23 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let pure = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let contained = "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let old = "27 25 0:24 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let found = |groups, mounts| directory(groups, mounts).map(|path| path.display().to_string());

        assert_eq!(found("4:pids:/\n0::/\n", hybrid), Some("/sys/fs/cgroup/unified/".to_owned()));
        assert_eq!(found("0::/user.slice/me\n", pure), Some("/sys/fs/cgroup/user.slice/me".to_owned()));
        assert_eq!(found("0::/docker/ab\n", contained), Some("/sys/fs/cgroup/".to_owned()));
        assert_eq!(found("4:pids:/\n", old), None);
    }
}
