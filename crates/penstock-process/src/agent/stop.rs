//! How a job ends: who asked, how long it may take, what happens when nobody carries it out, and the last words.

use std::io::Read;
use std::time::Duration;

use crate::agent::Agent;
use crate::agent::departure::Departure;
use crate::coordinator::messages::Over;
use crate::coordinator::verdict::Stop;
use crate::job::state::{Phase, wall_s};
use crate::system::cgroup::Cgroup;
use crate::system::memory_limit::MemoryGroups;
use crate::system::{now_ms, signal_name};

/// A foreground job is gone a second after its launcher.
const LAUNCHER_GONE_GRACE_MS: u64 = 400;
/// Beyond the grace of a stop; then the agent kills without being told.
const STOP_SLACK_MS: u64 = 3000;
/// How often a save that puts off the end is looked at.
pub(super) const SAVE_LOOK_MS: u64 = 100;
const DRAIN: Duration = Duration::from_secs(2);

/// How the job ends; empty until somebody asks.
#[derive(Default)]
pub(super) struct Ending {
    /// Who asked first, and how long workers get.
    pub(super) stop: Option<Stop>,
    /// As the journal has it: an agent that comes after us, if we are killed, must not forget it.
    pub(super) noted: Option<Stop>,
    /// When a stop that nobody carries out is carried out by us.
    pub(super) kill_ms: Option<u64>,
    /// Until when a save may put that off.
    pub(super) save_by_ms: u64,
    /// This host leaves its job, which goes on elsewhere.
    pub(super) departure: Option<Departure>,
    /// What the coordinator said at the end.
    pub(super) over: Option<Over>,
}

