//! The zygote: a warm Python, child of the agent, from which workers are forked. This is the agent's side of it.
//!
//! A zygote owns nothing: its forks are adopted by the agent, so killing it touches no worker, and the agent starts another
//! ([`pool`]). A worker waits at a *gate* until the agent knows the numbers of all its peers; a gate that is closed
//! unopened lets nobody through, so a zygote that is killed in the middle leaves nothing. The other side is
//! `python/penstock/process/zygote`.

pub mod packet;
pub mod pool;
pub mod request;
pub mod variables;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{ProcessError, Result};
use crate::system;
use crate::zygote::variables::{HELD, WORKER_PLACE};

/// Room in the zygote's arguments for those of a worker, which `ps` shows.
const TITLE_BYTES: usize = 1024;

/// What zygotes have to agree in to be the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZygoteSpec {
    /// The Python.
    pub interpreter: String,
    /// Its own options.
    pub flags: Vec<String>,
    /// The file that it runs.
    pub entry: String,
    /// What it imports, in order.
    pub preload: Vec<String>,
    /// Variables beside our own.
    pub environment: Vec<(String, String)>,
    /// Where it starts, and so its forks: paths for imports may be relative.
    pub directory: String,
}

/// What a zygote that may be used says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmth {
    /// Seconds that each import took.
    pub loaded: std::collections::BTreeMap<String, f64>,
    /// What is not installed.
    pub absent: Vec<String>,
    /// Seconds from its first line to being ready.
    pub took_s: f64,
    /// The version of the interpreter.
    pub python: String,
}

/// Anything that a zygote says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum ZygoteMessage {
    /// It may be used.
    Ready {
        /// What it is.
        ready: Warmth,
    },
    /// It may not, and ends.
    Unfit {
        /// Why.
        unfit: String,
    },
    /// Workers wait at their gate.
    Forked {
        /// Of which request.
        request: u64,
        /// Their processes, in the order of the request.
        #[serde(rename = "born")]
        pids: Vec<i32>,
    },
    /// Workers cannot be forked.
    Refused {
        /// Of which request.
        request: u64,
        /// Why.
        refused: String,
    },
}

/// A zygote that was started.
pub struct Zygote {
    /// Its process.
    pub pid: i32,
    /// Our end of the conversation; the zygote ends when it is closed.
    talk: OwnedFd,
    /// Requests so far; the answer to one names it.
    requests: u64,
}

impl Zygote {
    /// Starts one, which then gets warm by itself. What it writes goes into `log`.
    pub fn start(spec: &ZygoteSpec, log: File, file_limit: libc::rlimit) -> Result<Self> {
        let (ours, theirs) = packet::pair()?;
        let errors = log.try_clone().map_err(|source| ProcessError::System { call: "dup", source })?;
        let number = theirs.as_raw_fd();
        let agent = std::process::id() as i32;
        let mut command = Command::new(&spec.interpreter);
        command.args(&spec.flags).arg(&spec.entry).arg(number.to_string()).arg(".".repeat(TITLE_BYTES));
        command.envs(spec.environment.iter().map(|(name, value)| (name, value))).envs(HELD);
        command.env(WORKER_PLACE.0, ".".repeat(WORKER_PLACE.1)).current_dir(&spec.directory);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        // SAFETY: the closure only makes calls that are allowed between fork and exec, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                system::begin_session()?;
                system::die_with_parent();
                libc::setrlimit(libc::RLIMIT_NOFILE, &file_limit);
                system::keep_over_exec(number)?;
                // The agent may have died before the parent-death signal was set.
                if libc::getppid() != agent {
                    libc::_exit(1);
                }
                Ok(())
            });
        }
        let child = command
            .spawn()
            .map_err(|source| ProcessError::Start { command: spec.interpreter.clone(), source })?;
        let zygote = Self { pid: child.id() as i32, talk: ours, requests: 0 };
        let first = json!({"preload": spec.preload, "restore": variables::restored(spec), "agent": agent});
        packet::send(&zygote.talk, first.to_string().as_bytes(), &[])?;
        Ok(zygote)
    }

    /// The descriptor to poll.
    pub fn number(&self) -> RawFd {
        self.talk.as_raw_fd()
    }

    /// What it says next; nothing when it has said nothing. Fails when it will never say anything again.
    pub fn hear(&self) -> Result<Option<ZygoteMessage>> {
        let Some(text) = packet::receive(&self.talk)? else { return Ok(None) };
        let word = serde_json::from_slice(&text);
        word.map(Some).map_err(|source| ProcessError::Format { path: "zygote".into(), source })
    }

    /// SIGKILL. Its forks are not touched.
    pub fn kill(&self) {
        // SAFETY: the number is the zygote's: only the agent reaps it, and forgets it then.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}
