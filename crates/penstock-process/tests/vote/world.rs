//! Voters on a network that loses, delays, repeats and reorders, with cuts, restarts and full disks; all from a seed.
//!
//! After every step it is checked that no two voters tell different records at one index, that no term has two leaders
//! and that the term of a host never falls.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;

use penstock_process::vote::Configuration;
use penstock_process::vote::error::{Result, VoteError};
use penstock_process::vote::file_storage::FileStorage;
use penstock_process::vote::group::VoterGroup;
use penstock_process::vote::message::VoteMessage;
use penstock_process::vote::storage::{MemoryStorage, VoteStorage};

use crate::chance::Chance;

/// What is kept of a host while its process is gone.
pub(crate) enum Kept {
    Memory(MemoryStorage),
    File(PathBuf),
}

/// A disk that can be full.
pub(crate) struct Disk {
    inner: Inner,
    is_full: Rc<Cell<bool>>,
}

enum Inner {
    Memory(MemoryStorage),
    File(FileStorage, PathBuf),
}

impl VoteStorage for Disk {
    fn load(&mut self) -> Result<Vec<Vec<u8>>> {
        match &mut self.inner {
            Inner::Memory(storage) => storage.load(),
            Inner::File(storage, _) => storage.load(),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.is_full.get() {
            return Err(VoteError::Full {
                path: "votes".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        match &mut self.inner {
            Inner::Memory(storage) => storage.append(bytes),
            Inner::File(storage, _) => storage.append(bytes),
        }
    }
}

/// One host.
pub(crate) struct Host {
    pub(crate) group: Option<VoterGroup<Disk>>,
    kept: Option<Kept>,
    is_full: Rc<Cell<bool>>,
    /// What it told since it was opened.
    pub(crate) told: usize,
    term: u64,
    /// Whether it ever took part. One that did not has nothing to open when it is not to vote any more.
    has_voted: bool,
}

/// How bad the network is, in percent and ticks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) loss: u64,
    pub(crate) repeat: u64,
    pub(crate) delay_max: u64,
}

/// Everything.
pub(crate) struct World {
    /// To run this world again.
    seed: u64,
    pub(crate) chance: Chance,
    pub(crate) hosts: BTreeMap<u64, Host>,
    pub(crate) configuration: Configuration,
    pub(crate) weather: Weather,
    /// Pairs of which the first cannot reach the second.
    pub(crate) cuts: BTreeSet<(u64, u64)>,
    /// What was told anywhere, in order.
    pub(crate) told: Vec<Vec<u8>>,
    /// Who led in which term.
    pub(crate) leaders: BTreeMap<u64, u64>,
    flight: Vec<(u64, u64, VoteMessage)>,
    now: u64,
    proposed: u64,
    place: Option<PathBuf>,
}

/// Numbers of hosts are random in real jobs.
pub(crate) fn host(index: u64) -> u64 {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl World {
    /// With so many voters; in files below a place, or in memory.
    pub(crate) fn new(seed: u64, voters: u64, place: Option<PathBuf>) -> Self {
        let configuration = Configuration { number: 1, voters: (0..voters).map(host).collect() };
        let mut world = Self {
            seed,
            chance: Chance::new(seed, &[voters]),
            hosts: BTreeMap::new(),
            configuration: configuration.clone(),
            weather: Weather::default(),
            cuts: BTreeSet::new(),
            told: Vec::new(),
            leaders: BTreeMap::new(),
            flight: Vec::new(),
            now: 0,
            proposed: 0,
            place,
        };
        configuration.voters.iter().for_each(|voter| world.start(*voter));
        world
    }

    /// Starts a host, or starts it again.
    pub(crate) fn start(&mut self, id: u64) {
        let place = self.place.as_ref().map(|place| place.join(format!("{id:016x}")));
        let entry = self.hosts.entry(id).or_insert_with(|| Host {
            group: None,
            kept: Some(place.map_or_else(|| Kept::Memory(MemoryStorage::default()), Kept::File)),
            is_full: Rc::default(),
            told: 0,
            term: 0,
            has_voted: false,
        });
        if !entry.has_voted && !self.configuration.voters.contains(&id) {
            return;
        }
        let Some(kept) = entry.kept.take() else { return };
        entry.is_full.set(false);
        let inner = match kept {
            Kept::Memory(storage) => Inner::Memory(storage),
            Kept::File(path) => Inner::File(FileStorage::open(&path).expect("opens"), path),
        };
        let disk = Disk { inner, is_full: entry.is_full.clone() };
        entry.told = 0;
        entry.group = Some(VoterGroup::open(id, self.configuration.clone(), disk).expect("opens"));
    }

    /// Kills a host: what was not durable is gone.
    pub(crate) fn kill(&mut self, id: u64) {
        let Some(entry) = self.hosts.get_mut(&id) else { return };
        let Some(group) = entry.group.take() else { return };
        entry.kept = Some(match group.into_storage().inner {
            Inner::Memory(storage) => Kept::Memory(storage),
            Inner::File(_, path) => Kept::File(path),
        });
    }

    /// Fills the disk of a host, or makes room.
    pub(crate) fn fill(&mut self, id: u64, is_full: bool) {
        self.hosts[&id].is_full.set(is_full);
    }

    /// Some time passes.
    pub(crate) fn step(&mut self) {
        self.now += 1;
        for id in self.ids() {
            if self.chance.percent(95) {
                self.with(id, VoterGroup::tick);
            }
            self.flush(id);
        }
        self.deliver();
        for id in self.ids() {
            self.flush(id);
            self.check(id);
        }
        // The owner opens a voter on hosts that were newly agreed on.
        for id in self.configuration.voters.clone() {
            if !self.hosts.contains_key(&id) {
                self.start(id);
            }
        }
    }

    /// Many steps.
    pub(crate) fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| self.step());
    }

    /// Whoever believes to lead proposes something new.
    pub(crate) fn propose(&mut self) {
        for id in self.ids() {
            if self.hosts[&id].group.as_ref().is_some_and(VoterGroup::is_leader) {
                self.proposed += 1;
                let record = format!("record {} of {id:x}", self.proposed);
                self.with(id, |group| group.propose(record.into_bytes()).ok());
            }
        }
    }

    /// Whoever believes to lead wants other voters.
    pub(crate) fn reconfigure(&mut self, voters: &[u64]) {
        for id in self.ids() {
            self.with(id, |group| group.reconfigure(voters.to_vec()).ok());
        }
    }

    /// The leader of the newest term, if it is there.
    pub(crate) fn leader(&self) -> Option<u64> {
        let leads = |id: &&u64| self.hosts[id].group.as_ref().is_some_and(VoterGroup::is_leader);
        self.hosts.keys().filter(leads).max_by_key(|id| self.hosts[id].term).copied()
    }

    pub(crate) fn group(&self, id: u64) -> &VoterGroup<Disk> {
        self.hosts[&id].group.as_ref().expect("it runs")
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.hosts.keys().copied().collect()
    }

    fn with<R>(&mut self, id: u64, act: impl FnOnce(&mut VoterGroup<Disk>) -> R) -> Option<R> {
        self.hosts.get_mut(&id).and_then(|entry| entry.group.as_mut()).map(act)
    }

    fn flush(&mut self, id: u64) {
        for (to, message) in self.with(id, VoterGroup::outgoing).unwrap_or_default() {
            let copies = 1 + u64::from(self.chance.percent(self.weather.repeat));
            for _ in 0..copies {
                if self.cuts.contains(&(id, to)) || self.chance.percent(self.weather.loss) {
                    continue;
                }
                let due = self.now + self.chance.between(0, self.weather.delay_max);
                self.flight.push((due, to, message.clone()));
            }
        }
    }

    fn deliver(&mut self) {
        // What arrives now may be answered now; bounded, because answers are answered.
        for _ in 0..4 {
            let (due, later) =
                std::mem::take(&mut self.flight).into_iter().partition(|(due, ..)| *due <= self.now);
            self.flight = later;
            let due: Vec<_> = due;
            let mut order: Vec<usize> = (0..due.len()).collect();
            if self.weather.delay_max > 0 {
                order.sort_by_cached_key(|_| self.chance.between(0, 1 << 20));
            }
            for index in order {
                let (_, to, message) = due[index].clone();
                let message = if self.chance.percent(10) { over_the_wire(&message) } else { message };
                self.with(to, |group| group.receive(message));
                if self.chance.percent(50) {
                    self.flush(to);
                }
            }
            self.ids().into_iter().for_each(|id| self.flush(id));
        }
    }

    fn check(&mut self, id: u64) {
        let Some(entry) = self.hosts.get_mut(&id) else { return };
        let Some(group) = entry.group.as_mut() else { return };
        for record in group.decided() {
            match self.told.get(entry.told) {
                Some(before) => {
                    assert_eq!(*before, record, "seed {}: two records at index {}", self.seed, entry.told)
                }
                None => self.told.push(record),
            }
            entry.told += 1;
        }
        let (seed, term) = (self.seed, group.term());
        assert!(term >= entry.term, "seed {seed}: the term fell from {:x} to {term:x}", entry.term);
        entry.term = term;
        entry.has_voted |= group.is_voting();
        let full = matches!(group.failure(), None | Some(VoteError::Full { .. }));
        assert!(full, "seed {seed}: {:?}", group.failure());
        if group.is_leader() {
            let leader = *self.leaders.entry(term).or_insert(id);
            assert_eq!(leader, id, "seed {seed}: two leaders in term {term:x}");
        }
        if let Some(known) = group.configuration().filter(|known| known.number > self.configuration.number) {
            self.configuration = known;
        }
    }
}

fn over_the_wire(message: &VoteMessage) -> VoteMessage {
    let bytes = serde_json::to_vec(message).expect("JSON");
    serde_json::from_slice(&bytes).expect("a message")
}
