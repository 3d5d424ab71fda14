//! How a job ends: who asked, how long it may take, what happens when nobody carries it out, and the last words.

use std::io::Read;
use std::time::Duration;

use crate::agent::Agent;
use crate::cgroup::Cgroup;
use crate::memory_limit::MemoryGroups;
use crate::messages::Over;
use crate::state::{Phase, wall_s};
use crate::system::{now_ms, signal_name};
use crate::verdict::Stop;

/// A foreground job is gone a second after its launcher.
const LAUNCHER_GONE_GRACE_MS: u64 = 400;
/// Beyond the grace of a stop; then the agent kills without being told.
const STOP_SLACK_MS: u64 = 3000;
const DRAIN: Duration = Duration::from_secs(2);

impl Agent {
    /// Ends by itself what has to end, when nobody says so in time; when to look again.
    pub(super) fn keep_safe(&mut self) -> Option<u64> {
        let due_ms = self.stop_by_ms?;
        if now_ms() < due_ms {
            return Some(due_ms);
        }
        for gang in 0..self.plans.len() {
            self.kill_gang(gang);
        }
        self.stop_by_ms = Some(now_ms() + STOP_SLACK_MS);
        self.stop_by_ms
    }

    pub(super) fn finish(&mut self) {
        let everybody: Vec<u32> = (0..self.job.workers()).collect();
        self.pump.drain(&everybody, DRAIN);
        let over = self.over.clone().unwrap_or(Over { phase: Phase::Failed, code: 1 });
        if over.phase == Phase::Failed && self.stop.as_ref().is_some_and(|stop| stop.failed) {
            self.note_doom();
        }
        self.state.phase = over.phase;
        self.state.exit_code = Some(over.code);
        self.state.ended_at = Some(wall_s());
        self.link.lose();
        self.nursery.close();
        self.vitals.close();
        self.places.release_all();
        (self.state.coordinator, self.state.zygote) = (0, 0);
        self.save();
        self.cgroup.iter().for_each(Cgroup::remove);
        self.memory.iter().for_each(MemoryGroups::remove);
        let _ = std::fs::remove_file(self.room.file("agent.sock"));
        self.ready = None;
        // The terminal may be slow, and its owner may want to read on; only they end the wait.
        while !self.pump.close(Duration::from_millis(50)) && self.watch.leash.is_some() && !self.is_forced() {
            if self.wait(Some(0)).is_err() {
                break;
            }
        }
    }

    /// What doomed the job is an incident of each gang that had begun.
    pub(super) fn note_doom(&mut self) {
        for gang in 0..self.plans.len() {
            let state = &self.state.gangs[gang];
            let order = crate::messages::Order {
                gang,
                incarnation: state.incarnation,
                action: crate::verdict::Action::Fail,
                reason: self.state.reason.clone(),
                phase: Phase::Failed,
                failures: state.failures.clone(),
                placement: Vec::new(),
                incident: true,
                suspicion: None,
            };
            if state.incarnation.is_some() {
                self.note_incident(&order);
            }
        }
    }

    pub(super) fn is_forced(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.forced)
    }

    pub(super) fn read_leash(&mut self) {
        let mut bytes = [0; 16];
        let count = self.watch.leash.as_ref().map_or(Ok(0), |mut leash| leash.read(&mut bytes));
        match count {
            Ok(0) => {
                self.watch.leash = None;
                self.ask_to_stop("the launcher's death", libc::SIGKILL, Some(LAUNCHER_GONE_GRACE_MS));
            }
            Ok(count) => {
                for signal in &bytes[..count] {
                    if i32::from(*signal) == libc::SIGWINCH {
                        self.pump.resize();
                        continue;
                    }
                    let again = self.stop.is_some();
                    self.ask_to_stop(
                        &format!("{} to the launcher", signal_name(i32::from(*signal))),
                        i32::from(*signal),
                        None,
                    );
                    if let Some(stop) = self.stop.as_mut().filter(|_| again) {
                        stop.forced = true;
                    }
                }
            }
            Err(_) => {}
        }
    }

    /// The first who asks is named; a later one can only shorten the time.
    pub(super) fn ask_to_stop(&mut self, by: &str, signal: i32, grace_ms: Option<u64>) {
        let own_ms = self.job.roles.iter().map(|role| role.policy.stop_grace_ms).max().unwrap_or(0);
        let grace_ms = grace_ms.unwrap_or(own_ms);
        match &mut self.stop {
            Some(stop) => stop.grace_ms = stop.grace_ms.min(grace_ms),
            None => {
                let code = 128 + signal;
                self.stop = Some(Stop { by: by.to_owned(), grace_ms, forced: false, code, failed: false });
            }
        }
        let due_ms = now_ms() + grace_ms + STOP_SLACK_MS;
        self.stop_by_ms = Some(self.stop_by_ms.map_or(due_ms, |known| known.min(due_ms)));
    }
}
