//! A small world in which anything may go wrong for some minutes, and then nothing does.

use std::collections::{BTreeMap, BTreeSet};

use penstock_process::host::messages::Question;
use penstock_process::lease::grant;
use penstock_process::tree::host_list::HostId;

use crate::chance::Chance;
use crate::node::{Pause, Plan};
use crate::world::World;

/// Short enough that a minute holds several.
const LEASE_MS: u64 = 6000;
/// How long pauses and waits are at most.
const LONG_MS: u64 = 9000;

/// What a random world is made of.
pub(crate) fn plan(chance: &mut Chance, usual: Plan) -> Plan {
    Plan {
        hosts: chance.between(3, 8) as u32,
        fanout: chance.pick(&[2, 3, 64]),
        delay_ms: chance.pick(&[1, 20, 100]),
        rack: chance.pick(&[0, 0, 2, 3]),
        late: chance.pick(&[0, 0, 30, 80]),
        lease_ms: LEASE_MS,
        ..usual
    }
}

/// Everything that goes wrong, and who comes back when.
pub(crate) struct Weather {
    chance: Chance,
    /// Rarer faults, drawn apart so that the others of a seed stay what they are.
    rare: Option<Chance>,
    /// Hosts whose ranks outlive SIGKILL.
    stuck: BTreeSet<usize>,
    /// Killed hosts: when another is started, where, and with which host rank where it is told one.
    returns: Vec<(u64, usize, Option<u32>)>,
    /// Machines started so far, each at a place of its own.
    places: usize,
}

impl Weather {
    pub(crate) fn new(chance: Chance, world: &World) -> Self {
        Self { chance, rare: None, stuck: BTreeSet::new(), returns: Vec::new(), places: world.nodes.len() }
    }

    /// With faults of all kinds.
    pub(crate) fn with_rare(self, seed: u64) -> Self {
        Self { rare: Some(Chance::new(seed, &[40])), ..self }
    }

    /// Hosts meet while links break, hosts sleep for a moment or are started again, and some are killed.
    pub(crate) fn meet(&mut self, world: &mut World) {
        for _ in 0..self.chance.between(1, 6) {
            let (wait_ms, for_ms) = (self.chance.between(0, 300), self.chance.between(50, 1500));
            self.pass(world, wait_ms);
            let living = living(world);
            let (one, two) = (self.chance.pick(&living), self.chance.pick(&living));
            let fault = self.chance.between(0, 7);
            world.note(format!("--- meeting {fault} of h{one}, h{two}, {for_ms} ms"));
            match fault {
                0 => world.break_links(one),
                1 => self.flap(world, one, two),
                2 => world.pause(one, Pause::Processes, for_ms),
                3 => world.pause(one, Pause::Machine(world.now_ms), for_ms),
                4 => world.isolate(one, 1),
                5 => world.restart_coordinator(one),
                // Whoever knows of the job when it has just been founded may be the only one.
                6 if !is_founded(world) => self.replace(world, one, World::kill),
                _ => world.cut(one, two),
            }
        }
        let wait_ms = self.chance.between(0, 1000);
        self.pass(world, wait_ms);
        world.heal();
        self.pass(world, LONG_MS);
    }

    /// Lets some time pass, and then something happen.
    pub(crate) fn disturb(&mut self, world: &mut World) {
        let wait_ms = self.chance.between(10, LEASE_MS);
        self.pass(world, wait_ms);
        let living = living(world);
        if self.rare.as_mut().is_some_and(|rare| rare.percent(30)) {
            return self.disturb_rarely(world, &living);
        }
        let (one, two) = (self.chance.pick(&living), self.chance.pick(&living));
        let (fault, for_ms) = (self.chance.between(0, 15), self.chance.between(100, LONG_MS));
        world.note(format!("--- fault {fault} of h{one}, h{two}, {for_ms} ms"));
        match fault {
            0 => world.cut(one, two),
            1 => world.isolate(one, self.chance.between(1, 2) as u8),
            2 => world.end_ranks(one, 1),
            3 => world.restart_coordinator(one),
            4 => living.iter().for_each(|host| world.cut(*host, one)),
            5 => rack_of(world, one).into_iter().for_each(|host| world.isolate(host, 1)),
            6 | 7 => self.kill(world, &[one]),
            8 => {
                let rack = rack_of(world, one);
                self.kill(world, &rack);
            }
            9 => self.flap(world, one, two),
            10 => world.pause(one, Pause::Processes, for_ms),
            15 => self.lose(world, &[one], World::dismiss),
            11 => world.pause(one, Pause::Machine(world.now_ms), for_ms),
            _ => world.heal(),
        }
    }

