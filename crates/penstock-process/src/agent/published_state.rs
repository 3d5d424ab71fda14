//! The state of the job as others see it: in `state.json`, and through the control socket.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::agent::assigned_job::AssignedJob;
use crate::agent::outer_pids::{OuterPids, namespace};
use crate::complain;
use crate::error::Result;
use crate::job::JobDirectory;
use crate::job::state::State;

/// What is known, and the copies that others read.
pub(super) struct PublishedState {
    /// What the agent knows now. Others see it after [`PublishedState::publish`].
    pub(super) state: State,
    /// What `state.json` says.
    written: Vec<u8>,
    /// The copy that the control thread shows.
    pub(super) shared: Arc<Mutex<State>>,
    /// Numbers of processes for those who look from outside; shared with the control thread.
    pub(super) outer_pids: Arc<Mutex<OuterPids>>,
}

impl PublishedState {
    /// What an agent before us wrote, or nothing. `outside` is the outer /proc, and `outer` the outer namespace, of a job that
    /// has a namespace of its own.
    pub(super) fn open(job: &AssignedJob, outside: Option<OwnedFd>, outer: Option<&OwnedFd>) -> Result<Self> {
        // SAFETY: asks for a number.
        let keeper = unsafe { libc::getppid() };
        let mut state = State::load(&job.directory)?.unwrap_or_else(|| State::new(&job.spec, keeper));
        (state.agent, state.keeper) = (std::process::id() as i32, keeper);
        state.namespace = namespace(outer);
        state.inside = outer.map(|_| namespace(None)).unwrap_or_default();
        let shared = Arc::new(Mutex::new(state.clone()));
        let outer_pids = Arc::new(Mutex::new(OuterPids::new(outside)));
        Ok(Self { state, written: Vec::new(), shared, outer_pids })
    }

    /// The agent's own number, as others see it.
    pub(super) fn outer_pid_of_agent(&self) -> i32 {
        let inner = self.state.agent;
        self.outer_pids.lock().map_or(inner, |mut outer_pids| outer_pids.pid(inner))
    }

    /// Lets others see the state. A full disk must not end supervision, so the file may stay behind the socket.
    pub(super) fn publish(&mut self, directory: &JobDirectory) {
        if let Ok(mut shared) = self.shared.lock() {
            shared.clone_from(&self.state);
        }
        let seen = self.outer_pids.lock().map(|mut outer_pids| outer_pids.shown(&self.state));
        if let Err(problem) = seen.as_ref().unwrap_or(&self.state).save_changes(directory, &mut self.written)
        {
            complain!("penstock-agent: {problem}");
        }
    }
}
