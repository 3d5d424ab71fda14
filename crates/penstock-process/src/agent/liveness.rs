//! Signs of life: what workers say in their pulses, what they are told, and their stacks before a hang is ended.
//!
//! Stacks are taken by a child of ours, the *collector*, because reading them needs Python and takes time; supervision goes on
//! meanwhile. It has a deadline, and a hang is ended with or without its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::agent::lookout::Lookout;
use crate::complain;
use crate::coordinator::hang;
use crate::job::pulses::{Notice, NoticeKind, Pulses};
use crate::job::state::{wall_s, write_whole};
use crate::job::{Job, JobDirectory};
use crate::system::{self, now_ms};

/// What the collector may take.
const COLLECT_MS: u64 = 10_000;
const STACKS_BYTES_MAX: u64 = 64 << 20;

/// A child that takes stacks.
struct Collector {
    pid: i32,
    until_ms: u64,
    /// Gangs that are not ended before it has answered.
    gangs: BTreeSet<usize>,
    /// Whether somebody wants to see its answer.
    wanted: bool,
    /// It took too long and was killed.
    ended: bool,
}

/// When the engine will end the job, in seconds since 1970, if it says so.
fn ends_at_s() -> Option<f64> {
    std::env::var("SLURM_JOB_END_TIME").ok()?.parse().ok()
}

/// What the agent knows about the life in its workers.
#[derive(Default)]
pub(super) struct Liveness {
    /// Nothing where the file cannot be made; then nobody pulses.
    pulses: Option<Pulses>,
    collector: Option<Collector>,
    /// Set by the control thread: somebody wants to see stacks.
    wanted: Arc<AtomicBool>,
    /// Set by the control thread: somebody wants a checkpoint.
    save_wanted: Arc<AtomicBool>,
    /// Of each gang that hangs, until its incident is written.
    stacks: BTreeMap<usize, Value>,
    /// How many notices were given.
    notices: u32,
    /// What was seen of workers beside what they say.
    pub(super) lookout: Lookout,
}

impl Liveness {
    /// With a file for every worker of the job.
    pub(super) fn open(directory: &JobDirectory, job: &Job) -> Self {
        let pulses = Pulses::create(directory, job.workers());
        let pulses = pulses.inspect_err(|problem| complain!("penstock-agent: {problem}"));
        Self { pulses: pulses.ok(), ..Self::default() }
    }

    /// Where to say that somebody wants to see stacks.
    pub(super) fn wanted(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.wanted)
    }

    /// Where to say that somebody wants a checkpoint.
    pub(super) fn save_wanted(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.save_wanted)
    }

    /// The collector, while there is one.
    pub(super) fn pid(&self) -> Option<i32> {
        self.collector.as_ref().map(|collector| collector.pid)
    }

    /// Ends the collector, with all that it started. It is reaped like every child.
    pub(super) fn close(&self) {
        if let Some(pid) = self.pid() {
            // SAFETY: the number is the collector's, who leads a session: only we reap it, and forget it then.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
    }
}

impl Agent {
    /// A new life begins: what the last one said is forgotten.
    pub(super) fn forget_pulses(&mut self, gang: usize) {
        let plan = &self.job.plans[gang];
        for rank in plan.ranks.clone() {
            self.liveness.pulses.iter().for_each(|pulses| pulses.clear(self.job.spec.place(plan.role, rank)));
        }
        self.liveness.stacks.remove(&gang);
        self.liveness.lookout.forget(gang);
    }

    /// What a worker of this life last said, in the words of the verdict.
    pub(super) fn pulse_of(&self, gang: usize, rank: u32) -> Option<hang::Pulse> {
        let said =
            self.liveness.pulses.as_ref()?.read(self.job.spec.place(self.job.plans[gang].role, rank))?;
        let ms = |ns: u64| ns / 1_000_000;
        (Some(said.incarnation) == self.view.state.gangs[gang].incarnation).then(|| hang::Pulse {
            step: said.step,
            step_at_ms: ms(said.step_at_ns),
            steps: said.steps,
            typical_ms: ms(said.typical_ns),
            longest_ms: ms(said.longest_ns),
            phase: said.phase,
            phase_at_ms: ms(said.phase_since_ns),
            listens: said.listens,
        })
    }

