//! Jobs of many hosts in imagined time: real hosts, imagined agents, network and clocks, and after every event a look at whether a
//! rank runs twice (H2), runs beyond its lease (H2), an order has no majority or a term goes back (H1), or a host has other hosts in its
//! list than the journal says (H8). When all is quiet, counts must be those of the hosts (H4).
//!
//! A failing seed says how to repeat it: `PENSTOCK_SEED=N cargo test -p penstock-process --test hosts -- --nocapture`.
//! `PENSTOCK_SEEDS=N` tries more small worlds (`PENSTOCK_ALL=1` goes on after one that fails), `PENSTOCK_HOSTS=N` makes the large one as large.

#[allow(dead_code)]
#[path = "../simulation/chance.rs"]
mod chance;
mod checks;
mod clock;
mod faults;
mod incidents;
mod large;
mod network;
mod node;
mod questions;
mod queue;
mod shipping;
mod sizes;
mod states;
mod subscriptions;
mod tasks;
mod twin;
mod two_hosts;
mod weather;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use chance::Chance;
use large::{Large, job};
use node::Plan;
use weather::Weather;
use world::World;

const LEASE_MS: u64 = 30_000;
/// Small worlds with all kinds of faults.
const SEEDS: u64 = 2000;
/// The large world, where nobody asks for another.
const LARGE: u32 = 10_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Tries seeds, several at a time.
fn for_seeds(count: u64, name: &str, test: impl Fn(u64) + Sync) {
    let wanted = number("PENSTOCK_SEED");
    let seeds = wanted.map_or(0..number("PENSTOCK_SEEDS").unwrap_or(count), |seed| seed..seed + 1);
    let next = AtomicU64::new(seeds.start);
    let problems = Mutex::new(Vec::new());
    let try_seeds = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end {
            break;
        }
        if let Err(problem) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("{name}: seed {seed} failed; PENSTOCK_SEED={seed} repeats it");
            problems.lock().expect("nobody panics with it").push(problem);
            if number("PENSTOCK_ALL").is_none() {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(seeds.clone().count());
        (0..workers).for_each(|_| drop(scope.spawn(try_seeds)));
    });
    if let Some(problem) = problems.into_inner().expect("nobody panics with it").pop() {
        resume_unwind(problem);
    }
}

fn plan(hosts: u32) -> Plan {
    Plan {
        hosts,
        ranks: 2,
        lease_ms: LEASE_MS,
        fanout: 64,
        delay_ms: 20,
        drift_ppm: 10_000,
        host_wait_ms: 3_600_000,
        sizes: Vec::new(),
        replace_within_ms: 60_000,
        grow_saved: false,
        starter: None,
        listens: false,
        rack: 0,
        late: 0,
        checked: true,
        job: job(2),
        state: None,
    }
}

/// A world in which all hosts run their ranks.
fn running(seed: u64, plan: Plan) -> World {
    let hosts = plan.hosts as usize;
    let mut world = World::new(seed, plan);
    for _ in 0..200 {
        if world.running().0 == hosts {
            return world;
        }
        world.run_until(world.now_ms + 100);
    }
    panic!(
        "{} of {hosts} hosts run after {} ms\n{}\n{}",
        world.running().0,
        world.now_ms,
        world.notes.join("\n"),
        world.words()
    );
}

/// Waits until all hosts run a life that is young enough.
fn await_life(world: &mut World, hosts: usize, life: u32, limit_ms: u64) {
    let until_ms = world.now_ms + limit_ms;
    while world.now_ms < until_ms {
        if world.running() == (hosts, Some(world.running().1.unwrap_or(0).max(life))) {
            return;
        }
        world.run_until(world.now_ms + 200);
    }
    let notes = world.notes.iter().rev().take(60).rev().cloned().collect::<Vec<_>>().join("\n");
    let words = world.words();
    panic!(
        "{:?} of {hosts} hosts run, life {life} is wanted, at {} ms\n{notes}\n{words}",
        world.running(),
        world.now_ms
    );
}

#[test]
fn hosts_meet_and_begin_together() {
    for_seeds(20, "meeting", |seed| {
        let hosts = Chance::new(seed, &[1]).between(1, 12) as u32;
        let world = running(seed, plan(hosts));
        assert_eq!(world.running().1, Some(0));
        assert!(world.leader().is_some());
    });
}

