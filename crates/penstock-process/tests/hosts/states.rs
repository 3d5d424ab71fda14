//! States of hosts that are neither heard nor lost: processes that cannot be killed, and hosts whose processes were seen to end.

use penstock_process::host::messages::Question;

use crate::chance::Chance;
use crate::world::World;
use crate::{await_life, for_seeds, plan, running};

/// The states of all hosts, as the leader says: first those with a host rank, then those that wait for one.
fn states(world: &mut World) -> Vec<String> {
    let leader = world.leader().expect("a leader");
    world.ask(leader, Question::Hosts);
    let rows = world.answers.last().expect("an answer")["rows"][0]["hosts"].clone();
    let rows = rows.as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row["state"].as_str().unwrap_or("?").to_owned()).collect()
}

/// Goal: H2, H8. Method: a rank outlives SIGKILL; its host is told apart, another takes its host rank, and it gets one only when the
/// rank is gone.
#[test]
fn a_host_whose_processes_cannot_be_killed_gets_no_rank_until_they_are_gone() {
    for_seeds(10, "unkillable", |seed| {
        let mut world = running(seed, plan(4));
        world.nodes[2].twin.sticks = true;
        world.end_ranks(0, 1);
        for _ in 0..8 {
            world.run_until(world.now_ms + 1000);
            world.report(2);
        }
        world.run_until(world.now_ms + 2000);
        assert_eq!(states(&mut world), ["here", "here", "unkillable", "here"], "{}", world.notes.join("\n"));
        assert_eq!(world.running().0, 0, "all wait for a host");
        let other = world.add_host(world.nodes.len(), None);
        await_life(&mut world, 4, 1, 30_000);
        assert!(!world.nodes[2].twin.running && world.nodes[other].twin.running);
        world.run_until(world.now_ms + 3000);
        assert_eq!(states(&mut world), ["here", "here", "here", "here", "unkillable"]);
        // Another host is lost, and this one gets no rank while it is not free.
        world.kill(1);
        world.run_until(world.now_ms + world.lease_over_ms() + 10_000);
        assert_eq!(world.running().0, 0);
        world.nodes[2].twin.wake();
        world.report(2);
        await_life(&mut world, 4, 2, 30_000);
        assert!(world.nodes[2].twin.running);
    });
}

/// Goal: what sleeps in the kernel costs no host rank once it is gone. Method: as above, and no other host comes.
#[test]
fn a_host_whose_stuck_processes_end_has_its_rank_back() {
    for_seeds(10, "unkillable and back", |seed| {
        let mut world = running(seed, plan(3));
        let stuck = Chance::new(seed, &[6]).between(0, 2) as usize;
        world.nodes[stuck].twin.sticks = true;
        world.end_ranks(stuck, 1);
        for _ in 0..10 {
            world.run_until(world.now_ms + 1000);
            world.report(stuck);
        }
        assert_eq!(states(&mut world)[stuck], "unkillable", "{}", world.notes.join("\n"));
        world.nodes[stuck].twin.wake();
        world.report(stuck);
        await_life(&mut world, 3, 1, 30_000);
        assert_eq!(world.ended_by_lease(), 0);
    });
}

/// Goal: H8: a host has one state, whoever leads. Method: a host that does not vote leaves, and the leader is lost; the next one says of the
/// first that it left.
#[test]
fn what_became_of_a_lost_host_outlives_the_leader() {
    for_seeds(10, "left", |seed| {
        let mut world = running(seed, plan(6));
        world.run_until(world.now_ms + 1000);
        let leader = world.leader().expect("a leader");
        let voters = world.nodes[leader].host.as_ref().expect("it leads").membership().list.voters.clone();
        let votes = |index: &usize| voters.contains(&world.nodes[*index].config.host);
        let leaves = (0..6).find(|index| !votes(index)).expect("three do not vote");
        world.dismiss(leaves);
        world.run_until(world.now_ms + 2000);
        assert_eq!(states(&mut world)[leaves], "left", "{}", world.notes.join("\n"));
        world.kill(leader);
        world.run_until(world.now_ms + 8000);
        assert_eq!(states(&mut world)[leaves], "left", "{}", world.notes.join("\n"));
    });
}

/// Goal: what saw the processes of a host end frees its host rank at once. Method: a host is killed while another waits; somebody tells
/// the job on any host, and the next life begins long before a lease is over.
#[test]
fn a_host_whose_processes_were_seen_to_end_is_gone_at_once() {
    for_seeds(20, "gone", |seed| {
        let mut chance = Chance::new(seed, &[8]);
        let mut world = running(seed, plan(5));
        world.add_host(5, None);
        world.run_until(world.now_ms + 3000);
        let lost = chance.between(0, 4) as usize;
        if world.leader() == Some(lost) {
            // Its voters would need their time to choose another, which is not what this is about.
            return;
        }
        let teller = (lost + chance.between(1, 4) as usize) % 5;
        let host = world.nodes[lost].config.host;
        world.kill(lost);
        world.ask(teller, Question::Ended { host, by: "its starter saw them end".to_owned() });
        world.run_until(world.now_ms + 500);
        let answer = world.answers.last().expect("an answer");
        assert_eq!(answer["rows"][0]["noted"], host.to_string(), "{answer}");
        await_life(&mut world, 5, 1, 10_000);
        assert_eq!(world.ended_by_lease(), 0);
    });
}

/// Goal: H2, H3: who is wrong about a host frees nothing. Method: a host that runs and is heard is said to have ended, the leader's own as
/// well.
#[test]
fn a_host_that_was_said_to_have_ended_and_is_heard_keeps_its_rank() {
    for_seeds(20, "liar", |seed| {
        let mut world = running(seed, plan(4));
        world.add_host(9, None);
        world.run_until(world.now_ms + 3000);
        let accused = (seed % 4) as usize;
        let host = world.nodes[accused].config.host;
        world.ask((accused + 1) % 4, Question::Ended { host, by: "an engine that lies".to_owned() });
        world.run_until(world.now_ms + 60_000);
        assert_eq!(world.running(), (4, Some(0)), "{}", world.notes.join("\n"));
        assert!(world.seen.lost.is_empty() && world.nodes[accused].twin.running);
    });
}

/// Goal: whoever saw processes end is believed as soon as their host is silent, also where no connection tells of that. Method: a host is cut
/// off, said to have ended, and killed.
#[test]
fn a_host_that_was_said_to_have_ended_is_gone_when_it_is_silent() {
    for_seeds(20, "silent", |seed| {
        let mut world = running(seed, plan(5));
        world.add_host(5, None);
        world.run_until(world.now_ms + 3000);
        let leader = world.leader().expect("a leader");
        let lost = (leader + 1 + (seed % 4) as usize) % 5;
        let host = world.nodes[lost].config.host;
        world.isolate(lost, 1);
        world.kill(lost);
        world.ask(leader, Question::Ended { host, by: "its starter saw them end".to_owned() });
        await_life(&mut world, 5, 1, 15_000);
    });
}
