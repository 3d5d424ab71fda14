//! The control socket of the agent: a unix socket of the job's owner, one question and one answer per connection, both a line of JSON.
//!
//! A thread of its own answers, so that a slow asker never holds up supervision. Every answer carries the incarnation (P3); a
//! question that names another one is refused.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent::outer_pids::OuterPids;
use crate::agent::wakeups::Waker;
use crate::error::{ProcessError, Result};
use crate::job::JobDirectory;
use crate::job::mark;
use crate::job::state::{GangState, Phase, State, WorkerState};
use crate::system::lineage::{Process, descendants, everyone};

const PATIENCE: Duration = Duration::from_secs(2);
const QUESTION_BYTES_MAX: u64 = 64 << 10;

/// What may be asked.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
enum Question {
    /// Everything that is known.
    State {},
    /// The processes of every rank, as they are now.
    Ps {},
    /// Take the stacks of all workers and put them into the directory, for those who may not look themselves.
    Stacks {},
    /// Ask the workers to save and go on.
    Save {},
    /// End the job.
    Stop { grace_ms: Option<u64>, force: bool, incarnation: Option<u32> },
}

/// Somebody asked the job to end.
pub(super) struct StopRequest {
    /// How long ranks get; without a number, what the policy says.
    pub(super) grace_ms: Option<u64>,
    /// At once.
    pub(super) force: bool,
}

/// What the thread shares with the agent.
pub(super) struct ControlSocket {
    /// What is known; the agent replaces it.
    pub(super) state: Arc<Mutex<State>>,
    /// Numbers of processes as askers know them.
    pub(super) outer_pids: Arc<Mutex<OuterPids>>,
    /// Somebody wants to see stacks.
    pub(super) stacks: Arc<AtomicBool>,
    /// Somebody wants a checkpoint.
    pub(super) saves: Arc<AtomicBool>,
    /// Wakes the agent, and passes on requests to stop.
    pub(super) waker: Waker,
}

impl ControlSocket {
    /// Listens in the directory from now on.
    pub(super) fn listen(self, directory: &JobDirectory) -> Result<()> {
        let path = directory.file("agent.sock");
        // What a killed agent left there listens no more.
        let _ = std::fs::remove_file(&path);
        let failed = |source| ProcessError::File { verb: "listen at", path: path.clone(), source };
        // Addresses of sockets are short; through its open descriptor the directory may lie as deep as it likes.
        let folder = std::fs::File::open(directory.path()).map_err(failed)?;
        let listener =
            UnixListener::bind(format!("/proc/self/fd/{}/agent.sock", folder.as_raw_fd())).map_err(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        std::thread::Builder::new()
            .name("penstock-control".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    // Who leaves before the answer gets none; the next asker is not concerned.
                    let _ = answer(&stream, &self);
                }
            })
            .map_err(|source| ProcessError::System { call: "thread", source })?;
        Ok(())
    }
}

fn answer(stream: &UnixStream, shared: &ControlSocket) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(QUESTION_BYTES_MAX)).read_line(&mut line)?;
    let state =
        shared.state.lock().map(|state| state.clone()).unwrap_or_else(|broken| broken.into_inner().clone());
    let reply = match serde_json::from_str(&line) {
        Ok(question) => reply(question, &state, shared),
        Err(problem) => json!({"ok": false, "problem": format!("not a question: {problem}")}),
    };
    let mut whole = reply;
    whole["incarnation"] = incarnation(&state).into();
    let mut text = whole.to_string();
    text.push('\n');
    (&*stream).write_all(text.as_bytes())
}

fn reply(question: Question, state: &State, shared: &ControlSocket) -> Value {
    match question {
        Question::Stacks {} => {
            shared.stacks.store(true, Ordering::Release);
            json!({"ok": (&shared.waker.wake).write(b"!").is_ok()})
        }
        Question::Save {} if state.phase != Phase::Running => {
            json!({"ok": false, "problem": format!("nobody runs who could save; the job is {}", json!(state.phase).as_str().unwrap_or_default())})
        }
        Question::Save {} => {
            shared.saves.store(true, Ordering::Release);
            json!({"ok": (&shared.waker.wake).write(b"!").is_ok()})
        }
        Question::State {} => json!({"ok": true, "state": shown(state, shared)}),
        Question::Ps {} => {
            let mut found = processes(state);
            if let Ok(mut outer_pids) = shared.outer_pids.lock() {
                found.iter_mut().for_each(|process| translate(process, &mut outer_pids));
            }
            json!({"ok": true, "state": shown(state, shared), "processes": found})
        }
        Question::Stop { incarnation: Some(named), .. } if Some(named) != incarnation(state) => {
            let problem = format!("incarnation {named} is over");
            json!({"ok": false, "problem": problem})
        }
        Question::Stop { grace_ms, force, .. } => {
            let sent = shared.waker.stops.send(StopRequest { grace_ms, force }).is_ok();
            let _ = (&shared.waker.wake).write(b"!");
            json!({"ok": sent})
        }
    }
}

fn shown(state: &State, shared: &ControlSocket) -> State {
    shared.outer_pids.lock().map_or_else(|_| state.clone(), |mut outer_pids| outer_pids.shown(state))
}

/// Numbers of a process as the asker knows them.
fn translate(process: &mut Value, outer_pids: &mut OuterPids) {
    for name in ["pid", "parent"] {
        let inner = process[name].as_i64().and_then(|pid| i32::try_from(pid).ok());
        process[name] = inner.map_or(0, |inner| outer_pids.pid(inner)).into();
    }
}

/// Of the first gang: the one that a job of one command has.
fn incarnation(state: &State) -> Option<u32> {
    state.gangs.first().and_then(|gang| gang.incarnation)
}

/// Every worker that runs, with its descendants, as /proc shows them now.
fn processes(state: &State) -> Vec<Value> {
    let all = everyone();
    let workers = state.gangs.iter().flat_map(|gang| gang.workers.iter().map(move |worker| (gang, worker)));
    let running = workers.filter(|(_, worker)| worker.exit.is_none());
    running.flat_map(|(gang, worker)| tree(&all, gang, worker)).collect()
}

/// What a worker that runs started and left, and what is below that.
fn left(all: &[Process], rank: &WorkerState) -> Vec<Process> {
    let agent = std::process::id() as i32;
    let ours = |process: &&Process| {
        process.parent == agent && process.pid != rank.pid && mark::is_same(process.pid, rank.pid)
    };
    let none = std::collections::BTreeSet::new();
    let families = all.iter().filter(ours).flat_map(|root| {
        std::iter::once(root.clone()).filter(Process::is_alive).chain(descendants(all, root.pid, &none))
    });
    families.collect()
}

fn tree(all: &[Process], gang: &GangState, rank: &WorkerState) -> Vec<Value> {
    // SAFETY: plain integers.
    let (tick, page) = unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
    let own = all.iter().filter(|process| process.pid == rank.pid).cloned();
    let none = std::collections::BTreeSet::new();
    let below = descendants(all, rank.pid, &none).into_iter().chain(left(all, rank));
    let shown = |process: Process| {
        let words = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        json!({
            "role": gang.role, "rank": gang.first_rank + rank.rank, "pid": process.pid, "parent": process.parent, "state": process.state.to_string(),
            "cpu_s": process.cpu_ticks as f64 / tick as f64,
            "rss_bytes": process.rss_pages * page.unsigned_abs(),
            "command": String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " "),
        })
    };
    own.chain(below).map(shown).collect()
}
