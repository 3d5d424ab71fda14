//! What is known about a job, as a file for readers: `state.json`.
//!
//! `state.json` is replaced whole, so a reader sees one moment or another and never half of one. A new agent
//! continues from it after the old one was killed.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::coordinator::verdict::Failure;
use crate::error::{ProcessError, Result};
use crate::job::exit::Exit;
use crate::job::reserve;
use crate::job::{Job, JobDirectory, Kind};
use crate::logs::pump::Missing;

/// Where a job or a gang is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Waits for slots that others have.
    Queued,
    /// Workers are being started or run.
    Running,
    /// Workers were asked to end.
    Ending,
    /// Between two lives, or before the first.
    Waiting,
    /// Over: every rank succeeded.
    Succeeded,
    /// Over: a failure, and no life left.
    Failed,
    /// Over: somebody asked.
    Stopped,
}

impl Phase {
    /// Nothing will happen any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Stopped)
    }
}

/// What is known about a worker of the newest life of its gang.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerState {
    /// Its place in the role.
    pub rank: u32,
    /// Its process.
    pub pid: i32,
    /// When the process started, in ticks since the machine did; with the number, its identity.
    pub start_ticks: u64,
    /// Its number inside the job's namespace of processes; 0 where it has no such.
    #[serde(default)]
    pub inside: i32,
    /// Which slot of its role it has.
    pub slot: u32,
    /// When it was started, in seconds since 1970.
    pub started_at: f64,
    /// `exec` or `zygote`.
    pub how: String,
    /// How it ended, if it has.
    pub exit: Option<Exit>,
    /// When that was noticed, on the clock of [`crate::system::now_ms`].
    pub exit_ms: Option<u64>,
    /// Whether it ended after we asked it to.
    pub asked: bool,
    /// Processor time in seconds, once it ended.
    pub cpu_s: Option<f64>,
    /// The most memory that it held at once, once it ended.
    pub rss_max_bytes: Option<u64>,
    /// What keeps it from going on, in words: `held by output`, `stopped`, `traced` or `frozen`.
    #[serde(default)]
    pub held: Option<String>,
    /// Where in its log of standard output this life begins.
    pub stdout_from: u64,
    /// Where in its log of standard error this life begins.
    pub stderr_from: u64,
}

/// What is known about a gang.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GangState {
    /// The role.
    pub role: String,
    /// What it is for.
    pub kind: Kind,
    /// Where it is in its life.
    pub phase: Phase,
    /// The reason of the last verdict.
    pub reason: String,
    /// Which life of the gang this is, from 0; nothing before the first.
    pub incarnation: Option<u32>,
    /// Where rank 0 listens.
    pub master_port: u16,
    /// The rank of its first worker among all hosts of the job; what is said of its workers counts from 0.
    #[serde(default)]
    pub first_rank: u32,
    /// What keeps each worker to its memory: a version of control groups, or nothing but what was asked for.
    #[serde(default)]
    pub memory_limit: Option<String>,
    /// What its workers are forked from, or why they are not.
    #[serde(default)]
    pub zygote: String,
    /// The workers of the newest life.
    pub workers: Vec<WorkerState>,
    /// The first failure of every life that failed.
    pub failures: Vec<Failure>,
}

/// What is known about a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// The job.
    pub job: String,
    /// Where it is in its life.
    pub phase: Phase,
    /// The reason of the last verdict.
    pub reason: String,
    /// What the launcher exits with; known when the job is over.
    pub exit_code: Option<i32>,
    /// When the job began, in seconds since 1970.
    pub started_at: f64,
    /// When the job was over.
    pub ended_at: Option<f64>,
    /// The keeper's process.
    pub keeper: i32,
    /// The agent's process.
    pub agent: i32,
    /// The coordinator's process; 0 while there is none.
    pub coordinator: i32,
    /// The zygote's process; 0 while there is none.
    pub zygote: i32,
    /// The namespace whose numbers of processes these are. Who is in another cannot tell who lives.
    #[serde(default)]
    pub namespace: String,
    /// The job's own namespace of processes; empty where it has none.
    #[serde(default)]
    pub inside: String,
    /// The control group of the workers, where there is one.
    pub cgroup: Option<String>,
    /// The gangs, in the order of [`crate::job::Job::gangs`].
    pub gangs: Vec<GangState>,
    /// Files about failures, relative to the job's directory.
    pub incidents: Vec<String>,
    /// Bytes of output that could not be written to log files, for want of space for one.
    pub log_lost_bytes: u64,
    /// What is missing in logs: where, how much, and why.
    #[serde(default)]
    pub log_missing: Vec<Missing>,
}

