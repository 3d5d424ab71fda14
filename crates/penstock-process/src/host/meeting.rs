//! How hosts become one job: they meet at an endpoint, whoever is there founds the job when all have come, and later hosts are
//! given places that became free.
//!
//! A job is founded by all its hosts at once, so a host that comes back to the endpoint after its job has begun founds no second
//! one: the others have a job already, and their leader dials the endpoint until the host there joins.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::host::clock::CoordinatorClock;
use crate::host::leading::sizes::Crew;
use crate::host::messages::{Body, JoinRequest};
use crate::host::{Effect, Host, LinkId};
use crate::network::{OTHER_KEY, OTHER_PROTOCOL, SILENT};
use crate::tree::host_list::{HostEntry, HostId, HostList};
use crate::vote::storage::VoteStorage;

/// Between two requests to the same host.
pub(super) const ASK_MS: u64 = 1000;
/// How long a host that was named instead of the endpoint is tried.
const ELSEWHERE_MS: u64 = 3000;
/// Until people are told what a host waits for, and between two such sentences.
const SAY_MS: u64 = 1000;
/// How long another job may be at the endpoint: one before this may be about to leave it.
const TROUBLE_MS: u64 = 3000;
/// How long spares stand back for hosts that have not come when a job is founded.
const STAND_BACK_MS: u64 = 10_000;
/// And how long the leader of a job that lives has to find hosts that meet without it: it looks each second.
const LIVING_MS: u64 = 3000;
/// Hosts that a host without a place is told of, for the time when the endpoint is gone.
const KNOWN_MAX: usize = 8;
/// Names of missing hosts that are listed.
const NAMED_MAX: usize = 8;

/// What a host does until it has a place.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// Who came, at the founder, and is still linked to it.
    came: BTreeMap<HostId, JoinRequest>,
    /// Which of them asked for a host rank.
    wishes: BTreeMap<u32, HostId>,
    /// When it asked last, and whom.
    asked: Option<(u64, HostId)>,
    /// Who was named as one who may know better, and when.
    instead: Option<(SocketAddr, u64)>,
    /// Who else may know who leads.
    known: Vec<SocketAddr>,
    /// Why it has no place yet.
    pub(super) why: Option<String>,
    /// What people are told about that, and when it changed.
    said: Option<(String, u64)>,
    /// Counts the changes.
    pub(super) said_count: u32,
    /// Why the endpoint cannot be reached, and since when.
    pub(super) unreached: Option<(String, u64)>,
    /// Why it will never have one.
    pub(super) refused: Option<String>,
    /// Since when there are enough hosts for the smallest job that may be founded, and no more came.
    enough_ms: Option<u64>,
}

impl Meeting {
    /// Who came beside the founder.
    pub(super) fn others(&self, me: HostId) -> Vec<HostId> {
        self.came.keys().copied().filter(|id| *id != me).collect()
    }

    /// What people call a host that came.
    pub(super) fn name_of(&self, host: HostId) -> String {
        self.came.get(&host).map_or_else(|| host.to_string(), |request| request.entry.name.clone())
    }

    /// Hosts of the job, as its leader named them.
    pub(super) fn note_known(&mut self, mut hosts: Vec<SocketAddr>) {
        hosts.truncate(KNOWN_MAX);
        self.known = hosts;
    }

    fn arrive(&mut self, host: HostId, request: JoinRequest) {
        self.enough_ms = self.enough_ms.filter(|_| self.came.contains_key(&host));
        if let Some(rank) = request.node_rank {
            self.wishes.insert(rank, host);
        }
        self.came.insert(host, request);
    }
}

impl<S: VoteStorage> Host<S> {
    pub(super) fn meeting_due_ms(&self) -> Option<u64> {
        let waits = self.rank.is_none() && self.meeting.refused.is_none();
        waits.then_some(self.now_ms + 250)
    }

