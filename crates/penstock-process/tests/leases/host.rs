//! One host of a job: its keeper, and what can be seen of the others.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use penstock_process::coordinator::messages::Report;
use penstock_process::job::JobDirectory;
use penstock_process::job::state::{State, write_whole};
use penstock_process::keeper::sweep;
use penstock_process::launcher::isolation::{self, First};
use penstock_process::system::lineage::Process;
use penstock_process::system::{now_ms, poll};
use serde_json::json;

/// Long enough for a busy machine.
pub(crate) const LEASE_MS: u64 = 2400;
const PATIENCE_MS: u64 = 20_000;
/// Whoever wrote nothing for so long is gone.
const QUIET_MS: u64 = 300;

pub(crate) const GRANTED: &str = "granted";
pub(crate) const HOST_RANK: &str = "host-rank";
pub(crate) const LIFE: &str = "life";
pub(crate) const REPORTS: &str = "reports.jsonl";
pub(crate) const SILENT: &str = "silent";
/// Everybody who writes down that it lives: two ranks, and what the first of them started.
const SPEAKERS: [&str; 3] = ["stamp-0", "stamp-1", "stamp-0-child"];

/// Whether a job has a namespace of processes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Isolation {
    None,
    Own,
}

pub(crate) struct Host {
    folder: tempfile::TempDir,
    /// The keeper, or the first process of its namespace.
    first: i32,
    isolation: Isolation,
}

impl Host {
    /// With two ranks that run.
    pub(crate) fn start(isolation: Isolation) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("a path");
        let own = std::env::current_exe().expect("a path");
        let job = json!({
            "id": "leased", "detached": true, "colour": false, "cgroup": false,
            "roles": [{
                "name": "rank", "kind": "gang", "ranks": 2, "command": [own, "rank", path],
                "policy": {
                    "restart": "gang", "budget": {"crash": 3, "memory": 3, "hang": 3, "preemption": 3}, "refill_steps": 0,
                    "backoff_ms": 0, "backoff_max_ms": 0, "same_failure_max": 0, "stop_grace_ms": 500,
                    "failure_grace_ms": 300, "hang": null,
                },
            }],
        });
        fs::write(path.join("job.json"), job.to_string()).expect("room");
        fs::write(path.join("host.json"), "{}").expect("room");
        fs::create_dir(path.join("logs")).expect("room");
        fs::create_dir(path.join("incidents")).expect("room");
        let first = start_keeper(&own, &path, isolation);
        let host = Self { folder, first, isolation };
        host.wait_for("ranks", || host.all_live() && host.state().gangs[0].workers.len() == 2);
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn state(&self) -> State {
        let directory = JobDirectory::open(self.folder.path()).expect("a directory");
        State::load(&directory).expect("a state").expect("an agent was there")
    }

    /// Keeper and agent, as we see them.
    pub(crate) fn guards(&self) -> (i32, i32) {
        if self.isolation == Isolation::None {
            let state = self.state();
            return (state.keeper, state.agent);
        }
        let keeper = child_of(self.first);
        (keeper, child_of(keeper))
    }

    pub(crate) fn rank_pids(&self) -> Vec<i32> {
        self.state().gangs[0].workers.iter().map(|worker| worker.pid).collect()
    }

    /// When each of those who write that down last lived.
    fn stamps(&self) -> Vec<u64> {
        SPEAKERS.map(|name| read_stamp(&self.path(name))).to_vec()
    }

    pub(crate) fn all_live(&self) -> bool {
        self.stamps().into_iter().all(|stamp_ms| now_ms() < stamp_ms + QUIET_MS)
    }

    /// No renewal comes any more; when the lease ends.
    pub(crate) fn fall_silent(&self) -> u64 {
        fs::write(self.path(SILENT), "").expect("room");
        // One may just have been on its way.
        poll(&mut [], Some(Duration::from_millis(LEASE_MS / 15)));
        number_in(&self.path(GRANTED)).expect("a lease")
    }

    /// Renewals come again, and a life is ordered.
    pub(crate) fn begin_again(&self, life: u32) {
        write_whole(&self.path(LIFE), life.to_string().as_bytes()).expect("room");
        let _ = fs::remove_file(self.path(SILENT));
    }

    /// Another host rank from now on.
    pub(crate) fn stand_at(&self, host_rank: u32) {
        write_whole(&self.path(HOST_RANK), host_rank.to_string().as_bytes()).expect("room");
    }

