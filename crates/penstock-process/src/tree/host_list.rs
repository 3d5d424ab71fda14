//! The hosts of a job in order, and the tree that follows from it.
//!
//! A host's place in the list is its host rank. Who is whose parent is computed, never negotiated: from the list, the leader and
//! the fan-out, so a hundred thousand hosts need no rendezvous at the root, and everybody who has the same list and leader has the
//! same tree. The leader swaps places with the first host, so a takeover moves the edges of two places and no others.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Children of a host: 65 hosts are a star, 4,161 have depth 2, 266,305 depth 3.
pub const FANOUT: u32 = 64;

/// One start of a host: another start of the same machine is another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HostId(pub u64);

impl fmt::Display for HostId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl From<HostId> for String {
    fn from(id: HostId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for HostId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = u64::from_str_radix(&text, 16);
        number.map(Self).map_err(|_| format!("a host is 16 hex digits, got {text:?}"))
    }
}

/// One host of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Which start of it.
    pub id: HostId,
    /// What people call it.
    pub name: String,
    /// Where its coordinator listens.
    pub address: SocketAddr,
    /// Hosts with the same word fail together.
    #[serde(default)]
    pub rack: String,
    /// Workers of the first role that run on it.
    pub slots: u32,
}

/// Hosts by rank, with what follows from them. Lists with the same hosts share them, so a change of anything else costs nothing.
#[derive(Debug, Clone, Default)]
pub struct RankedHosts(Arc<Ranked>);

#[derive(Debug, Default)]
struct Ranked {
    entries: Vec<HostEntry>,
    /// Where each host stands; computed when it is first asked for, as is the next.
    places: OnceLock<HashMap<HostId, u32>>,
    /// Ranks of the first role before those of each host, and of all hosts.
    first_ranks: OnceLock<Vec<u32>>,
}

impl RankedHosts {
    /// Puts another host in the place of one.
    pub fn replace(&mut self, rank: u32, entry: HostEntry) {
        if let Some(known) = self.0.entries.get(rank as usize).filter(|known| **known != entry) {
            let same_slots = known.slots == entry.slots;
            let mut entries = self.0.entries.clone();
            entries[rank as usize] = entry;
            let first_ranks = if same_slots { self.0.first_ranks.clone() } else { OnceLock::new() };
            self.0 = Arc::new(Ranked { entries, places: OnceLock::new(), first_ranks });
        }
    }

    /// Whether two lists share them.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn place(&self, host: HostId) -> Option<u32> {
        let entries = &self.0.entries;
        let places = self.0.places.get_or_init(|| entries.iter().map(|entry| entry.id).zip(0..).collect());
        places.get(&host).copied()
    }

    fn first_ranks(&self) -> &[u32] {
        self.0.first_ranks.get_or_init(|| {
            let mut first = 0;
            let ends = self.0.entries.iter().map(|entry| {
                first += entry.slots;
                first
            });
            std::iter::once(0).chain(ends).collect()
        })
    }
}

impl std::ops::Deref for RankedHosts {
    type Target = [HostEntry];

    fn deref(&self) -> &[HostEntry] {
        &self.0.entries
    }
}

impl FromIterator<HostEntry> for RankedHosts {
    fn from_iter<I: IntoIterator<Item = HostEntry>>(hosts: I) -> Self {
        Self(Arc::new(Ranked { entries: hosts.into_iter().collect(), ..Ranked::default() }))
    }
}

impl PartialEq for RankedHosts {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0.entries == other.0.entries
    }
}

impl Eq for RankedHosts {}

impl Serialize for RankedHosts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.entries.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RankedHosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

/// The hosts of a job in order; replaced whole, by an entry that a majority of voters has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostList {
    /// Grows with every change; 0 before the job is founded.
    pub version: u64,
    /// By host rank. The entry of a host that was lost stays until another takes its rank.
    pub hosts: RankedHosts,
    /// Host ranks whose hosts were lost.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub vacant: BTreeSet<u32>,
    /// Host ranks that the gang does without: of hosts that were lost and not replaced, and of those that have no use in the size that is
    /// left. All others are numbered without a gap, as ranks see it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub resting: BTreeSet<u32>,
    /// When that changed last, in the coordinator's time: a life that was ordered before has another size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resized_ms: u64,
    /// Who keeps the journal.
    pub voters: Vec<HostId>,
    /// Which group of voters this is, from 1.
    pub configuration: u32,
    /// All hosts see a directory that breaks ties and has a copy of the journal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub state: bool,
}

