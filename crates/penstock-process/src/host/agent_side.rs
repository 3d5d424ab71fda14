//! The host and its own agent: reports become a summary, and orders of the leader become orders on this host's clock.

use std::sync::Arc;

use crate::coordinator::hang::Past;
use crate::coordinator::messages::{Order, Orders, Report, Standing};
use crate::coordinator::verdict::Action;
use crate::host::{Effect, Host};
use crate::job::state::Phase;
use crate::job::{GangPlan, Role};
use crate::tree::summary::{HostPlace, Summary, Troubles};
use crate::vote::storage::VoteStorage;

/// An agent is told that its lease ends later after such a share of it: what it knows is never older, and three processes would wake
/// for each heartbeat otherwise. What came last is told as well, so a host that is cut off loses nothing by it.
const TELL_SHARE: u64 = 6;

/// What is known of the agent.
#[derive(Debug, Default)]
pub(super) struct OwnAgent {
    report: Option<Report>,
    /// What it was told last.
    told: Option<Told>,
    /// It has asked and was not answered.
    waits: bool,
}

/// What an agent was told last.
#[derive(Debug)]
struct Told {
    orders: Arc<Orders>,
    lease_until_ms: Option<u64>,
    at_ms: u64,
    basis: Basis,
}

/// All that orders follow from, but the agent's report and the end of the lease: as long as it is the same, so are they.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Basis {
    orders: [u64; 2],
    list: u64,
    rank: Option<u32>,
    has_time: bool,
    ends: bool,
    out_of_lease: bool,
    lacks_copy: bool,
    refused: [bool; 2],
    said: u32,
}

impl OwnAgent {
    /// What it said is of another host rank.
    pub(super) fn forget(&mut self) {
        self.told = None;
    }

    /// What it said last.
    pub(super) fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }
}

impl<S: VoteStorage> Host<S> {
    pub(super) fn take_report(&mut self, mut report: Report) {
        self.note_own_stderr(std::mem::take(&mut report.stderr));
        self.agent.report = Some(report);
        self.agent.waits = true;
        self.summarise_own();
    }

    /// Says anew what is with this host.
    pub(super) fn summarise_own(&mut self) {
        // Without the coordinator's clock its moments would mislead whoever compares them.
        let known = self.clock.is_set();
        let (Some(rank), Some(report), true) = (self.rank, &self.agent.report, known) else {
            self.below.set_own(Arc::default());
            return;
        };
        let standing = self.standing(rank);
        let orders = self.orders.as_ref().map(|orders| &orders.orders);
        let place = HostPlace {
            host_rank: rank,
            first_ranks: &standing.first_ranks,
            address: self.me.address.ip(),
            offset_ms: self.clock.offset_ms(),
            within_ms: self.clock.within_ms(),
            told_to_stop: orders.is_some_and(|orders| orders.phase == Phase::Ending),
            pasts: &orders.map(|orders| self.pasts(rank, orders)).unwrap_or_default(),
        };
        let mut own = Summary::of_report(report, &self.job, &place);
        if self.membership.list.resting.contains(&rank) {
            own.forget_past();
        }
        own.troubles = Troubles::of(rank, self.own_troubles());
        self.below.set_own(Arc::new(own));
    }

    /// What a life means for a host rank.
    pub(super) fn standing(&self, rank: u32) -> Standing {
        let list = &self.membership.list;
        let (place, hosts) = (list.group_rank(rank), list.active());
        // Of the first role a host may have more workers than another; of further ones all have the same.
        let first = |role: usize, about: &Role| match (role, about.host) {
            (_, Some(_)) => 0,
            (0, None) => list.first_rank(rank),
            (_, None) => place * about.ranks,
        };
        let world = |role: usize, about: &Role| match (role, about.host) {
            (_, Some(_)) => about.ranks,
            (0, None) => list.world(),
            (_, None) => hosts * about.ranks,
        };
        let roles = || self.job.roles.iter().enumerate();
        let slots = list.host(rank).map_or(0, |entry| entry.slots);
        Standing {
            host_rank: place,
            hosts,
            sizes: self.config.sizes.iter().map(|size| size * slots).collect(),
            first_ranks: roles().map(|(role, about)| first(role, about)).collect(),
            worlds: roles().map(|(role, about)| world(role, about)).collect(),
            of_one_host: roles().filter(|(_, about)| about.host.is_some()).map(|(role, _)| role).collect(),
            address: self.me.address.ip().to_string(),
            interface: self.config.interface.clone(),
        }
    }

