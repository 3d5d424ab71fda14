//! The leader: decides for the whole job with the same function as for one host, over what its tree tells it.
//!
//! It gives an order only after a majority of voters has what it follows from (H1), and calls a host expired only when no lease of
//! it can have any rest (H2, H3): it stops to count a host when its subtree does, and every lease given until then ends with the
//! leader's own.

mod host_rows;
mod host_watch;
pub(in crate::host) mod job_incident;
mod requests;
mod resizing;
pub mod sizes;
mod troubles;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use crate::coordinator::decider::Decider;
use crate::coordinator::messages::{Order, Orders};
use crate::coordinator::verdict::Action;
use crate::coordinator::view::{HostLoss, JobView};
use crate::host::clock::CoordinatorClock;
use crate::host::leading::requests::Requests;
use crate::host::messages::{Body, Header, JobOrders, JoinRequest};
use crate::host::voting::Record;
use crate::host::{Effect, Host};
use crate::job::Job;
use crate::job::state::wall_s;
use crate::lease::grant;
use crate::lease::host_state::HostState;
use crate::tree::host_list::{HostId, children};
use crate::tree::summary::{Summary, Troubles};
use crate::vote::storage::VoteStorage;

/// Pledges whose moments are remembered.
const REMEMBERED: usize = 64;
/// Between two orders that differ in words alone: so long, and a millisecond more for so many hosts, because all of them hear each.
const WORDS_MS: u64 = 1000;
const WORDS_SHARE: u64 = 20;
/// News of so many hosts that are not as they should be are gathered for a millisecond before they are looked at.
const UNSETTLED_SHARE: usize = 500;
/// Hosts that may wait for a place.
const JOINERS_MAX: usize = 1024;
/// Between two visits to the place where hosts meet.
const VISIT_MS: u64 = 1000;
/// A host that waited for a place and was not heard for so long has gone elsewhere.
const JOINER_MS: u64 = 5000;

/// What the leader knows of one host.
#[derive(Debug, Clone)]
struct Track {
    state: HostState,
    since_ms: u64,
    /// Whether its subtree counts it now.
    covered: bool,
    /// When it ceased to.
    lost_ms: u64,
    /// When no lease of it can have any rest.
    expires_ms: u64,
}

/// What waits for a majority.
#[derive(Debug)]
struct Pending {
    number: u64,
    orders: Option<Orders>,
}

/// The leader of a term.
pub struct Leading {
    term: u64,
    began_ms: u64,
    decider: Decider,
    tracks: Vec<Track>,
    /// Hosts that are not both heard and here: all others need no look.
    unsettled: BTreeSet<u32>,
    considered_ms: u64,
    /// When the endpoint is dialled again.
    visit_ms: u64,
    /// What people call the hosts of the list with this version, and how many ranks of each role they have.
    known: u64,
    names: Arc<Vec<String>>,
    ranks: Arc<Vec<Vec<u32>>>,
    /// Which host ranks the gang goes without.
    resting: Arc<BTreeSet<u32>>,
    /// How hosts were lost, by host rank.
    losses: BTreeMap<u32, HostLoss>,
    /// Which those were: another may have the host rank by now.
    lost_ids: BTreeMap<u32, HostId>,
    /// When a host rank was last filled, in the coordinator's time, and when each.
    filled_ms: u64,
    filled: Arc<BTreeMap<u32, u64>>,
    goodbyes: BTreeMap<HostId, String>,
    /// Hosts whose processes were seen to end, by whom, and when that was said.
    ended: BTreeMap<HostId, (String, u64)>,
    /// Failures of hosts that later jobs are to know of, and are not told to anybody yet.
    to_remember: Vec<Value>,
    joiners: BTreeMap<HostId, (JoinRequest, u64)>,
    /// Hosts that are asked for, of who starts them.
    pub(super) requests: Requests,
    /// What people were told to mend, and how often something about that was written down.
    troubles: Troubles,
    told: u32,
    pending: Option<Pending>,
    /// It could not propose what it decided.
    broken: bool,
    records: u64,
    /// Records of the journal, of all terms, that this host has seen decided.
    applied: u64,
    orders: u64,
    given: Option<Orders>,
    given_ms: u64,
    /// When each voter's newest answer was asked for.
    pledged: BTreeMap<HostId, u64>,
    pledges: VecDeque<(u64, u64)>,
    pledge: u64,
    pledge_ms: u64,
    considered: Option<Arc<Summary>>,
    /// Something happened that no summary shows.
    news: bool,
    look_ms: u64,
}

impl Leading {
    /// Its term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Where each host is, by host rank.
    pub(super) fn states(&self) -> Vec<HostState> {
        self.tracks.iter().map(|track| track.state).collect()
    }