/// Goal: H3, P4. Method: the leader's host is cut off for less than a lease; another leads, and no rank ends.
#[test]
fn a_leader_that_is_cut_off_for_a_while_costs_no_rank() {
    for_seeds(30, "leader cut off", |seed| {
        let mut world = running(seed, plan(9));
        world.run_until(world.now_ms + 5000);
        let leader = world.leader().expect("a leader");
        world.isolate(leader, 1);
        world.run_until(world.now_ms + 12_000);
        let other = world.leader().expect("another leader");
        assert_ne!(other, leader);
        world.heal();
        world.run_until(world.now_ms + 60_000);
        assert_eq!(world.running(), (9, Some(0)), "{}", world.notes.join("\n"));
        assert_eq!((world.ended_by_lease(), world.ended_by_order()), (0, 0));
    });
}

/// Goal: H2. Method: a host is cut off beyond its lease and comes back; the others wait for it, and all begin anew together.
#[test]
fn a_host_that_is_cut_off_beyond_its_lease_ends_its_ranks_and_takes_part_again() {
    for_seeds(30, "host cut off", |seed| {
        let mut world = running(seed, plan(5));
        world.run_until(world.now_ms + 3000);
        let lost = Chance::new(seed, &[2]).between(0, 4) as usize;
        world.isolate(lost, 1);
        world.run_until(world.now_ms + world.lease_over_ms() + 5000);
        assert!(!world.nodes[lost].twin.running, "it ran beyond its lease");
        assert_eq!(world.running().0, 0, "the others train on without it: {}", world.notes.join("\n"));
        world.heal();
        await_life(&mut world, 5, 1, 60_000);
        assert_eq!(world.running(), (5, Some(1)));
    });
}

/// Goal: a run survives the loss of every first host in turn. Method: each of five hosts is killed, and another joins in its place.
#[test]
fn every_host_can_be_lost_in_turn_and_replaced() {
    for_seeds(10, "in turn", |seed| {
        let mut world = running(seed, plan(5));
        let mut members: Vec<usize> = (0..5).collect();
        for (place, member) in members.iter_mut().enumerate() {
            let life = world.running().1.unwrap_or(0);
            world.kill(*member);
            world.run_until(world.now_ms + 500);
            // A host that comes back to where hosts meet founds no second job.
            let number = if place == 0 { 0 } else { world.nodes.len() };
            *member = world.add_host(number, None);
            await_life(&mut world, 5, life + 1, 180_000);
        }
    });
}

/// Goal: H6. Method: a host was cut off for a moment and may be between two parents when the job ends; it hears of the end all the same.
#[test]
fn every_host_hears_of_the_end_wherever_it_stands() {
    for_seeds(60, "end", |seed| {
        let mut chance = Chance::new(seed, &[5]);
        let mut world = running(seed, Plan { lease_ms: 4000, delay_ms: 2, ..plan(3) });
        world.run_until(world.now_ms + 1000);
        let cut = chance.between(0, 2) as usize;
        world.isolate(cut, 1);
        world.run_until(world.now_ms + chance.between(100, 1500));
        world.heal();
        world.run_until(world.now_ms + chance.between(0, 1000));
        (0..3).for_each(|host| world.end_ranks(host, 0));
        world.run_until(world.now_ms + 8000);
        let over: Vec<bool> = world.nodes.iter().map(|node| node.twin.over).collect();
        assert_eq!(over, [true; 3], "{}", world.notes.join("\n"));
    });
}

/// Goal: no wait is without an end. Method: one of three hosts never comes; those who wait end when they were told to.
#[test]
fn hosts_that_wait_for_one_that_never_comes_end_by_themselves() {
    let mut world = World::new(1, Plan { host_wait_ms: 10_000, ..plan(3) });
    world.kill(2);
    world.run_until(world.now_ms + 9000);
    assert!(world.nodes.iter().take(2).all(|node| !node.twin.over));
    world.run_until(world.now_ms + 5000);
    assert!(world.nodes.iter().take(2).all(|node| node.twin.over), "{}", world.notes.join("\n"));
}

#[test]
fn a_rank_that_fails_restarts_the_gang_on_all_hosts() {
    for_seeds(30, "rank", |seed| {
        let hosts = Chance::new(seed, &[1]).between(2, 9) as u32;
        let mut world = running(seed, plan(hosts));
        world.run_until(world.now_ms + 1000);
        world.end_ranks(Chance::new(seed, &[3]).between(0, u64::from(hosts) - 1) as usize, 1);
        let before_ms = world.now_ms;
        await_life(&mut world, hosts as usize, 1, 5000);
        assert!(world.now_ms < before_ms + 3000, "{}", world.now_ms - before_ms);
        assert_eq!(world.ended_by_lease(), 0);
    });
}

