//! Imagined hosts: who has which host rank, who is lost, who is repaired; each goes through the states of real hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::coordinator::view::{HostFacts, HostLoss};
use crate::lease::host_state::{Fact, HostState};
use crate::simulate::placement::{Candidate, Vacancy};
use crate::tree::rank_set::RankSet;

/// One host.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) state: HostState,
    pub(super) rack: u32,
    pub(super) rank: Option<u32>,
    /// It runs. What is not alive may still be thought to be.
    pub(super) is_alive: bool,
    /// How often it was lost: what was to come for an earlier loss is out of date.
    pub(super) losses: u32,
    /// When it died, if it is dead.
    pub(super) died_ms: u64,
}

/// A host with a rank that is dead, and whose lease is not over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silent {
    /// Nobody has noticed.
    pub(super) is_covered: bool,
    /// Processes ran there when it was last heard.
    pub(super) has_processes: bool,
}

/// A host rank without a host.
#[derive(Debug, Clone)]
struct Vacant {
    since_ms: u64,
    rack: u32,
    loss: HostLoss,
}

/// All hosts of a job.
#[derive(Debug)]
pub(super) struct Machines {
    all: Vec<Machine>,
    /// By host rank.
    by_rank: Vec<Option<usize>>,
    silent: BTreeMap<usize, Silent>,
    vacant: BTreeMap<u32, Vacant>,
    spares: BTreeSet<usize>,
    names: Arc<Vec<String>>,
    ranks: Arc<Vec<Vec<u32>>>,
    filled_ms: u64,
    /// Hosts that changed since somebody looked; nothing where nobody looks.
    changed: Option<BTreeSet<usize>>,
    /// The fewest spares at any time.
    pub(super) fewest_spares: usize,
    /// Host ranks that another host took.
    pub(super) replacements: u64,
}

impl Machines {
    /// All of them well. Hosts of one rack stand side by side, and spares are spread over the racks.
    pub(super) fn new(hosts: u32, spares: u32, racks: u32, gpus: u32) -> Self {
        let rack =
            |number: u32, of: u32| (u64::from(number) * u64::from(racks) / u64::from(of.max(1))) as u32;
        let machine = |rank: Option<u32>, rack: u32| Machine {
            state: if rank.is_some() { HostState::Here } else { HostState::Spare },
            rack,
            rank,
            is_alive: true,
            losses: 0,
            died_ms: 0,
        };
        let ranked = (0..hosts).map(|rank| machine(Some(rank), rack(rank, hosts)));
        let others = (0..spares).map(|number| machine(None, rack(number, spares)));
        Self {
            all: ranked.chain(others).collect(),
            by_rank: (0..hosts as usize).map(Some).collect(),
            silent: BTreeMap::new(),
            vacant: BTreeMap::new(),
            spares: (hosts as usize..(hosts as usize + spares as usize)).collect(),
            names: names(hosts),
            ranks: Arc::new(vec![vec![gpus]]),
            filled_ms: 0,
            changed: None,
            fewest_spares: spares as usize,
            replacements: 0,
        }
    }

    /// Somebody looks at the hosts from now on.
    pub(super) fn watch(&mut self) {
        self.changed = Some(BTreeSet::new());
    }

    /// Hosts that changed since the last time.
    pub(super) fn take_changed(&mut self) -> BTreeSet<usize> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The rack of each host.
    pub(super) fn racks(&self) -> Vec<u32> {
        self.all.iter().map(|machine| machine.rack).collect()
    }

    fn note(&mut self, machine: usize) {
        if let Some(changed) = &mut self.changed {
            changed.insert(machine);
        }
    }

    /// Host ranks that the gang has.
    pub(super) fn size(&self) -> u32 {
        self.by_rank.len() as u32
    }

    /// Which host has a host rank.
    pub(super) fn at(&self, host_rank: u32) -> Option<usize> {
        self.by_rank.get(host_rank as usize).copied().flatten()
    }

    /// One of them.
    pub(super) fn get(&self, machine: usize) -> &Machine {
        &self.all[machine]
    }