    /// Hosts that are not as they should be: where each is, and whether it is heard.
    pub(super) fn unsettled(&self) -> Vec<(u32, HostState, bool)> {
        let track = |rank: &u32| Some((*rank, self.tracks.get(*rank as usize)?));
        let all = self.unsettled.iter().filter_map(track);
        all.map(|(rank, track)| (rank, track.state, track.covered)).collect()
    }

    /// Something happened that no summary shows.
    pub(super) fn note_news(&mut self) {
        self.news = true;
    }

    /// Whether a host other than its own may not know of the end yet, or may still run ranks.
    pub(super) fn expects_goodbyes(&self, own: Option<u32>) -> bool {
        // All others are here.
        let settled = self.tracks.len() - self.unsettled.len();
        let own_is_settled = own.is_some_and(|rank| !self.unsettled.contains(&rank));
        let others = self.unsettled.iter().filter(|rank| Some(**rank) != own);
        let mut others = others.filter_map(|rank| self.tracks.get(*rank as usize));
        settled > usize::from(own_is_settled) || others.any(|track| !track.state.is_over())
    }

    /// Whether a voter has answered something that was asked since then.
    pub(super) fn is_pledged(&self, voter: HostId, since_ms: u64) -> bool {
        self.pledged.get(&voter).is_some_and(|asked_ms| *asked_ms >= since_ms)
    }

    /// A host rank has a host again.
    fn note_filled(&mut self, rank: u32, at_ms: u64) {
        self.filled_ms = at_ms;
        Arc::make_mut(&mut self.filled).insert(rank, at_ms);
    }

    /// A host said goodbye.
    pub(super) fn note_goodbye(&mut self, host: HostId, why: String) {
        self.goodbyes.insert(host, why);
        self.news = true;
    }

    /// What started the hosts saw the processes of one end.
    pub(super) fn note_ended(&mut self, host: HostId, by: &str, now_ms: u64) {
        self.news = true;
        self.ended.entry(host).or_insert_with(|| (by.to_owned(), now_ms));
    }

    /// A host wants to take part; what it is told meanwhile.
    pub(super) fn note_joiner(&mut self, request: JoinRequest, now_ms: u64) -> String {
        if self.joiners.len() < JOINERS_MAX || self.joiners.contains_key(&request.entry.id) {
            self.joiners.insert(request.entry.id, (request, now_ms));
        }
        self.news = true;
        "is a spare: every host rank has a host".to_owned()
    }

    /// What people should mend on a host, or know about the place of one that is missing.
    pub(super) fn words_about(&self, rank: u32) -> Option<String> {
        self.troubles.of_host(rank).map(str::to_owned).or_else(|| self.requests.words(rank))
    }
}

impl<S: VoteStorage> Host<S> {
    pub(super) fn leading_due_ms(&self) -> Option<u64> {
        self.leading.as_ref().map(|leading| leading.look_ms.min(leading.pledge_ms))
    }

