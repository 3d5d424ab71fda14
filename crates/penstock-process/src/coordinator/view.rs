//! What the decider sees: a job at one moment, on one host or many.
//!
//! [`JobView::of_report`] is everything that one agent knows. [`JobView::of_summary`] is what the hosts of a job say together, with what is
//! known about the hosts themselves. Silence is not death (H3): ranks of a host that is unheard count as running.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::coordinator::decider::saves;
use crate::coordinator::first_failure::Culprit;
use crate::coordinator::messages::{GangReport, Report, WorkerReport};
use crate::coordinator::verdict::Stop;
use crate::job::exit::Exit;
use crate::job::{GangPlan, Job, Kind};
use crate::tree::rank_set::RankSet;
use crate::tree::summary::{GangSummary, LifeSummary, Prepared, Progress, Summary, Told};

/// A host that is lost: its lease expired, or it is gone. Listed as long as nobody has its host rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLoss {
    /// Which place among the hosts.
    pub host_rank: u32,
    /// What people call it.
    pub name: String,
    /// What happened to it, after its name: `was lost: its lease expired`.
    pub what: String,
    /// When it was last heard; peers that failed since then failed because of it.
    pub heard_ms: u64,
    /// When it was known to be lost.
    pub at_ms: u64,
}

impl HostLoss {
    /// In a sentence.
    pub fn words(&self) -> String {
        format!("host {} (host rank {}) {}", self.name, self.host_rank, self.what)
    }
}

/// What is known about the hosts of a job beside what they say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// What people call the host of each host rank; the last one of a rank that is free.
    pub names: Arc<Vec<String>>,
    /// For each role, how many ranks each host rank has; one number where all have the same.
    pub ranks: Arc<Vec<Vec<u32>>>,
    /// Hosts that were lost and whose host rank is still free.
    pub losses: Vec<HostLoss>,
    /// Host ranks that no host has and that the gang does not go without.
    pub unfilled: Vec<u32>,
    /// Host ranks that it goes without.
    pub resting: Arc<BTreeSet<u32>>,
    /// When that changed last: a life that was ordered before has another size.
    pub resized_ms: u64,
    /// Hosts that are missing are waited for no longer, because the job may go on with fewer.
    pub shrinks: bool,
    /// The next life is about to have another size.
    pub resizes: bool,
    /// It would have more hosts, and a life that runs is to make room for it; in words.
    pub grows: Option<String>,
    /// When a host rank was last filled.
    pub filled_ms: u64,
    /// When the oldest of the unfilled became free, or nothing.
    pub unfilled_since_ms: Option<u64>,
    /// How long the job waits for a host.
    pub host_wait_ms: u64,
    /// Numbers of lives below this are this start's, in a job that can be started again.
    pub reserved: Option<u32>,
    /// When each host rank was last filled, of those that were free.
    pub filled: Arc<BTreeMap<u32, u64>>,
    /// The one host rank that this is about.
    pub only: Option<u32>,
}

impl HostFacts {
    /// How many host ranks the job has.
    pub fn hosts(&self) -> u32 {
        u32::try_from(self.names.len()).unwrap_or(u32::MAX)
    }

    /// What concerns one host rank, for a gang that has its rank there.
    pub fn of_one(&self, host_rank: u32) -> Self {
        Self {
            resting: Arc::clone(&self.resting),
            resized_ms: self.resized_ms,
            shrinks: false,
            resizes: false,
            grows: None,
            names: Arc::clone(&self.names),
            ranks: Arc::clone(&self.ranks),
            losses: self.losses.iter().filter(|loss| loss.host_rank == host_rank).cloned().collect(),
            unfilled: self.unfilled.iter().copied().filter(|unfilled| *unfilled == host_rank).collect(),
            filled_ms: self.filled.get(&host_rank).copied().unwrap_or(0),
            unfilled_since_ms: self.unfilled_since_ms,
            host_wait_ms: self.host_wait_ms,
            filled: Arc::clone(&self.filled),
            reserved: self.reserved,
            only: Some(host_rank),
        }
    }

    /// Hosts that are not among those that are prepared, the first of them.
    pub fn unprepared(&self, prepared: Option<&Prepared>, most: usize) -> Vec<u32> {
        let ready = |host_rank: &u32| prepared.is_some_and(|prepared| prepared.hosts.contains(*host_rank));
        match (self.only, prepared) {
            (Some(only), _) => Some(only).filter(|only| !ready(only)).into_iter().collect(),
            (None, Some(prepared)) => {
                let missing = prepared.hosts.missing(self.hosts(), most.saturating_add(self.resting.len()));
                missing.into_iter().filter(|host_rank| !self.resting.contains(host_rank)).take(most).collect()
            }
            (None, None) => self.active().into_iter().flatten().take(most).collect(),
        }
    }

