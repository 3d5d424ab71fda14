//! One imagined host: its configuration, clock and disk, its coordinator and its agent.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_process::host::config::{HostConfig, HostStarter};
use penstock_process::host::{Host, LinkId, Membership};
use penstock_process::job::Job;
use penstock_process::lease::host_state::HostState;
use penstock_process::vote::error::Result as VoteResult;
use penstock_process::vote::state_keeper::{StateAnswer, StateKeeper, StateTask};
use penstock_process::vote::storage::{MemoryStorage, VoteStorage};
use penstock_process::vote::tie_breaker::StateDirectory;

use crate::clock::HostClock;
use crate::network::Item;
use crate::twin::Twin;

/// Storage that outlives the process that has it open.
#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<MemoryStorage>>);

impl VoteStorage for Disk {
    fn load(&mut self) -> VoteResult<Vec<Vec<u8>>> {
        self.0.lock().expect("nobody panics").load()
    }

    fn append(&mut self, bytes: &[u8]) -> VoteResult<()> {
        self.0.lock().expect("nobody panics").append(bytes)
    }
}

/// What a world is made of.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) hosts: u32,
    pub(crate) ranks: u32,
    pub(crate) lease_ms: u64,
    pub(crate) fanout: u32,
    /// The longest that a message takes.
    pub(crate) delay_ms: u64,
    pub(crate) drift_ppm: i64,
    pub(crate) host_wait_ms: u64,
    /// With how many hosts it may go on, and how long others are waited for before; none where their number is fixed.
    pub(crate) sizes: Vec<u32>,
    pub(crate) replace_within_ms: u64,
    /// It grows by a save and a restart for that; else when it restarts for another reason.
    pub(crate) grow_saved: bool,
    /// Who starts further hosts.
    pub(crate) starter: Option<HostStarter>,
    /// Its ranks look for notices.
    pub(crate) listens: bool,
    /// Hosts of a rack, which fail together; 0 where racks are not known.
    pub(crate) rack: u32,
    /// How often what was on the way when a link broke comes later than what follows over the next link, or a second time, in percent.
    pub(crate) late: u64,
    /// All that can be checked is, after every event; else what costs little.
    pub(crate) checked: bool,
    pub(crate) job: Arc<Job>,
    /// A real directory, where all hosts see one.
    pub(crate) state: Option<PathBuf>,
}

/// A host that does nothing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Its processes are stopped: its clock runs, and so do the kernel's timers.
    Processes,
    /// The machine is paused from outside, its ranks and its clock with it; since when.
    Machine(u64),
}

impl Node {
    /// A link more.
    pub(crate) fn add_link(&mut self, link: LinkId, wire: u32, end: u8) {
        let place = self.links.partition_point(|(known, ..)| *known < link);
        self.links.insert(place, (link, wire, end));
    }

    /// The wire of a link.
    pub(crate) fn wire(&self, link: LinkId) -> Option<(u32, u8)> {
        let place = self.links.binary_search_by_key(&link, |(known, ..)| *known).ok()?;
        let (_, wire, end) = self.links[place];
        Some((wire, end))
    }

    /// Forgets a link; its wire.
    pub(crate) fn unlink(&mut self, link: LinkId) -> Option<(u32, u8)> {
        let place = self.links.binary_search_by_key(&link, |(known, ..)| *known).ok()?;
        let (_, wire, end) = self.links.remove(place);
        Some((wire, end))
    }
}

pub(crate) struct Node {
    pub(crate) host: Option<Host<Disk>>,
    pub(crate) twin: Twin,
    pub(crate) clock: HostClock,
    pub(crate) config: HostConfig,
    pub(crate) disk: Disk,
    pub(crate) kept: Option<Membership>,
    pub(crate) keeper: Option<StateKeeper>,
    /// Nothing that it wants of the state directory is done.
    pub(crate) stalled: bool,
    /// Grows with every start, so that what was meant for an earlier one is dropped.
    pub(crate) start: u32,
    /// When it is looked at, and when it wants that.
    pub(crate) tick_at: u64,
    pub(crate) due_at: u64,
    pub(crate) incoming: u64,
    pub(crate) term_seen: u64,
    pub(crate) list_seen: u64,
    /// The newest orders of this start, by term and number.
    pub(crate) orders_seen: [u64; 2],
    /// While it leads in a term: the states of all hosts.
    pub(crate) states_seen: (u64, Vec<HostState>),
    /// Its links in order: which wire, and which end of it.
    pub(crate) links: Vec<(LinkId, u32, u8)>,
    pub(crate) pause: Option<Pause>,
    /// What happens when the pause is over.
    pub(crate) held: Vec<Item>,
    /// It was paused from outside, so it may believe in a lease that is over; until then.
    pub(crate) slept_until: u64,
    /// The host rank whose ranks it runs.
    pub(crate) runs_as: Option<u32>,
    /// The life that it runs: its number among the hosts of it, and how many it knows of.
    pub(crate) runs: Option<(u32, (u32, u32))>,
}

impl Node {
    /// Opens the state directory of the world, as a process that begins.
    pub(crate) fn open_state(&mut self, place: Option<&Path>) {
        self.keeper = place.map(|place| {
            let directory = StateDirectory::create(place).expect("opens");
            let mark = place.join("hosts").join(format!("{:016x}", self.config.host.0));
            std::fs::write(mark, "").expect("writes");
            StateKeeper::new(directory, self.config.host.0, self.config.name.clone())
        });
    }

    /// What comes of a task; nothing while the directory stalls.
    pub(crate) fn do_in_state(&mut self, task: StateTask) -> Vec<StateAnswer> {
        let keeper = self.keeper.as_mut().filter(|_| !self.stalled);
        keeper.map(|keeper| keeper.handle(task)).unwrap_or_default()
    }
}
