//! Jobs that go on with spares, with fewer hosts, and with more again.

use crate::chance::Chance;
use crate::node::Plan;
use crate::weather::{self, Weather};
use crate::world::World;
use crate::{await_life, for_seeds, plan, running};

const REPLACE_MS: u64 = 20_000;

fn elastic(hosts: u32, sizes: &[u32]) -> Plan {
    Plan { sizes: sizes.to_vec(), replace_within_ms: REPLACE_MS, lease_ms: 6000, delay_ms: 5, ..plan(hosts) }
}

fn pass(world: &mut World, for_ms: u64) {
    world.run_until(world.now_ms + for_ms);
}

/// Goal: a lost host costs its lease and a start. Method: a fifth host waits beside four; one of the four is killed.
#[test]
fn a_spare_takes_the_rank_of_a_lost_host() {
    for_seeds(20, "spare", |seed| {
        let mut world = World::new(seed, Plan { lease_ms: 6000, ..plan(4) });
        let spare = world.add_host(4, None);
        await_life(&mut world, 4, 0, 20_000);
        pass(&mut world, 3000);
        assert!(!world.nodes[spare].twin.running);
        let lost = Chance::new(seed, &[2]).between(1, 3) as usize;
        world.kill(lost);
        let begun_ms = world.now_ms;
        await_life(&mut world, 4, 1, 20_000);
        assert!(world.nodes[spare].twin.running, "{}", world.words());
        assert!(world.now_ms < begun_ms + world.lease_over_ms(), "{} ms", world.now_ms - begun_ms);
        // Who comes back now is a spare.
        let back = world.add_host(5, None);
        pass(&mut world, 5000);
        assert!(!world.nodes[back].twin.running && world.running() == (4, Some(1)));
    });
}

/// Goal: shrink and grow (L1 is checked at every start). Method: of four hosts one is killed and nobody comes: two go on, in sizes of 2 and
/// 4. Later one comes, and at the next restart all four run.
#[test]
fn a_job_goes_on_with_fewer_hosts_and_grows_when_others_come() {
    for_seeds(20, "sizes", |seed| {
        let mut world = running(seed, elastic(4, &[2, 4]));
        let mut chance = Chance::new(seed, &[2]);
        let lost = chance.between(0, 3) as usize;
        world.kill(lost);
        pass(&mut world, 15_000);
        assert_eq!(world.running().0, 0, "a host is waited for");
        await_life(&mut world, 2, 1, 60_000);
        pass(&mut world, 5000);
        assert_eq!(world.running(), (2, Some(1)), "{}", world.notes.join("\n"));
        world.add_host(if lost == 0 { 0 } else { 7 }, None);
        pass(&mut world, 10_000);
        assert_eq!(world.running(), (2, Some(1)), "who comes ends no life: {}", world.notes.join("\n"));
        let runs = (0..world.nodes.len()).find(|index| world.nodes[*index].twin.running).expect("two run");
        world.end_ranks(runs, 1);
        await_life(&mut world, 4, 2, 30_000);
        assert_eq!(world.running(), (4, Some(2)));
    });
}

/// Goal: a host that rests is a spare. Method: of four hosts two run and one rests; one of the two is killed, and the other takes over without
/// a wait for others.
#[test]
fn a_host_that_rests_takes_over() {
    for_seeds(20, "rests", |seed| {
        let mut world = running(seed, elastic(4, &[2, 4]));
        world.kill(3);
        await_life(&mut world, 2, 1, 60_000);
        pass(&mut world, 2000);
        let runs = (1..4).find(|index| world.nodes[*index].twin.running).expect("one of them runs");
        let begun_ms = world.now_ms;
        world.kill(runs);
        await_life(&mut world, 2, 2, 30_000);
        assert!(world.now_ms < begun_ms + 6000 + REPLACE_MS - 2000, "{} ms", world.now_ms - begun_ms);
    });
}

/// Goal: two hosts that are lost within one lease cost one restart.
#[test]
fn two_hosts_lost_together_cost_one_restart() {
    for_seeds(20, "together", |seed| {
        let mut world = World::new(seed, Plan { lease_ms: 6000, ..plan(5) });
        for number in 10..12 {
            world.add_host(number, None);
        }
        await_life(&mut world, 5, 0, 20_000);
        pass(&mut world, 3000);
        let apart_ms = Chance::new(seed, &[2]).between(0, 4000);
        world.kill(3);
        pass(&mut world, apart_ms);
        world.kill(4);
        await_life(&mut world, 5, 1, 40_000);
        assert_eq!(world.running(), (5, Some(1)), "{}", world.notes.join("\n"));
    });
}

/// Goal: a job of 3:4 begins with three when nobody else comes, and has the fourth when it restarts.
#[test]
fn a_job_begins_with_fewer_hosts_when_others_do_not_come() {
    for_seeds(20, "few", |seed| {
        let mut world = World::new(seed, elastic(4, &[3, 4]));
        world.kill(2);
        pass(&mut world, REPLACE_MS - 3000);
        assert_eq!(world.running().0, 0);
        await_life(&mut world, 3, 0, 20_000);
        world.add_host(2, None);
        pass(&mut world, 5000);
        assert_eq!(world.running(), (3, Some(0)), "{}", world.notes.join("\n"));
        world.end_ranks(1, 1);
        await_life(&mut world, 4, 1, 20_000);
    });
}

/// Goal: a minority founds nothing (H1): where two of five are here, another three may be a job already.
#[test]
fn a_minority_begins_nothing() {
    let mut world = World::new(3, elastic(5, &[1, 2, 3, 4, 5]));
    (2..5).for_each(|host| world.kill(host));
    pass(&mut world, 10 * REPLACE_MS);
    assert_eq!(world.running(), (0, None));
}

/// Goal: H1, H2, H3, H4, H8 and L1 with sizes. Method: minutes of random faults; in the end everybody is back, and after one more restart
/// all run.
#[test]
fn whatever_happens_lives_have_one_size() {
    for_seeds(600, "elastic faults", |seed| {
        let mut chance = Chance::new(seed, &[4]);
        let mut elastic = weather::plan(&mut chance, plan(1));
        let least = chance.between(1, u64::from(elastic.hosts)) as u32;
        elastic.sizes = (least..=elastic.hosts).filter(|_| chance.percent(70)).collect();
        elastic.sizes.push(elastic.hosts);
        elastic.replace_within_ms = chance.pick(&[0, 500, 5000, 20_000]);
        let mut world = World::new(seed, elastic);
        for number in 0..chance.between(0, 2) {
            world.add_host(100 + number as usize, None);
        }
        let hosts = world.plan.hosts as usize;
        let limit_ms = 60_000;
        while world.running().0 == 0 && world.now_ms < limit_ms {
            pass(&mut world, 100);
        }
        let faults = chance.between(3, 10);
        let mut weather = Weather::new(chance, &world);
        (0..faults).for_each(|_| weather.disturb(&mut world));
        weather.clear(&mut world);
        pass(&mut world, 60_000);
        let life = world.running().1.unwrap_or(0);
        if world.running().0 < hosts {
            let runs = (0..world.nodes.len()).find(|index| world.nodes[*index].twin.running);
            world.end_ranks(
                runs.unwrap_or_else(|| panic!("nobody runs: {}\n{}", world.notes.join("\n"), world.words())),
                1,
            );
            await_life(&mut world, hosts, life + 1, 60_000);
        }
        pass(&mut world, 3000);
    });
}