    /// Whether all that have to be prepared are.
    pub fn is_prepared(&self, prepared: Option<&Prepared>) -> bool {
        match self.only {
            Some(_) => self.unprepared(prepared, 1).is_empty(),
            None => prepared.is_some_and(|prepared| {
                let resting = self.resting.iter().filter(|host_rank| prepared.hosts.contains(**host_rank));
                let wanted = (self.hosts() as usize).saturating_sub(self.resting.len()) + resting.count();
                prepared.hosts.count() >= wanted as u64
            }),
        }
    }

    /// Host ranks that the gang has.
    pub fn active(&self) -> Vec<Range<u32>> {
        self.resting.iter().copied().collect::<RankSet>().gaps(self.hosts())
    }

    /// The gangs of a job over these hosts.
    pub fn gangs(&self, job: &Job) -> Vec<GangPlan> {
        job.gangs_over(self.hosts(), &|role, host_rank| self.ranks_of(role, host_rank))
    }

    /// How many ranks of a role a host has.
    pub fn ranks_of(&self, role: usize, host_rank: u32) -> u32 {
        if self.resting.contains(&host_rank) {
            return 0;
        }
        let counts = self.ranks.get(role).map_or(&[][..], Vec::as_slice);
        let counted =
            counts.get(host_rank as usize).or(if counts.len() == 1 { counts.first() } else { None });
        counted.copied().unwrap_or(0)
    }

    /// How many ranks of a role all hosts have.
    pub fn ranks_of_all(&self, role: usize) -> u32 {
        self.ranks_of_those(role, &self.active())
    }

    /// How many ranks of a role these hosts have.
    fn ranks_of_those(&self, role: usize, hosts: &[Range<u32>]) -> u32 {
        match self.ranks.get(role).map(Vec::as_slice) {
            Some([same]) => {
                let hosts = hosts.iter().map(|range| range.end.saturating_sub(range.start));
                hosts.fold(0, u32::saturating_add).saturating_mul(*same)
            }
            _ => hosts
                .iter()
                .flat_map(Clone::clone)
                .map(|host_rank| self.ranks_of(role, host_rank))
                .fold(0, u32::saturating_add),
        }
    }

    /// Host ranks that have a host which is not among these.
    fn unheard(&self, heard: &RankSet) -> Vec<Range<u32>> {
        if heard.is_cut() {
            // It says nothing about single hosts.
            return Vec::new();
        }
        let without = self.unfilled.iter().chain(self.resting.iter()).copied().collect();
        heard.union(&without).gaps(self.hosts())
    }

    /// What people call a host.
    pub fn name(&self, host_rank: u32) -> &str {
        self.names.get(host_rank as usize).map_or("?", String::as_str)
    }

    /// What a job without all its hosts waits for.
    pub fn wanted(&self) -> Option<String> {
        match &self.unfilled[..] {
            [] => None,
            [one] => Some(format!("a host for host rank {one}")),
            many => {
                let shown: Vec<String> = many.iter().take(8).map(ToString::to_string).collect();
                let more = if many.len() > 8 { ",…" } else { "" };
                Some(format!("hosts for host ranks {}{more}", shown.join(",")))
            }
        }
    }
}

/// A worker that ended as it should not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedWorker {
    /// Its rank.
    pub rank: u32,
    /// How it ended; nothing when it was lost with its agent.
    pub exit: Option<Exit>,
    /// When that was noticed.
    pub at_ms: Option<u64>,
    /// The host that it was on, where there are several.
    pub host_rank: Option<u32>,
    /// The host ended all its ranks, because its lease was over.
    pub of_lease: bool,
}

/// What is with one gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GangView<'a> {
    /// The newest life that was begun anywhere, or waits for slots.
    pub incarnation: Option<u32>,
    /// Whether it waits for slots, and for which.
    pub queued: Option<String>,
    /// Workers that run, of whatever life.
    pub running: u32,
    /// Workers that may run: their hosts are unheard.
    pub unheard: u32,
    /// Workers whose hosts have not begun the newest life.
    pub unbegun: u32,
    /// Workers that ended with success.
    pub succeeded: u32,
    /// Every worker ended with success.
    pub done: bool,
    /// Living descendants of workers that are gone.
    pub orphans: u32,
    /// The first that ended as it should not.
    pub failed: Option<FailedWorker>,
    /// Workers were never started, because their agent died.
    pub incomplete: bool,
    /// What its failure looks like.
    pub likeness: Option<String>,
    /// Who failed first, as logs show.
    pub culprit: Option<Culprit>,
    /// How long the life was until somebody ended.
    pub lived_ms: Option<u64>,
    /// Everything of the life is gone and was looked at.
    pub examined: bool,
    /// Stacks were taken.
    pub witnessed: bool,
    /// The newest suspicion that people were told.
    pub warned: u32,
    /// Somebody looks for notices.
    pub listens: bool,
    /// Somebody is saving.
    pub saving: bool,
    /// Somebody reports steps.
    pub pulsing: bool,
    /// The furthest step.
    pub step: Option<u64>,
    /// The longest time between two steps.
    pub longest_ms: Option<u64>,
    /// When workers were told to leave.
    pub notified_since_ms: Option<u64>,
    /// When they were told that they may, for a life with more hosts.
    pub leave_since_ms: Option<u64>,
    /// Workers of the newest life that ended.
    pub gone: u32,
    /// When they were sent what the person sent.
    pub signalled_since_ms: Option<u64>,
    /// When they were sent SIGTERM.
    pub ending_since_ms: Option<u64>,
    /// When they were sent SIGKILL.
    pub killing_since_ms: Option<u64>,
    /// Hosts that are prepared, by life.
    pub prepared: BTreeMap<u32, Prepared>,
    /// What hosts found when they judged their parts; nothing on one host, where the decider judges.
    pub progress: Progress,
    /// Every worker, on one host.
    pub local: Option<&'a GangReport>,
}

