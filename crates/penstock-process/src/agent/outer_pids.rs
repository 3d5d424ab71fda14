//! Numbers of processes as seen from outside the job's pid namespace, for everybody who looks from there.
//!
//! Inside, the agent works with the numbers of its own namespace. What it shows to others goes through here: the launcher passed in a
//! descriptor of the outer /proc, and each process has both of its numbers there. Without a namespace there is nothing to translate.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use crate::job::state::State;
use crate::system::lineage::Process;

/// Many lives of many workers; then everybody is looked at anew.
const KNOWN_MAX: usize = 100_000;

/// The outer /proc, if the job has a namespace of its own.
#[derive(Debug, Default)]
pub(super) struct OuterPids {
    /// The directory; nothing when numbers are the same for everybody.
    folder: Option<OwnedFd>,
    /// Outer numbers by inner number and start, which together are used once.
    known: BTreeMap<(i32, u64), i32>,
}

impl OuterPids {
    /// Translates by a directory that is the outer /proc.
    pub(super) fn new(folder: Option<OwnedFd>) -> Self {
        Self { folder, known: BTreeMap::new() }
    }

    /// The outer number of a process of our namespace that runs; the inner one where there is no other.
    pub(super) fn pid(&mut self, inner: i32) -> i32 {
        if self.folder.is_none() || inner <= 0 {
            return inner;
        }
        Process::read(inner).map_or(inner, |process| self.pid_since(inner, process.start_ticks))
    }

    /// The outer number of a process that started then, also when it is gone; the inner one where it was never seen.
    pub(super) fn pid_since(&mut self, inner: i32, start_ticks: u64) -> i32 {
        if self.folder.is_none() || inner <= 0 {
            return inner;
        }
        let key = (inner, start_ticks);
        if !self.known.contains_key(&key) {
            self.learn();
            // One that is gone already is not looked for again.
            self.known.entry(key).or_insert(inner);
        }
        self.known[&key]
    }

    /// What others see of a state.
    pub(super) fn shown(&mut self, state: &State) -> State {
        let mut shown = state.clone();
        if self.folder.is_none() {
            return shown;
        }
        for pid in [&mut shown.keeper, &mut shown.agent, &mut shown.coordinator, &mut shown.zygote] {
            *pid = self.pid(*pid);
        }
        for worker in shown.gangs.iter_mut().flat_map(|gang| &mut gang.workers) {
            worker.inside = worker.pid;
            worker.pid = self.pid_since(worker.pid, worker.start_ticks);
        }
        shown
    }

    /// Looks at all processes of our namespace.
    fn learn(&mut self) {
        let Some(space) = fs::read_link("/proc/self/ns/pid").ok() else { return };
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        let entries = fs::read_dir(self.path("")).into_iter().flatten().flatten();
        let outer = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = outer
            .filter(|pid| fs::read_link(self.path(&format!("{pid}/ns/pid"))).is_ok_and(|link| link == space));
        let found: Vec<_> = ours
            .filter_map(|outer| {
                let inner = inner_pid(&fs::read_to_string(self.path(&format!("{outer}/status"))).ok()?)?;
                Some(((inner, Process::read(inner)?.start_ticks), outer))
            })
            .collect();
        self.known.extend(found);
    }

    fn path(&self, name: &str) -> PathBuf {
        let fd = self.folder.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        PathBuf::from(format!("/proc/self/fd/{fd}/{name}"))
    }
}

/// A namespace of processes by its name; empty where the system does not tell. Without a descriptor of one, our own.
pub(super) fn namespace(other: Option<&OwnedFd>) -> String {
    let path = other
        .map_or_else(|| "/proc/self/ns/pid".to_owned(), |fd| format!("/proc/self/fd/{}", fd.as_raw_fd()));
    fs::read_link(path).map(|name| name.display().to_string()).unwrap_or_default()
}

/// The number in the innermost namespace, of the text of a `status` file.
fn inner_pid(status: &str) -> Option<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_the_innermost() {
        assert_eq!(inner_pid("Name:\tx\nNSpid:\t4711\t12\t1\n"), Some(1));
        assert_eq!(inner_pid("Name:\tx\n"), None);
    }

    #[test]
    fn without_a_namespace_numbers_stay() {
        assert_eq!(OuterPids::default().pid(17), 17);
    }

    #[test]
    fn through_a_descriptor_of_proc_everybody_keeps_the_number_that_proc_has() {
        let folder = fs::File::open("/proc").unwrap();
        let me = std::process::id() as i32;
        assert_eq!(OuterPids::new(Some(folder.into())).pid(me), me);
    }
}