    /// Asks for a place, as long as there is none.
    pub(super) fn meet(&mut self) {
        if self.rank.is_some() || self.meeting.refused.is_some() {
            return;
        }
        let living = self.membership.leader.filter(|leader| self.links.to(*leader).is_some());
        if let Some(leader) = living {
            self.ask_for_a_place(leader);
            return;
        }
        if self.config.founder && self.membership.term == 0 {
            let is_new = !self.meeting.came.contains_key(&self.me.id);
            if is_new {
                let request = self.own_request();
                self.meeting.arrive(self.me.id, request);
            }
            // What a state directory says comes later, and who waits for more hosts waits for a time.
            if is_new || self.config.state.is_some() || self.meeting.enough_ms.is_some() {
                self.found_if_all_are_here();
            }
            return;
        }
        let since_ms = self.now_ms.saturating_sub(ELSEWHERE_MS);
        self.meeting.instead.take_if(|(_, named_ms)| since_ms > *named_ms);
        let to = self.meeting.instead.map_or(self.config.endpoint, |(address, _)| address);
        match self.links.at(to).and_then(|link| self.links.host(link)) {
            Some(host) => self.ask_for_a_place(host),
            None => self.ask_others(to),
        }
    }

    /// While nobody is there, other hosts of the job are asked, all at once: a spare is waited for.
    fn ask_others(&mut self, to: SocketAddr) {
        self.dial(to);
        for place in self.meeting.known.clone() {
            match self.links.at(place).and_then(|link| self.links.host(link)) {
                Some(host) => return self.ask_for_a_place(host),
                None => self.dial(place),
            }
        }
    }

    /// A dial failed. Without a place, people want to know why.
    pub(super) fn note_unopened(&mut self, link: LinkId, why: &str) {
        let hint = if why == OTHER_KEY {
            Some("`penstock hosts key` makes one, to be copied to all hosts")
        } else if why.starts_with(OTHER_PROTOCOL) || (why == SILENT && self.config.shares_endpoint()) {
            Some("Address already in use: another program listens there; choose another port")
        } else {
            None
        };
        self.note_trouble(link, why, hint);
    }

    /// Whoever is at the end of a link belongs to another job.
    pub(super) fn note_other_job(&mut self, link: LinkId, job: &str) {
        let hint = "program, --nnodes and --rdzv-id must be the same on all hosts";
        self.note_trouble(
            link,
            &format!("it runs job {job}, and this host is of job {}", self.job.id),
            Some(hint),
        );
    }

    /// Nobody at the endpoint lets us in; what lasts, and can be mended by people only, ends this host.
    fn note_trouble(&mut self, link: LinkId, why: &str, hint: Option<&str>) {
        let endpoint = self.config.endpoint;
        if self.rank.is_some() || self.links.dialled(link) != Some(endpoint) {
            return;
        }
        let same = self.meeting.unreached.take().filter(|(known, _)| *known == why);
        let since_ms = same.map_or(self.now_ms, |(_, since_ms)| since_ms);
        if let Some(hint) = hint.filter(|_| self.now_ms >= since_ms + TROUBLE_MS) {
            self.meeting.refused = Some(format!("no place at {endpoint}: {why} ({hint})"));
        }
        self.meeting.why = Some(format!("waits for the host at {endpoint}: {why}"));
        self.meeting.unreached = Some((why.to_owned(), since_ms));
    }

    /// What people are told of the wait; nothing at first, because most hosts do not wait, and not each of many changes.
    pub(super) fn say_why(&mut self) {
        if self.rank.is_some() && self.orders.is_some() {
            // It has orders, and they say why.
            return;
        }
        let (words, now_ms) = (self.why_it_waits(), self.now_ms);
        match &mut self.meeting.said {
            None => self.meeting.said = Some((String::new(), now_ms)),
            Some((said, at_ms)) if *said != words && now_ms >= *at_ms + SAY_MS => {
                (*said, *at_ms) = (words, now_ms);
                self.meeting.said_count += 1;
            }
            Some(_) => {}
        }
    }

    /// The sentence.
    pub(super) fn said(&self) -> String {
        self.meeting.said.as_ref().map(|(said, _)| said.clone()).unwrap_or_default()
    }

    /// How this host asks for a place.
    pub(super) fn own_request(&self) -> JoinRequest {
        JoinRequest {
            entry: self.me.clone(),
            node_rank: self.config.node_rank,
            nnodes: self.config.nnodes,
            versions: self.config.versions.clone(),
            job: self.digest.clone(),
            lease_ms: self.config.lease_ms,
            stuck: self.agent.report().is_some_and(|report| report.unkillable > 0),
            spare: self.config.spare,
            state: self.config.state.is_some(),
        }
    }

