//! What is known about a job, as files: `state.json` for readers, `journal.jsonl` for what happened in order.
//!
//! `state.json` is replaced whole, so a reader sees one moment or another and never half of one. A new agent
//! continues from it after the old one was killed.

use std::fs::File;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{ProcessError, Result};
use crate::exit::Exit;
use crate::job::Room;
use crate::pump::Missing;
use crate::verdict::Failure;

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Ranks are being started or run.
    Running,
    /// Ranks were asked to end.
    Ending,
    /// Between two lives.
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

/// What is known about a rank of the newest incarnation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankState {
    /// Its place in the gang.
    pub rank: u32,
    /// Its process.
    pub pid: i32,
    /// When it was started, in seconds since 1970.
    pub started_at: f64,
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
    /// Where in its log of standard output this incarnation begins.
    pub stdout_from: u64,
    /// Where in its log of standard error this incarnation begins.
    pub stderr_from: u64,
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
    /// Which life of the gang this is, from 0.
    pub incarnation: u32,
    /// When the job began, in seconds since 1970.
    pub started_at: f64,
    /// When the job was over.
    pub ended_at: Option<f64>,
    /// The keeper's process.
    pub keeper: i32,
    /// The agent's process.
    pub agent: i32,
    /// The control group of the ranks, where there is one.
    pub cgroup: Option<String>,
    /// Where rank 0 listens.
    pub master_port: u16,
    /// The ranks of the newest incarnation.
    pub ranks: Vec<RankState>,
    /// The first failure of every life that failed.
    pub failures: Vec<Failure>,
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
    pub fn new(job: String, keeper: i32) -> Self {
        Self {
            job,
            phase: Phase::Running,
            reason: "starting".to_owned(),
            exit_code: None,
            incarnation: 0,
            started_at: wall_s(),
            ended_at: None,
            keeper,
            agent: std::process::id() as i32,
            cgroup: None,
            master_port: 0,
            ranks: Vec::new(),
            failures: Vec::new(),
            incidents: Vec::new(),
            log_lost_bytes: 0,
            log_missing: Vec::new(),
        }
    }

    /// What the room says; nothing when no agent was there yet.
    pub fn load(room: &Room) -> Result<Option<Self>> {
        let path = room.file("state.json");
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|source| ProcessError::Format { path, source }),
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ProcessError::File { verb: "read", path, source }),
        }
    }

    /// Replaces what the room says.
    pub fn save(&self, room: &Room) -> Result<()> {
        let text = serde_json::to_vec(self).expect("a state is plain values");
        write_whole(&room.file("state.json"), &text)
    }
}

/// Replaces a file by another content, at once.
pub fn write_whole(path: &std::path::Path, content: &[u8]) -> Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&beside, content)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|source| ProcessError::File { verb: "write", path: path.to_owned(), source })
}

/// What happened, one line each, in order; never rewritten.
pub struct Journal(File);

impl Journal {
    /// Continues the journal of a room.
    pub fn open(room: &Room) -> Result<Self> {
        let path = room.file("journal.jsonl");
        let file = File::options().create(true).append(true).open(&path);
        file.map(Self).map_err(|source| ProcessError::File { verb: "open", path, source })
    }

    /// Adds a line. A full disk must not stop supervision, so a line that does not fit is left out.
    pub fn add(&mut self, event: &str, incarnation: u32, about: serde_json::Value) {
        let mut line =
            serde_json::json!({"at": wall_s(), "event": event, "incarnation": incarnation, "about": about})
                .to_string();
        line.push('\n');
        let _ = self.0.write_all(line.as_bytes());
    }
}
