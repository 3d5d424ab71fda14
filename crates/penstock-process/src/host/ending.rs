//! The end of a job of many hosts: it goes down the tree, hosts say goodbye from the leaves up, and the leader leaves last (H6).

use crate::coordinator::messages::{GangReport, Over, Report};
use crate::host::messages::Body;
use crate::host::subscriptions::LAST_WORDS_MS;
use crate::host::{Effect, Host};
use crate::job::state::Phase;
use crate::vote::storage::VoteStorage;

/// How long a host waits for the goodbye of those below it. The leader waits for every host whose lease may have a rest.
const GOODBYE_MS: u64 = 3000;
/// How long nobody listens where hosts meet, before a host that was to be there tries to have the port again; and how the kernel says it.
const DISPLACED_MS: u64 = 3000;
const REFUSED: &str = "Connection refused";

/// What a host remembers of the end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    since_ms: Option<u64>,
    told: bool,
    /// Since when nobody lets ranks run here.
    alone_ms: Option<u64>,
    /// Why it waits no longer.
    alone: Option<String>,
    /// Its agent left the job, the others know, and why.
    left: Option<String>,
}

impl Ending {
    /// The job is over, as this host knows.
    pub(super) fn has_begun(&self) -> bool {
        self.since_ms.is_some()
    }

    /// Whether the agent may be told.
    pub(super) fn is_told(&self) -> bool {
        self.told
    }

    /// Whether the others know that this host left the job.
    pub(super) fn has_left(&self) -> bool {
        self.left.is_some()
    }

    pub(super) fn due_ms(&self, now_ms: u64) -> Option<u64> {
        let since_ms = self.since_ms.filter(|_| !self.told)?;
        Some(since_ms + if now_ms < since_ms + LAST_WORDS_MS { LAST_WORDS_MS } else { GOODBYE_MS })
    }

    /// Why this host waits no longer for the others.
    pub(super) fn alone(&self) -> Option<&String> {
        self.alone.as_ref()
    }
}

impl<S: VoteStorage> Host<S> {
    /// Lets the agent know that the job is over, once everybody below does.
    pub(super) fn end_if_over(&mut self) {
        if self.ending.told || self.orders.as_ref().is_none_or(|orders| orders.orders.over.is_none()) {
            return;
        }
        let since_ms = *self.ending.since_ms.get_or_insert(self.now_ms);
        if self.waits_for_last_words(since_ms) {
            return;
        }
        let (waits, limit_ms) = match &self.leading {
            Some(leading) => (leading.expects_goodbyes(self.rank), GOODBYE_MS.max(self.config.lease_ms)),
            None => (!self.below.heard().is_empty(), GOODBYE_MS),
        };
        if waits && self.now_ms < since_ms + limit_ms {
            return;
        }
        self.ending.told = true;
        if let Some(parent) = self.upward.parent() {
            self.say(parent, Body::Goodbye { host: self.me.id, why: "the job is over".to_owned() });
        }
    }

    /// Says goodbye for an agent that leaves the job, nothing of it running any more: the host rank is free at once, without a lease. Who leads
    /// cannot say it to anybody: the next leader has to wait until its leases are over in any case.
    pub(super) fn say_leaving(&mut self) {
        let leaves = |report: &&Report| report.leaves.is_some() && self.ending.left.is_none();
        let Some(report) = self.agent.report().filter(leaves) else { return };
        let gone = report.gangs.iter().all(|gang| gang.alive() == 0);
        let Some(why) = report.leaves.clone().filter(|_| gone) else { return };
        let Some(parent) = self.upward.parent() else { return };
        if self.say(parent, Body::Goodbye { host: self.me.id, why: why.clone() }) {
            self.ending.left = Some(why);
        }
    }

    /// Whoever had the port where hosts meet is gone, and nobody will ever answer there: this host may have it after all.
    fn take_port_again(&mut self) {
        let Some((why, since_ms)) = self.meeting.unreached.as_ref().filter(|_| self.config.is_displaced)
        else {
            return;
        };
        if self.rank.is_none() && why.starts_with(REFUSED) && self.now_ms >= since_ms + DISPLACED_MS {
            let endpoint = self.config.endpoint;
            self.out.push(Effect::Note(format!("nobody listens at {endpoint} any more; tries to have it")));
            self.out.push(Effect::BeginAgain);
            self.meeting.unreached = None;
        }
    }

    /// A host that has waited for the others for too long ends by itself.
    pub(super) fn give_up_alone(&mut self) {
        self.take_port_again();
        let wait_ms = self.config.host_wait_ms;
        if wait_ms == 0 || !self.is_out_of_lease() {
            self.ending.alone_ms = None;
            return;
        }
        let since_ms = *self.ending.alone_ms.get_or_insert(self.now_ms);
        if self.ending.alone.is_none() && self.now_ms >= since_ms.saturating_add(wait_ms) {
            let waited = self.why_it_waits();
            self.ending.alone = Some(format!("{waited}; gave up after {} s (--host-wait)", wait_ms / 1000));
        }
    }

    /// Why this host ends whatever the others do, and how: it may never join, nobody joins it, or people say so while nobody leads.
    pub(super) fn refusal(&self) -> Option<(Over, String)> {
        if let Some(why) = &self.meeting.refused {
            return Some((Over { phase: Phase::Failed, code: 2 }, why.clone()));
        }
        if let Some(why) = self.ending.alone() {
            return Some((Over { phase: Phase::Failed, code: 1 }, why.clone()));
        }
        let report = self.agent.report().filter(|_| self.is_out_of_lease())?;
        let busy = |gang: &GangReport| gang.orphans > 0 || gang.workers.iter().any(|worker| worker.running);
        let stop = report.stop.as_ref().filter(|_| !report.gangs.iter().any(busy))?;
        let phase = if stop.failed { Phase::Failed } else { Phase::Stopped };
        Some((Over { phase, code: stop.code }, format!("stopped by {}", stop.by)))
    }
}
