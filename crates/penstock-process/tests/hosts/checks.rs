//! What must hold after every event, and what must when all is quiet.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use penstock_process::lease::host_state::{Fact, HostState};
use penstock_process::tree::host_list::HostId;
use penstock_process::tree::summary::{StepHistogram, Summary};
use penstock_process::vote::ledger::SharedLedger;
use penstock_process::vote::storage::VoteStorage;
use serde_json::Value;

use crate::world::World;

/// All that may be found out about a host.
const FACTS: [Fact; 9] = [
    Fact::Heard,
    Fact::Silent,
    Fact::LeaseOver,
    Fact::Goodbye,
    Fact::SeenEnded,
    Fact::Placed,
    Fact::Replaced,
    Fact::Stuck,
    Fact::Freed,
];

/// Who has which host rank after some entries of the journal.
type Filled = BTreeMap<u32, Option<HostId>>;

/// Who runs a life.
#[derive(Default)]
struct Places {
    /// Hosts by their numbers among them.
    numbers: HashMap<u32, u32>,
    /// Of how many hosts each knows: how many say so.
    hosts: BTreeMap<u32, u32>,
}

/// What was seen of decisions.
#[derive(Default)]
pub(crate) struct Seen {
    /// Lives that hosts run.
    lives: BTreeMap<u32, Places>,
    /// Lines of the journal, by number: all voters write the same.
    lines: Vec<Value>,
    /// Host ranks and their hosts by the version of the list, as the journal says.
    filled: BTreeMap<u64, Filled>,
    /// Orders that were looked at: term and number.
    orders: HashSet<[u64; 2]>,
    /// Hosts that were declared lost, with the moment: once for each entry.
    pub(crate) lost: Vec<(u32, u64)>,
}

/// Whether the table of steps leads from one state to another, in one step or two.
fn is_step(from: HostState, to: HostState) -> bool {
    let next = |state: HostState| FACTS.into_iter().filter_map(move |fact| state.after(fact));
    next(from).any(|one| one == to || next(one).any(|two| two == to))
}

impl World {
    /// H2: the ranks of a host rank run on one host at a time, but for a machine that was paused from outside.
    pub(crate) fn note_start(&mut self, index: usize) {
        self.note_place(index);
        let node = &self.nodes[index];
        let list = node.host.as_ref().map(|host| host.membership().list.clone());
        let Some(rank) = list.and_then(|list| list.rank_of(node.config.host)) else { return };
        self.nodes[index].runs_as = Some(rank);
        if let Some(other) = self.runners[rank as usize].replace(index as u32) {
            let node = &self.nodes[other as usize];
            let runs = other as usize != index && node.twin.running && self.now_ms > node.slept_until;
            assert!(!runs, "host rank {rank} runs on h{other} and on h{index} at {}", self.now_ms);
        }
    }

    pub(crate) fn note_end(&mut self, index: usize) {
        if let Some(rank) = self.nodes[index].runs_as.take() {
            self.runners[rank as usize].take_if(|runner| *runner == index as u32);
        }
        let Some((life, (number, hosts))) = self.nodes[index].runs.take() else { return };
        let Some(places) = self.seen.lives.get_mut(&life) else { return };
        places.numbers.remove(&number);
        if let Some(count) = places.hosts.get_mut(&hosts) {
            *count -= 1;
        }
        places.hosts.retain(|_, count| *count > 0);
    }

    /// L1: hosts that run the same life know of equally many, and each has a number of its own among them.
    fn note_place(&mut self, index: usize) {
        let twin = &self.nodes[index].twin;
        let (life, place) = (twin.life.unwrap_or(0), twin.place);
        let places = self.seen.lives.entry(life).or_default();
        let other = places.numbers.insert(place.0, index as u32);
        *places.hosts.entry(place.1).or_insert(0) += 1;
        let same = places.hosts.len() == 1;
        self.nodes[index].runs = Some((life, place));
        assert!(
            same && other.is_none(),
            "h{index} runs life {life} as {place:?} (number, hosts), {other:?} with the same number, hosts {:?}\n{}",
            self.seen.lives[&life].hosts,
            self.notes.join("\n"),
        );
    }

