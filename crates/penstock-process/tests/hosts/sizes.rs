//! Jobs that go on with spares, with fewer hosts, and with more again.

use penstock_process::host::config::HostStarter;
use penstock_process::host::messages::{Question, Tried};
use serde_json::Value;

use crate::chance::Chance;
use crate::node::Plan;
use crate::weather::{self, Weather};
use crate::world::World;
use crate::{LEASE_MS, await_life, for_seeds, plan, running};

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
        let lost = Chance::new(seed, &[2]).between(0, 3) as usize;
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

/// Goal: an agent's goodbye frees a host rank at once. Method: a host of four leaves; a spare runs long before a lease is over.
#[test]
fn a_host_that_leaves_is_replaced_without_a_lease() {
    for_seeds(30, "leaves", |seed| {
        let mut world =
            World::new(seed, Plan { delay_ms: 10, fanout: 2 + 62 * (seed % 2) as u32, ..plan(4) });
        let spare = world.add_host(10, None);
        await_life(&mut world, 4, 0, 20_000);
        pass(&mut world, 3000);
        let leader = world.leader().expect("a leader");
        let leaves = (0..4).filter(|index| *index != leader).nth((seed % 3) as usize).expect("another");
        let begun_ms = world.now_ms;
        world.dismiss(leaves);
        await_life(&mut world, 4, 1, LEASE_MS);
        assert!(
            world.nodes[spare].twin.running && world.now_ms < begun_ms + 3000,
            "{}",
            world.notes.join("\n")
        );
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

/// Goal: `--grow saved`, and nobody is ended who does not leave. Method: of four hosts one is killed and two go on; another comes, and when it
/// has been there for a lease the ranks are asked to leave. Where they do not look for notices they run on, and that is said.
#[test]
fn ranks_that_look_for_notices_make_room_for_more_hosts() {
    for_seeds(20, "grow", |seed| {
        let listens = seed % 2 == 0;
        let mut world = running(seed, Plan { grow_saved: true, listens, ..elastic(4, &[2, 4]) });
        let lost = Chance::new(seed, &[2]).between(0, 3) as usize;
        let returns = seed % 4 >= 2;
        if returns {
            world.isolate(lost, 1);
        } else {
            world.kill(lost);
        }
        await_life(&mut world, 2, 1, 60_000);
        if returns {
            world.heal();
        } else {
            world.add_host(if lost == 0 { 0 } else { 7 }, None);
        }
        pass(&mut world, 3000);
        assert_eq!(
            world.running(),
            (2, Some(1)),
            "who has just come ends nothing: {}",
            world.notes.join("\n")
        );
        if listens {
            await_life(&mut world, 4, 2, 30_000);
            assert_eq!(world.running(), (4, Some(2)));
            assert_eq!(failures_of(&mut world), [("host".to_owned(), 0), ("resize".to_owned(), 1)]);
        } else {
            pass(&mut world, 60_000);
            assert_eq!(world.running(), (2, Some(1)), "{}", world.notes.join("\n"));
            let lines = journal(&mut world);
            assert!(
                lines.iter().any(|line| line["event"] == "leave" && line["leave"] == "stays"),
                "{lines:?}"
            );
        }
    });
}

/// The journal that the leader has.
fn journal(world: &mut World) -> Vec<Value> {
    let leader = world.leader().expect("a leader");
    world.ask(leader, Question::Journal);
    pass(world, 100);
    world.answers.last().and_then(|answer| answer["rows"].as_array()).cloned().expect("lines")
}

/// What each life failed of, by its number.
fn failures_of(world: &mut World) -> Vec<(String, u64)> {
    let lines = journal(world);
    let failures = lines.iter().filter(|line| line["event"] == "failed").map(|line| &line["failure"]);
    failures
        .map(|failure| {
            (
                failure["cause"].as_str().unwrap_or_default().to_owned(),
                failure["incarnation"].as_u64().unwrap_or(99),
            )
        })
        .collect()
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

/// Goal: a spare that dies while it takes over costs another replacement, and no more. Method: one host is killed, and the first of two spares
/// at any moment after its lease.
#[test]
fn a_spare_that_dies_while_it_takes_over_is_replaced_by_the_next() {
    for_seeds(40, "dying spare", |seed| {
        let mut chance = Chance::new(seed, &[2]);
        let mut world = World::new(seed, Plan { lease_ms: 6000, ..plan(4) });
        let spares = [world.add_host(10, None), world.add_host(11, None)];
        await_life(&mut world, 4, 0, 20_000);
        pass(&mut world, 3000);
        world.kill(chance.between(1, 3) as usize);
        let until_ms = world.now_ms + 30_000;
        while world.now_ms < until_ms && !spares.iter().any(|spare| has_rank(&world, *spare)) {
            pass(&mut world, 5);
        }
        pass(&mut world, chance.between(0, 400));
        let dies = spares.into_iter().find(|spare| has_rank(&world, *spare)).expect("one takes over");
        world.kill(dies);
        await_life(&mut world, 4, 1, 60_000);
        assert!(spares.iter().filter(|spare| **spare != dies).all(|spare| world.nodes[*spare].twin.running));
    });
}

fn has_rank(world: &World, index: usize) -> bool {
    world.nodes[index].host.as_ref().is_some_and(|host| host.status().rank.is_some())
}

/// Goal: H2, a host that returns in mid-replacement is a spare or gets its rank again, and nothing of it runs twice. Method: it is cut off
/// beyond its lease, and the cut ends at any moment around the replacement.
#[test]
fn a_host_that_returns_in_mid_replacement_disturbs_nobody() {
    for_seeds(60, "returns", |seed| {
        let mut chance = Chance::new(seed, &[2]);
        let mut world =
            World::new(seed, Plan { lease_ms: 6000, delay_ms: chance.pick(&[1, 5, 40]), ..plan(4) });
        world.add_host(10, None);
        await_life(&mut world, 4, 0, 20_000);
        pass(&mut world, 3000);
        world.isolate(chance.between(1, 3) as usize, 1);
        pass(&mut world, chance.between(5800, 7400));
        world.heal();
        pass(&mut world, 20_000);
        let (running, life) = world.running();
        assert!(running == 4 && life <= Some(2), "{running} {life:?}\n{}", world.notes.join("\n"));
    });
}

/// Goal: no wait is without an end. Method: a host is killed; there is no spare, nobody comes, and no smaller size.
#[test]
fn a_job_without_anybody_to_replace_a_host_ends_and_says_which() {
    let mut world = running(5, Plan { lease_ms: 6000, host_wait_ms: 20_000, ..plan(4) });
    pass(&mut world, 2000);
    world.kill(2);
    pass(&mut world, 60_000);
    assert!([0, 1, 3].into_iter().all(|index| world.nodes[index].twin.over), "{}", world.words());
    let notes = world.notes.join("\n");
    assert!(notes.contains("the job waited 20 s for a host for host rank 2"), "{notes}");
}

/// Goal: item 2, a new host is asked for while somebody can be asked. Method: a launcher that asks each second what is wanted, then is not heard
/// any more; and a job that is detached.
#[test]
fn a_lost_host_is_asked_for_of_a_launcher_that_is_there() {
    let elastic = Plan { starter: Some(HostStarter::Attached), ..elastic(4, &[4]) };
    let mut world = running(6, Plan { replace_within_ms: 60_000, ..elastic.clone() });
    pass(&mut world, 3000);
    assert_eq!(wanted(&mut world), Vec::<u64>::new());
    world.kill(3);
    for _ in 0..12 {
        pass(&mut world, 1000);
        wanted(&mut world);
    }
    assert_eq!(wanted(&mut world), [3]);
    let lines = journal(&mut world);
    let said =
        |what: &str| lines.iter().any(|line| line["what"].as_str().is_some_and(|said| said.contains(what)));
    assert!(said("by ssh from the launcher") && said("Permission denied"), "{lines:?}");
    pass(&mut world, 40_000);
    let lines = journal(&mut world);
    assert!(lines.iter().any(|line| line["what"].as_str().is_some_and(|said| said.contains("not heard"))));
    world.add_host(7, None);
    await_life(&mut world, 4, 1, 30_000);
    assert_eq!(wanted(&mut world), Vec::<u64>::new());
    let mut world = running(7, Plan { starter: Some(HostStarter::Detached), ..elastic });
    pass(&mut world, 3000);
    world.kill(3);
    pass(&mut world, 12_000);
    assert_eq!(wanted(&mut world), Vec::<u64>::new());
    let lines = journal(&mut world);
    assert!(
        lines.iter().any(|line| line["what"].as_str().is_some_and(|said| said.contains("keys"))),
        "{lines:?}"
    );
}

/// Host ranks that the leader wants hosts for, as a launcher hears it that could not log in to one.
fn wanted(world: &mut World) -> Vec<u64> {
    let leader = world.leader().expect("a leader");
    let tried = vec![Tried { name: "gpu09".to_owned(), why: "Permission denied (publickey)".to_owned() }];
    world.ask(leader, Question::Wanted { tried });
    pass(world, 100);
    let rows = world.answers.last().and_then(|answer| answer["rows"].as_array()).cloned().expect("rows");
    rows.iter().filter_map(|row| row["rank"].as_u64()).collect()
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
    for_seeds(600, "elastic faults", |seed| elastic_faults(seed, seed % 2 == 1));
}

/// Goal: success is that of every rank. Method: a world in which the leader leaves in the middle of a start; its host was taken for one whose
/// ranks had all succeeded, and the job for one that was done.
#[test]
fn a_leader_that_leaves_in_a_start_is_no_success() {
    elastic_faults(2941, false);
}

fn elastic_faults(seed: u64, rare: bool) {
    let mut chance = Chance::new(seed, &[4]);
    let mut elastic = weather::plan(&mut chance, plan(1));
    let least = chance.between(1, u64::from(elastic.hosts)) as u32;
    elastic.sizes = (least..=elastic.hosts).filter(|_| chance.percent(70)).collect();
    elastic.sizes.push(elastic.hosts);
    (elastic.grow_saved, elastic.listens) = (chance.percent(50), chance.percent(70));
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
    if rare {
        weather = weather.with_rare(seed);
    }
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
    world.check_counts();
}
