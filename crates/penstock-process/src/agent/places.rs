//! What the gangs of a job lease: slots before a life can begin, kept from life to life, and a port to meet at, new in each.
//!
//! Gangs that are ordered to start together ask together, so that two jobs cannot each hold half of what both need. A gang whose slots
//! are not free is queued; the agent looks again when the kernel tells that somebody's lease is gone.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use crate::agent::Agent;
use crate::cgroup::{self, Cgroup};
use crate::complain;
use crate::error::{ProcessError, Result};
use crate::job::{Job, Room};
use crate::memory_limit::{MemoryGroups, Version};
use crate::messages::Order;
use crate::policy::Scope;
use crate::slots::desk::{Desk, Gate, Holder, Lease, lease_port};
use crate::slots::giving::variables;
use crate::slots::inventory::Inventory;
use crate::slots::placing::impossible;
use crate::slots::queue::{Answer, Waiting};
use crate::spawn::{self, Place};
use crate::state::Phase;
use crate::system::now_ms;

/// A life that was ordered.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// Which gang.
    pub(super) gang: usize,
    /// Which life.
    pub(super) incarnation: u32,
    /// Why, and which slot each worker gets.
    pub(super) order: Order,
}

/// Lives that were ordered together, and ask together.
struct Wave {
    waiting: Waiting,
    starts: Vec<Start>,
}

/// What is leased, and who waits.
pub(super) struct Places {
    desk: Result<Desk>,
    /// What the machine has; read when a gang first wants something of it.
    inventory: Option<Inventory>,
    /// Of [`Inventory::of_ports`].
    ports: Inventory,
    holder: Holder,
    /// Ordered, not asked for yet.
    ordered: Vec<Start>,
    waves: Vec<Wave>,
    /// For each gang, its slots in order.
    slots: BTreeMap<usize, Vec<Lease>>,
    /// For each role, where its ranks meet.
    meeting: BTreeMap<usize, Lease>,
}

impl Places {
    /// Nothing leased yet. `pid` is the agent, as others see it.
    pub(super) fn new(job: &Job, directory: String, pid: i32) -> Self {
        let holder =
            Holder { job: job.id.clone(), directory, role: String::new(), slot: None, rank: None, pid };
        Self {
            desk: Desk::open(),
            inventory: None,
            ports: Inventory::of_ports(now_ms().wrapping_mul(7919) ^ u64::from(pid.unsigned_abs())),
            holder,
            ordered: Vec::new(),
            waves: Vec::new(),
            slots: BTreeMap::new(),
            meeting: BTreeMap::new(),
        }
    }

    /// What to poll for news.
    pub(super) fn news(&self) -> Vec<RawFd> {
        self.waves.iter().map(|wave| wave.waiting.news_fd()).collect()
    }

    /// Nothing of a gang is needed any more: neither its slots nor its place in the queue.
    pub(super) fn release(&mut self, gang: usize) {
        self.slots.remove(&gang);
        self.waves.iter_mut().for_each(|wave| wave.starts.retain(|start| start.gang != gang));
        self.waves.retain(|wave| !wave.starts.is_empty());
    }

    /// Nothing is needed any more.
    pub(super) fn release_all(&mut self) {
        self.slots.clear();
        self.waves.clear();
        self.meeting.clear();
    }

    fn inventory(&mut self) -> Result<Inventory> {
        if self.inventory.is_none() {
            self.inventory = Some(Inventory::read()?);
        }
        Ok(self.inventory.clone().unwrap_or_else(|| self.ports.clone()))
    }

    fn desk(&self) -> Result<Desk> {
        match &self.desk {
            Ok(desk) => Ok(desk.clone()),
            Err(problem) => Err(ProcessError::Slots(problem.to_string())),
        }
    }