/// What is with a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView<'a> {
    /// Of the report that this is about; the answer names it.
    pub number: u64,
    /// When.
    pub now_ms: u64,
    /// Somebody wants the job to end.
    pub stop: Option<Stop>,
    /// In the order of [`Job::gangs`].
    pub gangs: Vec<GangView<'a>>,
    /// The hosts, where there are several.
    pub hosts: Option<HostFacts>,
}

impl<'a> JobView<'a> {
    /// Of a job on one host. A gang that nobody has heard of has not begun.
    pub fn of_report(report: &'a Report, job: &Job) -> Self {
        let plans = job.gangs();
        let gangs = plans.iter().enumerate().map(|(gang, plan)| {
            let Some(about) = report.gangs.get(gang) else { return GangView::default() };
            GangView::of_report(about, job.roles[plan.role].kind, plan.ranks.len(), report.now_ms)
        });
        Self {
            number: report.number,
            now_ms: report.now_ms,
            stop: report.stop.clone(),
            gangs: gangs.collect(),
            hosts: None,
        }
    }

    /// Of a job on many hosts; the moment is in the coordinator's time.
    pub fn of_summary(summary: &Summary, job: &Job, facts: HostFacts, now_ms: u64) -> JobView<'static> {
        let empty = GangSummary::default();
        let plans = facts.gangs(job);
        let gangs = plans.iter().map(|plan| match plan.alone {
            Some(alone) => {
                let part = summary.alone.get(&plan.role).and_then(|ranks| ranks.get(&alone.rank));
                GangView::of_summary(part.unwrap_or(&empty), summary, &facts, Share::One(alone.host_rank))
            }
            None => {
                let part = summary.gangs.get(plan.role).unwrap_or(&empty);
                GangView::of_summary(part, summary, &facts, Share::All(plan.role))
            }
        });
        let gangs = gangs.collect();
        JobView { number: 0, now_ms, stop: summary.stop.clone(), gangs, hosts: Some(facts) }
    }
}

impl<'a> GangView<'a> {
    fn of_report(about: &'a GangReport, kind: Kind, ranks: usize, now_ms: u64) -> Self {
        let count = |wanted: &dyn Fn(&WorkerReport) -> bool| {
            u32::try_from(about.workers.iter().filter(|worker| wanted(worker)).count()).unwrap_or(u32::MAX)
        };
        let succeeded = |worker: &WorkerReport| worker.exit.as_ref().is_some_and(Exit::is_success);
        let pulses = || about.workers.iter().filter_map(|worker| worker.pulse.as_ref());
        let beating = || {
            let running = about.workers.iter().filter(|worker| worker.running);
            running.filter_map(|worker| worker.pulse.as_ref())
        };
        let running = count(&|worker| worker.running);
        let first = failed_workers(about, kind).min_by_key(|worker| worker.exit_ms);
        Self {
            incarnation: about.incarnation,
            queued: about.queued.clone(),
            running,
            succeeded: count(&succeeded),
            done: about.workers.iter().all(succeeded),
            orphans: about.orphans,
            failed: first.map(|worker| FailedWorker {
                rank: worker.rank,
                exit: worker.exit.clone(),
                at_ms: worker.exit_ms,
                host_rank: None,
                of_lease: false,
            }),
            incomplete: running == 0 && about.workers.len() < ranks && about.queued.is_none(),
            likeness: about.likeness.clone(),
            culprit: about.culprit.clone(),
            lived_ms: about.lived_ms,
            examined: about.examined,
            witnessed: about.witnessed,
            warned: about.warned,
            listens: beating().any(|pulse| pulse.listens),
            saving: beating().any(|pulse| saves(pulse, now_ms)),
            pulsing: pulses().next().is_some(),
            step: pulses().map(|pulse| pulse.step).max(),
            longest_ms: pulses().map(|pulse| pulse.longest_ms).max(),
            notified_since_ms: about.notified_since_ms,
            signalled_since_ms: about.signalled_since_ms,
            ending_since_ms: about.ending_since_ms,
            killing_since_ms: about.killing_since_ms,
            local: Some(about),
            ..Self::default()
        }
    }
}