impl HostList {
    /// The host rank of a host.
    pub fn rank_of(&self, host: HostId) -> Option<u32> {
        self.hosts.place(host)
    }

    /// The host that has a rank.
    pub fn host(&self, rank: u32) -> Option<&HostEntry> {
        self.hosts.get(rank as usize)
    }

    /// The entry of a host.
    pub fn entry(&self, host: HostId) -> Option<&HostEntry> {
        self.host(self.rank_of(host)?)
    }

    /// Grows with every change of hosts or voters, so that two lists can be told apart by age.
    pub fn stamp(&self) -> u64 {
        self.version + u64::from(self.configuration)
    }

    /// How many hosts there are places for.
    pub fn len(&self) -> u32 {
        u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    /// Whether nobody founded the job yet.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// How many hosts the gang has.
    pub fn active(&self) -> u32 {
        self.len().saturating_sub(self.resting_below(u32::MAX))
    }

    /// A host's number among those that the gang has.
    pub fn group_rank(&self, rank: u32) -> u32 {
        rank.saturating_sub(self.resting_below(rank))
    }

    /// Ranks of the first role before those of a host.
    pub fn first_rank(&self, rank: u32) -> u32 {
        let first_ranks = self.hosts.first_ranks();
        let all = first_ranks.get(rank as usize).or(first_ranks.last()).copied().unwrap_or(0);
        all.saturating_sub(self.slots_resting_below(rank))
    }

    /// Workers of the first role over all hosts.
    pub fn world(&self) -> u32 {
        let all = self.hosts.first_ranks().last().copied().unwrap_or(0);
        all.saturating_sub(self.slots_resting_below(u32::MAX))
    }

    fn resting_below(&self, rank: u32) -> u32 {
        u32::try_from(self.resting.range(..rank).count()).unwrap_or(u32::MAX)
    }

    fn slots_resting_below(&self, rank: u32) -> u32 {
        self.resting.range(..rank).filter_map(|resting| self.host(*resting)).map(|entry| entry.slots).sum()
    }

    /// How many hosts keep the journal.
    pub fn voters_wanted(&self) -> usize {
        match self.hosts.len() {
            2 if self.state => 2,
            0..3 => 1,
            3..32 => 3,
            _ => 5,
        }
    }

    /// Whether two hosts vote, and a directory says who goes on if they lose each other.
    pub fn breaks_ties(&self) -> bool {
        self.state && self.hosts.len() == 2
    }

    /// The voters of a new list: three from three hosts on, five from 32, in different racks as far as there are so many.
    pub fn elect_voters(&self, without: &BTreeSet<u32>, kept: &[HostId]) -> Vec<HostId> {
        let here: Vec<&HostEntry> = (0..self.len())
            .filter(|rank| !without.contains(rank))
            .filter_map(|rank| self.host(rank))
            .collect();
        let wanted = self.voters_wanted();
        let mut chosen: Vec<&HostEntry> =
            here.iter().copied().filter(|entry| kept.contains(&entry.id)).collect();
        chosen.truncate(wanted);
        for same_rack in [false, true] {
            for entry in &here {
                let known = chosen.iter().any(|other| other.id == entry.id);
                let crowded = !entry.rack.is_empty() && chosen.iter().any(|other| other.rack == entry.rack);
                if chosen.len() < wanted && !known && (same_rack || !crowded) {
                    chosen.push(entry);
                }
            }
        }
        chosen.iter().map(|entry| entry.id).collect()
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where a host stands when the leader has the first place, and back: the two have swapped.
fn swapped(place: u32, leader: u32) -> u32 {
    match place {
        0 => leader,
        place if place == leader => 0,
        place => place,
    }
}

/// The host rank of a host's parent; nothing for the leader.
pub fn parent(rank: u32, leader: u32, fanout: u32) -> Option<u32> {
    let place = swapped(rank, leader);
    place.checked_sub(1).map(|before| swapped(before / fanout.max(1), leader))
}

/// The parent, its parent, and so on up to the leader.
pub fn ancestors(rank: u32, leader: u32, fanout: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(parent(rank, leader, fanout), move |rank| parent(*rank, leader, fanout))
}

/// The host ranks of a host's children.
pub fn children(rank: u32, leader: u32, hosts: u32, fanout: u32) -> impl Iterator<Item = u32> {
    let first = u64::from(swapped(rank, leader)) * u64::from(fanout.max(1)) + 1;
    let last = (first + u64::from(fanout.max(1))).min(u64::from(hosts));
    (first..last).map(move |place| swapped(u32::try_from(place).unwrap_or(u32::MAX), leader))
}

#[cfg(test)]
mod tests;