    /// Begins to lead when the votes say so, and leads.
    pub(super) fn lead(&mut self) {
        let elected =
            self.voter.as_ref().filter(|voter| voter.group.is_leader()).map(|voter| voter.group.term());
        let known = self.leading.as_ref().map(|leading| leading.term);
        match elected {
            Some(term) if Some(term) != known && term >= self.membership.term => self.begin_to_lead(term),
            None if known.is_some() => {
                self.leading = None;
                self.upward.begin_again();
            }
            _ => {}
        }
        let Some(mut leading) = self.leading.take() else { return };
        self.know_hosts(&mut leading);
        self.visit_endpoint(&mut leading);
        self.renew_own_lease(&mut leading);
        let seen = leading.considered.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &self.below.merged));
        let gathered_ms = leading.considered_ms + (leading.unsettled.len() / UNSETTLED_SHARE) as u64;
        if self.now_ms < gathered_ms {
            leading.look_ms = leading.look_ms.min(gathered_ms);
        } else if !seen || leading.news || self.now_ms >= leading.look_ms {
            (leading.news, leading.considered_ms) = (false, self.now_ms);
            self.watch_hosts(&mut leading);
            self.remember_failures(&mut leading);
            self.decide(&mut leading);
            self.replace_voters(&leading);
        }
        self.leading = Some(leading).filter(|leading| !leading.broken);
    }

    fn begin_to_lead(&mut self, term: u64) {
        let Some(voter) = &self.voter else { return };
        let decider = Decider::over(self.plans.clone(), Job::clone(&self.job), voter.history.clone());
        let list = Arc::clone(&self.membership.list);
        // Whatever the leader before gave ends by then; those who are not heard till then are expired.
        let expires_ms = self.now_ms + self.config.lease_ms + grant::slack_ms(self.config.lease_ms);
        // What the journal says became of a host that is lost stays true whoever leads (H8): a host with processes that cannot be killed is
        // waited for longer than others.
        let lost = |rank: u32| voter.lost.get(&rank).copied().unwrap_or(HostState::Expired);
        let track = |rank: u32| Track {
            state: if list.vacant.contains(&rank) { lost(rank) } else { HostState::Here },
            since_ms: self.now_ms,
            covered: true,
            lost_ms: self.now_ms,
            expires_ms,
        };
        let leading = Leading {
            term,
            began_ms: self.now_ms,
            decider,
            tracks: (0..list.len()).map(track).collect(),
            unsettled: list.vacant.clone(),
            considered_ms: 0,
            visit_ms: self.now_ms,
            known: 0,
            names: Arc::default(),
            ranks: Arc::default(),
            resting: Arc::default(),
            losses: BTreeMap::new(),
            lost_ids: BTreeMap::new(),
            filled_ms: 0,
            filled: Arc::default(),
            goodbyes: BTreeMap::new(),
            ended: BTreeMap::new(),
            to_remember: Vec::new(),
            joiners: BTreeMap::new(),
            requests: Requests::since(self.now_ms),
            troubles: Troubles::default(),
            told: 0,
            pending: None,
            broken: false,
            records: 0,
            applied: voter.records,
            orders: 0,
            given: None,
            given_ms: 0,
            pledged: BTreeMap::new(),
            pledges: VecDeque::new(),
            pledge: 0,
            pledge_ms: self.now_ms,
            considered: None,
            news: true,
            look_ms: self.now_ms,
        };
        self.out.push(Effect::Note(format!("leads in term {term:x}")));
        if !self.clock.is_set() {
            // Nobody has led before, and nobody has founded it.
            self.clock = CoordinatorClock::own();
            self.summarise_own();
        }
        self.follow_term(term, Some(self.me.id));
        self.leading = Some(Box::new(leading));
        // Those who will stand below have another parent, and may not know it.
        if let Some(rank) = self.rank {
            let below: Vec<HostId> = children(rank, rank, list.len(), self.config.fanout)
                .filter_map(|rank| list.host(rank))
                .map(|entry| entry.id)
                .collect();
            for host in below {
                if self.reach(host) {
                    self.tell_term(host);
                }
            }
        }
    }

    /// Whether something that this host decided waits for a majority.
    pub(super) fn has_proposed(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.pending.is_some())
    }

    /// Asks the voters whether this term is still the newest, and takes the lease that a majority gives.
    fn renew_own_lease(&mut self, leading: &mut Leading) {
        let voters = self.membership.list.voters.clone();
        if self.now_ms >= leading.pledge_ms {
            leading.pledge += 1;
            let number = leading.pledge;
            leading.pledges.push_back((number, self.now_ms));
            if leading.pledges.len() > REMEMBERED {
                leading.pledges.pop_front();
            }
            leading.pledge_ms = self.now_ms + self.heartbeat_ms();
            leading.pledged.insert(self.me.id, self.now_ms);
            let me = self.me.id;
            for voter in voters.iter().copied().filter(|voter| *voter != me) {
                if self.reach(voter) {
                    // Nobody stands above who leads, so those who may lead next keep what its ranks say.
                    self.tell_stderr(voter);
                    self.say(voter, Body::Pledge { number });
                }
            }
        }
        let sent: Vec<Option<u64>> = voters.iter().map(|voter| leading.pledged.get(voter).copied()).collect();
        let end_ms = grant::leader_end_ms(&sent, self.config.lease_ms);
        if end_ms > self.lease_end_ms {
            self.lease_end_ms = end_ms;
            self.renew_children();
        }
    }

    pub(super) fn hear_pledged(&mut self, from: HostId, header: Header, number: u64) {
        self.state.note_vote(from, self.now_ms);
        let Some(leading) = self.leading.as_mut().filter(|leading| header.term <= leading.term) else {
            return;
        };
        if let Some((_, sent_ms)) = leading.pledges.iter().find(|(known, _)| *known == number) {
            let newest = leading.pledged.entry(from).or_insert(0);
            *newest = (*newest).max(*sent_ms);
        }
    }

    /// Decides, if there is something to decide and nothing waits for a majority.
    fn decide(&mut self, leading: &mut Leading) {
        if leading.pending.is_some() || self.lease_end_ms.is_none_or(|end_ms| end_ms <= self.now_ms) {
            leading.considered = None;
            return;
        }
        let change = self.change_of_hosts(leading);
        let merged = Arc::clone(&self.below.merged);
        if merged.overlapping {
            return;
        }
        let now_ms = self.clock.coordinator_ms(self.now_ms);
        let view = JobView::of_summary(&merged, &self.job, self.host_facts(leading), now_ms);
        let (entries, orders) = leading.decider.consider_view(&view);
        leading.considered = Some(merged);
        if let Some(look_ms) = orders.look_at_ms {
            leading.look_ms = leading.look_ms.min(self.clock.local_ms(look_ms).max(self.now_ms + 1));
        }
        let mut facts = self.facts_of_troubles(leading);
        facts.extend(self.facts_of_requests(leading));
        if entries.is_empty() && change.is_none() && facts.is_empty() {
            self.give_out(leading, orders);
            return;
        }
        leading.records += 1;
        let record = Record {
            term: leading.term,
            number: leading.records,
            at: wall_s(),
            coordinator_ms: now_ms,
            entries,
            facts,
            change,
        };
        let bytes = serde_json::to_vec(&record).unwrap_or_default();
        let proposed = self.voter.as_mut().map(|voter| voter.group.propose(bytes));
        // What was decided and not proposed would be forgotten, so the decider begins again with what is written down.
        leading.broken = proposed.is_none_or(|proposed| proposed.is_err());
        leading.pending = Some(Pending { number: leading.records, orders: Some(orders) });
    }

    /// What all hosts are to do, if it is something else than before.
    fn give_out(&mut self, leading: &mut Leading, orders: Orders) {
        // First, because after the last orders nobody listens.
        self.tell_incidents(leading, &orders);
        let bare = |orders: &Orders| Orders { number: 0, look_at_ms: None, ..orders.clone() };
        if leading.given.as_ref().is_some_and(|given| bare(given) == bare(&orders)) {
            return;
        }
        // Other words for the same deeds, as a count in a reason, are no hurry: all hosts would hear each of them.
        let deeds = |orders: &Orders| orders.gangs.iter().map(deed).collect::<Vec<_>>();
        let same = |given: &Orders| given.over == orders.over && deeds(given) == deeds(&orders);
        let words_only = leading.given.as_ref().is_some_and(same);
        let words_ms = leading.given_ms + WORDS_MS + u64::from(self.membership.list.len()) / WORDS_SHARE;
        if words_only && self.now_ms < words_ms {
            leading.look_ms = leading.look_ms.min(words_ms);
            return;
        }
        leading.given_ms = self.now_ms;
        leading.given = Some(orders.clone());
        leading.orders += 1;
        let (term, number) = (leading.term, leading.orders);
        let (records, wall_ms) = (leading.applied, self.wall_offset_ms());
        let list = self.membership.list.version;
        let orders = JobOrders { term, number, records, list, orders, wall_ms };
        if self.take_orders(Arc::new(orders)) && !words_only {
            self.push_to_children();
        }
    }

    /// A majority has a record.
    pub(super) fn note_decided(&mut self, record: &Record) {
        let Some(mut leading) = self.leading.take() else { return };
        let ours = record.term == leading.term;
        leading.applied += 1;
        leading.news = true;
        if let Some(pending) = leading.pending.take_if(|pending| ours && pending.number == record.number) {
            let known = leading.tracks.len() as u32;
            leading.tracks.resize_with(self.membership.list.hosts.len(), || unreachable_track(self.now_ms));
            leading.unsettled.extend(known..leading.tracks.len() as u32);
            if let Some(orders) = pending.orders {
                self.give_out(&mut leading, orders);
            }
        }
        for (rank, entry) in record.change.iter().flat_map(|change| &change.placed) {
            leading.joiners.remove(&entry.id);
            if let Some(track) = leading.tracks.get_mut(*rank as usize) {
                let expires_ms = self.now_ms + self.config.lease_ms;
                *track = Track { state: HostState::Here, expires_ms, ..unreachable_track(self.now_ms) };
                leading.note_filled(*rank, self.clock.coordinator_ms(self.now_ms));
                leading.unsettled.insert(*rank);
            }
            self.tell_list(entry.id);
        }
        self.leading = Some(leading);
    }
}

/// What an order makes a host do.
fn deed(order: &Order) -> (Option<u32>, Action, usize, bool) {
    let action = match &order.action {
        Action::Wait { .. } => Action::Wait { until_ms: None },
        other => other.clone(),
    };
    (order.incarnation, action, order.failures.len(), order.incident)
}

fn unreachable_track(now_ms: u64) -> Track {
    Track { state: HostState::Joining, since_ms: now_ms, covered: false, lost_ms: now_ms, expires_ms: now_ms }
}