    /// The gangs of the job over the hosts of the list.
    pub(super) fn gangs_of_hosts(&self) -> Vec<GangPlan> {
        let (list, roles) = (&self.membership.list, &self.job.roles);
        // Of the first role a host may have more workers than another.
        let ranks = |role: usize, host_rank: u32| match role {
            0 if roles[0].host.is_none() => list.host(host_rank).map_or(0, |entry| entry.slots),
            _ => roles.get(role).map_or(0, |about| about.ranks),
        };
        self.job.gangs_over(list.len(), &ranks)
    }

    /// The number that a gang of the job has on this host; nothing for one that runs on another.
    fn own_gang(&self, host_rank: u32, number: usize) -> Option<usize> {
        let plan = self.plans.get(number)?;
        if plan.host.is_some_and(|bound| bound != host_rank) {
            return None;
        }
        let same = |own: &GangPlan| own.role == plan.role && own.ranks.start == plan.ranks.start;
        self.job.gangs().iter().position(same)
    }

    /// What orders say about earlier lives, by this host's gangs.
    fn pasts(&self, host_rank: u32, orders: &Orders) -> Vec<Option<Past>> {
        let mut found = vec![None; self.job.gangs().len()];
        for order in &orders.gangs {
            if let Some(gang) = self.own_gang(host_rank, order.gang) {
                found[gang] = order.past;
            }
        }
        found
    }

    /// Answers the agent, and tells it what is new.
    pub(super) fn tell_agent(&mut self) {
        let Some(number) = self.agent.report.as_ref().map(|report| report.number) else { return };
        let (basis, waits) = (self.basis(), std::mem::take(&mut self.agent.waits));
        if !waits && self.agent.told.as_ref().is_some_and(|told| told.basis == basis) {
            self.renew_lease_of_agent();
            return;
        }
        let orders = self.orders_for_agent(number);
        match &mut self.agent.told {
            Some(told) if !waits && is_same(&told.orders, &orders) => {
                told.basis = basis;
                self.renew_lease_of_agent();
            }
            told => {
                let (orders, at_ms) = (Arc::new(orders), self.now_ms);
                let lease_until_ms = orders.lease_until_ms;
                *told = Some(Told { orders: Arc::clone(&orders), lease_until_ms, at_ms, basis });
                self.out.push(Effect::Order(orders));
            }
        }
    }

    /// Tells the agent that its lease ends later, from time to time, and nothing else.
    fn renew_lease_of_agent(&mut self) {
        let due_ms = self.heartbeat_ms().max(self.config.lease_ms / TELL_SHARE);
        let Some(told) = &mut self.agent.told else { return };
        let Some(end_ms) = self.lease_end_ms.filter(|end_ms| Some(*end_ms) != told.lease_until_ms) else {
            return;
        };
        if self.now_ms >= told.at_ms + due_ms {
            (told.lease_until_ms, told.at_ms) = (Some(end_ms), self.now_ms);
            self.out.push(Effect::Renew(end_ms));
        }
    }

    fn basis(&self) -> Basis {
        Basis {
            orders: self.orders.as_ref().map_or([0, 0], |orders| [orders.term, orders.number]),
            list: self.membership.list.stamp(),
            rank: self.rank,
            has_time: self.clock.is_set(),
            ends: self.ending.is_told(),
            out_of_lease: self.is_out_of_lease(),
            lacks_copy: !self.shipping.is_ready(),
            refused: [self.meeting.refused.is_some(), self.ending.alone().is_some()],
            said: self.meeting.said_count,
        }
    }

