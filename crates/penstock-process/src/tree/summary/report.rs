//! The summary of one host, from the report of its agent.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::coordinator::decider::saves;
use crate::coordinator::hang::{self, Case, Judgement, Past, Suspect, is_known_phase, judge};
use crate::coordinator::messages::{GangReport, Report, WorkerReport};
use crate::coordinator::view::failed_workers;
use crate::job::policy::Scope;
use crate::job::{GangPlan, Job};
use crate::tree::rank_set::RankSet;
use crate::tree::summary::failures::{FirstFailures, RankFailure};
use crate::tree::summary::life::{Blame, LifeSummary, Prepared, Told};
use crate::tree::summary::progress::{HangFinding, Progress, SlowFinding};
use crate::tree::summary::{GangSummary, StepHistogram, Summary, Troubles};

/// What a host knows about its part in the job.
#[derive(Debug, Clone)]
pub struct HostPlace<'a> {
    /// Its host rank.
    pub host_rank: u32,
    /// The number of its first rank, for each role.
    pub first_ranks: &'a [u32],
    /// Where its rank 0 can be reached, should it have the job's.
    pub address: IpAddr,
    /// What makes its moments those of the coordinator.
    pub offset_ms: i64,
    /// How wrong they may be then.
    pub within_ms: u64,
    /// The job was told to end, so workers that are missing are no failure.
    pub told_to_stop: bool,
    /// What the newest orders said about earlier lives, for each gang; nothing is known of a gang that is not there.
    pub pasts: &'a [Option<Past>],
}

impl HostPlace<'_> {
    fn at(&self, local_ms: u64) -> u64 {
        local_ms.saturating_add_signed(self.offset_ms)
    }
}

impl Summary {
    /// Of one host. Ranks in a report count from 0 on its host; here they are the job's.
    pub fn of_report(report: &Report, job: &Job, place: &HostPlace<'_>) -> Self {
        let mut steps = StepHistogram::default();
        let running = report.gangs.iter().flat_map(|gang| &gang.workers).filter(|worker| worker.running);
        running.filter_map(|worker| Some(worker.pulse.as_ref()?.step)).for_each(|step| steps.note(step));
        let nothing = GangReport::default();
        let mut gangs = vec![GangSummary::default(); job.roles.len()];
        let mut alone: BTreeMap<usize, BTreeMap<u32, GangSummary>> = BTreeMap::new();
        for (gang, plan) in job.gangs().into_iter().enumerate() {
            if !job.roles[plan.role].runs_on(place.host_rank) {
                continue;
            }
            let about = report.gangs.get(gang).unwrap_or(&nothing);
            let (role, first) = (plan.role, plan.ranks.start);
            let part = Part { job, place, gang, plan, about, now_ms: report.now_ms };
            let summary = GangSummary { lives: vec![part.life()] };
            match job.roles[role].policy.restart {
                Scope::One => drop(alone.entry(role).or_default().insert(part.rank(first), summary)),
                Scope::Gang | Scope::All => gangs[role] = summary,
            }
        }
        let only = |so: bool| if so { RankSet::one(place.host_rank) } else { RankSet::default() };
        let alive = report.gangs.iter().map(GangReport::alive).fold(0, u32::saturating_add);
        Self {
            hosts: RankSet::one(place.host_rank),
            stuck: only(report.unkillable > 0),
            quiet: only(report.unkillable > 0 && alive <= report.unkillable),
            troubles: Troubles::default(),
            overlapping: false,
            gangs,
            alone,
            stop: report.stop.clone(),
            steps,
        }
    }
}

/// The part of a gang that a host has.
struct Part<'a> {
    job: &'a Job,
    place: &'a HostPlace<'a>,
    gang: usize,
    plan: GangPlan,
    about: &'a GangReport,
    now_ms: u64,
}

