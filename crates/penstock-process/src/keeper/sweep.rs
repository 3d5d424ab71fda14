//! Ending what is left of a job without its agent: nobody of it answers, or keeper and agent were killed in the same instant.
//!
//! Processes are found by the job's mark, or by its directory in their environment; both are looked for in all processes of the
//! machine. Nothing is read from the job's directory before everybody is gone: it may be removed, or on a disk that does not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::Result;
use crate::job::JobDirectory;
use crate::job::mark::Mark;
use crate::job::state::{State, wall_s};
use crate::system::cgroup::{self, Cgroup};
use crate::system::lineage::{Process, everyone, variable_of};
use crate::system::memory_limit::MemoryGroups;

/// Looks are 20 ms apart, so this is about four seconds: who is still there then sleeps in the kernel.
const ROUNDS_MAX: u32 = 200;
const ROUND: Duration = Duration::from_millis(20);

/// Kills everybody of a job; what is left, as people and programs read it, and whether nothing is.
pub fn sweep(directory: &Path) -> (Value, bool) {
    let mark = Mark::of(directory);
    let spared = own_line();
    let mut left = Vec::new();
    for _ in 0..ROUNDS_MAX {
        left = members(directory, mark, &spared);
        // Not one after the other: whoever restarts others must not see them die.
        for process in &left {
            process.signal(libc::SIGKILL);
        }
        if left.iter().all(|process| refusal(process).is_some()) {
            break;
        }
        std::thread::sleep(ROUND);
    }
    if left.is_empty() {
        clear(directory);
    }
    let told: Vec<Value> = left.iter().map(described).collect();
    let marked = mark.limit(None).is_some();
    (json!({"left": told, "marked": marked}), left.is_empty())
}

/// Writes down that a job was ended so, if it has a directory and is not over.
pub fn conclude(directory: &Path, reason: &str) -> Result<()> {
    let Ok(job) = JobDirectory::open(directory) else { return Ok(()) };
    let Some(mut state) = State::load(&job)?.filter(|state| !state.phase.is_final()) else { return Ok(()) };
    state.phase = crate::job::state::Phase::Stopped;
    reason.clone_into(&mut state.reason);
    (state.exit_code, state.ended_at) = (Some(128 + libc::SIGKILL), Some(wall_s()));
    (state.coordinator, state.zygote) = (0, 0);
    state.save(&job)
}

/// Living processes of a job: the keeper, the agent, workers, and whatever came from them.
fn members(directory: &Path, mark: Mark, spared: &BTreeSet<i32>) -> Vec<Process> {
    let place = directory.display().to_string();
    let is_member = |process: &Process| {
        mark.is_on(process.pid)
            || variable_of(process.pid, "PENSTOCK_JOB_DIRECTORY").is_some_and(|named| named == place)
    };
    let all = everyone().into_iter().filter(Process::is_alive);
    all.filter(|process| !spared.contains(&process.pid) && is_member(process)).collect()
}

/// Ourselves and those above us: a job may be swept by one of its own.
fn own_line() -> BTreeSet<i32> {
    let parents: BTreeMap<i32, i32> =
        everyone().into_iter().map(|process| (process.pid, process.parent)).collect();
    let mut line = BTreeSet::new();
    let mut next = Some(std::process::id() as i32);
    while let Some(pid) = next.filter(|pid| line.insert(*pid)) {
        next = parents.get(&pid).copied();
    }
    line
}

/// Ends whoever is in the control groups of a job all the same, and removes them.
fn clear(directory: &Path) {
    let Ok(job) = JobDirectory::open(directory) else { return };
    job.forget_secrets();
    let state = State::load(&job).ok().flatten();
    let group = state.and_then(|state| Cgroup::at(state.cgroup.as_deref()?));
    group.iter().for_each(Cgroup::kill);
    for _ in 0..ROUNDS_MAX {
        group.iter().for_each(Cgroup::remove);
        if group.as_ref().is_none_or(|group| !group.path().exists()) {
            break;
        }
        std::thread::sleep(ROUND);
    }
    MemoryGroups::left(&cgroup::name(&job)).iter().for_each(MemoryGroups::remove);
}

/// Why a process that is there cannot be ended by us, if that is known.
fn refusal(process: &Process) -> Option<String> {
    // SAFETY: plain integers; no signal is sent.
    let refused = unsafe { libc::kill(process.pid, 0) } != 0
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    refused.then(|| {
        use std::os::unix::fs::MetadataExt;
        let user = std::fs::metadata(format!("/proc/{}", process.pid)).map_or(0, |about| about.uid());
        format!("belongs to user {user}")
    })
}

fn described(process: &Process) -> Value {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
    let why = refusal(process).unwrap_or_else(|| format!("is in state {} after SIGKILL", process.state));
    json!({"pid": process.pid, "name": name.trim_end(), "why": why})
}