    fn ask_for_a_place(&mut self, host: HostId) {
        let recently = |(asked_ms, asked): &(u64, HostId)| *asked == host && self.now_ms < asked_ms + ASK_MS;
        if self.meeting.asked.as_ref().is_some_and(recently) {
            return;
        }
        self.meeting.asked = Some((self.now_ms, host));
        self.say(host, Body::Join(Box::new(self.own_request())));
    }

    /// Somebody has said who it is.
    pub(super) fn greet(&mut self, from: HostId) {
        // The leader of a living job has found us at the endpoint.
        if self.rank.is_none() && self.membership.leader == Some(from) {
            self.meeting.came.clear();
            self.meeting.wishes.clear();
        }
    }

    /// Who waits here for the others is gone, unless it comes again.
    pub(super) fn forget_arrival(&mut self, host: HostId) {
        if let Some(rank) = self.meeting.came.remove(&host).and_then(|request| request.node_rank) {
            self.meeting.wishes.remove(&rank);
        }
    }

    pub(super) fn hear_join(&mut self, from: HostId, request: JoinRequest) {
        let problem = self.objection(&request);
        if let Some(why) = problem {
            self.out.push(Effect::Note(format!("{} may not join: {why}", request.entry.name)));
            self.say(from, Body::refused(why, true));
            return;
        }
        if self.membership.list.entry(from).is_some() {
            self.tell_list(from);
        } else if let Some(leading) = &mut self.leading {
            let why = leading.note_joiner(request, self.now_ms);
            self.say(from, Body::Known { hosts: self.who_knows_the_leader() });
            self.say(from, Body::Refused { why, for_good: false, ask: None });
        } else if self.rank.is_some() {
            let list = &self.membership.list;
            let ask = self.membership.leader.and_then(|leader| list.entry(leader)).cloned();
            let why = "this host does not lead".to_owned();
            self.say(from, Body::Refused { why, for_good: false, ask });
        } else if self.config.founder {
            self.note_arrival(from, request);
        }
    }

    /// Voters, one of which leads next, and others.
    fn who_knows_the_leader(&self) -> Vec<SocketAddr> {
        let list = &self.membership.list;
        let (voters, others): (Vec<&HostEntry>, Vec<&HostEntry>) =
            list.hosts.iter().partition(|entry| list.voters.contains(&entry.id));
        voters.into_iter().chain(others).take(KNOWN_MAX).map(|entry| entry.address).collect()
    }

    /// Why a host can never be part of this job.
    fn objection(&self, request: &JoinRequest) -> Option<String> {
        let own = &self.config;
        let name = &request.entry.name;
        if request.nnodes != own.nnodes {
            return Some(format!(
                "{name} was told of {} hosts, {} of {}",
                request.nnodes, own.name, own.nnodes
            ));
        }
        if request.lease_ms != own.lease_ms {
            let (theirs, ours) = (request.lease_ms, own.lease_ms);
            return Some(format!("{name} has a lease of {theirs} ms, {} of {ours} ms", own.name));
        }
        if request.job != self.digest && !own.mixed {
            return Some(format!(
                "{name} was started with another command or other options than {}",
                own.name
            ));
        }
        if request.versions != own.versions && !own.mixed {
            let (theirs, ours) = (&request.versions, &own.versions);
            return Some(format!(
                "{name} has agent {} and Python {}, {} has {} and {} (--mixed allows that)",
                theirs.agent, theirs.python, own.name, ours.agent, ours.python
            ));
        }
        if self.membership.list.state && !request.state {
            return Some(format!("{name} has no state directory (--state), and this job has one"));
        }
        request
            .node_rank
            .filter(|rank| *rank >= own.nnodes)
            .map(|rank| format!("{name} asks for host rank {rank}, and there are {} hosts", own.nnodes))
    }

