//! What many hosts mean for the lives of a gang: they begin in two phases, wait for hosts that are missing, and fail with a host.
//!
//! A life is ordered, then every host prepares for it, and only when all have is it begun. So nothing of an older life is left anywhere
//! when a new one begins: a host with workers that run is not prepared. That every host was prepared, and where rank 0 listens, is written
//! down before it is said, so that another leader says the same.

use std::borrow::Cow;
use std::net::SocketAddr;

use crate::coordinator::decider::{Decider, about};
use crate::coordinator::history::{Entry, GangHistory};
use crate::coordinator::verdict::{Action, Failure, Gang, Stop, Verdict};
use crate::coordinator::view::{GangView, HostFacts, HostLoss, JobView};
use crate::job::policy::{Cause, Scope};
use crate::job::{GangPlan, LoneRank};
use crate::tree::summary::merged_stop;

/// How long hosts may take to prepare; who has not by then failed to start.
pub(super) const PREPARE_MS: u64 = 30_000;
/// The same where a copy of a directory has to come first.
const PREPARE_WITH_COPY_MS: u64 = 600_000;
/// Ranks over hosts that may restart alone: each has a history of its own, and orders name all of them.
const ALONE_MAX: usize = 1024;
/// Hosts that are named when they are many.
const NAMED_MAX: usize = 8;

impl Decider {
    /// Remembers that the job has to end: somebody asked, or it cannot go on with these hosts.
    pub(super) fn hear_stop(&mut self, view: &JobView<'_>) {
        let Some(hosts) = &view.hosts else {
            if let Some(stop) = view.stop.clone() {
                // The agent has written it down before it said so.
                self.history.fold(&Entry::Stop { stop });
            }
            return;
        };
        let asked = merged_stop(view.stop.clone(), self.impossible(hosts, view.now_ms).as_ref());
        let all = merged_stop(asked, self.history.stop.as_ref());
        if let Some(stop) = all.filter(|stop| self.history.stop.as_ref() != Some(stop)) {
            self.note(Entry::Stop { stop });
        }
    }

    /// Why the job cannot go on with these hosts.
    fn impossible(&self, hosts: &HostFacts, now_ms: u64) -> Option<Stop> {
        let lone = |plan: &&GangPlan| plan.alone.is_some();
        let many = self.plans.iter().filter(lone).count() > ALONE_MAX;
        let alone = self.job.roles.iter().find(|role| many && role.policy.restart == Scope::One);
        let too_long = hosts.unfilled_since_ms.filter(|since_ms| {
            hosts.host_wait_ms > 0 && now_ms >= since_ms.saturating_add(hosts.host_wait_ms)
        });
        let by = match (alone, too_long.and(hosts.wanted())) {
            (Some(role), _) => {
                format!(
                    "role {}: more than {ALONE_MAX} ranks on several hosts cannot be restarted one by one (--restart one)",
                    role.name
                )
            }
            (None, Some(wanted)) => format!("the job waited {} s for {wanted}", hosts.host_wait_ms / 1000),
            (None, None) => return None,
        };
        let policy = self.job.roles.first().map(|role| &role.policy);
        let grace_ms = policy.map_or(0, |policy| policy.failure_grace_ms);
        Some(Stop { by, grace_ms, code: 1, failed: true, ..Stop::default() })
    }

    /// What is new about the hosts of a gang: one that was lost with its workers, or did not prepare in time.
    pub(super) fn take_note_of_hosts(&mut self, gang: usize, about: &GangView<'_>, view: &JobView<'_>) {
        let Some(hosts) = self.hosts_of(gang, view) else { return };
        let history = &self.history.gangs[gang];
        let Some(incarnation) = history.incarnation.filter(|_| history.outcome.is_none()) else { return };
        let Some(prepared_ms) = history.prepared_ms else {
            let failure = self.failed_start(gang, incarnation, about, view);
            if let Some(failure) = failure.or_else(|| self.other_size(gang, incarnation, &hosts, view)) {
                self.note(Entry::Failed { gang, failure });
            }
            return;
        };
        let first = |loss: &&HostLoss| (loss.at_ms, loss.host_rank);
        match history.failure() {
            None => {
                let lost = hosts.losses.iter().min_by_key(first).map(|loss| (loss.words(), loss.at_ms));
                // Nobody joins a life that has begun, so whoever has a host rank anew means that somebody was lost.
                let replaced = || {
                    let changed = hosts.filled_ms >= prepared_ms || !hosts.unfilled.is_empty();
                    changed.then(|| ("a host was lost".to_owned(), view.now_ms))
                };
                if let Some((what, at_ms)) = lost.or_else(replaced) {
                    let failure = of_host(incarnation, what, at_ms, about.step);
                    self.note(Entry::Failed { gang, failure });
                }
            }
            Some(known) if known.cause == Cause::Crash => {
                // Peers of a host that is lost notice that long before its lease is over.
                let because =
                    hosts.losses.iter().filter(|loss| loss.heard_ms <= known.at_ms).min_by_key(first);
                if let Some(loss) = because {
                    let failure =
                        Failure { step: known.step, ..of_host(incarnation, loss.words(), known.at_ms, None) };
                    self.note(Entry::Blamed { gang, failure });
                }
            }
            Some(_) => {}
        }
    }

