//! A world of imagined hosts: real [`Host`]s, imagined agents, network and clocks, all from one seed.
//!
//! After every event what must never happen is looked for ([`crate::checks`]). What can go wrong with hosts is in [`crate::faults`], what
//! can with messages in [`crate::network`].

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use penstock_process::host::config::{HostConfig, Versions};
use penstock_process::host::messages::Question;
use penstock_process::host::questions::PATIENCE_MS;
use penstock_process::host::{Effect, Event, Given, Host, Membership};
use penstock_process::lease::grant;
use penstock_process::tree::host_list::{HostEntry, HostId, HostList};
use penstock_process::vote::state_keeper::StateTask;
use serde_json::Value;

use crate::chance::Chance;
use crate::checks::Seen;
use crate::clock::HostClock;
use crate::network::{Cuts, Item, Wire};
use crate::node::{Disk, Node, Pause, Plan};
use crate::queue::Queue;
use crate::twin::{Ended, Twin};

const PORT: u16 = 29400;

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) chance: Chance,
    pub(crate) events: u64,
    pub(crate) plan: Plan,
    pub(crate) wires: Vec<Wire>,
    pub(crate) by_address: HashMap<SocketAddr, usize>,
    pub(crate) cuts: Cuts,
    queue: Queue<Item>,
    /// For the effects of an event.
    room: Vec<Effect>,
    /// Which host runs the ranks of a host rank.
    pub(crate) runners: Vec<Option<u32>>,
    /// What was seen of decisions, to be compared.
    pub(crate) seen: Seen,
    pub(crate) notes: Vec<String>,
    pub(crate) quiet: bool,
    /// What hosts answered to who asked on them, the newest last.
    pub(crate) answers: Vec<Value>,
    /// Failures that hosts were told of.
    pub(crate) incidents: Vec<(usize, Arc<Value>)>,
    /// When they came.
    pub(crate) answered: Vec<u64>,
    /// Tasks under way: which host, which start of it, which question.
    pub(crate) tasks: BTreeSet<(usize, u32, u64)>,
    /// What is to be done for a question.
    pub(crate) kinds: HashMap<u64, String>,
    /// Who sends for which subscription.
    pub(crate) sources: BTreeSet<(usize, u64)>,
    /// Who sent the job's directory to whom.
    pub(crate) shipped: Vec<(usize, usize)>,
    /// Tasks that ever began.
    pub(crate) begun: BTreeSet<(usize, u32, u64)>,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan) -> Self {
        let hosts = plan.hosts as usize;
        let mut world = Self::empty(seed, plan);
        for number in 0..hosts {
            world.add_host(number, Some(number as u32));
        }
        world
    }

    fn empty(seed: u64, plan: Plan) -> Self {
        Self {
            now_ms: 0,
            nodes: Vec::with_capacity(plan.hosts as usize + 8),
            chance: Chance::new(seed, &[7]),
            events: 0,
            wires: Vec::new(),
            by_address: HashMap::new(),
            cuts: Cuts::default(),
            queue: Queue::new(),
            room: Vec::new(),
            runners: vec![None; plan.hosts as usize],
            seen: Seen::default(),
            notes: Vec::new(),
            quiet: false,
            answers: Vec::new(),
            incidents: Vec::new(),
            answered: Vec::new(),
            tasks: BTreeSet::new(),
            kinds: HashMap::new(),
            sources: BTreeSet::new(),
            shipped: Vec::new(),
            begun: BTreeSet::new(),
            plan,
        }
    }

    /// A job whose hosts know each other from the start, as where an engine gives their list.
    pub(crate) fn founded(seed: u64, plan: Plan) -> Self {
        let (hosts, ranks) = (plan.hosts as usize, plan.ranks);
        let mut world = Self::empty(seed, plan);
        for number in 0..hosts {
            world.place_host(number, Some(number as u32));
        }
        let entry = |node: &Node| HostEntry { slots: ranks, ..node.config.entry(PORT) };
        let mut list = HostList { version: 1, configuration: 1, ..HostList::default() };
        list.hosts = world.nodes.iter().map(entry).collect();
        list.voters = list.elect_voters(&Default::default(), &[]);
        let list = Arc::new(list);
        for index in 0..hosts {
            world.nodes[index].kept = Some(Membership { list: Arc::clone(&list), ..Membership::default() });
            world.boot(index);
        }
        world
    }

    /// Another host, started now.
    pub(crate) fn add_host(&mut self, number: usize, node_rank: Option<u32>) -> usize {
        let index = self.place_host(number, node_rank);
        self.boot(index);
        index
    }

    fn rack_of(&self, number: usize) -> String {
        match self.plan.rack {
            0 => String::new(),
            hosts => format!("r{}", number as u32 / hosts),
        }
    }

    fn place_host(&mut self, number: usize, node_rank: Option<u32>) -> usize {
        let bytes = (number as u32 + 1).to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(10, bytes[1], bytes[2], bytes[3]));
        let endpoint = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), PORT);
        let clock = HostClock {
            ahead_ms: self.chance.between(1_000, 3_000_000_000),
            drift_ppm: self.chance.between(0, 2 * self.plan.drift_ppm as u64) as i64 - self.plan.drift_ppm,
            stood_ms: 0,
        };
        let config = HostConfig {
            host: HostId(self.chance.between(1, u64::MAX - 1)),
            name: format!("h{number}"),
            slots: self.plan.ranks,
            rack: self.rack_of(number),
            address,
            port: PORT,
            endpoint,
            endpoint_name: String::new(),
            is_displaced: false,
            founder: number == 0,
            nnodes: self.plan.hosts,
            sizes: self.plan.sizes.clone(),
            replace_within_ms: self.plan.replace_within_ms,
            grow_saved: self.plan.grow_saved,
            starter: self.plan.starter,
            comes: None,
            node_rank,
            spare: node_rank.is_none() && number >= self.plan.hosts as usize,
            lease_ms: self.plan.lease_ms,
            fanout: self.plan.fanout,
            host_wait_ms: self.plan.host_wait_ms,
            state: self.plan.state.clone(),
            state_asked: self.plan.state.is_some(),
            continues: true,
            interface: None,
            mixed: false,
            versions: Versions::default(),
            open: false,
            expected: Vec::new(),
        };
        let node = Node {
            host: None,
            twin: Twin::new(self.plan.ranks, self.plan.lease_ms, self.plan.listens),
            clock,
            config,
            disk: Disk::default(),
            kept: None,
            keeper: None,
            stalled: false,
            start: 0,
            tick_at: u64::MAX,
            due_at: 0,
            incoming: 0,
            term_seen: 0,
            list_seen: 0,
            orders_seen: [0, 0],
            states_seen: (0, Vec::new()),
            links: Default::default(),
            pause: None,
            held: Vec::new(),
            slept_until: 0,
            runs_as: None,
            runs: None,
        };
        let index = self.nodes.len();
        self.nodes.push(node);
        self.cuts.islands.push(0);
        self.by_address.insert(SocketAddr::new(address, PORT), index);
        index
    }

    /// Starts the coordinator of a host, with what it kept.
    pub(crate) fn boot(&mut self, index: usize) {
        let local_ms = self.local_ms(index);
        let (job, node) = (Arc::clone(&self.plan.job), &mut self.nodes[index]);
        let disk = node.disk.clone();
        let given = Given {
            config: node.config.clone(),
            job,
            digest: String::new(),
            port: PORT,
            votes: Box::new(move || Ok(disk.clone())),
        };
        node.start += 1;
        node.orders_seen = [0, 0];
        node.open_state(self.plan.state.as_deref());
        node.host = Some(Host::new(local_ms, given, node.kept.clone()));
        self.push(self.now_ms + 1, Item::Report(index as u32));
        self.give(index, Event::Tick);
    }

    pub(crate) fn local_ms(&self, index: usize) -> u64 {
        let node = &self.nodes[index];
        match node.pause {
            Some(Pause::Machine(since_ms)) => node.clock.local_ms(since_ms),
            _ => node.clock.local_ms(self.now_ms),
        }
    }

    pub(crate) fn push(&mut self, at: u64, item: Item) {
        self.queue.push(at, item);
    }

    /// Lets time pass.
    pub(crate) fn run_until(&mut self, until_ms: u64) {
        while let Some((at, mut items)) = self.queue.next(until_ms) {
            self.now_ms = at;
            self.events += items.len() as u64;
            for item in items.drain(..) {
                self.happen(item);
            }
            self.queue.give_back(at, items);
        }
        self.now_ms = self.now_ms.max(until_ms);
    }

    fn happen(&mut self, item: Item) {
        let Some(item) = self.unless_paused(item) else { return };
        match item {
            Item::Tick(index) => self.tick(index as usize),
            Item::Report(index) => {
                let index = index as usize;
                let local_ms = self.local_ms(index);
                if self.nodes[index].host.is_some() {
                    let report = self.nodes[index].twin.report(local_ms);
                    self.give(index, Event::Reported(Box::new(report)));
                }
            }
            Item::Open(wire, end) => {
                if let Some((node, link)) = self.live_end(wire, end) {
                    self.give(node, Event::Opened(link));
                }
            }
            Item::Deliver(wire, end, message) => {
                if let Some((node, link)) = self.live_end(wire, end) {
                    self.give(node, Event::Heard(link, *message));
                }
            }
            Item::Close(wire, end) => self.close_end(wire, end),
            Item::Resume(index) => self.resume(index as usize),
            Item::Done(index, start, question) => self.end_task(index as usize, start, question),
            Item::State(index, start, answer) => {
                if self.nodes[index as usize].start == start {
                    self.give(index as usize, Event::State(*answer));
                }
            }
        }
    }

    /// Whose it is.
    pub(crate) fn host_of(&self, item: &Item) -> u32 {
        match item {
            Item::Tick(index) | Item::Report(index) | Item::Resume(index) => *index,
            Item::State(index, ..) | Item::Done(index, ..) => *index,
            Item::Open(wire, end) | Item::Deliver(wire, end, _) | Item::Close(wire, end) => {
                self.wires[*wire as usize].ends[usize::from(*end)].0
            }
        }
    }

    fn tick(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.tick_at != self.now_ms {
            return;
        }
        if node.due_at > self.now_ms {
            // Something has happened since that put off what it waited for.
            let due_at = node.due_at;
            node.tick_at = due_at;
            return self.push(due_at, Item::Tick(index as u32));
        }
        node.tick_at = u64::MAX;
        self.keep_lease(index);
        self.give(index, Event::Tick);
    }

    /// The agent, or the kernel in its place, ends ranks before the lease does.
    pub(crate) fn keep_lease(&mut self, index: usize) {
        let local_ms = self.local_ms(index);
        if self.nodes[index].twin.keep_lease(local_ms) {
            self.note_end(index);
            self.push(self.now_ms, Item::Report(index as u32));
        }
    }

    pub(crate) fn give(&mut self, index: usize, event: Event) {
        let local_ms = self.local_ms(index);
        let Some(host) = self.nodes[index].host.as_mut() else { return };
        let mut effects = host.handle_into(local_ms, event, std::mem::take(&mut self.room));
        for effect in effects.drain(..) {
            self.carry_out(index, effect);
        }
        self.room = effects;
        self.check(index);
        let node = &self.nodes[index];
        let Some(host) = &node.host else { return };
        let due_ms = host.due_ms().min(node.twin.lease_due_ms().unwrap_or(u64::MAX)).max(local_ms + 1);
        let at = node.clock.world_ms(due_ms).max(self.now_ms + 1);
        let node = &mut self.nodes[index];
        node.due_at = at;
        if at < node.tick_at {
            node.tick_at = at;
            self.push(at, Item::Tick(index as u32));
        }
    }

    fn carry_out(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Dial(link, to) => self.dial(index, link, to),
            Effect::Send(link, message) => self.send(index, link, message),
            Effect::Close(link) => {
                if let Some((wire, _)) = self.nodes[index].unlink(link) {
                    self.break_wire(wire, 0);
                }
            }
            Effect::Order(orders) => {
                let local_ms = self.local_ms(index);
                let ran = self.nodes[index].twin.running;
                if self.nodes[index].twin.obey(local_ms, &orders) {
                    self.push(self.now_ms, Item::Report(index as u32));
                }
                if self.nodes[index].twin.running && !ran {
                    self.note_start(index);
                } else if ran && !self.nodes[index].twin.running {
                    self.note_end(index);
                }
                self.check_orders(index);
                if self.nodes[index].twin.over {
                    self.note(format!("h{index} ends: {}", orders.reason));
                    self.kill(index);
                }
            }
            Effect::State(task) => self.keep_state(index, task),
            Effect::Renew(lease_until_ms) => self.nodes[index].twin.renew(lease_until_ms),
            Effect::Keep(membership) => self.nodes[index].kept = Some(*membership),
            Effect::Write(lines) => self.note_lines(&lines),
            Effect::Note(words) if !self.quiet => self.note(format!("h{index}: {words}")),
            Effect::Answer(_, answer) => {
                self.answered.push(self.now_ms);
                self.answers.push(answer);
            }
            Effect::Task(question, task, limit_ms) => self.begin_task(index, question, &task, limit_ms),
            Effect::Source { stream, .. } => drop(self.sources.insert((index, stream))),
            Effect::EndSource(stream) => drop(self.sources.remove(&(index, stream))),
            Effect::Unfollowed(stream, why) => self.note(format!("h{index}: {stream} is refused: {why}")),
            Effect::EndTask(question) => drop(self.tasks.remove(&(index, self.nodes[index].start, question))),
            Effect::SendShipment(link, _) => {
                let wire = self.nodes[index].wire(link);
                let to = wire.map(|(wire, end)| self.wires[wire as usize].ends[1 - end as usize].0);
                self.shipped.extend(to.map(|to| (index, to as usize)));
            }
            Effect::Incident(incident) => self.incidents.push((index, incident)),
            Effect::FinishSources | Effect::BeginAgain | Effect::Note(_) | Effect::Remember(_) => {}
        }
    }

    /// What a host wants of its state directory, done at once and answered later.
    fn keep_state(&mut self, index: usize, task: StateTask) {
        let start = self.nodes[index].start;
        for answer in self.nodes[index].do_in_state(task) {
            let at = self.now_ms + self.chance.between(1, 3 * self.plan.delay_ms.max(1));
            self.push(at, Item::State(index as u32, start, Box::new(answer)));
        }
    }

    /// Somebody on a host asks, or tells; nobody does while it is paused.
    pub(crate) fn ask(&mut self, index: usize, question: Question) {
        if self.nodes[index].pause.is_some() {
            return;
        }
        self.give(index, Event::Asked(1, question, PATIENCE_MS));
    }

    /// The agent of a host says how it is.
    pub(crate) fn report(&mut self, index: usize) {
        self.push(self.now_ms, Item::Report(index as u32));
    }

    pub(crate) fn note(&mut self, words: String) {
        if !self.quiet {
            self.notes.push(format!("{} {words}", self.now_ms));
        }
    }

    /// The host that leads with the newest term, among those that live.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |index: &usize| self.nodes[*index].host.as_ref().is_some_and(|host| host.leads());
        let term = |index: &usize| self.nodes[*index].host.as_ref().map_or(0, |host| host.membership().term);
        (0..self.nodes.len()).filter(leads).max_by_key(term)
    }

    /// Whether a leader counts a host now.
    pub(crate) fn is_heard(&self, leader: usize, index: usize) -> bool {
        let Some(host) = &self.nodes[leader].host else { return false };
        let rank = host.membership().list.rank_of(self.nodes[index].config.host);
        rank.is_some_and(|rank| leader == index || host.summary().hosts.contains(rank))
    }

    /// How every host stands.
    pub(crate) fn words(&self) -> String {
        let line = |(index, node): (usize, &Node)| {
            let host = node.host.as_ref().map(|host| host.status());
            format!("h{index}: {} {host:?}", node.twin.words())
        };
        self.nodes.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    }

    /// How many hosts run ranks, and of which life the youngest is.
    pub(crate) fn running(&self) -> (usize, Option<u32>) {
        let running = self.nodes.iter().filter(|node| node.twin.running);
        (running.clone().count(), running.filter_map(|node| node.twin.life).max())
    }

    /// Ranks that a lease ended.
    pub(crate) fn ended_by_lease(&self) -> usize {
        self.nodes.iter().flat_map(|node| &node.twin.ends).filter(|ended| **ended == Ended::Lease).count()
    }

    /// Ranks that an order ended.
    pub(crate) fn ended_by_order(&self) -> usize {
        let ordered = |ended: &&Ended| matches!(ended, Ended::Ordered(_));
        self.nodes.iter().flat_map(|node| &node.twin.ends).filter(ordered).count()
    }

    /// The time in which the longest lease has certainly ended.
    pub(crate) fn lease_over_ms(&self) -> u64 {
        let lease_ms = self.plan.lease_ms;
        lease_ms + grant::slack_ms(lease_ms) * 3 + 2 * grant::unheard_ms(lease_ms) + 4000
    }
}