    /// A rarer fault.
    fn disturb_rarely(&mut self, world: &mut World, living: &[usize]) {
        let Some(mut rare) = self.rare.take() else { return };
        let (one, teller) = (rare.pick(living), rare.pick(living));
        let (fault, for_ms) = (rare.between(0, 6), rare.between(200, LONG_MS / 3));
        world.note(format!("--- rare fault {fault} of h{one}, h{teller}, {for_ms} ms"));
        match fault {
            0 => world.break_links(one),
            1 => {
                let usual_ms = std::mem::replace(&mut world.plan.delay_ms, rare.pick(&[300, 1000, 2500]));
                self.pass(world, for_ms);
                world.plan.delay_ms = usual_ms;
            }
            2 => {
                world.nodes[one].twin.sticks = true;
                self.stuck.insert(one);
            }
            3 => self.wake(world),
            4 => self.accuse(world, one, teller),
            5 if rare.percent(50) => self.accuse_the_dead(world, &mut rare, teller),
            _ => {
                self.kill(world, &[one]);
                self.accuse_the_dead(world, &mut rare, teller);
            }
        }
        self.rare = Some(rare);
    }

    /// An engine says that a host has ended, which is not true. Nothing follows where the job hears that host. Of one that it does not hear
    /// nobody can know better, so no check counts on its ranks.
    fn accuse(&mut self, world: &mut World, one: usize, teller: usize) {
        let host = world.nodes[one].config.host;
        let doubt_ms = 3 * grant::unheard_ms(world.plan.lease_ms);
        self.pass(world, doubt_ms);
        if world.nodes[one].host.is_none() {
            return;
        }
        let leads = world.leader().filter(|leader| world.is_heard(*leader, one)).is_some();
        let heard = leads && world.cuts.are_none() && world.nodes.iter().all(|node| node.pause.is_none());
        if !heard {
            world.nodes[one].slept_until = world.now_ms + 2 * world.plan.lease_ms + doubt_ms;
        }
        let lost = world.seen.lost.len();
        world.ask(teller, Question::Ended { host, by: "an engine that lies".to_owned() });
        self.pass(world, doubt_ms);
        let rank = world.runners.iter().position(|runner| *runner == Some(one as u32));
        let freed = world.seen.lost[lost..].iter().any(|(lost, _)| Some(*lost as usize) == rank);
        assert!(
            !(heard && freed),
            "h{one} is heard, and a wrong word freed its host rank\n{}",
            world.notes.join("\n")
        );
    }

    /// An engine says that a host has ended, and it has.
    fn accuse_the_dead(&mut self, world: &mut World, rare: &mut Chance, teller: usize) {
        let dead: Vec<HostId> =
            world.nodes.iter().filter(|node| node.host.is_none()).map(|node| node.config.host).collect();
        if !dead.is_empty() {
            let host = rare.pick(&dead);
            world.ask(teller, Question::Ended { host, by: "an engine that saw it".to_owned() });
        }
    }

    /// What slept in the kernel is gone.
    fn wake(&mut self, world: &mut World) {
        for index in std::mem::take(&mut self.stuck) {
            world.nodes[index].twin.wake();
            world.report(index);
        }
    }

    /// Nothing goes wrong any more, and all who were killed come back.
    pub(crate) fn clear(&mut self, world: &mut World) {
        world.heal();
        self.wake(world);
        self.pass(world, 2 * LONG_MS);
    }

    /// Lets time pass, in which killed hosts come back as new ones.
    fn pass(&mut self, world: &mut World, for_ms: u64) {
        let until_ms = world.now_ms + for_ms;
        self.returns.sort_unstable();
        while let Some((at_ms, number, node_rank)) =
            self.returns.first().copied().filter(|(at_ms, ..)| *at_ms <= until_ms)
        {
            self.returns.remove(0);
            self.run_until(world, at_ms);
            world.add_host(number, node_rank);
        }
        self.run_until(world, until_ms);
    }

    /// Agents say each second how their stuck processes are.
    fn run_until(&self, world: &mut World, until_ms: u64) {
        while !self.stuck.is_empty() && world.now_ms + 1000 < until_ms {
            world.run_until(world.now_ms + 1000);
            self.stuck.iter().for_each(|index| world.report(*index));
        }
        world.run_until(until_ms);
    }