    /// A spare, by a share of all of them.
    pub(super) fn spare(&self, share: f64) -> Option<usize> {
        let place = (share * self.spares.len() as f64) as usize;
        self.spares.iter().nth(place).copied()
    }

    /// All hosts of the rack of a host.
    pub(super) fn rack_of(&self, machine: usize) -> Vec<usize> {
        let rack = self.all[machine].rack;
        (0..self.all.len()).filter(|other| self.all[*other].rack == rack).collect()
    }

    /// Hosts that are dead and may run ranks, as far as anybody knows.
    pub(super) fn silent(&self) -> impl Iterator<Item = &Silent> {
        self.silent.values()
    }

    /// Host ranks whose host is alive.
    pub(super) fn living(&self) -> u32 {
        self.size() - (self.vacant.len() + self.silent.len()) as u32
    }

    /// Whether every host rank has a host.
    pub(super) fn is_whole(&self) -> bool {
        self.vacant.is_empty()
    }

    /// A host is dead from now on; which of its losses that is, or nothing when it was dead before.
    pub(super) fn die(&mut self, machine: usize, has_processes: bool, now_ms: u64) -> Option<u32> {
        let about = &mut self.all[machine];
        if !about.is_alive {
            return None;
        }
        (about.is_alive, about.died_ms) = (false, now_ms);
        about.losses += 1;
        let losses = about.losses;
        if about.rank.is_some() {
            self.silent.insert(machine, Silent { is_covered: true, has_processes });
        }
        self.note(machine);
        Some(losses)
    }

    /// Whether what was to come for a loss still has to.
    pub(super) fn is_lost(&self, machine: usize, loss: u32) -> bool {
        let about = &self.all[machine];
        !about.is_alive && about.losses == loss
    }

    /// A dead host is not heard any more.
    pub(super) fn miss(&mut self, machine: usize) {
        match self.silent.get_mut(&machine) {
            Some(silent) => {
                silent.is_covered = false;
                self.learn(machine, Fact::Silent);
            }
            // What has no rank has no lease either; who asks for one and is not heard is forgotten.
            None => {
                self.learn(machine, Fact::SeenEnded);
                self.drop_spare(machine);
            }
        }
    }

    /// The lease of a dead host is over.
    pub(super) fn expire(&mut self, machine: usize, now_ms: u64) {
        self.learn(machine, Fact::LeaseOver);
        let silent_s = now_ms.saturating_sub(self.all[machine].died_ms).div_ceil(1000);
        let what = format!("was not heard for {silent_s} s, and its lease expired");
        self.vacate(machine, what, self.all[machine].died_ms, now_ms);
    }

    /// A host says goodbye.
    pub(super) fn leave(&mut self, machine: usize, now_ms: u64) -> Option<u32> {
        let about = &mut self.all[machine];
        if !about.is_alive {
            return None;
        }
        (about.is_alive, about.died_ms) = (false, now_ms);
        about.losses += 1;
        let losses = about.losses;
        self.learn(machine, Fact::Goodbye);
        self.drop_spare(machine);
        self.vacate(machine, "left: a device of it failed".to_owned(), now_ms, now_ms);
        Some(losses)
    }

    /// A machine is repaired: another start of it is another host, which is a spare.
    pub(super) fn come_back(&mut self, machine: usize) {
        let about = &mut self.all[machine];
        (about.is_alive, about.state) = (true, HostState::Spare);
        self.note(machine);
        self.spares.insert(machine);
    }

    /// A host takes a host rank.
    pub(super) fn fill(&mut self, machine: usize, host_rank: u32, now_ms: u64) {
        self.drop_spare(machine);
        self.learn(machine, Fact::Placed);
        self.seat(machine, host_rank);
        if !self.all[machine].is_alive {
            // It died while it was a spare, and nobody has noticed.
            self.silent.insert(machine, Silent { is_covered: true, has_processes: false });
        }
        self.filled_ms = now_ms;
        self.replacements += 1;
    }