impl Part<'_> {
    fn life(&self) -> LifeSummary {
        let about = self.about;
        let mut life = LifeSummary {
            incarnation: about.incarnation,
            hosts: RankSet::one(self.place.host_rank),
            workers: u32::try_from(self.plan.ranks.len()).unwrap_or(u32::MAX),
            orphans: about.orphans,
            queued: about.queued.clone(),
            examined: u32::from(about.examined),
            lived_ms: about.lived_ms,
            ..LifeSummary::default()
        };
        for worker in &about.workers {
            match &worker.exit {
                _ if worker.running => life.running += 1,
                Some(exit) => *life.ended.entry(exit.shell_code()).or_default() += 1,
                None => life.lost += 1,
            }
        }
        let missing = life.workers.saturating_sub(u32::try_from(about.workers.len()).unwrap_or(u32::MAX));
        match (&about.queued, about.incarnation) {
            (Some(_), _) => life.waiting = missing,
            (None, Some(_)) if life.running == 0 => life.lost += missing,
            _ => {}
        }
        life.alive = u32::from(life.running + life.orphans > 0);
        life.failures = self.failures(life.running);
        life.blame = self.blame();
        life.progress = self.progress(life.alive);
        if let Some(prepared) = &about.prepared {
            let meeting = prepared.port.map(|port| SocketAddr::new(self.place.address, port));
            let known = Prepared { hosts: life.hosts.clone(), meeting };
            life.prepared.insert(prepared.incarnation, known);
        }
        let told = |since_ms: Option<u64>| Told {
            hosts: if since_ms.is_some() { life.alive } else { 0 },
            first_ms: since_ms.map(|since_ms| self.place.at(since_ms)),
        };
        life.notified = told(about.notified_since_ms);
        life.leave = told(about.leave_since_ms);
        life.signalled = told(about.signalled_since_ms);
        life.ending = told(about.ending_since_ms);
        life.killing = told(about.killing_since_ms);
        life
    }

    fn rank(&self, local: u32) -> u32 {
        self.place.first_ranks.get(self.plan.role).copied().unwrap_or(0).saturating_add(local)
    }

    fn failures(&self, running: u32) -> FirstFailures {
        let about = self.about;
        let of_connection = about.culprit.as_ref().is_some_and(|culprit| culprit.of_connection);
        let failure = |local: u32, at_ms: Option<u64>, exit| RankFailure {
            host_rank: self.place.host_rank,
            rank: self.rank(local),
            at_ms: self.place.at(at_ms.unwrap_or(self.now_ms)),
            exit,
            of_connection,
            of_lease: false,
            within_ms: self.place.within_ms,
        };
        let kind = self.job.roles[self.plan.role].kind;
        let mut failures: Vec<RankFailure> = failed_workers(about, kind)
            .map(|worker| failure(worker.rank, worker.exit_ms, worker.exit.clone()))
            .collect();
        if let Some(at_ms) = about.lease_ended_ms {
            failures.push(RankFailure { of_lease: true, ..failure(0, Some(at_ms), None) });
        }
        let begun = about.incarnation.is_some() && about.queued.is_none();
        if begun && running == 0 && !self.place.told_to_stop {
            // The agent died while it started them.
            let started = |rank: &u32| about.workers.iter().any(|worker| worker.rank == *rank);
            let missing = self.plan.ranks.clone().filter(|rank| !started(rank));
            failures.extend(missing.map(|rank| failure(rank, None, None)));
        }
        FirstFailures::of(failures)
    }

    fn blame(&self) -> Option<Blame> {
        let culprit = self.about.culprit.as_ref()?;
        let ended = |worker: &&WorkerReport| worker.rank == culprit.rank;
        let ended_ms = self.about.workers.iter().find(ended).and_then(|worker| worker.exit_ms);
        let at_ms = culprit.failed_ms.or(ended_ms).unwrap_or(self.now_ms);
        Some(Blame {
            of_connection: culprit.of_connection,
            at_ms: self.place.at(at_ms),
            rank: self.rank(culprit.rank),
            code: culprit.code,
            what: culprit.what.clone(),
            likeness: self.about.likeness.clone(),
        })
    }

    fn progress(&self, alive: u32) -> Progress {
        let running = || self.about.workers.iter().filter(|worker| worker.running);
        let pulses = || running().filter_map(|worker| worker.pulse.as_ref());
        let past = self.place.pasts.get(self.gang).copied().flatten().unwrap_or_default();
        let rule = self.job.roles[self.plan.role].policy.hang.as_ref();
        let all = || self.about.workers.iter().filter_map(|worker| worker.pulse.as_ref());
        let busy = |pulse: &hang::Pulse| {
            let limit_ms = rule.map_or(0, |rule| hang::limit_ms(pulse, rule, &past));
            let quiet_ms = self.about.patience.quiet_ms(pulse.last_ms(), self.now_ms);
            is_known_phase(&pulse.phase) && quiet_ms < limit_ms
        };
        let mut progress = Progress {
            step: all().map(|pulse| pulse.step).max(),
            stepped_ms: pulses()
                .filter(|pulse| pulse.steps > 0)
                .map(|pulse| self.place.at(pulse.step_at_ms))
                .min(),
            longest_ms: all().map(|pulse| pulse.longest_ms).max(),
            listens: pulses().any(|pulse| pulse.listens),
            saving: pulses().any(|pulse| saves(pulse, self.now_ms)),
            busy: pulses().any(busy),
            held: running().any(|worker| worker.signs.hold.is_some()),
            worked_ms: running()
                .filter_map(|worker| worker.signs.work_ms())
                .max()
                .map(|at_ms| self.place.at(at_ms)),
            unwitnessed: if self.about.witnessed { 0 } else { alive },
            warned: (alive > 0).then_some(self.about.warned),
            ..Progress::default()
        };
        match self.judgement(past) {
            Some(Judgement::Look) => progress.look = true,
            Some(Judgement::Slow(what)) => progress.slow = Some(SlowFinding { times: past.times, what }),
            Some(Judgement::Hung(hang)) => progress.hang = Some(self.finding(hang, progress.held)),
            Some(Judgement::Fine(_)) | None => {}
        }
        progress
    }

    /// What this host says about its own part. The leader has heard all, and decides.
    fn judgement(&self, past: Past) -> Option<Judgement> {
        let about = self.about;
        let rule = self.job.roles[self.plan.role].policy.hang.as_ref()?;
        if about.notified_since_ms.or(about.ending_since_ms).is_some() || about.queued.is_some() {
            return None;
        }
        let suspects = suspects(about, |local| self.rank(local));
        let (patience, looks, now_ms) = (&about.patience, &about.looks, self.now_ms);
        // Moments of the past are the coordinator's.
        let warned_ms =
            past.warned_ms.map(|at_ms| at_ms.saturating_add_signed(self.place.offset_ms.saturating_neg()));
        Some(judge(&Case {
            now_ms,
            suspects: &suspects,
            patience,
            looks,
            rule,
            past: Past { warned_ms, ..past },
        }))
    }

    fn finding(&self, hang: hang::Hang, held: bool) -> HangFinding {
        let alone = self.about.workers.iter().filter(|worker| worker.running).count() < 2;
        HangFinding {
            // A host with one rank blames it in any case.
            unproven: hang.rank.is_none() || (alone && !held),
            since_ms: self.place.at(hang.since_ms),
            rank: hang.rank,
            what: hang.what,
            given: hang.given,
            limit_ms: hang.limit_ms,
            held,
        }
    }
}

/// The workers of a gang that run, as a judge of hangs sees them; each with the rank that people know.
pub fn suspects(about: &GangReport, rank: impl Fn(u32) -> u32) -> Vec<Suspect<'_>> {
    let running = about.workers.iter().filter(|worker| worker.running);
    running
        .map(|worker| Suspect {
            rank: rank(worker.rank),
            pulse: worker.pulse.as_ref(),
            heard_ms: worker.heard_ms,
            signs: worker.signs,
        })
        .collect()
}