    /// Kills hosts, if the job can bear it: without most of its voters it waits for ever.
    fn kill(&mut self, world: &mut World, hosts: &[usize]) {
        self.lose(world, hosts, World::kill);
    }

    /// The same in some way.
    fn lose(&mut self, world: &mut World, hosts: &[usize], way: impl Fn(&mut World, usize)) {
        if can_bear(world, hosts) {
            hosts.iter().for_each(|host| self.replace(world, *host, &way));
        }
    }

    /// A host is lost in some way, and later another is started in its place.
    fn replace(&mut self, world: &mut World, host: usize, way: impl Fn(&mut World, usize)) {
        let founder = world.nodes[host].config.founder;
        // Before there is a job, a host is started as it was.
        let node_rank = world.nodes[host].config.node_rank.filter(|_| !is_founded(world));
        way(world, host);
        self.stuck.remove(&host);
        world.note(format!("h{host} is gone"));
        // Hosts meet where the first was, so another is started there.
        let number = if founder { 0 } else { self.places };
        self.places += 1;
        self.returns.push((world.now_ms + self.chance.between(1, LONG_MS), number, node_rank));
    }

    /// A link between two hosts comes and goes.
    fn flap(&mut self, world: &mut World, one: usize, two: usize) {
        for _ in 0..self.chance.between(2, 8) {
            world.cut(one, two);
            if self.chance.percent(50) {
                world.cut(two, one);
            }
            let wait_ms = self.chance.between(20, 700);
            self.pass(world, wait_ms);
            world.cuts.mend(one, two);
            world.cuts.mend(two, one);
            let wait_ms = self.chance.between(20, 700);
            self.pass(world, wait_ms);
        }
    }
}

/// Living hosts of the same rack.
fn rack_of(world: &World, index: usize) -> Vec<usize> {
    let rack = &world.nodes[index].config.rack;
    let same = |other: &usize| {
        let node = &world.nodes[*other];
        node.host.is_some() && (*other == index || (!rack.is_empty() && node.config.rack == *rack))
    };
    (0..world.nodes.len()).filter(same).collect()
}

fn living(world: &World) -> Vec<usize> {
    (0..world.nodes.len()).filter(|index| world.nodes[*index].host.is_some()).collect()
}

/// Whether any host has a list of hosts.
fn is_founded(world: &World) -> bool {
    world.nodes.iter().filter_map(|node| node.host.as_ref()).any(|host| host.membership().list.version > 0)
}

/// A group of voters, as hosts know it that live on: of a change that only the dead know nobody ever learns.
#[derive(Default)]
struct Group {
    voters: Vec<HostId>,
    /// Who takes part in it already: the others may not have the history.
    ready: BTreeSet<HostId>,
}

/// Whether the job goes on without some hosts: most of the newest voters live, and all of them did before; and while most of those have not
/// begun to vote together, most voters of the group before have to live as well, because nobody else may have what was decided.
fn can_bear(world: &World, hosts: &[usize]) -> bool {
    let dies = |voter: &HostId| hosts.iter().any(|host| world.nodes[*host].config.host == *voter);
    let lives =
        |voter: &HostId| world.nodes.iter().any(|node| node.config.host == *voter && node.host.is_some());
    let stays = |voter: &&HostId| lives(voter) && !dies(voter);
    let groups = groups(world, &dies);
    if groups.values().next_back().is_none_or(|newest| !newest.voters.iter().all(lives)) {
        return false;
    }
    for group in groups.values().rev() {
        if 2 * group.voters.iter().filter(stays).count() <= group.voters.len() {
            return false;
        }
        if 2 * group.ready.iter().filter(stays).count() > group.voters.len() {
            return true;
        }
    }
    true
}

/// The groups of voters by number, from lists and from voters that stay.
fn groups(world: &World, dies: &dyn Fn(&HostId) -> bool) -> BTreeMap<u32, Group> {
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    for node in world.nodes.iter().filter(|node| !dies(&node.config.host)) {
        let Some(host) = &node.host else { continue };
        let list = &host.membership().list;
        if list.version > 0 {
            groups.entry(list.configuration).or_default().voters.clone_from(&list.voters);
        }
        if let Some((Some(known), ready)) = host.status().votes {
            let group = groups.entry(known.number).or_default();
            group.voters = known.voters.into_iter().map(HostId).collect();
            group.ready.extend(Some(node.config.host).filter(|_| ready));
        }
    }
    groups
}
