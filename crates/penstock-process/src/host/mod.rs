//! One host of a job of many: what it knows, and what it says to others. Pure: no clock, no socket, no file.
//!
//! The coordinator's process on each host drives one [`Host`]: it brings what comes from the agent and from other hosts as
//! [`Event`]s and carries out the [`Effect`]s. A simulator does the same for a hundred thousand of them. A host meets the others
//! ([`meeting`]), stands in a tree ([`upward`], [`below`]), votes where it keeps the journal ([`voting`]), and on one of them the
//! whole job is decided ([`leading`]).

mod agent_side;
mod asker;
mod below;
mod carrier;
pub mod clock;
pub mod config;
mod ending;
pub mod endpoint_lookup;
pub mod events;
mod incident_file;
pub mod leading;
mod links;
mod meeting;
pub mod messages;
mod neighbour_stderr;
pub mod questions;
pub mod run;
pub mod shipping;
pub mod state_client;
mod stream_sockets;
pub mod subscriptions;
pub mod tasks;
mod upward;
pub mod voting;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::host::agent_side::OwnAgent;
use crate::host::below::Below;
use crate::host::clock::{CoordinatorClock, ParentClock};
use crate::host::config::HostConfig;
use crate::host::ending::Ending;
pub use crate::host::events::{Effect, Event};
use crate::host::leading::Leading;
use crate::host::leading::job_incident::JobIncident;
pub use crate::host::links::LinkId;
use crate::host::links::Links;
use crate::host::meeting::Meeting;
use crate::host::messages::list_news::ListSteps;
use crate::host::messages::{Body, Header, JobOrders, Message};
use crate::host::neighbour_stderr::NeighbourStderr;
use crate::host::questions::Questions;
pub use crate::host::questions::status::HostStatus;
use crate::host::shipping::Shipping;
use crate::host::state_client::StateClient;
use crate::host::subscriptions::{Subscription, Subscriptions};
use crate::host::upward::{Granted, Upward};
use crate::host::voting::{OpenVotes, Voter};
use crate::job::{GangPlan, Job};
use crate::lease::grant;
use crate::tree::host_list::{HostEntry, HostId, HostList};
use crate::vote::storage::VoteStorage;

/// A link over which nothing comes back for so many heartbeats is dead, whatever its socket says, and never sooner than this.
const SILENT_BEATS: u64 = 6;
const SILENT_MS: u64 = 1000;

/// What a host keeps over the death of its coordinator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Membership {
    /// The newest term that it has seen.
    pub term: u64,
    /// Who leads in it.
    pub leader: Option<HostId>,
    /// The hosts of the job.
    pub list: Arc<HostList>,
    /// What makes this host's clock the coordinator's, as far as it is known.
    #[serde(default)]
    pub offset_ms: Option<i64>,
}

/// What a host was given.
pub struct Given<S> {
    /// What it was started with.
    pub config: HostConfig,
    /// What the job runs on it.
    pub job: Arc<Job>,
    /// Equal on hosts that run the same.
    pub digest: String,
    /// Where it listens.
    pub port: u16,
    /// How a voter's storage is opened.
    pub votes: OpenVotes<S>,
}

/// One host.
pub struct Host<S: VoteStorage> {
    now_ms: u64,
    config: HostConfig,
    job: Arc<Job>,
    /// The gangs of the job over the hosts of the list.
    plans: Vec<GangPlan>,
    digest: String,
    me: HostEntry,
    clock: CoordinatorClock,
    membership: Membership,
    /// Its host rank, once it has one.
    rank: Option<u32>,
    links: Links,
    /// The newest steps to the host list.
    steps: ListSteps,
    meeting: Meeting,
    upward: Upward,
    below: Below,
    agent: OwnAgent,
    /// Until when ranks may run here, on this host's clock.
    lease_end_ms: Option<u64>,
    orders: Option<Arc<JobOrders>>,
    open_votes: OpenVotes<S>,
    voter: Option<Box<Voter<S>>>,
    /// It has a voter, which may be in use right now.
    votes: bool,
    leading: Option<Box<Leading>>,
    questions: Questions,
    neighbours: NeighbourStderr,
    /// The newest failure of each gang, as it was told while this host led: it may lead again in another term.
    incidents: BTreeMap<usize, JobIncident>,
    subscriptions: Subscriptions,
    shipping: Shipping,
    state: StateClient,
    ending: Ending,
    out: Vec<Effect>,
    /// What it knows has changed, and is to be written down.
    keeps: bool,
}

