//! A world of imagined hosts: real [`Host`]s, imagined agents, network and clocks, all from one seed.
//!
//! Links are like TCP: what is said arrives in order or not at all; a link that is cut breaks silently, and its ends notice later. After every event what must never happen is looked for (`check`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use penstock_process::host::config::{HostConfig, Versions};
use penstock_process::host::messages::Message;
use penstock_process::host::{Effect, Event, Given, Host, LinkId, Membership};
use penstock_process::lease::grant;
use penstock_process::tree::host_list::{HostEntry, HostId, HostList};
use penstock_process::vote::state_keeper::StateAnswer;

use crate::chance::Chance;
use crate::clock::HostClock;
use crate::node::{Disk, Node, Plan};
use crate::twin::{Ended, Twin};

struct Wire {
    ends: [(usize, LinkId, u32); 2],
    broken: bool,
    /// When the last message of each direction arrives.
    last: [u64; 2],
}

enum Item {
    Tick(usize),
    Open(usize, usize),
    Deliver(usize, usize, Box<Message>),
    Close(usize, usize),
    Report(usize),
    State(usize, u32, StateAnswer),
}

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) chance: Chance,
    pub(crate) events: u64,
    plan: Plan,
    wires: HashMap<usize, Wire>,
    next_wire: usize,
    by_link: HashMap<(usize, u64), (usize, usize)>,
    by_address: BTreeMap<SocketAddr, usize>,
    /// Directions in which nothing passes.
    cuts: HashMap<(usize, usize), ()>,
    /// Hosts that only hear each other.
    island: Vec<u8>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    items: HashMap<u64, Item>,
    sequence: u64,
    /// Which host runs the ranks of a host rank.
    runners: HashMap<u32, usize>,
    pub(crate) notes: Vec<String>,
    pub(crate) quiet: bool,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan) -> Self {
        let mut world = Self {
            now_ms: 0,
            nodes: Vec::new(),
            chance: Chance::new(seed, &[7]),
            events: 0,
            wires: HashMap::new(),
            next_wire: 0,
            by_link: HashMap::new(),
            by_address: BTreeMap::new(),
            cuts: HashMap::new(),
            island: Vec::new(),
            queue: BinaryHeap::new(),
            items: HashMap::new(),
            sequence: 0,
            runners: HashMap::new(),
            notes: Vec::new(),
            quiet: false,
            plan,
        };
        for number in 0..world.plan.hosts as usize {
            world.add_host(number, Some(number as u32));
        }
        world
    }

    /// A job whose hosts know each other from the start, as where an engine gives their list.
    pub(crate) fn founded(seed: u64, plan: Plan) -> Self {
        let (hosts, ranks) = (plan.hosts, plan.ranks);
        let mut world = Self::new(seed, Plan { hosts: 0, ..plan });
        world.plan.hosts = hosts;
        for number in 0..hosts as usize {
            world.place_host(number, Some(number as u32));
        }
        let entry = |node: &Node| HostEntry { slots: ranks, ..node.config.entry(29400) };
        let mut list = HostList { version: 1, configuration: 1, ..HostList::default() };
        list.hosts = world.nodes.iter().map(entry).collect();
        list.voters = list.elect_voters(&Default::default(), &[]);
        let list = Arc::new(list);
        for index in 0..hosts as usize {
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

    fn place_host(&mut self, number: usize, node_rank: Option<u32>) -> usize {
        let bytes = (number as u32 + 1).to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(10, bytes[1], bytes[2], bytes[3]));
        let endpoint = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 29400);
        let clock = HostClock {
            ahead_ms: self.chance.between(1_000, 3_000_000_000),
            drift_ppm: self.chance.between(0, 2 * self.plan.drift_ppm as u64) as i64 - self.plan.drift_ppm,
        };
        let config = HostConfig {
            host: HostId(self.chance.between(1, u64::MAX - 1)),
            name: format!("h{number}"),
            slots: self.plan.ranks,
            rack: String::new(),
            address,
            port: 29400,
            endpoint,
            founder: number == 0,
            nnodes: self.plan.hosts,
            node_rank,
            lease_ms: self.plan.lease_ms,
            fanout: self.plan.fanout,
            host_wait_ms: self.plan.host_wait_ms,
            state: self.plan.state.clone(),
            state_asked: self.plan.state.is_some(),
            continues: true,
            interface: None,
            mixed: false,
            versions: Versions::default(),
            expected: Vec::new(),
        };
        let node = Node {
            host: None,
            twin: Twin::new(self.plan.ranks, self.plan.lease_ms),
            clock,
            config,
            disk: Disk::default(),
            kept: None,
            keeper: None,
            stalled: false,
            start: 0,
            tick_at: u64::MAX,
            incoming: 0,
            term_seen: 0,
        };
        let index = self.nodes.len();
        self.nodes.push(node);
        self.island.push(0);
        self.by_address.insert(SocketAddr::new(address, 29400), index);
        index
    }

    /// Starts the coordinator of a host, with what it kept.
    fn boot(&mut self, index: usize) {
        let local_ms = self.local_ms(index);
        let (job, node) = (self.plan.job.clone(), &mut self.nodes[index]);
        let disk = node.disk.clone();
        let given = Given {
            config: node.config.clone(),
            job,
            digest: String::new(),
            port: 29400,
            votes: Box::new(move || Ok(disk.clone())),
        };
        node.start += 1;
        node.open_state(self.plan.state.as_deref());
        node.host = Some(Host::new(local_ms, given, node.kept.clone()));
        self.push(self.now_ms + 1, Item::Report(index));
        self.give(index, Event::Tick);
    }

    pub(crate) fn local_ms(&self, index: usize) -> u64 {
        self.nodes[index].clock.local_ms(self.now_ms)
    }

    fn push(&mut self, at: u64, item: Item) {
        self.sequence += 1;
        self.items.insert(self.sequence, item);
        self.queue.push(Reverse((at, self.sequence)));
    }

    /// Lets time pass.
    pub(crate) fn run_until(&mut self, until_ms: u64) {
        while let Some(Reverse((at, number))) = self.queue.peek().copied() {
            if at > until_ms {
                break;
            }
            self.queue.pop();
            self.now_ms = self.now_ms.max(at);
            self.events += 1;
            let Some(item) = self.items.remove(&number) else { continue };
            self.happen(item, at);
        }
        self.now_ms = self.now_ms.max(until_ms);
    }

    fn happen(&mut self, item: Item, at: u64) {
        match item {
            Item::Tick(index) => {
                if self.nodes[index].tick_at == at {
                    self.nodes[index].tick_at = u64::MAX;
                    let local_ms = self.local_ms(index);
                    if self.nodes[index].twin.keep_lease(local_ms) {
                        self.note_end(index);
                        self.push(self.now_ms, Item::Report(index));
                    }
                    self.give(index, Event::Tick);
                }
            }
            Item::Report(index) => {
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
            Item::State(index, start, answer) => {
                if self.nodes[index].start == start {
                    self.give(index, Event::State(answer));
                }
            }
        }
    }

    fn live_end(&self, wire: usize, end: usize) -> Option<(usize, LinkId)> {
        let wire = self.wires.get(&wire).filter(|wire| !wire.broken)?;
        let (node, link, start) = wire.ends[end];
        (self.nodes[node].start == start && self.nodes[node].host.is_some()).then_some((node, link))
    }

    fn close_end(&mut self, wire: usize, end: usize) {
        let Some(known) = self.wires.get(&wire) else { return };
        let (node, link, start) = known.ends[end];
        // A host that was started again uses the same numbers for other links.
        if self.nodes[node].start == start {
            self.by_link.remove(&(node, link.0));
            self.give(node, Event::Closed(link));
        }
    }

    fn give(&mut self, index: usize, event: Event) {
        let local_ms = self.local_ms(index);
        let Some(host) = self.nodes[index].host.as_mut() else { return };
        let effects = host.handle(local_ms, event);
        for effect in effects {
            self.carry_out(index, effect);
        }
        self.check(index);
        let node = &self.nodes[index];
        let Some(host) = &node.host else { return };
        let due_ms = host.due_ms().min(node.twin.lease_due_ms().unwrap_or(u64::MAX)).max(local_ms + 1);
        let at = node.clock.world_ms(due_ms).max(self.now_ms + 1);
        if at < node.tick_at {
            self.nodes[index].tick_at = at;
            self.push(at, Item::Tick(index));
        }
    }

    fn carry_out(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Dial(link, to) => self.dial(index, link, to),
            Effect::Send(link, message) => self.send(index, link, message),
            Effect::Close(link) => {
                if let Some((wire, _)) = self.by_link.remove(&(index, link.0)) {
                    self.break_wire(wire, 0);
                }
            }
            Effect::Order(orders) => {
                let local_ms = self.local_ms(index);
                let ran = self.nodes[index].twin.running;
                if self.nodes[index].twin.obey(local_ms, &orders) {
                    self.push(self.now_ms, Item::Report(index));
                }
                if self.nodes[index].twin.running && !ran {
                    self.note_start(index);
                } else if ran && !self.nodes[index].twin.running {
                    self.note_end(index);
                }
                if self.nodes[index].twin.over {
                    self.notes.push(format!("{} h{index} ends: {}", self.now_ms, orders.reason));
                    self.kill(index);
                }
            }
            Effect::State(task) => {
                let start = self.nodes[index].start;
                for answer in self.nodes[index].do_in_state(task) {
                    let at = self.now_ms + self.chance.between(1, 3 * self.plan.delay_ms.max(1));
                    self.push(at, Item::State(index, start, answer));
                }
            }
            Effect::Keep(membership) => self.nodes[index].kept = Some(*membership),
            Effect::Note(words) if !self.quiet => {
                self.notes.push(format!("{} h{index}: {words}", self.now_ms))
            }
            Effect::Note(_) | Effect::Write(_) | Effect::Answer(..) => {}
        }
    }

    fn passes(&self, from: usize, to: usize) -> bool {
        self.island[from] == self.island[to] && !self.cuts.contains_key(&(from, to))
    }

    fn dial(&mut self, from: usize, link: LinkId, to: SocketAddr) {
        let target = self.by_address.get(&to).copied().filter(|target| self.nodes[*target].host.is_some());
        let reachable = target.filter(|target| self.passes(from, *target) && self.passes(*target, from));
        let start = self.nodes[from].start;
        let wire = self.next_wire;
        self.next_wire += 1;
        let Some(target) = reachable else {
            // Refused at once where nobody listens; nothing at all where nothing passes.
            let delay_ms = if target.is_none() { 2 } else { 3000 };
            self.wires.insert(wire, Wire { ends: [(from, link, start); 2], broken: true, last: [0; 2] });
            self.push(self.now_ms + delay_ms, Item::Close(wire, 0));
            return;
        };
        self.nodes[target].incoming += 1;
        let theirs = LinkId(self.nodes[target].incoming);
        let ends = [(from, link, start), (target, theirs, self.nodes[target].start)];
        let at = self.now_ms + self.chance.between(1, self.plan.delay_ms.max(1));
        self.wires.insert(wire, Wire { ends, broken: false, last: [at; 2] });
        self.by_link.insert((from, link.0), (wire, 0));
        self.by_link.insert((target, theirs.0), (wire, 1));
        self.push(at, Item::Open(wire, 0));
        self.push(at, Item::Open(wire, 1));
    }

    fn send(&mut self, from: usize, link: LinkId, message: Message) {
        let Some((number, end)) = self.by_link.get(&(from, link.0)).copied() else { return };
        let to = 1 - end;
        let target = match self.wires.get(&number) {
            Some(wire) if !wire.broken => wire.ends[to].0,
            _ => return,
        };
        if !self.passes(from, target) {
            // What is lost here is never repeated: the link is broken, and its ends will notice some day.
            let delay_ms = self.chance.between(500, 20_000);
            self.break_wire(number, delay_ms);
            return;
        }
        let delay_ms = self.chance.between(0, self.plan.delay_ms);
        let Some(wire) = self.wires.get_mut(&number) else { return };
        let at = (self.now_ms + delay_ms).max(wire.last[to]);
        wire.last[to] = at;
        self.push(at, Item::Deliver(number, to, Box::new(message)));
    }

    fn break_wire(&mut self, wire: usize, delay_ms: u64) {
        let Some(known) = self.wires.get_mut(&wire).filter(|known| !known.broken) else { return };
        known.broken = true;
        self.push(self.now_ms + delay_ms, Item::Close(wire, 0));
        self.push(self.now_ms + delay_ms, Item::Close(wire, 1));
    }

    /// Everything on a host ends at once; the other ends of its links are told, unless it was cut off.
    pub(crate) fn kill(&mut self, index: usize) {
        self.nodes[index].host = None;
        self.nodes[index].start += 1;
        self.nodes[index].tick_at = u64::MAX;
        if self.nodes[index].twin.running {
            self.nodes[index].twin.running = false;
            self.note_end(index);
        }
        let wires: Vec<usize> =
            self.by_link.iter().filter(|((node, _), _)| *node == index).map(|(_, (wire, _))| *wire).collect();
        for wire in wires {
            self.break_wire(wire, 1);
        }
        self.by_link.retain(|(node, _), _| *node != index);
    }

    /// The coordinator of a host is killed and started again; its ranks notice nothing.
    pub(crate) fn restart_coordinator(&mut self, index: usize) {
        if self.nodes[index].host.is_none() {
            return;
        }
        self.nodes[index].host = None;
        let wires: Vec<usize> =
            self.by_link.iter().filter(|((node, _), _)| *node == index).map(|(_, (wire, _))| *wire).collect();
        for wire in wires {
            self.break_wire(wire, 1);
        }
        self.by_link.retain(|(node, _), _| *node != index);
        self.boot(index);
    }

    /// The ranks of a host end by themselves.
    pub(crate) fn end_ranks(&mut self, index: usize, code: i32) {
        let local_ms = self.local_ms(index);
        if self.nodes[index].twin.end_alone(local_ms, code) {
            self.note_end(index);
            self.push(self.now_ms, Item::Report(index));
        }
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to), ());
    }

    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.island.iter_mut().for_each(|island| *island = 0);
    }

    /// Puts a host where only others of the same number hear it.
    pub(crate) fn isolate(&mut self, index: usize, island: u8) {
        self.island[index] = island;
    }

    /// H2: the ranks of a host rank run on one host at a time.
    fn note_start(&mut self, index: usize) {
        let Some(rank) = self.nodes[index].twin.host_rank else { return };
        if let Some(other) = self.runners.insert(rank, index) {
            let runs = other != index && self.nodes[other].twin.running;
            assert!(!runs, "host rank {rank} runs on h{other} and on h{index} at {}", self.now_ms);
        }
    }

    fn note_end(&mut self, index: usize) {
        self.runners.retain(|_, runner| *runner != index);
    }

    /// H1: a term never goes back. H3: ranks end by an order or by the end of a lease only.
    fn check(&mut self, index: usize) {
        let now_ms = self.local_ms(index);
        let node = &mut self.nodes[index];
        let Some(host) = &node.host else { return };
        let term = host.membership().term;
        assert!(term >= node.term_seen, "h{index} went from term {:x} back to {term:x}", node.term_seen);
        node.term_seen = term;
        if node.twin.running {
            let until_ms = node.twin.lease_until_ms.unwrap_or(0);
            assert!(
                now_ms <= until_ms,
                "h{index} runs ranks at {now_ms}, after its lease ended at {until_ms}"
            );
        }
    }

    /// The host that leads with the newest term, among those that live.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |index: &usize| self.nodes[*index].host.as_ref().is_some_and(|host| host.leads());
        let term = |index: &usize| self.nodes[*index].host.as_ref().map_or(0, |host| host.membership().term);
        (0..self.nodes.len()).filter(leads).max_by_key(term)
    }

    /// How every host stands.
    pub(crate) fn words(&self) -> String {
        let line = |(index, node): (usize, &Node)| {
            let host = node.host.as_ref().map(|host| host.words());
            format!("h{index}: life {:?} running {} {host:?}", node.twin.life, node.twin.running)
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
        self.plan.lease_ms + grant::slack_ms(self.plan.lease_ms) * 3 + 2000
    }
}
