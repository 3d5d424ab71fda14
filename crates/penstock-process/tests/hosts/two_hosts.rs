//! Two hosts with a state directory: whichever is lost, the other goes on, and never do both.

use std::path::Path;

use crate::chance::Chance;
use crate::node::{Pause, Plan};
use crate::world::World;
use crate::{await_life, for_seeds, plan, running};

/// Small worlds with all kinds of faults.
const SEEDS: u64 = 60;
const LEASE_MS: u64 = 6000;
/// What the directory says to a claim is there by then; and where messages may take seconds.
const CLAIM_MS: u64 = 400;
const SLOW_CLAIM_MS: u64 = 8000;
/// Until both ends of a link that broke in silence have noticed.
const SILENT_MS: u64 = 25_000;
/// How long a host sleeps at most.
const LONG_MS: u64 = 9000;

fn two(place: &Path, lease_ms: u64) -> Plan {
    Plan { lease_ms, state: Some(place.to_owned()), ..plan(2) }
}

fn life(world: &World) -> u32 {
    world.running().1.unwrap_or(0)
}

/// Waits until both hosts vote, so that either may be lost: one that goes on alone is the only one who knows what is decided.
fn await_votes(world: &mut World, members: [usize; 2]) {
    let until_ms = world.now_ms + 120_000;
    let both = |world: &World| {
        members.iter().all(|member| {
            let fresh_ms = world.local_ms(*member) + LEASE_MS * 5 / 6;
            world.nodes[*member].host.as_ref().is_some_and(|host| {
                let (known, list) = (host.membership(), &host.membership().list);
                let agreed = list.voters.len() == 2 && known.term >> 32 == u64::from(list.configuration);
                agreed && host.lease_end_ms() > Some(fresh_ms)
            })
        })
    };
    while !(both(world) && world.running().0 == 2) {
        assert!(world.now_ms < until_ms, "{}\n{}", world.notes.join("\n"), world.words());
        world.run_until(world.now_ms + 100);
    }
}

/// Goal: either of two hosts may be lost, in both orders. Method: one is killed and another joins in its place, then the other one.
#[test]
fn each_of_two_hosts_can_be_lost_in_turn_and_replaced() {
    for_seeds(10, "two in turn", |seed| {
        let place = tempfile::tempdir().expect("a directory");
        let mut world = running(seed, two(place.path(), 30_000));
        let order: [usize; 2] = if seed % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut members = [0, 1];
        for lost in [order, order].concat() {
            let before = life(&world);
            world.run_until(world.now_ms + 5000);
            world.kill(members[lost]);
            world.run_until(world.now_ms + 500);
            let number = if lost == 0 { 0 } else { world.nodes.len() };
            members[lost] = world.add_host(number, None);
            await_life(&mut world, 2, before + 1, 180_000);
        }
    });
}

/// Goal: H3. Method: the hosts lose each other for less than a third of a lease, then for less than a lease; no rank ends.
#[test]
fn two_hosts_that_lose_each_other_for_a_while_lose_no_rank() {
    for_seeds(15, "two for a while", |seed| {
        let place = tempfile::tempdir().expect("a directory");
        let mut world = running(seed, two(place.path(), 30_000));
        for cut_ms in [8_000, 22_000] {
            world.run_until(world.now_ms + 10_000);
            world.isolate(1, 1);
            world.run_until(world.now_ms + cut_ms);
            world.heal();
            world.run_until(world.now_ms + 60_000);
            assert_eq!(world.running(), (2, Some(0)), "{}", world.notes.join("\n"));
            assert_eq!((world.ended_by_lease(), world.ended_by_order()), (0, 0));
        }
    });
}

/// Goal: H2, and one goes on. Method: a cut beyond the lease; exactly one has the next configuration, and after the cut both run again.
#[test]
fn of_two_hosts_that_are_cut_apart_one_goes_on() {
    for_seeds(30, "two cut apart", |seed| {
        let place = tempfile::tempdir().expect("a directory");
        let mut world = running(seed, two(place.path(), LEASE_MS));
        world.run_until(world.now_ms + 3000);
        world.isolate(1, 1);
        world.run_until(world.now_ms + world.lease_over_ms() + 8000);
        let leaders = world
            .nodes
            .iter()
            .filter(|node| node.host.as_ref().is_some_and(|host| host.leads() && !host.is_out_of_lease()));
        assert_eq!(leaders.count(), 1, "{}\n{}", world.notes.join("\n"), world.words());
        world.heal();
        await_life(&mut world, 2, 1, 60_000);
    });
}

