//! What the gangs of a job hold: slots before a life can begin, kept from life to life, and a port to meet at, new in each.
//!
//! Gangs that are ordered to start together ask together, so that two jobs cannot each hold half of what both need. A gang whose slots
//! are not free is queued; the agent looks again when the kernel tells that somebody's lock is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;

use crate::agent::Agent;
use crate::agent::assigned_job::AssignedJob;
use crate::agent::gang::spawn::{self, WorkerSlot};
use crate::complain;
use crate::coordinator::messages::Order;
use crate::coordinator::verdict::Action;
use crate::error::{ProcessError, Result};
use crate::job::policy::Scope;
use crate::job::state::Phase;
use crate::job::{GangPlan, Job, JobDirectory};
use crate::slots::devices::variables;
use crate::slots::inventory::Inventory;
use crate::slots::lock_directory::{Holder, LockDirectory, SlotLock, hold_port};
use crate::slots::queue::{Answer, Waiting};
use crate::system::cgroup::{self, Cgroup};
use crate::system::memory_limit::{MemoryGroups, Version};
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

impl Start {
    /// Which slot each rank gets; in order, where nobody says otherwise.
    pub(super) fn places(&self, plan: &GangPlan) -> Vec<(u32, u32)> {
        let named = self.order.placement.iter().copied();
        let slots = named.chain(plan.ranks.clone().skip(self.order.placement.len()));
        plan.ranks.clone().zip(slots).collect()
    }
}

/// Lives that were ordered together, and ask together.
struct Wave {
    waiting: Waiting,
    /// Whose slots are asked for, in this order.
    roles: Vec<usize>,
    starts: Vec<Start>,
}

/// What the workers of a job may use.
pub(super) struct Resources {
    /// The control group of the workers, where we may have one.
    pub(super) cgroup: Option<Cgroup>,
    /// Groups that limit memory, where somebody wants a limit and we may set one.
    pub(super) memory: Option<MemoryGroups>,
    /// Slots that are taken, and who waits for more.
    pub(super) slots: JobSlots,
    /// The limit of open files that workers see; our own is higher.
    pub(super) file_limit: libc::rlimit,
}

impl Resources {
    /// No slot is taken yet. `pid` is the agent, as others see it; workers see `file_limit`.
    pub(super) fn open(job: &AssignedJob, pid: i32, file_limit: libc::rlimit) -> Self {
        let (cgroup, memory) = groups(&job.spec, &job.directory);
        let slots = JobSlots::new(&job.spec, job.directory.path().display().to_string(), pid);
        Self { cgroup, memory, slots, file_limit }
    }
}

/// The control groups of a job: for its workers, and for limits of their memory; each only where it is wanted and allowed.
fn groups(job: &Job, directory: &JobDirectory) -> (Option<Cgroup>, Option<MemoryGroups>) {
    if !job.cgroup {
        return (None, None);
    }
    let limited = job.roles.iter().any(|role| role.slots.memory_bytes > 0);
    let cgroup = Cgroup::make(directory, limited);
    let folder = cgroup.as_ref().map(Cgroup::path);
    let memory = limited.then(|| MemoryGroups::make(folder, &cgroup::name(directory))).flatten();
    (cgroup, memory)
}

/// Slots that are taken, and who waits.
pub(super) struct JobSlots {
    locks: Result<LockDirectory>,
    /// What the machine has; read when a gang first wants something of it.
    inventory: Option<Inventory>,
    /// Of [`Inventory::of_ports`].
    ports: Inventory,
    holder: Holder,
    /// Ordered, not asked for yet.
    ordered: Vec<Start>,
    waves: Vec<Wave>,
    /// For each role, its slots in order: those of ranks, then spares.
    by_role: BTreeMap<usize, Vec<SlotLock>>,
    /// Gangs that are over for good.
    over: BTreeSet<usize>,
    /// For each role, where its ranks meet.
    meeting: BTreeMap<usize, SlotLock>,
}

impl JobSlots {
    /// Nothing held yet. `pid` is the agent, as others see it.
    pub(super) fn new(job: &Job, directory: String, pid: i32) -> Self {
        let holder =
            Holder { job: job.id.clone(), directory, role: String::new(), slot: None, rank: None, pid };
        Self {
            locks: LockDirectory::open(),
            inventory: None,
            ports: Inventory::of_ports(now_ms().wrapping_mul(7919) ^ u64::from(pid.unsigned_abs())),
            holder,
            ordered: Vec::new(),
            waves: Vec::new(),
            by_role: BTreeMap::new(),
            over: BTreeSet::new(),
            meeting: BTreeMap::new(),
        }
    }

    /// What to poll for news.
    pub(super) fn news(&self) -> Vec<RawFd> {
        self.waves.iter().map(|wave| wave.waiting.news_fd()).collect()
    }

