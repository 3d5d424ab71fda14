//! What the agent does with a gang: starts it, tells it, ends it, kills it, and looks at what it left.

mod adoption;
mod examination;
mod incident;
mod interruption;
pub(super) mod orphans;
mod preparation;
mod report;
pub(super) mod spawn;
pub(super) mod start;
pub(super) mod workers;

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::Agent;
use crate::agent::gang::examination::Examination;
use crate::agent::gang::incident::Evidence;
use crate::agent::gang::preparation::Preparation;
use crate::agent::gang::spawn::PreparedRank;
use crate::agent::gang::start::Beginning;
use crate::agent::resources::Start;
use crate::complain;
use crate::coordinator::messages::Order;
use crate::coordinator::verdict::{Action, Stop, UNKILLABLE_MS};
use crate::error::{ProcessError, Result};
use crate::job::exit::{Exit, memory_kills};
use crate::job::state::{Phase, WorkerState, wall_s};
use crate::keeper::custody;
use crate::logs::pump::{Listing, Speaker};
use crate::system::child::Child;
use crate::system::kmsg::about_memory;
use crate::system::lineage::{CHILDREN_ROUNDS, Process, descendants, everyone, kill_children};
use crate::system::{Reaped, now_ms};
use crate::zygote::request::StartGate;

/// What the agent knows of a gang beside its state.
#[derive(Default)]
pub(in crate::agent) struct TrackedGang {
    /// When workers were told to leave.
    pub(in crate::agent) notified_since_ms: Option<u64>,
    /// When they were told that they may, for a life with more hosts.
    pub(in crate::agent) leave_since_ms: Option<u64>,
    /// When they were sent what the person sent.
    pub(in crate::agent) signalled_since_ms: Option<u64>,
    /// When they were sent SIGTERM.
    pub(in crate::agent) ending_since_ms: Option<u64>,
    /// When they were sent SIGKILL.
    pub(in crate::agent) killing_since_ms: Option<u64>,
    /// Stacks were taken.
    pub(in crate::agent) witnessed: bool,
    /// The newest suspicion that people were told.
    pub(in crate::agent) warned: u32,
    /// All of the life is gone and was looked at; what was found.
    pub(in crate::agent) examination: Option<Examination>,
    /// Living descendants of its workers that are gone.
    pub(in crate::agent) orphans: u32,
    /// Workers that were sent what the person sent.
    pub(in crate::agent) interrupted: BTreeSet<i32>,
    /// The life has its incident.
    pub(in crate::agent) incident: bool,
    /// The person was told that another life follows this one.
    announced: bool,
    /// When its workers were killed because the lease of this host ended.
    pub(in crate::agent) lease_ended_ms: Option<u64>,
    /// A life that is made ready, in a job of many hosts.
    pub(in crate::agent) preparation: Option<Preparation>,
    /// A life that was ordered and waits for slots, and for which.
    pub(in crate::agent) queued: Option<(u32, String)>,
    /// When the life began.
    pub(in crate::agent) began_ms: u64,
    /// How often the kernel had killed for want of memory when the life began: anywhere, and in the group of each rank.
    memory_kills_before: u64,
    group_kills_before: BTreeMap<u32, u64>,
}

/// How a worker comes to be.
enum NewWorker {
    /// It waits at the gate.
    Forked(i32),
    /// It has to be executed.
    Prepared(Box<PreparedRank>),
}