    /// H1: a term never goes back; who has seen one takes no orders of a lower one, and none that are older than those it has. H2: no rank runs
    /// after its lease. H8: every host has the hosts that the journal says.
    pub(crate) fn check(&mut self, index: usize) {
        let now_ms = self.local_ms(index);
        let node = &mut self.nodes[index];
        let Some(host) = &node.host else { return };
        let term = host.membership().term;
        assert!(term >= node.term_seen, "h{index} went from term {:x} back to {term:x}", node.term_seen);
        let number = host.job_orders().map_or([0, 0], |orders| [orders.term, orders.number]);
        let (before, seen) = (std::mem::replace(&mut node.orders_seen, number), node.term_seen);
        assert!(number >= before, "h{index} goes from orders {before:x?} back to {number:x?}");
        assert!(
            number == before || number[0] >= seen,
            "h{index} has seen term {seen:x} and takes orders {number:x?}"
        );
        node.term_seen = term;
        if node.twin.running {
            let until_ms = node.twin.lease_until_ms.unwrap_or(0);
            assert!(
                now_ms <= until_ms,
                "h{index} runs ranks at {now_ms}, after its lease ended at {until_ms}\n{}",
                self.notes.join("\n")
            );
        }
        if self.plan.checked {
            self.check_list(index);
            self.check_leader(index);
        }
    }

    fn check_list(&mut self, index: usize) {
        let Some(host) = &self.nodes[index].host else { return };
        let list = std::sync::Arc::clone(&host.membership().list);
        if list.version == 0
            || std::mem::replace(&mut self.nodes[index].list_seen, list.version) == list.version
        {
            return;
        }
        let of_list = || -> Filled {
            let host =
                |rank: u32| list.host(rank).filter(|_| !list.vacant.contains(&rank)).map(|entry| entry.id);
            (0..list.len()).map(|rank| (rank, host(rank))).collect()
        };
        if list.version == 1 {
            self.seen.filled.entry(1).or_insert_with(of_list);
        }
        let known = self.seen.filled.get(&list.version);
        let known = known.unwrap_or_else(|| panic!("h{index} has host list {} of no journal", list.version));
        let notes = || self.notes.join("\n");
        assert_eq!(*known, of_list(), "h{index} has another host list {}\n{}", list.version, notes());
    }

    /// H8: what the leader says of hosts is one state for each, and each goes from one to another by the table of steps, or because another
    /// host has its host rank now.
    fn check_leader(&mut self, index: usize) {
        let Some(host) = &self.nodes[index].host else { return };
        let Some(states) = host.host_states() else { return };
        let (list, term) = (&host.membership().list, host.membership().term);
        assert_eq!(
            states.len(),
            list.len() as usize,
            "h{index} leads and does not know the state of each host"
        );
        let before = std::mem::replace(&mut self.nodes[index].states_seen, (term, states.clone()));
        if before.0 != term {
            return;
        }
        for (rank, (from, to)) in (0..).zip(before.1.into_iter().zip(states)) {
            let placed = from.is_free() && to == HostState::Here;
            assert!(
                from == to || placed || is_step(from, to),
                "host rank {rank} went from {from:?} to {to:?}"
            );
        }
    }

    /// H8: when all is quiet, free are the host ranks that the journal says.
    pub(crate) fn check_states(&self) {
        let Some(host) = self.leader().and_then(|leader| self.nodes[leader].host.as_ref()) else { return };
        let list = &host.membership().list;
        let states = host.host_states().unwrap_or_default();
        let free = (0..).zip(states).filter(|(_, state)| state.is_free()).map(|(rank, _)| rank);
        assert_eq!(free.collect::<BTreeSet<u32>>(), list.vacant, "free are others than those in the journal");
    }

    /// H1: an order is given when a majority of voters has all that it follows from.
    pub(crate) fn check_orders(&mut self, index: usize) {
        if !self.plan.checked {
            return;
        }
        let Some(orders) = self.nodes[index].host.as_ref().and_then(|host| host.job_orders()) else { return };
        if !self.seen.orders.insert([orders.term, orders.number]) {
            return;
        }
        let records = orders.records as usize;
        let mut voters: BTreeMap<HostId, (u32, Vec<Vec<u8>>)> = BTreeMap::new();
        for node in &self.nodes {
            let stored = node.disk.clone().load().expect("a disk in memory");
            if stored.is_empty() {
                continue;
            }
            let ledger = SharedLedger::load(stored).expect("a ledger");
            let ledger = ledger.lock();
            let number = ledger.configuration.as_ref().map_or(0, |known| known.number);
            let all = ledger.history.iter().chain(&ledger.log).map(|record| record.0.clone()).collect();
            voters.insert(node.config.host, (number, all));
        }
        let has = |voter: &&HostId| voters.get(*voter).is_some_and(|(_, all)| all.len() >= records);
        // A term begins with the number of its voters' configuration; none is found when all have gone on to another.
        let group = self.group_of((orders.term >> 32) as u32);
        let count = group.iter().filter(has).count();
        assert!(
            2 * count > group.len() || group.is_empty(),
            "order {} of term {:x} at h{index} follows from {records} records, which {count} of {} voters have: {:?}",
            orders.number,
            orders.term,
            group.len(),
            voters.iter().map(|(voter, (number, all))| (voter, number, all.len())).collect::<Vec<_>>()
        );
    }