    /// Where the ranks of a role meet: a new port for each life, but one for a role whose workers come and go alone.
    fn meet(&mut self, job: &Job, role: usize) -> Result<u16> {
        let about = &job.roles[role];
        let known = self.meeting.get(&role).and_then(|lease| lease.share().ports.first().copied());
        if let Some(port) =
            known.filter(|_| about.policy.restart == Scope::One || about.master_port.is_some())
        {
            return Ok(port);
        }
        let holder = Holder { role: about.name.clone(), ..self.holder.clone() };
        let leased = self.desk().and_then(|desk| lease_port(&desk, &self.ports, about.master_port, holder));
        match leased {
            Ok(lease) => {
                let port = lease.share().ports.first().copied();
                self.meeting.insert(role, lease);
                port.map_or_else(spawn::free_port, Ok)
            }
            Err(problem) if about.master_port.is_some() => Err(problem),
            // Ranks that need no port run as well, and those that do get one that was free a moment ago.
            Err(problem) => {
                complain!("penstock-agent: the port of {} is not leased: {problem}", about.name);
                spawn::free_port()
            }
        }
    }

    /// Who uses what, for people who look.
    fn note(&mut self, users: &[(usize, u32, u32, i32)]) {
        let Ok(Some(gate)) = self.desk().and_then(|desk| desk.enter()) else { return };
        self.note_at(&gate, users);
    }

    fn note_at(&mut self, gate: &Gate, users: &[(usize, u32, u32, i32)]) {
        for (gang, index, rank, pid) in users {
            let lease = self.slots.get_mut(gang).and_then(|leases| leases.get_mut(*index as usize));
            lease.into_iter().for_each(|lease| lease.note(gate, Some(*rank), *pid));
        }
    }
}

impl Agent {
    /// Starts a life at once, or when its slots are leased.
    pub(super) fn begin(&mut self, start: Start) -> Result<()> {
        let want = self.job.want(&self.plans[start.gang]);
        if want.need.is_nothing() || self.places.slots.contains_key(&start.gang) {
            return self.start_gang(&start);
        }
        let waits =
            self.places.waves.iter().flat_map(|wave| &wave.starts).any(|known| known.gang == start.gang);
        if !waits {
            self.places.ordered.push(start);
        }
        Ok(())
    }

    /// Asks for all that was ordered together.
    pub(super) fn ask_for_places(&mut self) -> Result<()> {
        let starts = std::mem::take(&mut self.places.ordered);
        if starts.is_empty() {
            return Ok(());
        }
        let wants: Vec<_> = starts.iter().map(|start| self.job.want(&self.plans[start.gang])).collect();
        let names: Vec<&str> = wants.iter().map(|want| want.role.as_str()).collect();
        let holder = Holder { role: names.join(", "), ..self.places.holder.clone() };
        let asked = self
            .places
            .inventory()
            .and_then(|inventory| Waiting::join(&self.places.desk()?, &inventory, holder, wants));
        match asked {
            Ok(waiting) => self.places.waves.push(Wave { waiting, starts }),
            // What this machine can never give, it will not give later either.
            Err(problem) => self.doom(problem.to_string(), 2),
        }
        self.serve_waves().map(drop)
    }

    /// Looks whether somebody who waits is served, if it is time; when to look again.
    pub(super) fn serve_waves(&mut self) -> Result<Option<u64>> {
        if self.stop.is_some() {
            // Nobody begins after a stop, not even who got its slots.
            return Ok(None);
        }
        let mut next_ms = None;
        for mut wave in std::mem::take(&mut self.places.waves) {
            if wave.waiting.next_look_ms(now_ms()) <= now_ms() {
                let inventory = self.places.inventory()?;
                match wave.waiting.look(&inventory, now_ms()) {
                    Ok(Answer::Granted(grant)) => {
                        for (start, leases) in wave.starts.iter().zip(grant) {
                            self.places.slots.insert(start.gang, leases);
                            self.tended[start.gang].queued = None;
                            self.start_gang(start)?;
                        }
                        continue;
                    }
                    Ok(Answer::Wait(why)) => self.note_queued(&wave.starts, &why),
                    Err(problem) => self.note_queued(&wave.starts, &problem.to_string()),
                }
            }
            let due_ms = wave.waiting.next_look_ms(now_ms());
            next_ms = Some(next_ms.map_or(due_ms, |known: u64| known.min(due_ms)));
            self.places.waves.push(wave);
        }
        Ok(next_ms)
    }

