//! A limit of memory for each worker, in whichever version of control groups this system has the memory controller.
//!
//! Version 2 (`memory.max`) where the job's own group passes the controller on, else version 1 (`memory.limit_in_bytes`). Where neither
//! is allowed the limit is only an amount that is held, and `None` says so. The group of a worker counts exactly how often the
//! kernel killed in it for want of memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::system::cgroup::passes_memory_on;

/// A number that no machine has: version 1 writes it for "no limit".
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// Which files a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One tree with all controllers.
    Two,
    /// A tree for each controller.
    One,
}

impl Version {
    fn limit(self) -> &'static str {
        match self {
            Self::Two => "memory.max",
            Self::One => "memory.limit_in_bytes",
        }
    }

    fn counts(self) -> &'static str {
        match self {
            Self::Two => "memory.events",
            Self::One => "memory.oom_control",
        }
    }

    /// As shown in the state of a job.
    pub fn name(self) -> &'static str {
        match self {
            Self::Two => "cgroup v2",
            Self::One => "cgroup v1",
        }
    }
}

/// The groups of one job that have limits, one for each worker.
#[derive(Debug, Clone)]
pub struct MemoryGroups {
    folder: PathBuf,
    version: Version,
}

impl MemoryGroups {
    /// `job` is the job's group of version 2, if it has one; `name` is that of a new group of version 1.
    pub fn make(job: Option<&Path>, name: &str) -> Option<Self> {
        if let Some(folder) = job.filter(|folder| passes_memory_on(folder)) {
            return Some(Self { folder: folder.to_owned(), version: Version::Two });
        }
        let folder = own_v1()?.join(name);
        if !folder.is_dir() {
            fs::create_dir(&folder).ok()?;
        }
        Some(Self { folder, version: Version::One })
    }

    /// The groups that another agent of the same job made, if they are there.
    pub fn left(name: &str) -> Option<Self> {
        let folder = own_v1()?.join(name);
        folder.is_dir().then_some(Self { folder, version: Version::One })
    }

    /// Which version has the limits.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Sets the limit of a worker's group; the file to write its process into, or nothing where the limit cannot be set.
    pub fn limit(&self, worker: &str, bytes: u64) -> Option<File> {
        let group = self.folder.join(worker);
        if !group.is_dir() {
            fs::create_dir(&group).ok()?;
        }
        fs::write(group.join(self.version.limit()), bytes.to_string()).ok()?;
        // Swapping would turn a limit into a crawl; where there is no swap there is no such file.
        let swap = if self.version == Version::Two {
            ("memory.swap.max", "0".to_owned())
        } else {
            ("memory.memsw.limit_in_bytes", bytes.to_string())
        };
        let _ = fs::write(group.join(swap.0), swap.1);
        File::options().write(true).open(group.join("cgroup.procs")).ok()
    }

    /// How often the kernel killed in a worker's group for want of memory; nothing where it does not count.
    pub fn kills(&self, worker: &str) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join(worker).join(self.version.counts())).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    /// Removes what version 1 needs, if nobody is in it; groups of version 2 belong to the job's own.
    pub fn remove(&self) {
        if self.version == Version::Two {
            return;
        }
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The least limit of the control groups that we are in, if any has one.
pub fn own_limit_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let both =
        [(directory_v2(&groups, &mounts), Version::Two), (directory_v1(&groups, &mounts), Version::One)];
    let found = both.into_iter().filter_map(|(folder, version)| least_above(&folder?, version));
    found.filter(|bytes| *bytes < NO_LIMIT_BYTES).min()
}

/// A limit of a group holds for all below it.
fn least_above(group: &Path, version: Version) -> Option<u64> {
    let levels = group.ancestors().take_while(|level| level.join("cgroup.procs").exists());
    let limit =
        |level: &Path| fs::read_to_string(level.join(version.limit())).ok()?.trim().parse::<u64>().ok();
    levels.filter_map(limit).min()
}

fn own_v1() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    directory_v1(&groups, &mounts).filter(|path| path.join("memory.limit_in_bytes").exists())
}

/// Where our group of version 1 is mounted that has the memory controller.
fn directory_v1(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(path)
    })?;
    below(group, mounts, |kind, options| kind == "cgroup" && options.split(',').any(|name| name == "memory"))
}

/// Where our group of version 2 is mounted.
fn directory_v2(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    below(group, mounts, |kind, _| kind == "cgroup2")
}

/// The directory of a group, below the mount that `is_it` recognises by its kind and options.
fn below(group: &str, mounts: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut about = after.split(' ');
        let (kind, options) = (about.next()?, about.nth(1)?);
        if !is_it(kind, options) {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let path = group.strip_prefix(root)?.trim_start_matches('/');
        Some(Path::new(point).join(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_group_of_the_memory_controller_is_found_beside_the_others() {
        let mounts = "27 25 0:24 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      28 25 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      26 25 0:23 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/jobs/7\n1:cpu:/\n0::/\n";
        assert_eq!(directory_v1(groups, mounts), Some(PathBuf::from("/sys/fs/cgroup/memory/jobs/7")));
        assert_eq!(directory_v1("1:cpu:/\n", mounts), None);
        assert_eq!(directory_v2(groups, mounts), Some(PathBuf::from("/sys/fs/cgroup/unified/")));
    }

    #[test]
    fn the_least_limit_above_holds() {
        let folder = tempfile::tempdir().unwrap();
        let (outer, inner) = (folder.path().join("outer"), folder.path().join("outer/inner"));
        fs::create_dir_all(&inner).unwrap();
        for (group, limit) in [(&outer, "1000\n"), (&inner, "max\n")] {
            fs::write(group.join("cgroup.procs"), "").unwrap();
            fs::write(group.join("memory.max"), limit).unwrap();
        }
        assert_eq!(least_above(&inner, Version::Two), Some(1000));
    }
}
