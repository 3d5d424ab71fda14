//! The mark that every process of a job carries, whatever it does: a limit that nobody reaches.
//!
//! Environment, descriptors, session and parent are things that a program may change for good reasons; limits it inherits and leaves
//! alone. So the keeper lowers its own limit of realtime processor time (`RLIMIT_RTTIME`) from "unlimited" to a number of some
//! thousands of years that names the job, and each worker lowers it a little further to name itself. All that they start have it too,
//! over fork and exec, and anybody may read it. A job inside a rank of another job keeps the outer job's mark in the hard limit.

use std::path::Path;

/// The variable that says which worker a process came from.
pub const WORKER_MARK: &str = "PENSTOCK_WORKER";

/// A limit whose value names the outermost job of a process.
const OUTER: u64 = 1 << 61;
/// The same for a job inside another one: below every value of the outer job, whose hard limit it cannot exceed.
const INNER: u64 = 1 << 60;
const PLACE_BITS: u32 = 20;
/// In the place of a worker: no worker, but the job itself.
const NOBODY: u64 = (1 << PLACE_BITS) - 1;
const KEY_MAX: u64 = (1 << 40) - 1;

/// Names a job on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

/// What the limits of a process say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Read {
    key: u64,
    place: Option<u32>,
}

impl Mark {
    /// Of the job in a directory. Nothing is read from there: it may be gone, or on a disk that does not answer.
    pub fn of(directory: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        // FNV-1a: spreads names that differ in their last letters, and stays the same for ever.
        let hash = directory.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self((hash ^ (hash >> 40)) & KEY_MAX)
    }

    /// The limit that marks us and all that we start; nothing where the system has set a real one.
    pub fn limit(self, place: Option<u32>) -> Option<libc::rlimit> {
        let now = limit_of(0)?;
        let place = place.map_or(NOBODY, |place| u64::from(place).min(NOBODY));
        let (base, hard) = match (now.rlim_max, read(now.rlim_max)) {
            (libc::RLIM_INFINITY, _) => (OUTER, OUTER | self.0 << PLACE_BITS | NOBODY),
            (hard, Some(outer)) if outer.key == self.0 => (hard & OUTER, hard),
            (hard, Some(_)) => (INNER, hard),
            (_, None) => return None,
        };
        Some(libc::rlimit { rlim_cur: (base | self.0 << PLACE_BITS | place).min(hard), rlim_max: hard })
    }

    /// Marks us, and so all that we start from now on; whether that is possible.
    pub fn put(self) -> bool {
        self.limit(None).is_some_and(|limit| put(&limit))
    }

    /// Whether a process is one of the job.
    pub fn is_on(self, pid: i32) -> bool {
        limit_of(pid).is_some_and(|limit| {
            [limit.rlim_cur, limit.rlim_max].into_iter().filter_map(read).any(|read| read.key == self.0)
        })
    }

    /// The worker that a process came from, by its place in the job; nothing when it does not say.
    pub fn worker_of(self, pid: i32) -> Option<u32> {
        read(limit_of(pid)?.rlim_cur).filter(|read| read.key == self.0)?.place
    }
}

/// Sets a limit that marks. Safe to call between fork and exec.
pub fn put(limit: &libc::rlimit) -> bool {
    // SAFETY: the place is valid to read from.
    unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, limit) == 0 }
}

/// Whether two processes are of the same worker.
pub fn is_same(one: i32, other: i32) -> bool {
    let soft = |pid: i32| limit_of(pid).map(|limit| limit.rlim_cur).filter(|soft| read(*soft).is_some());
    soft(one).is_some() && soft(one) == soft(other)
}

fn read(limit: u64) -> Option<Read> {
    let bare = match limit {
        INNER..OUTER => limit - INNER,
        limit if (OUTER..2 * OUTER).contains(&limit) => limit - OUTER,
        _ => return None,
    };
    let place = bare & NOBODY;
    Some(Read {
        key: bare >> PLACE_BITS & KEY_MAX,
        place: u32::try_from(place).ok().filter(|_| place != NOBODY),
    })
}

/// The limit of a process; 0 is ourselves.
fn limit_of(pid: i32) -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is set, and the place is valid to write to.
    let known = unsafe { libc::prlimit(pid, libc::RLIMIT_RTTIME, std::ptr::null(), &mut limit) == 0 };
    // Of other users' processes the kernel tells through /proc only.
    if known { Some(limit) } else { listed(&std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?) }
}

/// The limit, of the text of a `limits` file.
fn listed(text: &str) -> Option<libc::rlimit> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    let mut values = line.split_ascii_whitespace().map(|word| match word {
        "unlimited" => Some(libc::RLIM_INFINITY),
        number => number.parse().ok(),
    });
    Some(libc::rlimit { rlim_cur: values.next()??, rlim_max: values.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_job_and_worker_and_no_other() {
        let (mark, other) =
            (Mark::of(Path::new("/jobs/train-3f2a")), Mark::of(Path::new("/jobs/train-3f2b")));
        assert_ne!(mark, other);
        let limit = mark.limit(Some(7)).unwrap();
        let read_back = read(limit.rlim_cur).unwrap();
        assert_eq!((read_back.key, read_back.place), (mark.0, Some(7)));
        assert_eq!(read(limit.rlim_max).unwrap().place, None);
        assert!(limit.rlim_cur < limit.rlim_max);
        assert_eq!((read(libc::RLIM_INFINITY), read(200_000)), (None, None));
    }

    #[test]
    fn what_proc_lists_is_understood() {
        let text = "Limit    Soft Limit  Hard Limit  Units\nMax realtime timeout      2305843009213693953  unlimited  us\n";
        let limit = listed(text).unwrap();
        assert_eq!((limit.rlim_cur, limit.rlim_max), (2_305_843_009_213_693_953, libc::RLIM_INFINITY));
        assert!(listed(&std::fs::read_to_string("/proc/1/limits").unwrap()).is_some());
        assert!(listed("").is_none());
    }

    #[test]
    fn a_child_that_changes_everything_else_keeps_it() {
        use std::os::unix::process::CommandExt;
        let mark = Mark::of(Path::new("/jobs/kept"));
        let limit = mark.limit(Some(3)).unwrap();
        let mut command = std::process::Command::new("setsid");
        command.args(["env", "-i", "sleep", "60"]).env_clear();
        // SAFETY: one call to the system.
        unsafe {
            command.pre_exec(move || put(&limit).then_some(()).ok_or_else(std::io::Error::last_os_error))
        };
        command.env("PATH", "/usr/bin:/bin");
        let mut child = command.spawn().unwrap();
        let pid = child.id() as i32;
        assert!(mark.is_on(pid));
        assert_eq!(mark.worker_of(pid), Some(3));
        assert!(!Mark::of(Path::new("/jobs/other")).is_on(pid));
        child.kill().unwrap();
        // A zombie still tells whose it was.
        assert_eq!(mark.worker_of(pid), Some(3));
        child.wait().unwrap();
        assert!(!mark.is_on(pid));
    }
}