/// Goal: H1, H2, H3, H4, H8. Method: minutes of random faults, also while hosts meet, then none; in the end all hosts run again, and counts
/// are those of the hosts.
#[test]
fn whatever_happens_no_rank_runs_twice_and_in_the_end_all_run() {
    for_seeds(SEEDS, "faults", |seed| {
        let mut chance = Chance::new(seed, &[4]);
        let plan = weather::plan(&mut chance, plan(1));
        if seed % 2 == 0 {
            let (world, faults) = (running(seed, plan), chance.between(3, 10));
            let weather = Weather::new(chance, &world);
            return endure(world, weather, faults);
        }
        let faults = chance.between(3, 10);
        let mut world = World::new(seed, plan);
        let mut weather = Weather::new(chance, &world).with_rare(seed);
        let hosts = world.plan.hosts as usize;
        if seed % 4 == 1 {
            weather.meet(&mut world);
        }
        await_life(&mut world, hosts, 0, 60_000);
        endure(world, weather, faults);
    });
}

/// Goal: hosts meet whatever happens to their links. Method: 64 hosts, and links break, hosts sleep or begin again while they meet.
#[test]
fn many_hosts_meet_whatever_happens_to_their_links() {
    for_seeds(24, "meeting in bad weather", |seed| {
        let mut chance = Chance::new(seed, &[9]);
        let (delay_ms, late) = (chance.pick(&[1, 20, 100]), chance.pick(&[0, 30, 80]));
        let mut world = World::new(seed, Plan { delay_ms, late, checked: seed % 8 == 0, ..plan(64) });
        Weather::new(chance, &world).meet(&mut world);
        await_life(&mut world, 64, 0, 60_000);
    });
}

fn endure(mut world: World, mut weather: Weather, faults: u64) {
    let hosts = world.plan.hosts as usize;
    (0..faults).for_each(|_| weather.disturb(&mut world));
    weather.clear(&mut world);
    let life = world.running().1.unwrap_or(0);
    await_life(&mut world, hosts, life, 120_000);
    world.run_until(world.now_ms + 3000);
    world.check_counts();
}

/// Goal: the loss of the leader ends no rank, at scale. Method: trees of depth 3 in which the leader's host is killed or cut off at random
/// moments, until all have a lease of another. `python -m benchmarks hosts --worlds` has 1,000 of them, and 20 ten times as large.
#[test]
fn the_loss_of_the_leader_of_a_large_job_ends_no_rank() {
    for_seeds(4, "leader of many", |seed| {
        let large = Large { hosts: 10_000, seed, fanout: 25, lease_ms: LEASE_MS, ..Large::default() };
        let lost = large.lose_leader_once();
        assert!(lost.running == 9_999 && lost.ended == 0, "{lost:?}");
        assert!(lost.seed == seed && lost.took_ms < LEASE_MS && lost.least_ms > 0, "{lost:?}");
    });
}

/// Goal: H3 at scale. Method: a large tree, a rack cut off for a third of a lease, its leader lost: nobody ends.
#[test]
fn a_large_job_keeps_its_ranks_through_the_loss_of_its_leader() {
    let hosts = number("PENSTOCK_HOSTS").map_or(LARGE, |hosts| hosts as u32);
    // A lease longer than from the loss on, so whoever has none of another leader ends.
    let (seconds, lease_ms) = (45, LEASE_MS);
    let large =
        Large { hosts, seconds, deaths: 0, seed: 1, fanout: 20, lease_ms, rack: 32, lose_leader: true };
    let line = large.run();
    eprintln!("{line}");
    let count = |name: &str| line[name].as_u64();
    assert_eq!(
        (count("ended_by_lease"), count("ended_by_order"), count("false_deaths")),
        (Some(0), Some(0), Some(0))
    );
    assert_eq!((count("running"), line["leads"].as_bool()), (Some(u64::from(hosts)), Some(true)));
}

/// Goal: deaths are found when leases are over and not before, and nobody else is taken for dead. Method: many die at random moments.
#[test]
fn the_dead_of_a_large_job_are_found_and_no_others() {
    let large = Large {
        hosts: 1000,
        seconds: 60,
        deaths: 40,
        seed: 2,
        fanout: 8,
        lease_ms: LEASE_MS,
        rack: 20,
        lose_leader: false,
    };
    let line = large.run();
    assert_eq!((&line["detected"], line["false_deaths"].as_u64()), (&line["deaths"], Some(0)), "{line}");
    // Expired when the lease is; a host that might have lent it another one, and is lost later, puts that off.
    assert!(line["detection_ms"]["least"].as_u64() >= Some(LEASE_MS - 2000), "{line}");
    assert!(line["detection_ms"]["most"].as_u64() <= Some(2 * LEASE_MS), "{line}");
}