/// Which ranks a gang of many hosts has: all of a role, or one on one host.
#[derive(Debug, Clone, Copy)]
enum Share {
    All(usize),
    One(u32),
}

impl GangView<'static> {
    /// What hosts say together. What they were told counts as told when all of them with processes were: else it is said again.
    fn of_summary(gang: &GangSummary, summary: &Summary, facts: &HostFacts, share: Share) -> Self {
        let nothing = LifeSummary::default();
        let newest = gang.lives.last().unwrap_or(&nothing);
        let older = &gang.lives[..gang.lives.len().saturating_sub(1)];
        let silent = facts.unheard(&summary.hosts);
        let (all, unheard) = match share {
            Share::All(role) => (facts.ranks_of_all(role), facts.ranks_of_those(role, &silent)),
            Share::One(host_rank) => (1, u32::from(silent.iter().any(|range| range.contains(&host_rank)))),
        };
        let told = |told: &dyn Fn(&LifeSummary) -> Told| {
            let told = told(newest);
            told.first_ms.filter(|_| told.hosts >= newest.alive)
        };
        let mut prepared: BTreeMap<u32, Prepared> = BTreeMap::new();
        for (life, hosts) in gang.lives.iter().flat_map(|life| &life.prepared) {
            let known = prepared.entry(*life).or_default();
            *known = known.merge(hosts);
        }
        let first = newest.failures.first.first().map(|failure| FailedWorker {
            rank: failure.rank,
            exit: failure.exit.clone(),
            at_ms: Some(failure.at_ms),
            host_rank: Some(failure.host_rank),
            of_lease: failure.of_lease,
        });
        let running = gang.lives.iter().map(|life| life.running).fold(0, u32::saturating_add);
        let count = u32::try_from(newest.hosts.count()).unwrap_or(u32::MAX);
        let progress = newest.progress.clone();
        Self {
            incarnation: newest.incarnation,
            queued: gang.lives.iter().find_map(|life| life.queued.clone()),
            running,
            unheard,
            unbegun: older.iter().map(|life| life.workers).fold(newest.waiting, u32::saturating_add),
            succeeded: newest.succeeded(),
            done: newest.succeeded() == all && all > 0,
            orphans: gang.lives.iter().map(|life| life.orphans).fold(0, u32::saturating_add),
            failed: first,
            likeness: newest.blame.as_ref().and_then(|blame| blame.likeness.clone()),
            culprit: newest.blame.as_ref().map(|blame| Culprit {
                rank: blame.rank,
                what: blame.what.clone(),
                code: blame.code,
                of_connection: blame.of_connection,
                failed_ms: Some(blame.at_ms),
            }),
            lived_ms: newest.lived_ms,
            examined: newest.examined >= count && count > 0 && running == 0 && unheard == 0,
            witnessed: progress.unwitnessed == 0,
            warned: progress.warned.unwrap_or(0),
            listens: progress.listens,
            saving: progress.saving,
            pulsing: progress.step.is_some(),
            step: progress.step,
            longest_ms: progress.longest_ms,
            notified_since_ms: told(&|life| life.notified),
            leave_since_ms: told(&|life| life.leave),
            gone: newest.gone(),
            signalled_since_ms: told(&|life| life.signalled),
            ending_since_ms: told(&|life| life.ending),
            killing_since_ms: told(&|life| life.killing),
            prepared,
            progress,
            incomplete: false,
            local: None,
        }
    }
}

/// Workers of a gang that ended as they should not.
pub fn failed_workers(about: &GangReport, kind: Kind) -> impl Iterator<Item = &WorkerReport> {
    // Who was told to leave and says that it did has not failed, even if it should never leave by itself.
    let left = |worker: &WorkerReport| {
        let exit = worker.exit.as_ref();
        if about.leave_since_ms.is_some() && exit.is_some_and(|exit| exit.wants_to_go_on()) {
            return true;
        }
        about.notified_since_ms.is_some()
            && exit.is_some_and(|exit| exit.is_success() || exit.wants_to_go_on() || exit.is_terminated())
    };
    let service = kind == Kind::Service;
    let ended = about.workers.iter().filter(move |worker| !worker.running && !worker.asked && !left(worker));
    ended.filter(move |worker| worker.exit.as_ref().is_none_or(|exit| !exit.is_success() || service))
}