    /// The failure of a life that was ordered and has not begun, because there are not enough hosts for its size.
    fn other_size(
        &self,
        gang: usize,
        incarnation: u32,
        hosts: &HostFacts,
        view: &JobView<'_>,
    ) -> Option<Failure> {
        let history = &self.history.gangs[gang];
        let resized = history.ordered_ms.is_some_and(|ordered_ms| ordered_ms < hosts.resized_ms);
        let lost = || hosts.losses.iter().map(HostLoss::words).next();
        let why = match (hosts.shrinks, resized) {
            (true, _) => {
                lost().or_else(|| hosts.wanted().map(|wanted| format!("waited too long for {wanted}")))
            }
            (false, true) => Some("the number of hosts changed before it began".to_owned()),
            (false, false) => None,
        };
        let waits = history.failure().is_some() || self.history.stop.is_some();
        why.filter(|_| !waits).map(|what| of_host(incarnation, what, view.now_ms, None))
    }

    /// Whether no life runs or is about to begin, so that the next may have another size.
    pub fn is_between_lives(&self) -> bool {
        let between = |history: &GangHistory| history.incarnation.is_none() || history.failure().is_some();
        self.history.gangs.iter().all(|history| history.outcome.is_some() || between(history))
    }

    /// The failure of a life for which a host does not prepare.
    fn failed_start(
        &self,
        gang: usize,
        incarnation: u32,
        about: &GangView<'_>,
        view: &JobView<'_>,
    ) -> Option<Failure> {
        let hosts = self.hosts_of(gang, view)?;
        let history = &self.history.gangs[gang];
        let waits = history.failure().is_some() || self.history.stop.is_some() || about.queued.is_some();
        let over = self.prepare_by_ms(gang, view).is_some_and(|by_ms| view.now_ms >= by_ms);
        let prepared = about.prepared.get(&incarnation);
        if waits || !over || !hosts.unfilled.is_empty() || hosts.is_prepared(prepared) {
            return None;
        }
        let missing = hosts.unprepared(prepared, NAMED_MAX + 1);
        let named: Vec<String> = missing
            .iter()
            .take(NAMED_MAX)
            .map(|host_rank| format!("{} (host rank {host_rank})", hosts.name(*host_rank)))
            .collect();
        let more = if missing.len() > NAMED_MAX { ", …" } else { "" };
        let what = match &named[..] {
            [one] => format!("host {one} was not prepared after {} s", self.prepare_ms() / 1000),
            many => {
                format!(
                    "hosts {}{more} were not prepared after {} s",
                    many.join(", "),
                    self.prepare_ms() / 1000
                )
            }
        };
        Some(of_host(incarnation, what, view.now_ms, None))
    }

    /// When hosts have to be prepared for the life that is ordered.
    pub(super) fn prepare_by_ms(&self, gang: usize, view: &JobView<'_>) -> Option<u64> {
        let filled_ms = self.hosts_of(gang, view)?.filled_ms;
        let ordered_ms = self.history.gangs[gang].ordered_ms?;
        Some(ordered_ms.max(filled_ms).saturating_add(self.prepare_ms()))
    }

    fn prepare_ms(&self) -> u64 {
        if self.job.ships { PREPARE_WITH_COPY_MS } else { PREPARE_MS }
    }

    /// What to do about a life that was ordered and has not begun everywhere; nothing when it has, or has failed.
    pub(super) fn beginning(&self, gang: usize, view: &JobView<'_>, known: &Gang) -> Option<Verdict> {
        let hosts = self.hosts_of(gang, view)?;
        let (history, about) = (&self.history.gangs[gang], about(view, gang));
        let incarnation = history.incarnation.filter(|_| history.failure().is_none())?;
        let begun = about.incarnation >= Some(incarnation);
        let say = |action, reason: String| Some(Verdict { action, reason });
        if known.stop.is_some() {
            return if begun || about.running > 0 {
                None
            } else {
                say(Action::Stopped, "stopped before it began".to_owned())
            };
        }
        if history.prepared_ms.is_some() {
            // Said until every host that is heard has begun; who has does not listen.
            let everywhere = begun && about.unbegun == 0;
            return if everywhere {
                None
            } else {
                say(Action::Start { incarnation }, history.reason.clone())
            };
        }
        if let Some(wanted) = hosts.wanted() {
            return say(Action::Wait { until_ms: None }, format!("waits for {wanted}"));
        }
        let prepared = hosts.is_prepared(about.prepared.get(&incarnation));
        let action = if prepared && self.meets(gang, view) {
            Action::Start { incarnation }
        } else {
            Action::Prepare { incarnation }
        };
        match &about.queued {
            Some(what) if matches!(action, Action::Prepare { .. }) => {
                say(action, format!("waits for {what}"))
            }
            _ => say(action, history.reason.clone()),
        }
    }

