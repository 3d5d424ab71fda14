//! The directory of a job: it holds everything about the job, and everybody who looks at the job looks there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::{ProcessError, Result};
use crate::job::redaction::Redaction;
use crate::job::{Job, Stream};

/// What was asked for with all secrets in it, where `job.json` hides some. Gone when the job has ended.
const PRIVATE: &str = "private.json";

/// The directory of a job.
#[derive(Debug, Clone)]
pub struct JobDirectory {
    path: PathBuf,
    /// What must not be written down for others to read; known when it is first asked for.
    secrets: Arc<OnceLock<Redaction>>,
}

impl JobDirectory {
    /// An existing directory with a `job.json`.
    pub fn open(path: &Path) -> Result<Self> {
        let whole = path.canonicalize();
        whole.map(|path| Self { path, secrets: Arc::default() }).map_err(|source| ProcessError::File {
            verb: "open",
            path: path.to_owned(),
            source,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was asked for, exactly while the job may need it.
    pub fn job(&self) -> Result<Job> {
        let exact = self.file(PRIVATE);
        let path = if exact.exists() { exact } else { self.file("job.json") };
        let text = std::fs::read(&path).map_err(|source| ProcessError::File {
            verb: "read",
            path: path.clone(),
            source,
        })?;
        serde_json::from_slice(&text).map_err(|source| ProcessError::Format { path, source })
    }

    /// Hides the secrets that the job was given, in all that is written for people.
    pub fn secrets(&self) -> &Redaction {
        self.secrets.get_or_init(|| Redaction::of_job(self.job().ok().as_ref()))
    }

    /// Nothing will be started any more, so nobody needs the secrets.
    pub fn forget_secrets(&self) {
        let _ = std::fs::remove_file(self.file(PRIVATE));
    }

    /// What a worker wrote, all lives one after the other: the first segment of it.
    pub fn log(&self, role: &str, rank: u32, stream: Stream) -> PathBuf {
        self.path.join("logs").join(format!("{role}-{rank}.{}", stream.name()))
    }

    /// A file in it by its name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}