impl<S: VoteStorage> Host<S> {
    /// A host that begins, or begins again with what it kept.
    pub fn new(now_ms: u64, given: Given<S>, kept: Option<Membership>) -> Self {
        let me = given.config.entry(given.port);
        let links = Links::of(me.id);
        let mut host = Self {
            now_ms,
            me,
            clock: CoordinatorClock::default(),
            membership: Membership::default(),
            rank: None,
            links,
            steps: ListSteps::default(),
            meeting: Meeting::default(),
            upward: Upward::default(),
            below: Below::default(),
            agent: OwnAgent::default(),
            lease_end_ms: None,
            orders: None,
            open_votes: given.votes,
            voter: None,
            votes: false,
            leading: None,
            questions: Questions::default(),
            neighbours: NeighbourStderr::default(),
            incidents: BTreeMap::new(),
            subscriptions: Subscriptions::default(),
            shipping: Shipping::new(given.job.ships),
            state: StateClient::default(),
            ending: Ending::default(),
            out: Vec::new(),
            keeps: false,
            config: given.config,
            plans: Vec::new(),
            job: given.job,
            digest: given.digest,
        };
        if let Some(kept) = kept {
            (host.membership.term, host.membership.leader) = (kept.term, kept.leader);
            if let Some(offset_ms) = kept.offset_ms {
                host.clock = CoordinatorClock::with_offset(offset_ms, now_ms);
            }
            host.take_list(kept.list);
        }
        host
    }

    /// What follows from an event.
    pub fn handle(&mut self, now_ms: u64, event: Event) -> Vec<Effect> {
        self.handle_into(now_ms, event, Vec::new())
    }

    /// The same, in a list that has room already: most events have a few effects.
    pub fn handle_into(&mut self, now_ms: u64, event: Event, mut room: Vec<Effect>) -> Vec<Effect> {
        room.append(&mut self.out);
        self.out = room;
        self.now_ms = now_ms.max(self.now_ms);
        match event {
            Event::Opened(link) => {
                self.links.open(link);
                self.say_hello(link);
            }
            Event::Closed(link) => {
                if let Some(host) = self.links.close(link) {
                    self.lose_route(host);
                }
            }
            Event::Unopened(link, why) => {
                self.note_unopened(link, &why);
                self.links.close(link);
            }
            Event::Heard(link, message) => self.hear(link, message),
            Event::Reported(report) => self.take_report(*report),
            Event::Asked(ask, question, patience_ms) => self.ask(ask, question, patience_ms),
            Event::Left(ask) => self.withdraw_ask(ask),
            Event::Done(question, found) => self.take_task(question, found),
            Event::Follow(subscription) => self.follow(subscription),
            Event::Unfollow(stream) => self.unfollow(stream),
            Event::SourceEnded(stream) => self.note_source_ended(stream),
            Event::Shipment { wants, has_all, is_ready } => self.note_shipment(wants, has_all, is_ready),
            Event::ShipmentMoved => self.note_shipment_moved(),
            Event::ShipmentFailed(why) => self.fail_shipment(why),
            Event::State(answer) => self.hear_state(answer),
            Event::EndpointMoved(address) => self.config.endpoint = address,
            Event::Tick => {}
        }
        self.settle();
        if std::mem::take(&mut self.keeps) {
            // First, because a host that begins again must know of the term in which it spoke (H1); and once, because a list is large.
            self.membership.offset_ms = self.clock.is_set().then_some(self.clock.offset_ms());
            self.out.insert(0, Effect::Keep(Box::new(self.membership.clone())));
        }
        std::mem::take(&mut self.out)
    }