    fn note_arrival(&mut self, from: HostId, request: JoinRequest) {
        let wished = request.node_rank.and_then(|rank| self.meeting.wishes.get(&rank));
        let taken = wished.filter(|id| **id != from).and_then(|id| self.meeting.came.get(id));
        if let Some(other) = taken {
            let rank = request.node_rank.unwrap_or(0);
            let why = format!(
                "host rank {rank} is asked for by {} and by {}",
                other.entry.name, request.entry.name
            );
            self.out.push(Effect::Note(why.clone()));
            self.say(from, Body::refused(why, true));
            return;
        }
        self.meeting.arrive(from, request);
        self.found_if_all_are_here();
        if self.rank.is_none() {
            let why = self.meeting.why.clone().unwrap_or_default();
            self.say(from, Body::refused(why, false));
        }
    }

    /// Founds the job when every host is here. Who comes from a job that lives brings its term, and founds no second one.
    fn found_if_all_are_here(&mut self) {
        if self.membership.term > 0 {
            return;
        }
        let me = self.me.id;
        let came = &self.meeting.came;
        let first = came.values().filter(|request| !request.spare).count();
        let (first, all) = (first as u64, u32::try_from(came.len()).unwrap_or(u32::MAX));
        let enough = first >= u64::from(self.config.nnodes) || self.all_came(all);
        if !enough && !self.may_begin_with(first, all) {
            let waits = missing(&self.config.expected, &self.meeting.came, self.config.nnodes);
            self.meeting.why = Some(waits);
            return;
        }
        let came = &self.meeting.came;
        let mut list = in_order(came.values(), self.config.nnodes);
        self.leave_out_who_never_came(&mut list);
        (list.version, list.configuration) = (1, 1);
        let here = list.hosts.iter().map(|entry| entry.id).filter(|id| came.contains_key(id));
        let hosts: BTreeSet<HostId> = here.collect();
        let all_have = hosts.iter().all(|id| came.get(id).is_some_and(|request| request.state));
        let others = self.meeting.others(me);
        let Some(beginning) = self.may_found(&hosts, all_have) else { return };
        if let Some(beginning) = beginning {
            self.begin_with(&mut list, beginning);
        }
        list.voters = list.elect_voters(&list.vacant, &[]);
        let list = Arc::new(list);
        if !self.clock.is_set() {
            self.clock = CoordinatorClock::own();
        }
        self.out.push(Effect::Note(format!("founded with {} hosts", list.hosts.len())));
        self.take_list(Arc::clone(&list));
        others.into_iter().for_each(|host| self.tell_list(host));
    }

    /// Whether all are here that were started, where those are too few: who started them knows of no others, so they need no majority.
    fn all_came(&self, count: u32) -> bool {
        let enough = self.config.sizes.iter().any(|size| *size <= count) || count >= self.config.nnodes;
        enough && self.config.comes.is_some_and(|comes| count >= comes)
    }

    /// Whether the job may be founded with fewer hosts than it may have: a majority has come, and nobody else for long enough. Of two jobs
    /// that both have a majority of the same hosts there is only one; so spares do not count, who may be many beside a job that lives.
    fn may_begin_with(&mut self, first: u64, count: u32) -> bool {
        // With spares instead of hosts that are late.
        let complete = count >= self.config.nnodes;
        let enough = complete || self.config.sizes.iter().any(|size| *size <= count);
        if !enough || (2 * first <= u64::from(self.config.nnodes) && self.config.state.is_none()) {
            self.meeting.enough_ms = None;
            return false;
        }
        let since_ms = *self.meeting.enough_ms.get_or_insert(self.now_ms);
        let wait_ms = if complete { STAND_BACK_MS } else { self.config.replace_within_ms.max(LIVING_MS) };
        self.now_ms >= since_ms.saturating_add(wait_ms)
    }

    /// Host ranks that nobody has yet are vacant, and the gang goes without them until somebody comes.
    fn leave_out_who_never_came(&self, list: &mut HostList) {
        let came = |entry: &HostEntry| self.meeting.came.contains_key(&entry.id);
        list.vacant =
            (0..).zip(list.hosts.iter()).filter(|(_, entry)| !came(entry)).map(|(rank, _)| rank).collect();
        let racks = |rank: u32| list.host(rank).map_or("", |entry| entry.rack.as_str());
        let crew = Crew {
            places: list.len(),
            vacant: &list.vacant,
            resting: &BTreeSet::new(),
            sizes: &self.config.sizes,
            waited: true,
            racks: &racks,
        };
        if let Some(change) = crew.decide() {
            list.resting = change.resting;
        }
    }