    fn orders_for_agent(&self, number: u64) -> Orders {
        let given = self.orders.as_ref().filter(|_| self.refusal().is_none());
        let (Some(rank), Some(given)) = (self.rank, given) else { return self.waiting(number) };
        let mut orders = given.orders.clone();
        orders.number = number;
        orders.look_at_ms = None;
        orders.over = orders.over.filter(|_| self.ending.is_told());
        if orders.over.is_none() && orders.phase.is_final() {
            // Whoever looks meanwhile would take it for the end, which has an exit code.
            orders.phase = Phase::Ending;
        }
        orders.gangs.retain_mut(|order| {
            let own = self.own_gang(rank, order.gang);
            order.gang = own.unwrap_or(order.gang);
            own.is_some()
        });
        let follows = self.membership.list.version >= given.list;
        for order in &mut orders.gangs {
            self.make_local(order, follows && !self.membership.list.resting.contains(&rank));
        }
        let goes_on = orders.over.is_none() && orders.phase != Phase::Ending;
        if goes_on && self.membership.list.resting.contains(&rank) {
            (orders.phase, orders.reason) = (Phase::Waiting, self.spare_words());
        }
        orders.standing = Some(self.standing(rank));
        orders.lease_until_ms = self.lease_end_ms;
        orders
    }

    /// What people on a host are told that has no rank.
    fn spare_words(&self) -> String {
        let list = &self.membership.list;
        format!("is a spare: the job runs on {} of {} hosts", list.active(), list.len())
    }

    /// An order on this host's clock, for this host's workers; `may_begin`, if a life may begin here.
    fn make_local(&self, order: &mut Order, may_begin: bool) {
        let local = |moment: &mut u64| *moment = self.clock.local_ms(*moment);
        match &mut order.action {
            Action::Notify { deadline_ms, save_by_ms, .. } => {
                [deadline_ms, save_by_ms].into_iter().for_each(local)
            }
            Action::Wait { until_ms } => *until_ms = None,
            Action::Start { .. } | Action::Prepare { .. } => {
                let gangs = self.job.gangs();
                let ranks = gangs.get(order.gang).map_or(0..0, |plan| plan.ranks.clone());
                order.placement = ranks.collect();
                if self.is_out_of_lease() || !may_begin || !self.shipping.is_ready() {
                    // Nothing begins that would have to end at once, on a spare, or with a size that is not known yet.
                    order.action = Action::Wait { until_ms: None };
                }
            }
            _ => {}
        }
        order.failures.iter_mut().for_each(|failure| failure.at_ms = self.clock.local_ms(failure.at_ms));
    }

    /// What this host waits for, before there is a leader or while it has no place.
    pub(super) fn why_it_waits(&self) -> String {
        match (&self.meeting.refused, &self.meeting.why) {
            (Some(why), _) => why.clone(),
            (None, Some(why)) if self.rank.is_none() => why.clone(),
            (None, _) if self.rank.is_none() => format!("waits for the host at {}", self.config.endpoint),
            _ => "waits for a leader".to_owned(),
        }
    }

    /// What an agent is told before there is a leader, or while its host has no place.
    fn waiting(&self, number: u64) -> Orders {
        Orders {
            number,
            phase: Phase::Waiting,
            reason: self.refusal().map_or_else(|| self.said(), |(_, why)| why),
            gangs: Vec::new(),
            look_at_ms: None,
            over: self.refusal().map(|(over, _)| over),
            standing: self.rank.map(|rank| self.standing(rank)),
            lease_until_ms: self.lease_end_ms,
        }
    }
}

/// Whether an agent learns nothing from the second that it has not from the first, but a later end of its lease.
fn is_same(told: &Orders, orders: &Orders) -> bool {
    let Orders { number: _, phase, reason, gangs, look_at_ms, over, standing, lease_until_ms: _ } = told;
    (phase, look_at_ms, over) == (&orders.phase, &orders.look_at_ms, &orders.over)
        && (reason, standing, gangs) == (&orders.reason, &orders.standing, &orders.gangs)
}