    /// When it wants a tick at the latest.
    pub fn due_ms(&self) -> u64 {
        let times = [
            self.meeting_due_ms(),
            self.upward_due_ms(),
            self.below.due_ms(),
            self.voting_due_ms(),
            self.leading_due_ms(),
            self.questions.due_ms(),
            self.subscriptions.due_ms(),
            self.shipping.due_ms(self.now_ms),
            self.state_due_ms(),
            self.ending.due_ms(self.now_ms),
        ];
        times.into_iter().flatten().min().unwrap_or(self.now_ms + 1000)
    }

    /// Everything that is done after every event, in the order in which one part needs the other.
    fn settle(&mut self) {
        self.give_up_links();
        self.meet();
        self.vote();
        self.keep_below();
        self.lead();
        if self.has_proposed() {
            // At once: else it would wait for whatever happens next, a tenth of a second for each decision.
            self.vote();
            self.lead();
        }
        self.climb();
        self.pass_stderr_on();
        self.say_leaving();
        self.end_if_over();
        self.keep_state();
        self.give_up_alone();
        self.say_why();
        self.tell_agent();
        self.keep_questions();
        self.keep_subscriptions();
        self.keep_shipment();
    }

    fn hear(&mut self, link: LinkId, message: Message) {
        let Message { header, body } = message;
        let known = self.links.note_heard(link, header.list);
        if let Body::Hello { host, job, name } = &body {
            if *job != self.job.id {
                self.out
                    .push(Effect::Note(format!("{name} belongs to job {job}, and this is {}", self.job.id)));
                self.note_other_job(link, job);
                self.out.push(Effect::Close(link));
                return;
            }
            self.links.name(link, *host);
        }
        let Some(from) = known.or_else(|| self.links.host(link)) else {
            // Nobody speaks before saying who it is.
            self.out.push(Effect::Close(link));
            return;
        };
        self.learn(header, from);
        match body {
            Body::Hello { .. } => self.greet(from),
            Body::Join(request) => self.hear_join(from, *request),
            Body::Known { hosts } => self.meeting.note_known(hosts),
            Body::Refused { why, for_good, ask } => self.hear_refusal(from, why, for_good, ask),
            Body::List(list) => self.hear_list(from, list),
            Body::Lacks => self.hear_lack(from),
            Body::Attach { attachment } => self.hear_attach(from, attachment),
            Body::Detach => {
                self.below.remove(from);
                self.neighbours.forget(from);
            }
            Body::Heartbeat { number, orders, summary } => {
                self.hear_heartbeat(from, number, orders, summary);
            }
            Body::Grant { number, lease_ms, waited_ms, coordinator_ms, within_ms, orders, list } => {
                // First, because orders may be about hosts that are new.
                list.into_iter().for_each(|list| self.hear_list(from, list));
                let shown = |coordinator_ms| ParentClock { coordinator_ms, waited_ms, within_ms };
                let granted = Granted { number, lease_ms, shown: coordinator_ms.map(shown) };
                self.hear_grant(from, header, granted, orders);
            }
            Body::Goodbye { host, why } => self.hear_goodbye(from, host, why),
            Body::Stderr { host, told, clock } => self.hear_stderr(from, host, told, clock),
            Body::Incident(incident) => self.hear_incident(from, header, incident),
            Body::Vote(message) => self.hear_vote(from, *message),
            Body::Pledge { number } => self.hear_pledge(from, header, number),
            Body::Pledged { number } => self.hear_pledged(from, header, number),
            Body::Ask { question, down, what, patience_ms } => {
                self.hear_ask(from, (question, down), what, patience_ms);
            }
            Body::Answer { question, down, answer } => self.hear_answer(from, (question, down), *answer),
            Body::Withdraw { question } => self.hear_withdrawal(from, question),
            Body::Follow { stream, number, down, what, told } => {
                self.hear_follow(from, down, Subscription { stream, number, what, told });
            }
            Body::Shipment(word) => self.hear_shipment(from, word),
            Body::Unfollow { stream, why } => self.hear_unfollow(from, stream, why),
        }
    }

