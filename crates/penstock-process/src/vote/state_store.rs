//! The state of a job on an object store, through a Python process that speaks to it: `python -m penstock.process.hosts.state_store URL`.
//!
//! The agent has no client of object stores, because it is copied to every host. The process owns nothing and decides nothing: each line
//! to it is one request, each line from it the answer. It is started when something is first wanted and may be killed at any time; what
//! it did not answer within its limit counts as failed, the process is ended, and the next request starts another. A request that was
//! given up may still be carried out by the store, so whoever asks must be able to ask again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Result, VoteError};
use crate::system;

/// How long one request may take, the start of a Python included. The process itself gives up a little sooner, and says why.
const PATIENCE: Duration = Duration::from_secs(25);
/// More than any answer has.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// What is wanted of the store.
#[derive(Debug, Serialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum StoreRequest<'a> {
    /// Names that begin so, without that.
    List { prefix: &'a str },
    /// What an object holds.
    Get { name: &'a str },
    /// What all objects hold whose names begin so.
    GetAll { prefix: &'a str },
    /// Makes an object, unless it exists.
    PutIfAbsent { name: &'a str, text: &'a str },
    /// Makes an object, or puts it in the place of what is there.
    Replace { name: &'a str, text: &'a str },
}

/// What came of it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct StoreAnswer {
    /// Of a list, in order.
    #[serde(default)]
    pub(super) names: Vec<String>,
    /// Of one object; nothing where there is none.
    #[serde(default)]
    pub(super) text: Option<String>,
    /// Of several, by name.
    #[serde(default)]
    pub(super) texts: BTreeMap<String, String>,
    /// The object was made by this request.
    #[serde(default)]
    pub(super) made: bool,
    /// Why nothing came of it.
    #[serde(default)]
    problem: Option<String>,
}

/// A process that speaks to a store.
#[derive(Debug)]
struct StoreProcess {
    child: Child,
    stream: BufReader<UnixStream>,
    /// Of processes of this host that questions must leave alone.
    count: Arc<AtomicUsize>,
}

/// A place on an object store.
#[derive(Debug)]
pub struct StateStore {
    url: String,
    python: Option<String>,
    /// A variable that tells its processes from those of questions, and how many of both there are.
    mark: &'static str,
    count: Arc<AtomicUsize>,
    process: Option<StoreProcess>,
}

impl StateStore {
    /// Nothing is started or contacted until it is used.
    pub fn new(url: String, python: Option<String>, mark: &'static str, count: Arc<AtomicUsize>) -> Self {
        Self { url, python, mark, count, process: None }
    }

    /// Has something done. After a failure the next request begins with another process.
    pub(super) fn ask(&mut self, request: &StoreRequest<'_>) -> Result<StoreAnswer> {
        let process = match self.process.take() {
            Some(process) => process,
            None => self.start()?,
        };
        let (process, answer) = process.ask(request).map_err(|reason| self.failed(reason))?;
        self.process = Some(process);
        match answer.problem {
            Some(reason) => Err(self.failed(reason)),
            None => Ok(answer),
        }
    }

    fn failed(&self, reason: String) -> VoteError {
        VoteError::Store { url: self.url.clone(), reason }
    }

    fn start(&self) -> Result<StoreProcess> {
        let failed =
            |problem: std::io::Error| self.failed(format!("its process cannot be started: {problem}"));
        let python =
            self.python.as_ref().ok_or_else(|| self.failed("the job knows no Python on this host".into()))?;
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_read_timeout(Some(PATIENCE))
            .and_then(|()| ours.set_write_timeout(Some(PATIENCE)))
            .map_err(failed)?;
        let theirs = OwnedFd::from(theirs);
        let mut command = Command::new(python);
        command.args(["-m", "penstock.process.hosts.state_store", &self.url]).env(self.mark, "state");
        // What it says for people, a traceback for example, is found in the agent's log.
        command.stdin(theirs.try_clone().map_err(failed)?).stdout(theirs).stderr(Stdio::inherit());
        // SAFETY: only calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                system::begin_session()?;
                system::die_with_parent();
                Ok(())
            });
        }
        let child = command.spawn().map_err(failed)?;
        self.count.fetch_add(1, Ordering::SeqCst);
        Ok(StoreProcess { child, stream: BufReader::new(ours), count: Arc::clone(&self.count) })
    }
}

impl StoreProcess {
    /// The answer to one request; a process that gave none is ended.
    fn ask(mut self, request: &StoreRequest<'_>) -> std::result::Result<(Self, StoreAnswer), String> {
        let mut line = serde_json::to_vec(request).map_err(|problem| problem.to_string())?;
        line.push(b'\n');
        self.stream.get_ref().write_all(&line).map_err(|problem| told(&problem))?;
        let mut answer = Vec::new();
        // Each read has the patience; a process that sends a byte now and then is not one that we start.
        let count = (&mut self.stream)
            .take(ANSWER_BYTES_MAX)
            .read_until(b'\n', &mut answer)
            .map_err(|problem| told(&problem))?;
        if count == 0 {
            return Err("its process ended without an answer".to_owned());
        }
        let answer = serde_json::from_slice(&answer)
            .map_err(|problem| format!("its process said nonsense: {problem}"))?;
        Ok((self, answer))
    }
}

impl Drop for StoreProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

fn told(problem: &std::io::Error) -> String {
    match problem.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            format!("no answer within {} s", PATIENCE.as_secs())
        }
        _ => format!("its process ended: {problem}"),
    }
}