    /// The gang has so many hosts from now on. Ranks keep their numbers where they can; hosts without one are spares.
    pub(super) fn resize(&mut self, size: u32, now_ms: u64) {
        let beyond = self.by_rank.split_off(self.by_rank.len().min(size as usize));
        let mut beyond: Vec<usize> = beyond.into_iter().flatten().collect();
        self.vacant.retain(|host_rank, _| *host_rank < size);
        let free: Vec<u32> = self.vacant.keys().copied().collect();
        for host_rank in free {
            let Some(machine) = beyond.pop() else { break };
            self.seat(machine, host_rank);
        }
        for machine in beyond {
            self.learn(machine, Fact::Replaced);
            self.all[machine].rank = None;
            self.note(machine);
            self.spares.insert(machine);
        }
        for host_rank in self.size()..size {
            let name = format!("host{host_rank}");
            let what = "has no host yet".to_owned();
            let loss = HostLoss { host_rank, name, what, heard_ms: now_ms, at_ms: now_ms };
            self.vacant.insert(host_rank, Vacant { since_ms: now_ms, rack: 0, loss });
            self.by_rank.push(None);
        }
        self.names = names(size);
    }

    /// Host ranks without a host.
    pub(super) fn vacancies(&self) -> Vec<Vacancy> {
        self.vacant.iter().map(|(rank, vacant)| Vacancy { host_rank: *rank, rack: vacant.rack }).collect()
    }

    /// Since when the first of them is.
    pub(super) fn vacant_since_ms(&self) -> Option<u64> {
        self.vacant.values().map(|vacant| vacant.since_ms).min()
    }

    /// Hosts that may take a host rank.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        self.spares
            .iter()
            .map(|machine| Candidate { machine: *machine, rack: self.all[*machine].rack })
            .collect()
    }

    /// Host ranks that answer when they are asked to prepare.
    pub(super) fn answering(&self) -> RankSet {
        if self.silent.is_empty() && self.vacant.is_empty() {
            return RankSet::of(0..self.size());
        }
        let alive = |rank: &u32| self.at(*rank).is_some_and(|machine| self.all[machine].is_alive);
        (0..self.size()).filter(alive).collect()
    }

    /// What the decider has to know of the hosts.
    pub(super) fn facts(&self) -> HostFacts {
        HostFacts {
            names: Arc::clone(&self.names),
            ranks: Arc::clone(&self.ranks),
            losses: self.vacant.values().map(|vacant| vacant.loss.clone()).collect(),
            unfilled: self.vacant.keys().copied().collect(),
            unfilled_since_ms: self.vacant_since_ms(),
            filled_ms: self.filled_ms,
            ..HostFacts::default()
        }
    }

    fn seat(&mut self, machine: usize, host_rank: u32) {
        self.vacant.remove(&host_rank);
        self.all[machine].rank = Some(host_rank);
        self.note(machine);
        self.by_rank[host_rank as usize] = Some(machine);
    }

    fn vacate(&mut self, machine: usize, what: String, heard_ms: u64, now_ms: u64) {
        self.silent.remove(&machine);
        let about = &mut self.all[machine];
        let Some(host_rank) = about.rank.take() else { return };
        let loss = HostLoss {
            host_rank,
            name: self.names[host_rank as usize].clone(),
            what,
            heard_ms,
            at_ms: now_ms,
        };
        self.vacant.insert(host_rank, Vacant { since_ms: now_ms, rack: about.rack, loss });
        self.by_rank[host_rank as usize] = None;
        self.note(machine);
    }

    fn drop_spare(&mut self, machine: usize) {
        self.spares.remove(&machine);
        self.fewest_spares = self.fewest_spares.min(self.spares.len());
    }

    fn learn(&mut self, machine: usize, fact: Fact) {
        if let Some(state) = self.all[machine].state.after(fact) {
            self.all[machine].state = state;
            self.note(machine);
        }
    }
}

fn names(hosts: u32) -> Arc<Vec<String>> {
    Arc::new((0..hosts).map(|host_rank| format!("host{host_rank}")).collect())
}
