//! What is new in a report, for the journal: lives that began, workers that ended, and the first failure of a life.

use crate::coordinator::decider::{Decider, about};
use crate::coordinator::history::Entry;
use crate::coordinator::verdict::Failure;
use crate::coordinator::view::{FailedWorker, GangView, JobView};
use crate::job::policy::{Cause, Scope};

impl Decider {
    /// What is new about a gang: a life that began, workers that ended, the first failure of a life, what it looked like.
    pub(super) fn take_note(&mut self, gang: usize, about: &GangView<'_>, now_ms: u64) {
        let Some(incarnation) = about.incarnation else { return };
        let history = &self.history.gangs[gang];
        if history.outcome.is_some() || history.incarnation.is_some_and(|known| known > incarnation) {
            // It is over, or the life that was ordered has not begun.
            return;
        }
        let unknown = history.incarnation < Some(incarnation);
        if (unknown || !history.started) && about.queued.is_none() {
            let pids = about
                .local
                .map_or_else(Vec::new, |local| local.workers.iter().map(|worker| worker.pid).collect());
            self.note(Entry::Started { gang, incarnation, pids });
        }
        let ended = about.local.into_iter().flat_map(|local| &local.workers);
        for worker in ended.filter(|worker| !worker.running) {
            if !self.history.gangs[gang].exited.contains(&worker.rank) {
                let (rank, pid, exit) = (worker.rank, worker.pid, worker.exit.clone());
                self.note(Entry::Exited { gang, incarnation, rank, pid, exit, at_ms: worker.exit_ms });
            }
        }
        if self.history.gangs[gang].failure().is_none() {
            match self.failure_of(gang, incarnation, about, now_ms) {
                Some(failure) => self.note(Entry::Failed { gang, failure }),
                None => self.watch_progress(gang, incarnation, about, now_ms),
            }
        }
        let history = &self.history.gangs[gang];
        if about.examined && history.failure().is_some() && history.examined != Some(incarnation) {
            let (likeness, lived_ms) = (about.likeness.clone(), about.lived_ms);
            self.note(Entry::Examined { gang, incarnation, likeness, lived_ms });
            if let Some(failure) = self.blamed(gang, about, now_ms) {
                self.note(Entry::Blamed { gang, failure });
            }
        }
    }

    /// The failure of the newest life with who failed first, where that is known better than by the order in which ends were heard: from
    /// logs, or because a host was heard later than another.
    fn blamed(&self, gang: usize, about: &GangView<'_>, now_ms: u64) -> Option<Failure> {
        let known = self.history.gangs[gang].failure()?;
        let of_workers = matches!(known.cause, Cause::Crash | Cause::Memory) && about.local.is_none();
        let first = self.failure_of(gang, known.incarnation, about, now_ms).filter(|_| of_workers);
        let first = first.map_or_else(
            || known.clone(),
            |first| Failure { likeness: known.likeness.clone(), lived_ms: known.lived_ms, ..first },
        );
        let culprit = about.culprit.as_ref().filter(|_| first.cause == Cause::Crash);
        let better = match culprit {
            Some(culprit) => {
                let what = format!("{} {}", self.called(gang, culprit.rank), culprit.what);
                Failure { what, rank: Some(culprit.rank), code: culprit.code, ..first }
            }
            None => first,
        };
        (better != *known).then_some(better)
    }

    /// A worker that got SIGTERM shortly before the job was told to leave got it from whoever told the job.
    pub(super) fn note_preemptions(&mut self, view: &JobView<'_>) {
        if self.history.stop.as_ref().is_none_or(|stop| stop.failed) {
            return;
        }
        for gang in 0..self.plans.len() {
            let history = &self.history.gangs[gang];
            let failure = history.failure().filter(|failure| failure.may_be_preemption(view.now_ms));
            if let Some(failure) = failure.filter(|_| history.outcome.is_none()).cloned() {
                self.note(Entry::Blamed { gang, failure: Failure { cause: Cause::Preemption, ..failure } });
            }
        }
    }