impl Agent {
    /// Does what an order says, if it is about the life that there is.
    pub(in crate::agent) fn carry_out(&mut self, order: &Order) -> Result<()> {
        let gang = order.gang;
        let Some(state) = self.view.state.gangs.get_mut(gang) else { return Ok(()) };
        state.phase = order.phase;
        state.reason.clone_from(&order.reason);
        state.failures.clone_from(&order.failures);
        let current = state.incarnation;
        if matches!(order.action, Action::Succeed | Action::Fail | Action::Stopped) {
            self.release(gang);
        }
        let running = if self.is_past_hope(gang) { 0 } else { self.running_of(gang).len() };
        if !order.concerns(current, running, self.is_ending()) {
            return Ok(());
        }
        if order.incident && !self.workers.tracked[gang].incident {
            self.workers.tracked[gang].incident = true;
            self.note_incident(order);
        }
        self.announce_restart(order);
        match order.action {
            Action::Prepare { incarnation } => self.prepare(order, incarnation)?,
            Action::Start { incarnation } => {
                self.begin(Start { gang, incarnation, order: order.clone() })?;
            }
            Action::Notify { deadline_ms, save_by_ms, signal } => {
                self.notify_gang(gang, [deadline_ms, save_by_ms], &order.reason);
                self.interrupt_gang(gang, signal, false);
            }
            Action::Leave => self.let_gang_go(gang, &order.reason),
            Action::Interrupt { signal } => {
                self.workers.tracked[gang].signalled_since_ms.get_or_insert_with(now_ms);
                self.interrupt_gang(gang, signal, true);
            }
            Action::Look | Action::Witness => self.collect(Some(gang)),
            Action::Warn => self.warn(order),
            Action::End => {
                self.workers.tracked[gang].ending_since_ms.get_or_insert_with(now_ms);
                self.signal_gang(gang, libc::SIGTERM);
            }
            Action::Kill => self.kill_gang(gang),
            // A job of one host has nothing to wait for between the two.
            Action::Wait { .. } | Action::Succeed | Action::Fail | Action::Stopped => {}
        }
        Ok(())
    }

    /// One line for the person when a life failed and another follows. How the job itself ends is the launcher's to say.
    fn announce_restart(&mut self, order: &Order) {
        let current = self.view.state.gangs[order.gang].incarnation;
        let failed = order.failures.iter().find(|failure| Some(failure.incarnation) == current);
        let decided = failed.and_then(|failure| order.reason.strip_prefix(&failure.what));
        let again = decided.is_some_and(|decided| decided.starts_with("; restart "));
        if again && !std::mem::replace(&mut self.workers.tracked[order.gang].announced, true) {
            self.say(&format!("{}; `penstock incident {}` tells more", order.reason, self.view.state.job));
        }
    }

    /// Begins a life whose slots are taken, unless its zygote is not warm yet.
    pub(in crate::agent) fn start_gang(&mut self, start: &Start) -> Result<()> {
        let (gang, incarnation) = (start.gang, start.incarnation);
        let plan = self.job.plans[gang].clone();
        if !self.may_begin() {
            return Ok(());
        }
        let meeting = start.order.meeting;
        let Some(port) = meeting.map(|at| at.port()).or_else(|| self.meet(gang)) else { return Ok(()) };
        let (forked, gate) = match self.begin_gang(start, port)? {
            Beginning::Forked(started, gate) => (started, Some(gate)),
            Beginning::Executed => (Vec::new(), None),
            Beginning::Later => return Ok(()),
        };
        if let Some(words) = self.host.begin() {
            self.say(&words);
        }
        self.abandon(gang);
        self.forget_pulses(gang);
        let new_groups = if gate.is_none() { self.renew_groups(gang) } else { BTreeSet::new() };
        let mut forked = forked.into_iter();
        self.workers.tracked[gang] = TrackedGang {
            began_ms: now_ms(),
            memory_kills_before: memory_kills(),
            group_kills_before: self.group_kills(gang),
            ..TrackedGang::default()
        };
        let limit = self.memory_limit(gang);
        let state = &mut self.view.state.gangs[gang];
        (state.incarnation, state.phase, state.master_port) = (Some(incarnation), Phase::Running, port);
        (state.memory_limit, state.first_rank) = (limit, self.host.first_rank(plan.role));
        state.workers.clear();
        let mut children = Vec::new();
        for (rank, slot) in start.places(&plan) {
            let life = self.life(plan.role, incarnation, port, meeting);
            let (worker, outputs) = match forked.next() {
                Some(started) => (NewWorker::Forked(started.pid), started.outputs),
                None => match spawn::prepare(
                    &life,
                    rank,
                    self.place(gang, rank, slot),
                    new_groups.contains(&rank),
                ) {
                    Ok((prepared, outputs)) => (NewWorker::Prepared(Box::new(prepared)), outputs),
                    Err(problem) => {
                        self.give_up(&problem);
                        break;
                    }
                },
            };
            let speaker = Speaker { role: plan.role, rank, incarnation };
            // Before it runs, so that nothing of what it writes is lost with us.
            custody::hand_over(&self.output.holders, speaker, &outputs);
            let from = self.output.pump.add(speaker, &self.label(gang, rank), outputs)?;
            match self.add_worker(gang, rank, from, worker) {
                Ok((child, state)) => {
                    children.extend(child);
                    self.view.state.gangs[gang].workers.push(WorkerState { slot, ..state });
                }
                Err(problem) => {
                    self.give_up(&problem);
                    break;
                }
            }
        }
        // They run side by side with us: whoever hears of them should find them in the state.
        self.save();
        self.confirm(gang, children);
        self.note_places(gang);
        // All are known now, so all may begin.
        gate.map_or(Ok(()), StartGate::open)
    }