    /// Takes what a header knows better, and tells its sender what we do.
    fn learn(&mut self, header: Header, from: HostId) {
        if let Some(coordinator_ms) = header.coordinator_ms.filter(|_| !self.clock.is_set()) {
            // Whoever leads first goes on with the time of who founded the job.
            self.clock = CoordinatorClock::as_heard(coordinator_ms, self.now_ms);
            self.summarise_own();
        }
        let known = &self.membership;
        let unknown_leader = header.term == known.term && known.leader.is_none() && header.leader.is_some();
        if header.term > known.term || unknown_leader {
            self.follow_term(header.term, header.leader);
        }
        // A child is told with its next grant.
        if header.list < self.membership.list.stamp() && !self.below.has(from) {
            self.tell_list(from);
        }
    }

    /// Follows the leader of a term from now on (H1).
    fn follow_term(&mut self, term: u64, leader: Option<HostId>) {
        (self.membership.term, self.membership.leader) = (term, leader);
        if self.leading.as_ref().is_some_and(|leading| leading.term() < term) {
            self.leading = None;
        }
        self.keep();
        self.upward.begin_again();
        self.push_to_children();
    }

    /// Has what another in our place needs written down, before anything else that follows from the event.
    fn keep(&mut self) {
        self.keeps = true;
    }

    /// What stands at the head of what we say.
    fn header(&self) -> Header {
        let Membership { term, leader, list, .. } = &self.membership;
        let tells_time = *term == 0 && self.clock.is_set();
        let coordinator_ms = tells_time.then(|| self.clock.coordinator_ms(self.now_ms));
        Header { term: *term, leader: *leader, list: list.stamp(), coordinator_ms }
    }

    /// Says something to a host, if there is a link to it.
    fn say(&mut self, to: HostId, body: Body) -> bool {
        let Some(link) = self.links.to(to) else { return false };
        self.links.note_said(link, self.now_ms);
        self.out.push(Effect::Send(link, Box::new(Message { header: self.header(), body })));
        true
    }

    fn say_hello(&mut self, link: LinkId) {
        let (host, job, name) = (self.me.id, self.job.id.clone(), self.me.name.clone());
        let body = Body::Hello { host, job, name };
        self.out.push(Effect::Send(link, Box::new(Message { header: self.header(), body })));
    }

    /// Has a link to a host made, unless there is one.
    fn reach(&mut self, host: HostId) -> bool {
        if self.links.to(host).is_some() {
            return true;
        }
        let address = self.membership.list.entry(host).map(|entry| entry.address);
        if let Some(address) = address {
            self.dial(address);
        }
        false
    }

    fn dial(&mut self, address: std::net::SocketAddr) {
        if let Some(link) = self.links.dial(self.now_ms, address) {
            self.out.push(Effect::Dial(link, address));
        }
    }

    /// Ends links that are dead and do not know it, so that their hosts are dialled anew.
    fn give_up_links(&mut self) {
        let limit_ms = (SILENT_BEATS * self.heartbeat_ms()).max(SILENT_MS);
        // Who has no place yet speaks once in a while only: it asks for one.
        let list = &self.membership.list;
        let more_ms = |host| if list.entry(host).is_some() { 0 } else { 3 * meeting::ASK_MS };
        for link in self.links.silent(self.now_ms, limit_ms, more_ms) {
            self.out.push(Effect::Close(link));
            if let Some(host) = self.links.close(link) {
                self.lose_route(host);
            }
        }
    }

    /// Nothing reaches a host any more, until there is another link.
    fn lose_route(&mut self, host: HostId) {
        self.forget_arrival(host);
        self.neighbours.forget_told(host);
        self.lose_answers(host);
        self.below.lose(host);
        self.upward.lose(host, self.now_ms);
    }

    /// Between two heartbeats.
    fn heartbeat_ms(&self) -> u64 {
        grant::heartbeat_ms(self.config.lease_ms)
    }
}