/// Goal: without the directory nothing healthy is touched before its lease ends, and nobody goes on. Method: it stalls, then a cut.
#[test]
fn two_hosts_without_their_state_directory_wait_for_each_other() {
    for_seeds(20, "two stalled", |seed| {
        let place = tempfile::tempdir().expect("a directory");
        let mut world = running(seed, two(place.path(), LEASE_MS));
        world.nodes.iter_mut().for_each(|node| node.stalled = true);
        world.run_until(world.now_ms + 20_000);
        assert_eq!((world.ended_by_lease(), world.ended_by_order()), (0, 0));
        world.isolate(1, 1);
        world.run_until(world.now_ms + 20_000);
        assert_eq!(world.running().0, 0);
        // Back again before anybody could write: both go on as before.
        world.heal();
        world.nodes.iter_mut().for_each(|node| node.stalled = false);
        await_life(&mut world, 2, 1, 60_000);
    });
}

/// A fault that is no loss: a link flaps, messages take long, a host sleeps.
fn disturb_rarely(world: &mut World, one: usize, rare: &mut Chance) {
    let for_ms = rare.between(100, LONG_MS);
    let fault = rare.between(0, 4);
    world.note(format!("--- rare fault {fault} of h{one}, {for_ms} ms"));
    match fault {
        0 => world.break_links(one),
        1 => world.pause(one, Pause::Processes, for_ms),
        2 => world.pause(one, Pause::Machine(world.now_ms), for_ms),
        3 => {
            let usual_ms = std::mem::replace(&mut world.plan.delay_ms, rare.pick(&[300, 1000, 2500]));
            world.run_until(world.now_ms + for_ms / 3);
            world.plan.delay_ms = usual_ms;
        }
        _ => {
            for _ in 0..rare.between(2, 8) {
                world.isolate(one, 1);
                world.run_until(world.now_ms + rare.between(20, 700));
                world.isolate(one, 0);
                world.run_until(world.now_ms + rare.between(20, 700));
            }
        }
    }
}

/// Goal: H1, H2, H3. Method: minutes of random faults on two hosts and their directory, then none; in the end both run again.
#[test]
fn whatever_happens_to_two_hosts_no_rank_runs_twice_and_in_the_end_both_run() {
    for_seeds(SEEDS, "two faults", |seed| {
        let mut chance = Chance::new(seed, &[6]);
        let place = tempfile::tempdir().expect("a directory");
        let delay_ms = chance.pick(&[1, 20, 100]);
        // Rarer faults are drawn apart, so that the others of a seed stay what they are.
        let mut rare = Some(Chance::new(seed, &[40])).filter(|_| seed % 2 == 0);
        let late = rare.as_mut().map_or(0, |rare| rare.pick(&[0, 30, 80]));
        let mut world = running(seed, Plan { delay_ms, late, ..two(place.path(), LEASE_MS) });
        let mut members = [0, 1];
        for _ in 0..chance.between(3, 14) {
            world.run_until(world.now_ms + chance.between(10, 7000));
            if let Some(rare) = &mut rare {
                if rare.percent(30) {
                    disturb_rarely(&mut world, members[rare.between(0, 1) as usize], rare);
                    continue;
                }
            }
            let lost = chance.between(0, 1) as usize;
            match chance.between(0, 8) {
                0 => world.isolate(members[lost], 1),
                1 => world.cut(members[lost], members[1 - lost]),
                2 => world.end_ranks(members[lost], 1),
                3 => world.restart_coordinator(members[lost]),
                4 | 5 => {
                    // Only one at a time: of both at once nobody is left who knows the job.
                    world.heal();
                    world.nodes.iter_mut().for_each(|node| node.stalled = false);
                    world.run_until(world.now_ms + chance.between(0, 4000));
                    await_votes(&mut world, members);
                    // Who has just claimed the directory, and has not heard yet that it may go on alone, is the only one who may.
                    world.run_until(world.now_ms + if rare.is_some() { SLOW_CLAIM_MS } else { CLAIM_MS });
                    await_votes(&mut world, members);
                    world.kill(members[lost]);
                    world.run_until(world.now_ms + chance.between(0, 9000));
                    let number = if lost == 0 { 0 } else { world.nodes.len() };
                    members[lost] = world.add_host(number, None);
                }
                6 => world.nodes.iter_mut().for_each(|node| node.stalled = !node.stalled),
                _ => world.heal(),
            }
        }
        world.heal();
        world.nodes.iter_mut().for_each(|node| node.stalled = false);
        if rare.is_some() {
            // Who sleeps wakes first.
            world.run_until(world.now_ms + LONG_MS);
        }
        let before = life(&world);
        await_life(&mut world, 2, before, 180_000);
        world.run_until(world.now_ms + SILENT_MS);
        world.check_counts();
    });
}