    /// What stands before the lines of a worker.
    fn label(&self, gang: usize, rank: u32) -> String {
        let role = self.job.plans[gang].role;
        self.job.spec.label(role, self.view.state.gangs[gang].first_rank + rank, self.host.worlds())
    }

    /// Gives the ranks of a gang new control groups to be born in; who has one. Before anything is counted or limited in them.
    fn renew_groups(&self, gang: usize) -> BTreeSet<u32> {
        let plan = &self.job.plans[gang];
        let role = &self.job.spec.roles[plan.role].name;
        let cgroup = self.resources.cgroup.as_ref();
        plan.ranks.clone().filter(|rank| cgroup.is_some_and(|group| group.renew(role, *rank))).collect()
    }

    /// Starts a worker that is prepared, and takes note of it. Its program may not run yet.
    fn add_worker(
        &mut self,
        gang: usize,
        rank: u32,
        [stdout_from, stderr_from]: [u64; 2],
        worker: NewWorker,
    ) -> Result<(Option<Child>, WorkerState)> {
        let (pid, how, child) = match worker {
            NewWorker::Forked(pid) => (pid, "zygote", None),
            NewWorker::Prepared(prepared) => {
                let child = prepared.start()?;
                (child.pid, "exec", Some(child))
            }
        };
        self.workers.running.insert(pid, (gang, rank));
        let state = WorkerState {
            rank,
            pid,
            start_ticks: Process::read(pid).map_or(0, |process| process.start_ticks),
            inside: 0,
            slot: 0,
            started_at: wall_s(),
            how: how.to_owned(),
            exit: None,
            exit_ms: None,
            asked: false,
            cpu_s: None,
            rss_max_bytes: None,
            held: None,
            stdout_from,
            stderr_from,
        };
        Ok((child, state))
    }

    /// Waits until the programs of new workers run. One that cannot be executed was never a worker.
    fn confirm(&mut self, gang: usize, children: Vec<Child>) {
        // In the end the first problem is the one that is told.
        for child in children.into_iter().rev() {
            let pid = child.pid;
            if let Err(problem) = child.confirm() {
                self.workers.running.remove(&pid);
                self.view.state.gangs[gang].workers.retain(|worker| worker.pid != pid);
                self.give_up(&problem);
            }
        }
    }

    /// Whether nobody of a gang is left, but those who were killed long ago and sleep in the kernel.
    fn is_past_hope(&self, gang: usize) -> bool {
        let killed_ms = self.workers.tracked[gang].killing_since_ms;
        let hopeless = killed_ms.is_some_and(|since_ms| now_ms() >= since_ms + UNKILLABLE_MS);
        hopeless || self.running_of(gang).is_empty()
    }