    /// The process that pulses for a worker.
    pub(super) fn said_pid(&self, gang: usize, rank: u32) -> Option<i32> {
        let said =
            self.liveness.pulses.as_ref()?.read(self.job.spec.place(self.job.plans[gang].role, rank))?;
        i32::try_from(said.pid)
            .ok()
            .filter(|_| Some(said.incarnation) == self.view.state.gangs[gang].incarnation)
    }

    /// When a worker last wrote anything, where its silence counts.
    pub(super) fn heard_ms(&self, gang: usize, rank: u32) -> Option<u64> {
        let role = &self.job.spec.roles[self.job.plans[gang].role];
        role.policy.hang.as_ref().filter(|rule| rule.silence_ms > 0)?;
        let started =
            self.view.state.gangs[gang].workers.iter().find(|worker| worker.rank == rank)?.started_at;
        let age_ms = ((wall_s() - started).max(0.0) * 1000.0) as u64;
        let begun_ms = now_ms().saturating_sub(age_ms);
        // What an earlier life wrote says nothing about this one.
        self.output.pump.heard_ms(self.job.plans[gang].role, rank).max(Some(begun_ms))
    }

    /// Tells every worker of a gang to save and leave: by when, and by when at the latest if it is saving then.
    pub(super) fn notify_gang(&mut self, gang: usize, [leave_by_ms, save_by_ms]: [u64; 2], reason: &str) {
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        let (deadline_ns, save_by_ns) = (ns(leave_by_ms), ns(save_by_ms.max(leave_by_ms)));
        self.give_notice(gang, Notice { deadline_ns, save_by_ns, ..Notice::new(NoticeKind::Stop, reason) });
        self.workers.tracked[gang].notified_since_ms.get_or_insert_with(now_ms);
    }

    /// Tells every worker of a gang, once, to save and leave for a life with more hosts. Nobody is ended who does not, so there is no deadline.
    pub(super) fn let_gang_go(&mut self, gang: usize, reason: &str) {
        if self.workers.tracked[gang].leave_since_ms.is_none() && self.ending.stop.is_none() {
            self.give_notice(gang, Notice::new(NoticeKind::Stop, reason));
            self.workers.tracked[gang].leave_since_ms = Some(now_ms());
            if self.view.state.gangs[gang].first_rank == 0 {
                self.say(reason);
            }
        }
    }

    /// Tells every worker to save and go on, if somebody wants that and nobody wants them to end.
    pub(super) fn ask_for_saves(&mut self) {
        if self.liveness.save_wanted.swap(false, Ordering::Acquire) {
            self.give_save_notices("`penstock save`");
        }
    }

    /// Tells every worker to save and go on, and when its engine will end the job, where that is known.
    pub(super) fn give_save_notices(&mut self, by: &str) {
        if self.ending.stop.is_some() {
            return;
        }
        let left_s = ends_at_s().map(|ends_at_s| (ends_at_s - wall_s()).max(0.0));
        let deadline_ns = left_s.map_or(0, |left_s| (now_ms() + (left_s * 1000.0) as u64) * 1_000_000);
        for gang in 0..self.job.plans.len() {
            self.give_notice(gang, Notice { deadline_ns, ..Notice::new(NoticeKind::Save, by) });
        }
        self.journal.add_fact("save", json!({"by": by, "left_s": left_s}));
    }

    fn give_notice(&mut self, gang: usize, notice: Notice) {
        self.liveness.notices += 1;
        let notice = Notice { number: self.liveness.notices, ..notice };
        let plan = &self.job.plans[gang];
        for rank in plan.ranks.clone() {
            let place = self.job.spec.place(plan.role, rank);
            self.liveness.pulses.iter().for_each(|pulses| pulses.notify(place, &notice));
        }
    }