    /// The first failure of a life, if it has one.
    fn failure_of(
        &self,
        gang: usize,
        incarnation: u32,
        about: &GangView<'_>,
        now_ms: u64,
    ) -> Option<Failure> {
        let failed = |what: String, cause, rank, code, at_ms| {
            Some(Failure {
                incarnation,
                what,
                cause,
                rank,
                code,
                likeness: None,
                lived_ms: None,
                step: about.step,
                at_ms,
            })
        };
        if let Some(first) = &about.failed {
            let at_ms = first.at_ms.unwrap_or(now_ms);
            return match &first.exit {
                _ if first.of_lease => {
                    let host_rank = first.host_rank.unwrap_or(0);
                    failed(format!("the lease of host rank {host_rank} ended"), Cause::Host, None, 1, at_ms)
                }
                Some(exit) => {
                    let what = format!("{} {exit}", self.called(gang, first.rank));
                    failed(what, self.cause_of(first), Some(first.rank), exit.shell_code().max(1), at_ms)
                }
                None => failed(agent_killed(first.host_rank), Cause::Crash, None, 1, at_ms),
            };
        }
        if about.incomplete && self.history.stop.is_none() {
            // It died while it started them.
            return failed(agent_killed(None), Cause::Crash, None, 1, now_ms);
        }
        None
    }

    /// How a worker is called in sentences: with its role, where a job has several.
    pub(super) fn called(&self, gang: usize, rank: u32) -> String {
        match self.job.roles.len() {
            1 => format!("rank {rank}"),
            _ => format!("{}-{rank}", self.job.roles[self.plans[gang].role].name),
        }
    }

    /// What an end is charged to. SIGTERM alone says nothing: watchdogs and people send it too.
    fn cause_of(&self, worker: &FailedWorker) -> Cause {
        let told = self.history.stop.is_some();
        match &worker.exit {
            Some(exit) if exit.memory_exhausted => Cause::Memory,
            Some(exit) if exit.wants_to_go_on() || (told && exit.is_terminated()) => Cause::Preemption,
            _ => Cause::Crash,
        }
    }

    /// A failure of a gang whose policy is to restart everybody is a failure of everybody that runs.
    pub(super) fn spread_failures(&mut self, view: &JobView<'_>) {
        let shared = self.plans.iter().zip(&self.history.gangs).filter_map(|(plan, history)| {
            let all = self.job.roles[plan.role].policy.restart == Scope::All;
            let failure = history.failure().filter(|failure| failure.cause != Cause::Peer)?;
            (all && history.outcome.is_none()).then_some(failure)
        });
        let Some((what, since_ms)) =
            shared.max_by_key(|failure| failure.at_ms).map(|failure| (failure.what.clone(), failure.at_ms))
        else {
            return;
        };
        for gang in 0..self.plans.len() {
            let history = &self.history.gangs[gang];
            let Some(incarnation) = history.incarnation.filter(|_| history.started) else { continue };
            // Whoever failed since then has begun anew because of it, or will.
            let paid = history.failures.last().is_some_and(|failure| failure.at_ms >= since_ms);
            let done = about(view, gang).done;
            if history.outcome.is_none() && history.failure().is_none() && !paid && !done {
                let failure = Failure {
                    incarnation,
                    what: what.clone(),
                    cause: Cause::Peer,
                    rank: None,
                    code: 1,
                    likeness: None,
                    lived_ms: None,
                    step: None,
                    at_ms: view.now_ms,
                };
                self.note(Entry::Failed { gang, failure });
            }
        }
    }
}

fn agent_killed(host_rank: Option<u32>) -> String {
    match host_rank {
        Some(host_rank) => format!("the agent of host rank {host_rank} was killed"),
        None => "the agent was killed".to_owned(),
    }
}