    /// A gang needs no place in the queue any more.
    fn leave(&mut self, gang: usize) {
        self.over.insert(gang);
        self.ordered.retain(|start| start.gang != gang);
        self.waves.iter_mut().for_each(|wave| wave.starts.retain(|start| start.gang != gang));
        self.waves.retain(|wave| !wave.starts.is_empty());
    }

    /// Nothing is needed any more.
    pub(super) fn release_all(&mut self) {
        self.by_role.clear();
        self.waves.clear();
        self.meeting.clear();
    }

    fn inventory(&mut self) -> Result<Inventory> {
        if self.inventory.is_none() {
            self.inventory = Some(Inventory::read()?);
        }
        Ok(self.inventory.clone().unwrap_or_else(|| self.ports.clone()))
    }

    fn locks(&self) -> Result<LockDirectory> {
        match &self.locks {
            Ok(locks) => Ok(locks.clone()),
            Err(problem) => Err(ProcessError::Slots(problem.to_string())),
        }
    }

    /// Where the ranks of a role meet: a new port for each life, but one for a role whose workers come and go alone.
    fn meet(&mut self, job: &Job, role: usize) -> Result<u16> {
        let about = &job.roles[role];
        let known = self.meeting.get(&role).and_then(|lock| lock.share().ports.first().copied());
        if let Some(port) =
            known.filter(|_| about.policy.restart == Scope::One || about.master_port.is_some())
        {
            return Ok(port);
        }
        let holder = Holder { role: about.name.clone(), ..self.holder.clone() };
        let held = self.locks().and_then(|locks| hold_port(&locks, &self.ports, about.master_port, holder));
        match held {
            Ok(lock) => {
                let port = lock.share().ports.first().copied();
                self.meeting.insert(role, lock);
                port.map_or_else(spawn::free_port, Ok)
            }
            Err(problem) if about.master_port.is_some() => Err(problem),
            // Ranks that need no port run as well, and those that do get one that was free a moment ago.
            Err(problem) => {
                complain!("penstock-agent: the port of {} is not held: {problem}", about.name);
                spawn::free_port()
            }
        }
    }

    /// Who uses what, for people who look: for each slot of a role, the rank and its process.
    fn note(&mut self, role: usize, users: &BTreeMap<u32, (u32, i32)>) {
        let Ok(Some(guard)) = self.locks().and_then(|locks| locks.enter()) else { return };
        for (slot, (rank, pid)) in users {
            let lock = self.by_role.get_mut(&role).and_then(|locks| locks.get_mut(*slot as usize));
            lock.into_iter().for_each(|lock| lock.note(&guard, Some(*rank), *pid));
        }
    }
}

impl Agent {
    /// Starts a life at once, or when the slots of its role are taken.
    pub(super) fn begin(&mut self, start: Start) -> Result<()> {
        let role = self.job.plans[start.gang].role;
        if self.job.spec.want(role).need.is_nothing() || self.resources.slots.by_role.contains_key(&role) {
            return self.go_on(&start);
        }
        let plans = &self.job.plans;
        let of_role = |wave: &&mut Wave| wave.starts.iter().any(|known| plans[known.gang].role == role);
        match self.resources.slots.waves.iter_mut().find(of_role) {
            Some(wave) => {
                wave.starts.retain(|known| known.gang != start.gang);
                wave.starts.push(start);
            }
            None => self.resources.slots.ordered.push(start),
        }
        Ok(())
    }

    /// The slots of a life are taken: begins it, or takes note that it is ready.
    fn go_on(&mut self, start: &Start) -> Result<()> {
        match start.order.action {
            Action::Prepare { .. } => {
                self.note_placed(start);
                Ok(())
            }
            _ => self.start_gang(start),
        }
    }

    /// A gang is over for good; with the last one of a role its slots are free.
    pub(super) fn release(&mut self, gang: usize) {
        self.resources.slots.leave(gang);
        self.workers.tracked[gang].queued = None;
        self.workers.tracked[gang].preparation = None;
        let role = self.job.plans[gang].role;
        let mut peers = (0..self.job.plans.len()).filter(|peer| self.job.plans[*peer].role == role);
        if peers.all(|peer| self.resources.slots.over.contains(&peer)) {
            self.resources.slots.by_role.remove(&role);
        }
    }