    /// Has the stacks of all workers taken: before a gang is ended, or because somebody wants to see them. Who asks while
    /// that happens gets the same answer.
    pub(super) fn collect(&mut self, gang: Option<usize>) {
        if self.liveness.collector.is_none() {
            let until_ms = now_ms() + COLLECT_MS;
            let started = self.start_collector();
            self.liveness.collector = started.map(|pid| Collector {
                pid,
                until_ms,
                gangs: BTreeSet::new(),
                wanted: false,
                ended: false,
            });
        }
        match (&mut self.liveness.collector, gang) {
            // One that was killed and does not end takes no more.
            (Some(collector), Some(gang)) if !collector.ended => drop(collector.gangs.insert(gang)),
            (Some(collector), None) => collector.wanted = true,
            (_, Some(gang)) => {
                self.workers.tracked[gang].witnessed = true;
                self.note_look(&BTreeSet::from([gang]), None);
            }
            (None, None) => {}
        }
    }

    /// Does so for a person who asked.
    pub(super) fn collect_if_wanted(&mut self) {
        if self.liveness.wanted.swap(false, Ordering::Acquire) {
            self.collect(None);
        }
    }

    fn start_collector(&self) -> Option<i32> {
        let python = self.job.spec.python.as_ref()?;
        let log =
            File::options().create(true).append(true).open(self.job.directory.file("agent.log")).ok()?;
        let answer = File::create(self.job.directory.file("stacks.new")).ok()?;
        // In a namespace of its own the collector sees the numbers that we see, which `state.json` does not show.
        let seen = self.job.directory.file("stacks.state");
        write_whole(&seen, &serde_json::to_vec(&self.view.state).ok()?).ok()?;
        let mut command = Command::new(python);
        command
            .args(["-m", "penstock.process.stacks"])
            .arg(self.job.directory.path())
            .arg("--json")
            .arg("--state")
            .arg(&seen);
        command.stdin(Stdio::null()).stdout(answer).stderr(log);
        // SAFETY: only calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                system::begin_session()?;
                system::die_with_parent();
                Ok(())
            });
        }
        match command.spawn() {
            Ok(child) => Some(child.id() as i32),
            Err(problem) => {
                complain!("penstock-agent: cannot take stacks with `{python}`: {problem}");
                None
            }
        }
    }

    /// Ends a collector that takes too long, and waits for it no more; when to look again.
    pub(super) fn keep_collector(&mut self) -> Option<u64> {
        let collector = self.liveness.collector.as_mut().filter(|collector| !collector.ended)?;
        if now_ms() < collector.until_ms {
            return Some(collector.until_ms);
        }
        let gangs = std::mem::take(&mut collector.gangs);
        collector.ended = true;
        self.liveness.close();
        self.note_stacks(gangs, None);
        // The coordinator has to hear of it.
        Some(now_ms())
    }

    /// Whether a child that ended was the collector. Its answer goes into the incidents of those that waited for it.
    pub(super) fn was_collector(&mut self, pid: i32) -> bool {
        if self.liveness.pid() != Some(pid) {
            return false;
        }
        let Some(collector) = self.liveness.collector.take() else { return false };
        let path = self.job.directory.file("stacks.new");
        let small = std::fs::metadata(&path).is_ok_and(|about| about.len() <= STACKS_BYTES_MAX);
        let text = if small { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let found: Option<Value> = serde_json::from_slice(&text).ok();
        if collector.wanted && found.is_some() {
            let _ = std::fs::rename(&path, self.job.directory.file("stacks.json"));
        } else {
            let _ = std::fs::remove_file(&path);
        }
        let _ = std::fs::remove_file(self.job.directory.file("stacks.state"));
        self.note_stacks(collector.gangs, found);
        true
    }

    fn note_stacks(&mut self, gangs: BTreeSet<usize>, found: Option<Value>) {
        let answered = found.is_some();
        self.note_look(&gangs, found.as_ref());
        let stacks =
            found.unwrap_or_else(|| json!({"problem": "the collector did not answer; see agent.log"}));
        self.journal.add_fact("stacks", json!({"answered": answered, "took_s": stacks.get("took_s")}));
        for gang in gangs {
            self.liveness.stacks.insert(gang, stacks.clone());
            self.workers.tracked[gang].witnessed = true;
        }
    }

    /// The stacks of a gang, for its incident.
    pub(super) fn take_stacks(&mut self, gang: usize) -> Option<Value> {
        self.liveness.stacks.remove(&gang)
    }
}
