//! A small world in which anything may go wrong for some minutes, and then nothing does.

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
    /// Killed hosts: when another is started, and where.
    returns: Vec<(u64, usize)>,
    /// Machines started so far, each at a place of its own.
    places: usize,
}

impl Weather {
    pub(crate) fn new(chance: Chance, world: &World) -> Self {
        Self { chance, returns: Vec::new(), places: world.nodes.len() }
    }

    /// Lets some time pass, and then something happen.
    pub(crate) fn disturb(&mut self, world: &mut World) {
        let wait_ms = self.chance.between(10, LEASE_MS);
        self.pass(world, wait_ms);
        let living: Vec<usize> =
            (0..world.nodes.len()).filter(|index| world.nodes[*index].host.is_some()).collect();
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

    /// Nothing goes wrong any more, and all who were killed come back.
    pub(crate) fn clear(&mut self, world: &mut World) {
        world.heal();
        self.pass(world, 2 * LONG_MS);
    }

    /// Lets time pass, in which killed hosts come back as new ones.
    fn pass(&mut self, world: &mut World, for_ms: u64) {
        let until_ms = world.now_ms + for_ms;
        self.returns.sort_unstable();
        while let Some((at_ms, number)) =
            self.returns.first().copied().filter(|(at_ms, _)| *at_ms <= until_ms)
        {
            self.returns.remove(0);
            world.run_until(at_ms);
            world.add_host(number, None);
        }
        world.run_until(until_ms);
    }

    /// Kills hosts, if the job can bear it: without most of its voters it waits for ever.
    fn kill(&mut self, world: &mut World, hosts: &[usize]) {
        self.lose(world, hosts, World::kill);
    }

    /// The same in some way.
    fn lose(&mut self, world: &mut World, hosts: &[usize], way: impl Fn(&mut World, usize)) {
        let lives =
            |voter: &HostId| world.nodes.iter().any(|node| node.config.host == *voter && node.host.is_some());
        let dies = |voter: &HostId| hosts.iter().any(|host| world.nodes[*host].config.host == *voter);
        let voters = newest_voters(world, &dies);
        let left = voters.iter().filter(|voter| !dies(voter)).count();
        if voters.is_empty() || !voters.iter().all(lives) || 2 * left <= voters.len() {
            return;
        }
        for host in hosts {
            let founder = world.nodes[*host].config.founder;
            way(world, *host);
            world.note(format!("h{host} is gone"));
            // Hosts meet where the first was, so another is started there.
            let number = if founder { 0 } else { self.places };
            self.places += 1;
            self.returns.push((world.now_ms + self.chance.between(1, LONG_MS), number));
        }
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

/// The newest voters that any host knows of which lives on, from its list or as one of them: of a change that only the dead know nobody ever
/// learns.
fn newest_voters(world: &World, dies: &dyn Fn(&HostId) -> bool) -> Vec<HostId> {
    let stay = world.nodes.iter().filter(|node| !dies(&node.config.host));
    let known = stay.filter_map(|node| node.host.as_ref()).flat_map(|host| {
        let list = &host.membership().list;
        let of_list = Some((list.configuration, list.voters.clone()));
        let of_votes = host
            .status()
            .votes
            .and_then(|(known, _)| known)
            .map(|known| (known.number, known.voters.into_iter().map(HostId).collect::<Vec<HostId>>()));
        of_list.into_iter().chain(of_votes)
    });
    known.max_by_key(|(number, _)| *number).map(|(_, voters)| voters).unwrap_or_default()
}