    /// The voters of a configuration, as their disks say.
    fn group_of(&self, number: u32) -> Vec<HostId> {
        let group = self.nodes.iter().find_map(|node| {
            let ledger = SharedLedger::load(node.disk.clone().load().ok()?).ok()?;
            let ledger = ledger.lock();
            let known = ledger.configuration.as_ref().filter(|known| known.number == number)?;
            Some(known.voters.iter().map(|voter| HostId(*voter)).collect())
        });
        group.unwrap_or_default()
    }

    /// H8, H9: all voters write the same journal. H2: who is declared lost runs nothing. What the lines say of hosts is folded.
    pub(crate) fn note_lines(&mut self, lines: &[Value]) {
        for line in lines {
            let number = line["line"].as_u64().expect("a number") as usize;
            if let Some(known) = self.seen.lines.get(number - 1) {
                assert_eq!(known, line, "two voters write another line {number}");
                continue;
            }
            assert_eq!(number, self.seen.lines.len() + 1, "a line is missing before {number}");
            self.seen.lines.push(line.clone());
            if line["event"] == "hosts" {
                self.note_hosts(&line["about"]);
            }
        }
    }

    fn note_hosts(&mut self, change: &Value) {
        let version = change["version"].as_u64().expect("a version");
        let ranks = |name: &str| -> Vec<u32> {
            let ranks = change[name].as_array().into_iter().flatten();
            ranks.filter_map(|rank| Some(rank.as_u64()? as u32)).collect()
        };
        let lost = ranks("lost");
        for rank in &lost {
            self.seen.lost.push((*rank, self.now_ms));
            let runner = self.runners[*rank as usize].map(|runner| &self.nodes[runner as usize]);
            let runs = runner.is_some_and(|node| node.twin.running && self.now_ms > node.slept_until);
            assert!(
                !runs,
                "host rank {rank} is declared lost at {} and runs\n{}\n{}",
                self.now_ms,
                self.notes.join("\n"),
                self.words()
            );
        }
        if !self.plan.checked {
            return;
        }
        let mut filled = match self.seen.filled.get(&(version - 1)) {
            Some(before) => before.clone(),
            None => panic!("host list {version} follows none that was seen"),
        };
        filled.extend(lost.iter().map(|rank| (*rank, None)));
        let placed: Vec<(u32, HostId)> = change["placed"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|place| {
                let id = place[1]["id"].as_str()?;
                Some((place[0].as_u64()? as u32, HostId(u64::from_str_radix(id, 16).ok()?)))
            })
            .collect();
        filled.extend(placed.iter().map(|(rank, host)| (*rank, Some(*host))));
        for rank in ranks("back") {
            // Whoever had it before it was lost.
            let before =
                self.seen.filled.values().rev().find_map(|known| known.get(&rank).copied().flatten());
            filled.insert(rank, before);
        }
        self.seen.filled.insert(version, filled);
    }

    /// H4: what the leader counts is what is, whatever the tree was and in which order it was heard.
    pub(crate) fn check_counts(&mut self) {
        self.check_states();
        let Some(leader) = self.leader() else { panic!("nobody leads") };
        let host = |index: usize| self.nodes[index].host.as_ref();
        let Some(told) = host(leader).map(|host| host.summary().clone()) else { return };
        let list = host(leader).map(|host| host.membership().list.clone()).expect("a list");
        let members: Vec<usize> = (0..self.nodes.len())
            .filter(|index| {
                self.nodes[*index].host.is_some() && list.rank_of(self.nodes[*index].config.host).is_some()
            })
            .collect();
        let running: u64 =
            members.iter().map(|index| u64::from(self.nodes[*index].twin.running_ranks())).sum();
        let mut steps = StepHistogram::default();
        for index in &members {
            self.nodes[*index].twin.steps().for_each(|step| steps.note(step));
        }
        let ranks: BTreeSet<u32> =
            members.iter().filter_map(|index| list.rank_of(self.nodes[*index].config.host)).collect();
        assert_eq!(told.hosts, ranks.iter().copied().collect(), "the leader counts other hosts");
        let counted: u32 = told.gangs.iter().flat_map(|gang| &gang.lives).map(|life| life.running).sum();
        assert_eq!(u64::from(counted), running, "the leader counts other ranks that run");
        assert_eq!(told.steps, steps, "the leader has another histogram");
        // The same in any order and any tree.
        let mut parts: Vec<Summary> =
            members.iter().filter_map(|index| Some(host(*index)?.own_summary().clone())).collect();
        while parts.len() > 1 {
            let one = parts.swap_remove(self.chance.between(0, parts.len() as u64 - 1) as usize);
            let two = parts.swap_remove(self.chance.between(0, parts.len() as u64 - 1) as usize);
            parts.push(one.merge(&two));
        }
        assert_eq!(Some(&told), parts.first(), "the leader has another summary than its hosts together");
    }
}
