//! What is new in a report, for the journal: lives that began, workers that ended, and the first failure of a life.

use crate::coordinator::decider::{Decider, about};
use crate::coordinator::history::Entry;
use crate::coordinator::messages::{GangReport, Report, WorkerReport};
use crate::coordinator::verdict::Failure;
use crate::job::Kind;
use crate::job::policy::{Cause, Scope};

impl Decider {
    /// What is new about a gang: a life that began, workers that ended, the first failure of a life, what it looked like.
    pub(super) fn take_note(&mut self, gang: usize, about: &GangReport, now_ms: u64) {
        let Some(incarnation) = about.incarnation else { return };
        let history = &self.history.gangs[gang];
        if history.outcome.is_some() || history.incarnation.is_some_and(|known| known > incarnation) {
            // It is over, or the life that was ordered has not begun.
            return;
        }
        let unknown = history.incarnation < Some(incarnation);
        if (unknown || !history.started) && about.queued.is_none() {
            let pids = about.workers.iter().map(|worker| worker.pid).collect();
            self.note(Entry::Started { gang, incarnation, pids });
        }
        for worker in about.workers.iter().filter(|worker| !worker.running) {
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
            if let Some(failure) = self.blamed(gang, about) {
                self.note(Entry::Blamed { gang, failure });
            }
        }
    }

    /// The failure of the newest life with who failed first, where the logs know that better than the order of ends.
    fn blamed(&self, gang: usize, about: &GangReport) -> Option<Failure> {
        let known = self.history.gangs[gang].failure()?;
        let culprit = about.culprit.as_ref().filter(|_| known.cause == Cause::Crash)?;
        let what = format!("{} {}", self.called(gang, culprit.rank), culprit.what);
        let better = Failure { what, rank: Some(culprit.rank), code: culprit.code, ..known.clone() };
        (better != *known).then_some(better)
    }

    /// A worker that got SIGTERM shortly before the job was told to leave got it from whoever told the job.
    pub(super) fn note_preemptions(&mut self, report: &Report) {
        if self.history.stop.as_ref().is_none_or(|stop| stop.failed) {
            return;
        }
        for gang in 0..self.plans.len() {
            let history = &self.history.gangs[gang];
            let failure = history.failure().filter(|failure| failure.may_be_preemption(report.now_ms));
            if let Some(failure) = failure.filter(|_| history.outcome.is_none()).cloned() {
                self.note(Entry::Blamed { gang, failure: Failure { cause: Cause::Preemption, ..failure } });
            }
        }
    }

    /// The first failure of a life, if it has one.
    fn failure_of(&self, gang: usize, incarnation: u32, about: &GangReport, now_ms: u64) -> Option<Failure> {
        let role = &self.job.roles[self.plans[gang].role];
        let step = furthest_step(about);
        let failed = |what: String, cause, rank, code, at_ms| {
            Some(Failure {
                incarnation,
                what,
                cause,
                rank,
                code,
                likeness: None,
                lived_ms: None,
                step,
                at_ms,
            })
        };
        let service = role.kind == Kind::Service;
        // Who was told to leave and says that it did has not failed, even if it should never leave by itself.
        let left = |worker: &WorkerReport| {
            about.notified_since_ms.is_some()
                && worker
                    .exit
                    .as_ref()
                    .is_some_and(|exit| exit.is_success() || exit.wants_to_go_on() || exit.is_terminated())
        };
        let ended = about.workers.iter().filter(|worker| !worker.running && !worker.asked && !left(worker));
        let bad =
            ended.filter(|worker| worker.exit.as_ref().is_none_or(|exit| !exit.is_success() || service));
        if let Some(first) = bad.min_by_key(|worker| worker.exit_ms) {
            let at_ms = first.exit_ms.unwrap_or(now_ms);
            return match &first.exit {
                Some(exit) => {
                    let what = format!("{} {exit}", self.called(gang, first.rank));
                    failed(what, self.cause_of(first), Some(first.rank), exit.shell_code().max(1), at_ms)
                }
                None => failed("the agent was killed".to_owned(), Cause::Crash, None, 1, at_ms),
            };
        }
        let running = about.workers.iter().any(|worker| worker.running);
        let all = about.workers.len() >= self.plans[gang].ranks.len();
        if !running && !all && about.queued.is_none() && self.history.stop.is_none() {
            // It died while it started them.
            return failed("the agent was killed".to_owned(), Cause::Crash, None, 1, now_ms);
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
    fn cause_of(&self, worker: &WorkerReport) -> Cause {
        let told = self.history.stop.is_some();
        match &worker.exit {
            Some(exit) if exit.memory_exhausted => Cause::Memory,
            Some(exit) if exit.wants_to_go_on() || (told && exit.is_terminated()) => Cause::Preemption,
            _ => Cause::Crash,
        }
    }

    /// A failure of a gang whose policy is to restart everybody is a failure of everybody that runs.
    pub(super) fn spread_failures(&mut self, report: &Report) {
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
            let workers = &about(report, gang).workers;
            let done =
                workers.iter().all(|worker| worker.exit.as_ref().is_some_and(|exit| exit.is_success()));
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
                    at_ms: report.now_ms,
                };
                self.note(Entry::Failed { gang, failure });
            }
        }
    }
}

/// How far a life came.
pub(super) fn furthest_step(about: &GangReport) -> Option<u64> {
    about.workers.iter().filter_map(|worker| Some(worker.pulse.as_ref()?.step)).max()
}