/// Seconds since 1970.
pub fn wall_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl State {
    /// A job that is about to begin.
    pub fn new(job: &Job, keeper: i32) -> Self {
        let gangs = job.gangs();
        let gangs = gangs.iter().map(|plan| &job.roles[plan.role]).map(|role| GangState {
            role: role.name.clone(),
            kind: role.kind,
            phase: Phase::Waiting,
            reason: String::new(),
            incarnation: None,
            master_port: 0,
            first_rank: 0,
            memory_limit: None,
            zygote: String::new(),
            workers: Vec::new(),
            failures: Vec::new(),
        });
        Self {
            job: job.id.clone(),
            phase: Phase::Waiting,
            reason: "starting".to_owned(),
            exit_code: None,
            started_at: wall_s(),
            ended_at: None,
            keeper,
            agent: std::process::id() as i32,
            coordinator: 0,
            zygote: 0,
            namespace: String::new(),
            inside: String::new(),
            cgroup: None,
            gangs: gangs.collect(),
            incidents: Vec::new(),
            log_lost_bytes: 0,
            log_missing: Vec::new(),
        }
    }

    /// What the directory says; nothing when no agent was there yet.
    pub fn load(directory: &JobDirectory) -> Result<Option<Self>> {
        let path = directory.file("state.json");
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|source| ProcessError::Format { path, source }),
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ProcessError::File { verb: "read", path, source }),
        }
    }

    /// The same without secrets: sentences may hold what workers said last.
    fn redacted(&self, directory: &JobDirectory) -> Self {
        let mut shown = self.clone();
        let sentences = shown.gangs.iter_mut().flat_map(|gang| {
            let failures = gang.failures.iter_mut();
            let told = failures.flat_map(|failure| [Some(&mut failure.what), failure.likeness.as_mut()]);
            [Some(&mut gang.reason), Some(&mut gang.zygote)].into_iter().chain(told)
        });
        for sentence in sentences.flatten().chain([&mut shown.reason]) {
            *sentence = directory.secrets().text(sentence);
        }
        shown
    }

    /// Replaces what the directory says.
    pub fn save(&self, directory: &JobDirectory) -> Result<()> {
        self.save_changes(directory, &mut Vec::new())
    }

    /// The same, unless the directory says that already: `saved`. On a full disk the space is used that was held for this.
    pub fn save_changes(&self, directory: &JobDirectory, saved: &mut Vec<u8>) -> Result<()> {
        let text = serde_json::to_vec(&self.redacted(directory)).expect("a state is plain values");
        if *saved == text {
            return Ok(());
        }
        let path = directory.file("state.json");
        write_whole(&path, &text).or_else(|problem| {
            if reserve::give_up(directory) { write_whole(&path, &text) } else { Err(problem) }
        })?;
        if self.phase.is_final() {
            reserve::give_up(directory);
            directory.forget_secrets();
        } else {
            reserve::hold(directory, text.len() as u64);
        }
        *saved = text;
        Ok(())
    }
}

/// Replaces a file by another content, at once.
pub fn write_whole(path: &std::path::Path, content: &[u8]) -> Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::write(&beside, content).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|source| {
        // Half a file would take the space that another try needs.
        let _ = std::fs::remove_file(&beside);
        ProcessError::File { verb: "write", path: path.to_owned(), source }
    })
}
