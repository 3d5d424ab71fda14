//! What a job is, and its room: the directory that holds everything about it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{ProcessError, Result};
use crate::verdict::Policy;

/// What was asked for; written once by the launcher's command, never changed. Holds no environment, which may hold secrets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Unique in its home.
    pub id: String,
    /// Program and arguments, the same for every rank.
    pub command: Vec<String>,
    /// How many ranks make the gang.
    pub ranks: u32,
    /// Whether the job belongs to nobody's terminal.
    pub detached: bool,
    /// Whether prefixes are coloured.
    pub colour: bool,
    /// Whether ranks get control groups, where that is allowed.
    pub cgroup: bool,
    /// The port that rank 0 will listen on; without one, each incarnation gets a free one.
    pub master_port: Option<u16>,
    /// When the gang is given another life.
    pub policy: Policy,
    /// Whether each rank gets a terminal of its own instead of pipes.
    #[serde(default)]
    pub terminal: bool,
    /// What happens when the person's terminal is slow.
    #[serde(default)]
    pub pressure: Pressure,
    /// How large a segment of a log becomes; 0 for one segment without end.
    #[serde(default)]
    pub segment_bytes: u64,
    /// How many segments of a log stay, the newest; 0 for all.
    #[serde(default)]
    pub segments_kept: u64,
}

impl Job {
    /// What stands before the lines of a worker, aligned with those of others, and its place among all workers.
    pub fn label(&self, _role: &str, rank: u32) -> (String, usize) {
        let width = self.ranks.saturating_sub(1).to_string().len();
        (format!("{rank:>width$}"), rank as usize)
    }
}

/// What happens when a terminal takes output more slowly than workers write it. Logs are complete in both cases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    /// Workers wait for it.
    #[default]
    Wait,
    /// The terminal misses something, and is told how much and from where.
    Drop,
}

/// Which of a rank's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Out, Self::Err];

    /// As in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }
}

/// The directory of a job.
#[derive(Debug, Clone)]
pub struct Room(PathBuf);

impl Room {
    /// An existing directory with a `job.json`.
    pub fn new(path: &Path) -> Result<Self> {
        let whole = path.canonicalize();
        whole.map(Self).map_err(|source| ProcessError::File { verb: "open", path: path.to_owned(), source })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What was asked for.
    pub fn job(&self) -> Result<Job> {
        let path = self.0.join("job.json");
        let text = std::fs::read(&path).map_err(|source| ProcessError::File {
            verb: "read",
            path: path.clone(),
            source,
        })?;
        serde_json::from_slice(&text).map_err(|source| ProcessError::Format { path, source })
    }

    /// What a worker wrote, all incarnations one after the other: the first of its segments.
    pub fn log(&self, role: &str, rank: u32, stream: Stream) -> PathBuf {
        self.0.join("logs").join(format!("{role}-{rank}.{}", stream.name()))
    }

    /// What is known about the failure of an incarnation.
    pub fn incident(&self, incarnation: u32) -> PathBuf {
        self.0.join("incidents").join(format!("{incarnation}.json"))
    }

    /// A file of the room by its name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