    fn note_queued(&mut self, starts: &[Start], why: &str) {
        let mut news = false;
        for start in starts {
            let queued = Some((start.incarnation, why.to_owned()));
            news |= self.tended[start.gang].queued != queued;
            self.tended[start.gang].queued = queued;
            let state = &mut self.state.gangs[start.gang];
            (state.phase, state.reason) = (Phase::Queued, format!("waits for {why}"));
        }
        if news {
            self.say(&format!("waits for {why}"));
        }
    }

    /// Where the ranks of a gang meet in the life to begin. Without a place there is no life.
    pub(super) fn meet(&mut self, gang: usize) -> Option<u16> {
        let met = self.places.meet(&self.job, self.plans[gang].role);
        met.inspect_err(|problem| self.doom(problem.to_string(), 2)).ok()
    }

    /// What a worker gets of its slot.
    pub(super) fn place(&self, gang: usize, rank: u32, slot: u32) -> Place {
        let plan = &self.plans[gang];
        let role = &self.job.roles[plan.role];
        let mut place = Place::default();
        place.kept.extend(self.places.meeting.get(&plan.role).map(Lease::fd));
        let index = slot.checked_sub(plan.ranks.start).map(|index| index as usize);
        let leases = self.places.slots.get(&gang);
        if let Some(lease) = leases.zip(index).and_then(|(leases, index)| leases.get(index)) {
            place.kept.push(lease.fd());
            place.variables = variables(lease);
            place.cpus.clone_from(&lease.share().cpus);
        }
        if role.slots.memory_bytes > 0 {
            let worker = format!("{}-{rank}", role.name);
            let groups = self.memory.as_ref();
            place.memory = groups.and_then(|groups| groups.limit(&worker, role.slots.memory_bytes));
        }
        place
    }

    /// What keeps the workers of a gang to their memory; nothing where none is wanted.
    pub(super) fn memory_limit(&self, gang: usize) -> Option<String> {
        let wanted = self.job.roles[self.plans[gang].role].slots.memory_bytes > 0;
        let version = self.memory.as_ref().map(MemoryGroups::version);
        wanted.then(|| version.map_or("the lease alone", Version::name).to_owned())
    }

    /// Writes down who uses which slot.
    pub(super) fn note_places(&mut self, gang: usize) {
        if !self.places.slots.contains_key(&gang) {
            return;
        }
        let first = self.plans[gang].ranks.start;
        let workers = self.state.gangs[gang].workers.clone();
        let users: Vec<_> = workers
            .iter()
            .map(|worker| {
                let pid = self.outside.lock().map_or(worker.pid, |mut outside| outside.pid(worker.pid));
                (gang, worker.slot.saturating_sub(first), worker.rank, pid)
            })
            .collect();
        self.places.note(&users);
    }
}

/// The control groups of a job: for its workers, and for limits of their memory; each only where it is wanted and allowed.
pub(super) fn groups(job: &Job, room: &Room) -> (Option<Cgroup>, Option<MemoryGroups>) {
    if !job.cgroup {
        return (None, None);
    }
    let limited = job.roles.iter().any(|role| role.slots.memory_bytes > 0);
    let cgroup = Cgroup::make(room, limited);
    let folder = cgroup.as_ref().map(Cgroup::path);
    let memory = limited.then(|| MemoryGroups::make(folder, &cgroup::name(room))).flatten();
    (cgroup, memory)
}

/// Why a job can never run on this machine, if so: a role alone, or those that start together.
pub fn check(job: &Job) -> Result<()> {
    let wants: Vec<_> = job.gangs().iter().map(|plan| (plan.role, job.want(plan))).collect();
    if wants.iter().all(|(_, want)| want.need.is_nothing()) {
        return Ok(());
    }
    let inventory = Inventory::read()?;
    let alone = wants.iter().map(|(role, want)| (job.roles[*role].name.clone(), vec![want.clone()]));
    let first = wants.iter().filter(|(role, _)| job.roles[*role].after.is_empty());
    let first: Vec<_> = first.map(|(_, want)| want.clone()).collect();
    let together =
        if job.roles.len() == 1 { job.roles[0].name.clone() } else { "all that start at once".to_owned() };
    for (who, wants) in alone.chain([(together, first)]) {
        if let Some(why) = impossible(&inventory, &wants) {
            return Err(ProcessError::Slots(format!("{who}: {why}")));
        }
    }
    Desk::open().map(drop)
}