impl Agent {
    /// Whether nobody may begin any more.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.stop.is_some() || self.ending.departure.is_some()
    }

    /// Ends by itself what has to end, when nobody says so in time; when to look again.
    pub(super) fn keep_safe(&mut self) -> Option<u64> {
        if let Some(again_ms) = self.keep_leaving() {
            return Some(again_ms);
        }
        let due_ms = self.ending.kill_ms?;
        if now_ms() < due_ms {
            return Some(due_ms);
        }
        if now_ms() < self.ending.save_by_ms && !self.is_forced() && self.is_saving() {
            return Some(now_ms() + SAVE_LOOK_MS);
        }
        for gang in 0..self.job.plans.len() {
            self.kill_gang(gang);
        }
        self.ending.kill_ms = Some(now_ms() + STOP_SLACK_MS);
        self.ending.kill_ms
    }

    pub(super) fn finish(&mut self) {
        let everybody: Vec<u32> = (0..self.job.spec.workers()).collect();
        self.output.pump.drain(&everybody, DRAIN);
        let over = self.ending.over.clone().unwrap_or(Over { phase: Phase::Failed, code: 1 });
        if over.phase == Phase::Failed && self.ending.stop.as_ref().is_some_and(|stop| stop.failed) {
            self.note_job_failure();
        }
        self.view.state.phase = over.phase;
        self.view.state.exit_code = Some(over.code);
        self.view.state.ended_at = Some(wall_s());
        self.coordinator.lose();
        self.zygotes.pool.close();
        self.liveness.close();
        self.resources.slots.release_all();
        (self.view.state.coordinator, self.view.state.zygote) = (0, 0);
        self.save();
        self.resources.cgroup.iter().for_each(Cgroup::remove);
        self.resources.memory.iter().for_each(MemoryGroups::remove);
        let _ = std::fs::remove_file(self.job.directory.file("agent.sock"));
        self.launcher.ready = None;
        // The terminal may be slow, and its owner may want to read on; only they end the wait.
        while !self.output.pump.close(Duration::from_millis(50))
            && self.launcher.pipe.is_some()
            && !self.is_forced()
        {
            if self.wait(Some(0)).is_err() {
                break;
            }
        }
    }

    /// What made the job fail is an incident of each gang that had begun.
    pub(super) fn note_job_failure(&mut self) {
        for gang in 0..self.job.plans.len() {
            let state = &self.view.state.gangs[gang];
            let order = crate::coordinator::messages::Order {
                gang,
                incarnation: state.incarnation,
                action: crate::coordinator::verdict::Action::Fail,
                reason: self.view.state.reason.clone(),
                phase: Phase::Failed,
                failures: state.failures.clone(),
                placement: Vec::new(),
                incident: true,
                suspicion: None,
                meeting: None,
                past: None,
            };
            if state.incarnation.is_some() {
                self.note_incident(&order);
            }
        }
    }

    pub(super) fn is_forced(&self) -> bool {
        self.ending.stop.as_ref().is_some_and(|stop| stop.forced)
    }

    pub(super) fn read_launcher(&mut self) {
        let mut bytes = [0; 16];
        let count = self.launcher.pipe.as_ref().map_or(Ok(0), |mut launcher| launcher.read(&mut bytes));
        match count {
            Ok(0) => {
                self.launcher.pipe = None;
                self.ask_to_stop("the launcher's death", libc::SIGKILL, Some(LAUNCHER_GONE_GRACE_MS));
            }
            Ok(count) => {
                for signal in &bytes[..count] {
                    if i32::from(*signal) == libc::SIGWINCH {
                        self.output.pump.resize();
                        continue;
                    }
                    let name = signal_name(i32::from(*signal));
                    if asks_for_saves(i32::from(*signal)) {
                        self.give_save_notices(&format!("{name} to the launcher"));
                        continue;
                    }
                    if self.is_told_to_leave(i32::from(*signal)) {
                        self.leave_in_order(&format!("{name} to this host"));
                        continue;
                    }
                    self.ask_to_stop(&format!("{name} to the launcher"), i32::from(*signal), None);
                    // Others may have asked before, also with the same signal: only the person's second one is another wish.
                    if std::mem::replace(&mut self.launcher.person_asked, true) {
                        self.ending.stop.iter_mut().for_each(|stop| stop.forced = true);
                    } else {
                        self.announce_stop(&name);
                    }
                }
            }
            Err(_) => {}
        }
    }

    /// What the person is told at once.
    fn announce_stop(&mut self, signal: &str) {
        let Some(stop) = &self.ending.stop else { return };
        let key = if signal == "SIGINT" { "Ctrl-C" } else { signal };
        let (grace, save) = (duration(stop.grace_ms), duration(stop.save_ms));
        self.say(&format!("stopping: ranks have {grace} (saving: {save}); {key} again kills"));
    }

    /// The first who asks is named; a later one can only shorten the time.
    pub(super) fn ask_to_stop(&mut self, by: &str, signal: i32, grace_ms: Option<u64>) {
        let own_ms = self.job.spec.roles.iter().map(|role| role.policy.stop_grace_ms).max().unwrap_or(0);
        let grace_ms = grace_ms.unwrap_or(own_ms);
        // Whoever died waits for nobody's save.
        let own_ms = self.job.spec.roles.iter().map(|role| role.policy.save_grace_ms).max().unwrap_or(0);
        let save_ms = if signal == libc::SIGKILL { 0 } else { own_ms };
        match &mut self.ending.stop {
            Some(stop) => {
                (stop.grace_ms, stop.save_ms) = (stop.grace_ms.min(grace_ms), stop.save_ms.min(save_ms));
            }
            None => {
                let (by, code) = (by.to_owned(), 128 + signal);
                self.ending.stop =
                    Some(Stop { by, grace_ms, code, signal: passed_on(signal), save_ms, ..Stop::default() });
                self.ending.save_by_ms = u64::MAX;
            }
        }
        self.ending.save_by_ms = self.ending.save_by_ms.min(now_ms() + save_ms);
        let due_ms = now_ms() + grace_ms + STOP_SLACK_MS;
        self.ending.kill_ms = Some(self.ending.kill_ms.map_or(due_ms, |known| known.min(due_ms)));
    }
}

/// What schedulers send some time before they end a job, as Slurm does with `--signal`.
pub(super) fn asks_for_saves(signal: i32) -> bool {
    matches!(signal, libc::SIGUSR1 | libc::SIGUSR2)
}

/// What ranks get of a signal to us: the same, if a person has pressed its key; a terminal that is gone, a reader who left and a
/// launcher who died mean an orderly end.
fn passed_on(signal: i32) -> i32 {
    match signal {
        libc::SIGINT | libc::SIGQUIT => signal,
        _ => libc::SIGTERM,
    }
}

/// As people say it.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..120_000 => format!("{} s", ms as f64 / 1000.0),
        _ => format!("{} min", (ms as f64 / 6000.0).round() / 10.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        assert_eq!(
            [10_000, 500, 300_000, 90_000, 390_000].map(duration),
            ["10 s", "0.5 s", "5 min", "90 s", "6.5 min"]
        );
    }
}