    pub(crate) fn end_ranks(&self) {
        self.rank_pids().into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
        self.wait_until_gone();
    }

    /// Waits until nobody is left; the last moment of who lived longest.
    pub(crate) fn wait_until_gone(&self) -> u64 {
        self.wait_for("the end of all", || {
            self.stamps().into_iter().all(|at_ms| now_ms() > at_ms + QUIET_MS)
        });
        self.stamps().into_iter().max().unwrap_or(0)
    }

    /// The same for the ranks alone.
    pub(crate) fn wait_until_ranks_are_gone(&self) -> u64 {
        let ranks = || self.stamps().into_iter().take(2).max().unwrap_or(0);
        self.wait_for("the end of all ranks", || now_ms() > ranks() + QUIET_MS);
        ranks()
    }

    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let due_ms = now_ms() + PATIENCE_MS;
        while !is_so() {
            assert!(now_ms() < due_ms, "waited for {what}: {}", self.log());
            poll(&mut [], Some(Duration::from_millis(2)));
        }
    }

    pub(crate) fn reports(&self) -> Vec<Report> {
        let text = fs::read_to_string(self.path(REPORTS)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub(crate) fn wait_for_report(&self, is_it: impl Fn(&Report) -> bool) -> Report {
        self.wait_for("a report", || self.reports().iter().any(&is_it));
        self.reports().into_iter().find(is_it).expect("just seen")
    }

    /// What was written down.
    pub(crate) fn journal(&self) -> String {
        fs::read_to_string(self.path("journal.jsonl")).unwrap_or_default()
    }

    /// The variables of a rank of this host.
    pub(crate) fn environment(&self, local: u32) -> BTreeMap<String, String> {
        let text = fs::read(self.path(&format!("environment-{local}"))).expect("variables");
        serde_json::from_slice(&text).expect("variables")
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.path("agent.log")).unwrap_or_default();
        format!("{log}\nstamps {:?} at {}", self.stamps(), now_ms())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        sweep::sweep(&self.folder.path().canonicalize().expect("a path"));
        signal(self.first, libc::SIGKILL);
        // SAFETY: our own child; nothing is written.
        unsafe { libc::waitpid(self.first, std::ptr::null_mut(), 0) };
    }
}

fn start_keeper(own: &Path, path: &Path, isolation: Isolation) -> i32 {
    let log = File::options().create(true).append(true).open(path.join("agent.log")).expect("a log");
    if isolation == Isolation::Own {
        let words = ["leases", "keeper", path.to_str().expect("text")].map(str::to_owned);
        let first = First { program: own, words: &words, log: &log, passed: &[] };
        return isolation::start(&first).expect("namespaces are allowed here");
    }
    let mut command = Command::new(own);
    command.arg("keeper").arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.env("PENSTOCK_SLOTS", path.join("slots"));
    command.envs([("SLURM_PROCID", "2"), ("SLURM_NTASKS", "3"), ("PMIX_RANK", "2")]);
    command.spawn().expect("a keeper").id() as i32
}

/// The life of a rank, and of what it starts: it writes down again and again that it lives.
#[expect(clippy::zombie_processes, reason = "neither of them ends by itself")]
pub(crate) fn live(place: &Path) -> i32 {
    let local = std::env::var("LOCAL_RANK").expect("a rank");
    let is_child = std::env::args().nth(3).is_some();
    if !is_child {
        let variables: BTreeMap<String, String> = std::env::vars().collect();
        let text = serde_json::to_vec(&variables).expect("plain values");
        write_whole(&place.join(format!("environment-{local}")), &text).expect("room");
    }
    if !is_child && local == "0" {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        command.arg("rank").arg(place).arg("child").spawn().expect("a child");
    }
    let name = format!("stamp-{local}{}", if is_child { "-child" } else { "" });
    let file =
        File::options().create(true).truncate(false).write(true).open(place.join(name)).expect("a file");
    loop {
        file.write_all_at(&now_ms().to_ne_bytes(), 0).expect("room");
        poll(&mut [], Some(Duration::from_millis(1)));
    }
}

fn read_stamp(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// A number that is all of a file.
pub(crate) fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn child_of(pid: i32) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a child")
}

pub(crate) fn is_alive(pid: i32) -> bool {
    Process::read(pid).is_some_and(|process| process.is_alive())
}

pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: plain integers; the process is one that the scene started.
    unsafe { libc::kill(pid, signal) };
}