    /// What the hosts of a gang are and have been: all, or the one that it runs on.
    pub(super) fn hosts_of<'v>(&self, gang: usize, view: &'v JobView<'_>) -> Option<Cow<'v, HostFacts>> {
        let hosts = view.hosts.as_ref()?;
        Some(match self.plans[gang].host {
            Some(host_rank) => Cow::Owned(hosts.of_one(host_rank)),
            None => Cow::Borrowed(hosts),
        })
    }

    /// Whether it is known where the ranks of a gang meet, or its own host will say so.
    fn meets(&self, gang: usize, view: &JobView<'_>) -> bool {
        let first = self.job.roles[self.plans[gang].role].first_host();
        let known = |alone: LoneRank| alone.host_rank == first || self.meeting(gang, view).is_some();
        self.plans[gang].alone.is_none_or(known)
    }

    /// Where ranks that come and go alone meet: where the first host has kept a port for their role, as it said last.
    fn meeting(&self, gang: usize, view: &JobView<'_>) -> Option<SocketAddr> {
        let role = self.plans[gang].alone.map(|_| self.plans[gang].role)?;
        let first_host = self.job.roles[role].first_host();
        let first = |peer: &usize| {
            let plan = &self.plans[*peer];
            plan.role == role && plan.alone.is_some_and(|alone| alone.host_rank == first_host)
        };
        let peers = || (0..self.plans.len()).filter(first);
        let known = peers().filter_map(|peer| {
            let history = &self.history.gangs[peer];
            Some((history.prepared_ms?, history.meeting?))
        });
        let said =
            peers().flat_map(|peer| about(view, peer).prepared.values()).find_map(|known| known.meeting);
        said.or_else(|| known.max().map(|(_, meeting)| meeting))
    }

    /// Puts a life that hosts are to prepare for into the journal, once.
    pub(super) fn order_life(&mut self, gang: usize, incarnation: u32, reason: String, view: &JobView<'_>) {
        if self.history.gangs[gang].incarnation != Some(incarnation) {
            // Slots are those of each host, in order; spares of a host are its own matter.
            let placement = self.plans[gang].ranks.clone().collect();
            let at_ms = Some(view.now_ms);
            self.note(Entry::Ordered { gang, incarnation, placement, reason, at_ms });
        }
    }

    /// Puts into the journal that every host is prepared, once.
    pub(super) fn order_start(&mut self, gang: usize, incarnation: u32, view: &JobView<'_>) {
        if self.history.gangs[gang].prepared_ms.is_none() {
            let prepared = about(view, gang).prepared.get(&incarnation);
            let meeting = prepared.and_then(|prepared| prepared.meeting).or_else(|| self.meeting(gang, view));
            self.note(Entry::Prepared { gang, incarnation, meeting, at_ms: view.now_ms });
        }
    }
}

/// On many hosts a life that may begin is prepared first, when every host rank has a host.
pub(super) fn prepared_first(hosts: Option<&HostFacts>, incarnation: u32, verdict: Verdict) -> Verdict {
    let Some(hosts) = hosts else { return verdict };
    if hosts.reserved.is_some_and(|reserved| incarnation >= reserved) {
        // Otherwise a job that is started again could give the same number to another life.
        let reason = format!("{}; waits for the state directory to note life {incarnation}", verdict.reason);
        return Verdict { action: Action::Wait { until_ms: None }, reason };
    }
    if hosts.resizes && hosts.unfilled.is_empty() {
        let reason = format!("{}; on other hosts", verdict.reason);
        return Verdict { action: Action::Wait { until_ms: None }, reason };
    }
    match hosts.wanted() {
        Some(wanted) => {
            let reason = match incarnation {
                0 => format!("waits for {wanted}"),
                _ => format!("{}; waits for {wanted}", verdict.reason),
            };
            Verdict { action: Action::Wait { until_ms: None }, reason }
        }
        None => {
            let all = hosts.hosts() as usize;
            let reason = match hosts.resting.len() {
                0 => verdict.reason,
                // Spares are no hosts that are missing.
                resting => format!("{}; on {} of {all} hosts", verdict.reason, all.saturating_sub(resting)),
            };
            Verdict { action: Action::Prepare { incarnation }, reason }
        }
    }
}

fn of_host(incarnation: u32, what: String, at_ms: u64, step: Option<u64>) -> Failure {
    Failure {
        incarnation,
        what,
        cause: Cause::Host,
        rank: None,
        code: 1,
        likeness: None,
        lived_ms: None,
        step,
        at_ms,
    }
}

#[cfg(test)]
mod tests;