    pub(super) fn hear_refusal(&mut self, from: HostId, why: String, for_good: bool, ask: Option<HostEntry>) {
        if self.rank.is_some() {
            self.hear_refusal_of_parent(from, &why);
            return;
        }
        if for_good {
            self.meeting.refused = Some(why);
            return;
        }
        if let Some(entry) = ask {
            self.meeting.instead = Some((entry.address, self.now_ms));
            self.dial(entry.address);
        } else {
            self.meeting.why = Some(why);
        }
    }

    /// The hosts of the job are these from now on.
    pub(super) fn take_list(&mut self, list: Arc<HostList>) {
        let rank = list.rank_of(self.me.id);
        if self.rank != rank {
            self.out.push(Effect::Note(match rank {
                Some(rank) => format!("this is host rank {rank} of {}", list.hosts.len()),
                None => "another host has our host rank".to_owned(),
            }));
            self.agent.forget();
        }
        let known = &self.membership.list;
        let same_hosts = self.rank == rank && known.hosts.is_same(&list.hosts);
        let same_tree = same_hosts && known.voters == list.voters;
        let same_gang = same_hosts && known.resting == list.resting;
        (self.rank, self.membership.list) = (rank, list);
        if !same_hosts {
            self.plans = self.gangs_of_hosts();
        }
        if !same_tree {
            self.meeting.instead = None;
            self.upward.begin_again();
            self.keep();
            self.change_voters();
        }
        if !same_hosts {
            // Whose hosts were lost goes down with the next grants; who came in their place is waited for.
            self.push_to_children();
        }
        if !same_gang {
            self.summarise_own();
        }
    }
}

/// So many hosts by the ranks that were asked for; the others in the order of racks and names, so that racks stand together. Who asked for
/// none has to stand back where there are too many; where there are too few, places stay with nobody.
fn in_order<'a>(came: impl Iterator<Item = &'a JoinRequest>, count: u32) -> HostList {
    let mut requests: Vec<&JoinRequest> = came.collect();
    requests.sort_by_key(|request| (request.spare, request.node_rank.is_none(), request.entry.id));
    requests.truncate(count as usize);
    requests
        .sort_by_key(|request| (request.entry.rack.clone(), request.entry.name.clone(), request.entry.id));
    let slots = requests.first().map_or(1, |request| request.entry.slots);
    let mut places: Vec<Option<HostEntry>> = vec![None; count as usize];
    let (asking, free): (Vec<&JoinRequest>, Vec<&JoinRequest>) =
        requests.into_iter().partition(|request| request.node_rank.is_some());
    let mut rest: Vec<HostEntry> = free.into_iter().map(|request| request.entry.clone()).collect();
    for request in asking {
        let rank = request.node_rank.and_then(|rank| places.get_mut(rank as usize));
        match rank.filter(|place| place.is_none()) {
            Some(place) => *place = Some(request.entry.clone()),
            None => rest.push(request.entry.clone()),
        }
    }
    let mut rest = rest.into_iter();
    let nobody = |rank: u32| {
        let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        HostEntry {
            id: HostId(u64::from(rank)),
            name: format!("host-{rank}"),
            address,
            rack: String::new(),
            slots,
        }
    };
    let entry = |(rank, place): (u32, Option<HostEntry>)| {
        place.or_else(|| rest.next()).unwrap_or_else(|| nobody(rank))
    };
    let hosts = (0..).zip(places).map(entry).collect();
    HostList { hosts, ..HostList::default() }
}

/// What a host that waits says.
fn missing(expected: &[String], came: &BTreeMap<HostId, JoinRequest>, nnodes: u32) -> String {
    let count = came.len();
    let came = if expected.is_empty() { None } else { Some(came.values()) };
    let here: BTreeSet<&str> =
        came.into_iter().flatten().map(|request| request.entry.name.as_str()).collect();
    let absent: Vec<&str> =
        expected.iter().map(String::as_str).filter(|name| !here.contains(name)).take(NAMED_MAX).collect();
    let named = if absent.is_empty() { String::new() } else { format!("; missing: {}", absent.join(", ")) };
    format!("waits for hosts: {count} of {nnodes} are here{named}")
}