    /// Asks for all that was ordered together.
    pub(super) fn ask_for_places(&mut self) -> Result<()> {
        let starts = std::mem::take(&mut self.resources.slots.ordered);
        if starts.is_empty() {
            return Ok(());
        }
        let roles: BTreeSet<usize> = starts.iter().map(|start| self.job.plans[start.gang].role).collect();
        let roles: Vec<usize> = roles.into_iter().collect();
        let wants: Vec<_> = roles.iter().map(|role| self.job.spec.want(*role)).collect();
        let names: Vec<&str> = wants.iter().map(|want| want.role.as_str()).collect();
        let holder = Holder { role: names.join(", "), ..self.resources.slots.holder.clone() };
        let asked =
            self.resources.slots.inventory().and_then(|inventory| {
                Waiting::join(&self.resources.slots.locks()?, &inventory, holder, wants)
            });
        match asked {
            Ok(waiting) => self.resources.slots.waves.push(Wave { waiting, roles, starts }),
            // What this machine can never give, it will not give later either.
            Err(problem) => self.fail_job(problem.to_string(), 2),
        }
        self.serve_waves().map(drop)
    }

    /// Looks whether somebody who waits is served, if it is time; when to look again.
    pub(super) fn serve_waves(&mut self) -> Result<Option<u64>> {
        if self.is_ending() {
            // Nobody begins after a stop, not even who got its slots.
            self.workers.tracked.iter_mut().for_each(|tended| tended.preparation = None);
            return Ok(None);
        }
        let mut next_ms = None;
        for mut wave in std::mem::take(&mut self.resources.slots.waves) {
            if wave.waiting.next_look_ms(now_ms()) <= now_ms() {
                let inventory = self.resources.slots.inventory()?;
                match wave.waiting.look(&inventory, now_ms()) {
                    Ok(Answer::Granted(grant)) => {
                        self.resources.slots.by_role.extend(wave.roles.iter().copied().zip(grant));
                        for start in &wave.starts {
                            self.workers.tracked[start.gang].queued = None;
                            self.go_on(start)?;
                        }
                        continue;
                    }
                    Ok(Answer::Wait(why)) => self.note_queued(&wave.starts, &why),
                    Err(problem) => self.note_queued(&wave.starts, &problem.to_string()),
                }
            }
            let due_ms = wave.waiting.next_look_ms(now_ms());
            next_ms = Some(next_ms.map_or(due_ms, |known: u64| known.min(due_ms)));
            self.resources.slots.waves.push(wave);
        }
        Ok(next_ms)
    }

    fn note_queued(&mut self, starts: &[Start], why: &str) {
        let mut news = false;
        for start in starts {
            let queued = Some((start.incarnation, why.to_owned()));
            news |= self.workers.tracked[start.gang].queued != queued;
            self.workers.tracked[start.gang].queued = queued;
            let state = &mut self.view.state.gangs[start.gang];
            (state.phase, state.reason) = (Phase::Queued, format!("waits for {why}"));
        }
        if news {
            self.say(&format!("waits for {why}"));
        }
    }

    /// Where the ranks of a gang meet in the life to begin. Without a place there is no life.
    pub(super) fn meet(&mut self, gang: usize) -> Option<u16> {
        let met = self.resources.slots.meet(&self.job.spec, self.job.plans[gang].role);
        met.inspect_err(|problem| self.fail_job(problem.to_string(), 2)).ok()
    }

    /// What a worker gets of its slot.
    pub(super) fn place(&self, gang: usize, rank: u32, slot: u32) -> WorkerSlot {
        let plan = &self.job.plans[gang];
        let role = &self.job.spec.roles[plan.role];
        let mut place = WorkerSlot::default();
        place.kept.extend(self.resources.slots.meeting.get(&plan.role).map(SlotLock::fd));
        let locks = self.resources.slots.by_role.get(&plan.role);
        if let Some(lock) = locks.and_then(|locks| locks.get(slot as usize)) {
            place.kept.push(lock.fd());
            place.variables = variables(lock);
            place.cpus.clone_from(&lock.share().cpus);
        }
        if role.slots.memory_bytes > 0 {
            let worker = format!("{}-{rank}", role.name);
            let groups = self.resources.memory.as_ref();
            place.memory = groups.and_then(|groups| groups.limit(&worker, role.slots.memory_bytes));
        }
        place
    }

    /// What keeps the workers of a gang to their memory; nothing where none is wanted.
    pub(super) fn memory_limit(&self, gang: usize) -> Option<String> {
        let wanted = self.job.spec.roles[self.job.plans[gang].role].slots.memory_bytes > 0;
        let version = self.resources.memory.as_ref().map(MemoryGroups::version);
        wanted.then(|| version.map_or("the lock alone", Version::name).to_owned())
    }

    /// Writes down who uses which slot.
    pub(super) fn note_places(&mut self, gang: usize) {
        let role = self.job.plans[gang].role;
        if !self.resources.slots.by_role.contains_key(&role) {
            return;
        }
        let workers = &self.view.state.gangs[gang].workers;
        let users = workers.iter().map(|worker| {
            let pid = self.view.outer_pids.lock().map_or(worker.pid, |mut outside| outside.pid(worker.pid));
            (worker.slot, (worker.rank, pid))
        });
        let users = users.collect();
        self.resources.slots.note(role, &users);
    }
}