    /// How many processes were killed long ago and are still there, of this life and of earlier ones.
    pub(in crate::agent) fn unkillable_processes(&self) -> u32 {
        let hopeless = (0..self.job.plans.len()).filter(|gang| {
            let killed_ms = self.workers.tracked[*gang].killing_since_ms;
            killed_ms.is_some_and(|since_ms| now_ms() >= since_ms + UNKILLABLE_MS)
        });
        let left = |gang: usize| self.running_of(gang).len() + self.workers.tracked[gang].orphans as usize;
        let count = hopeless.map(left).sum::<usize>() + self.workers.abandoned.len();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Waits no more for workers that cannot be killed.
    fn abandon(&mut self, gang: usize) {
        for pid in self.running_of(gang) {
            self.workers.running.remove(&pid);
            self.workers.abandoned.insert(pid);
            self.journal.add_fact("unkillable", serde_json::json!({"pid": pid, "gang": gang}));
        }
    }

    /// What there is to say about workers that are still there after SIGKILL.
    fn unkillable(&self, gang: usize) -> Vec<String> {
        let left = self.view.state.gangs[gang].workers.iter().filter(|worker| worker.exit.is_none());
        let shown = |worker: &WorkerState| {
            let process = Process::read(worker.pid).filter(|process| process.is_alive())?;
            let place = std::fs::read_to_string(format!("/proc/{}/wchan", worker.pid)).unwrap_or_default();
            let rank = self.view.state.gangs[gang].first_rank + worker.rank;
            Some(format!(
                "rank {rank} (process {}) is in state {} in {place} and cannot be killed",
                worker.pid, process.state
            ))
        };
        left.filter_map(shown).collect()
    }

    /// How often the kernel killed in the group of each rank for want of memory, where it counts that.
    fn group_kills(&self, gang: usize) -> BTreeMap<u32, u64> {
        let plan = &self.job.plans[gang];
        let ranks = plan.ranks.clone();
        ranks.filter_map(|rank| Some((rank, self.kills_of(plan.role, rank)?))).collect()
    }

    fn kills_of(&self, role: usize, rank: u32) -> Option<u64> {
        let name = &self.job.spec.roles[role].name;
        let limited =
            self.resources.memory.as_ref().and_then(|groups| groups.kills(&format!("{name}-{rank}")));
        limited.or_else(|| self.resources.cgroup.as_ref().and_then(|group| group.memory_kills(name, rank)))
    }

    /// The command cannot be started; another try would not change that.
    fn give_up(&mut self, problem: &ProcessError) {
        let missing = matches!(problem, ProcessError::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        self.fail_job(problem.to_string(), if missing { 127 } else { 126 });
    }

    /// The job cannot go on, whatever anybody decides.
    pub(in crate::agent) fn fail_job(&mut self, by: String, code: i32) {
        self.ending.stop = Some(Stop { by, forced: true, code, failed: true, ..Stop::default() });
    }

    pub(in crate::agent) fn running_of(&self, gang: usize) -> Vec<i32> {
        let own = self.workers.running.iter().filter(|(_, (of, _))| *of == gang);
        own.map(|(pid, _)| *pid).collect()
    }

    fn signal_gang(&mut self, gang: usize, signal: i32) {
        for pid in self.running_of(gang) {
            // The number is still the worker's: only we reap it, and we have not.
            if let Some(process) = Process::read(pid) {
                process.signal(signal);
                if signal == libc::SIGTERM {
                    process.signal(libc::SIGCONT);
                }
            }
        }
        self.note_asked(gang);
    }

    /// Who runs now and ends later did so because it was asked.
    fn note_asked(&mut self, gang: usize) {
        let running = self.view.state.gangs[gang].workers.iter_mut().filter(|worker| worker.exit.is_none());
        running.for_each(|worker| worker.asked = true);
    }

    /// SIGKILL to the workers of a gang, to all below them, and to what dead workers of it left.
    pub(in crate::agent) fn kill_gang(&mut self, gang: usize) {
        let now = now_ms();
        self.workers.tracked[gang].killing_since_ms.get_or_insert(now);
        self.workers.tracked[gang].ending_since_ms.get_or_insert(now);
        self.signal_gang(gang, libc::SIGKILL);
        let role = &self.job.spec.roles[self.job.plans[gang].role].name;
        for rank in self.job.plans[gang].ranks.clone() {
            self.resources.cgroup.iter().for_each(|group| group.kill_worker(role, rank));
        }
        let own: BTreeSet<i32> = self.running_of(gang).into_iter().collect();
        let owned = self.owned();
        let others: BTreeSet<i32> = owned.difference(&own).copied().collect();
        let alone = self.workers.running.values().all(|(of, _)| *of == gang);
        // What workers of other gangs left is theirs; who does not tell whose it is ends with the last gang.
        let is_ours = |owner: Option<(usize, u32)>| owner.map_or(alone, |(of, _)| of == gang);
        kill_children(&|pid| others.contains(&pid) || !is_ours(self.owner_of(pid)), CHILDREN_ROUNDS);
        let all = everyone();
        for process in own.iter().flat_map(|rank| descendants(&all, *rank, &others)) {
            process.signal(libc::SIGKILL);
        }
        for adopted in self.adopted(&all, &owned).iter().filter(|adopted| is_ours(adopted.owner)) {
            adopted.process.signal(libc::SIGKILL);
        }
    }

    pub(in crate::agent) fn note_incident(&mut self, order: &Order) {
        let stacks = self.take_stacks(order.gang);
        let ranks = self.job.plans[order.gang].ranks.clone();
        let pulses = ranks.filter_map(|rank| Some((rank, self.pulse_of(order.gang, rank)?))).collect();
        let gang = &self.view.state.gangs[order.gang];
        let role = &self.job.spec.roles[self.job.plans[order.gang].role];
        let (action, reason) = (&order.action, order.reason.as_str());
        let mut kernel = self.unkillable(order.gang);
        kernel.extend(self.kernel_words(order.gang));
        let suspicion = order.suspicion.as_ref();
        let there = Listing::read(&self.job.directory.file("logs"));
        let known = self.workers.tracked[order.gang].examination.as_ref().map(|found| found.accounts.clone());
        // Who may still run is told about as it is.
        let accounts = known.unwrap_or_else(|| {
            gang.workers.iter().map(|worker| self.account(order.gang, worker, &there)).collect()
        });
        let evidence =
            Evidence { gang, accounts: &accounts, action, reason, suspicion, pulses, stacks, kernel };
        match incident::write(&self.job.directory, role, self.view.state.incidents.len(), evidence) {
            Ok(name) => self.view.state.incidents.push(name),
            // A full disk must not keep a gang from being restarted.
            Err(problem) => complain!("penstock-agent: {problem}"),
        }
    }

    /// Tells people that a gang may hang, once, with an incident that has its stacks.
    fn warn(&mut self, order: &Order) {
        let Some(suspicion) = &order.suspicion else { return };
        if self.workers.tracked[order.gang].warned >= suspicion.number {
            return;
        }
        self.workers.tracked[order.gang].warned = suspicion.number;
        self.note_incident(order);
        let job = self.job.spec.id.clone();
        self.say(&format!("warning: {}; `penstock incident {job}` has the stacks", order.reason));
    }

    /// What the kernel said about the memory of a gang that failed for want of it.
    fn kernel_words(&self, gang: usize) -> Vec<String> {
        let state = &self.view.state.gangs[gang];
        let exhausted = |worker: &WorkerState| worker.exit.as_ref().is_some_and(|exit| exit.memory_exhausted);
        if !state.workers.iter().any(exhausted) {
            return Vec::new();
        }
        let outer = |worker: &WorkerState| {
            let known = self
                .view
                .outer_pids
                .lock()
                .map(|mut outside| outside.pid_since(worker.pid, worker.start_ticks));
            known.unwrap_or(worker.pid)
        };
        let pids: Vec<i32> = state.workers.iter().map(outer).collect();
        about_memory(
            self.workers.tracked[gang].began_ms,
            &crate::system::cgroup::name(&self.job.directory),
            &pids,
        )
    }

    /// A child ended: a worker, a helper of ours, or somebody whom we adopted.
    pub(in crate::agent) fn note_exit(&mut self, reaped: &Reaped) {
        if self.was_zygote(reaped) || self.was_collector(reaped.pid) {
            return;
        }
        if reaped.pid == self.coordinator.pid {
            self.coordinator.note_reaped();
            self.journal.add_fact("coordinator-lost", serde_json::json!({"pid": reaped.pid}));
            return;
        }
        self.workers.abandoned.remove(&reaped.pid);
        let Some((gang, rank)) = self.workers.running.remove(&reaped.pid) else { return };
        // The group knows exactly; else it is only known that the kernel killed somebody meanwhile.
        let tended = &self.workers.tracked[gang];
        let before = tended.group_kills_before.get(&rank).copied().unwrap_or(0);
        let exit = match self.kills_of(self.job.plans[gang].role, rank) {
            Some(count) => Exit::from_status(reaped.status, false).in_group(count > before),
            None => Exit::from_status(reaped.status, memory_kills() > tended.memory_kills_before),
        };
        let workers = &mut self.view.state.gangs[gang].workers;
        if let Some(worker) = workers.iter_mut().find(|worker| worker.rank == rank) {
            worker.exit = Some(exit);
            worker.exit_ms = Some(now_ms());
            worker.cpu_s = Some(reaped.cpu_s);
            worker.rss_max_bytes = Some(reaped.rss_max_bytes);
        }
    }
}
