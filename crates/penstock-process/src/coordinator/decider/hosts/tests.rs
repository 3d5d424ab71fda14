//! A job of several hosts: real summaries and a real decider; hosts that obey as agents do.

mod world;

use serde_json::json;

use self::world::{HostTwin, World, role};
use super::*;
use crate::coordinator::history::Outcome;
use crate::coordinator::messages::{GangReport, Over, PreparedLife};
use crate::job::state::Phase;

#[test]
fn a_life_begins_when_every_host_is_prepared_and_all_meet_at_one_address() {
    let mut world = World::one(3);
    world.hosts[2].able = false;
    assert_eq!(world.action(), Action::Prepare { incarnation: 0 });
    assert_eq!(world.action(), Action::Prepare { incarnation: 0 }, "one is not prepared");
    world.hosts[2].able = true;
    world.turn();
    let orders = world.turn();
    assert_eq!(orders.gangs[0].action, Action::Start { incarnation: 0 });
    assert_eq!(orders.gangs[0].meeting, Some("10.0.0.1:29500".parse().unwrap()));
    let orders = world.turn();
    assert_eq!(
        (orders.gangs[0].action.clone(), orders.phase),
        (Action::Wait { until_ms: None }, Phase::Running)
    );
    assert_eq!(orders.gangs[0].reason, "6 ranks run, 0 succeeded");
    assert_eq!(orders.gangs[0].past.map(|past| past.times), Some(1));
}

#[test]
fn success_is_that_of_every_rank_on_every_host() {
    let mut world = World::one(2);
    world.run(0);
    for (host, rank) in [(0, 0), (0, 1), (1, 0)] {
        world.exit(host, rank, 0);
        assert_eq!(world.action(), Action::Wait { until_ms: None });
    }
    world.hosts[1].heard = false;
    world.exit(1, 1, 0);
    assert_eq!(world.action(), Action::Wait { until_ms: None }, "nobody has heard of the last");
    world.hosts[1].heard = true;
    let orders = world.turn();
    assert_eq!(orders.gangs[0].reason, "all 4 ranks succeeded");
    assert_eq!(orders.over, Some(Over { phase: Phase::Succeeded, code: 0 }));
}

#[test]
fn a_rank_that_dies_on_one_host_ends_its_gang_on_all_and_all_begin_again() {
    let mut world = World::one(3);
    world.run(0);
    world.exit(1, 1, 3);
    assert_eq!(world.action(), Action::End);
    let orders = world.turn();
    assert_eq!(orders.gangs[0].action, Action::Prepare { incarnation: 1 });
    assert_eq!(orders.gangs[0].reason, "rank 3 exited with code 3; restart 1 of 3");
    assert!(orders.gangs[0].incident);
    world.run(1);
    assert_eq!(world.failures().len(), 1);
    assert_eq!((world.failures()[0].cause, world.failures()[0].rank), (Cause::Crash, Some(3)));
}

#[test]
fn a_host_that_was_not_told_to_end_its_ranks_is_told_again() {
    let mut world = World::one(3);
    world.run(0);
    world.exit(0, 0, 1);
    // The order does not reach the last host, which is still heard.
    let kept = world.hosts[2].clone();
    world.turn();
    world.hosts[2] = kept;
    assert_eq!(world.action(), Action::End);
    assert_eq!(world.action(), Action::Prepare { incarnation: 1 });
}

#[test]
fn silence_is_not_death_and_the_next_life_waits_for_whoever_is_unheard() {
    let mut world = World::one(3);
    world.run(0);
    world.hosts[2].heard = false;
    for _ in 0..5 {
        assert_eq!(world.action(), Action::Wait { until_ms: None });
        world.now_ms += 10_000;
    }
    assert_eq!(world.failures(), []);
    world.exit(0, 0, 1);
    for _ in 0..5 {
        let orders = world.turn();
        assert!(
            matches!(orders.gangs[0].action, Action::End | Action::Kill | Action::Wait { .. }),
            "{orders:?}"
        );
        world.now_ms += 10_000;
    }
    // It comes back, ends its own, and then all begin.
    world.hosts[2].heard = true;
    world.run(1);
    assert_eq!(world.failures().len(), 1);
}

#[test]
fn the_loss_of_a_host_is_charged_to_it_and_the_restart_waits_for_another() {
    let mut world = World::one(3);
    world.run(0);
    let heard_ms = world.now_ms;
    world.hosts[2].heard = false;
    // Its peers notice first, by errors of connections.
    world.now_ms += 5000;
    world.exit(0, 0, 1);
    world.turn();
    assert_eq!(world.failures()[0].cause, Cause::Crash);
    world.now_ms += 25_000;
    world.turn();
    world.lose(2, heard_ms);
    let orders = world.turn();
    let lost = "host gpu02 (host rank 2) was lost: its lease expired";
    assert_eq!((world.failures().len(), world.failures()[0].cause), (1, Cause::Host));
    assert_eq!(world.failures()[0].what, lost);
    assert_eq!(orders.gangs[0].action, Action::Wait { until_ms: None });
    assert_eq!(orders.gangs[0].reason, format!("{lost}; restart 1 of 100; waits for a host for host rank 2"));
    assert_eq!(orders.phase, Phase::Waiting);
    world.fill(2);
    world.run(1);
    assert_eq!(world.failures().len(), 1);
}

#[test]
fn two_hosts_that_are_lost_before_the_restart_are_one_restart() {
    let mut world = World::one(4);
    world.run(0);
    let heard_ms = world.now_ms;
    world.lose(1, heard_ms);
    assert_eq!(world.action(), Action::End);
    world.lose(3, heard_ms);
    let orders = world.turn();
    assert!(
        orders.gangs[0].reason.ends_with("waits for hosts for host ranks 1,3"),
        "{}",
        orders.gangs[0].reason
    );
    world.fill(1);
    world.turn();
    world.fill(3);
    // A host that is lost while all prepare costs nothing more.
    assert_eq!(world.action(), Action::Prepare { incarnation: 1 });
    world.lose(0, world.now_ms);
    let orders = world.turn();
    assert_eq!(orders.gangs[0].reason, "waits for a host for host rank 0");
    world.fill(0);
    world.run(1);
    assert_eq!(world.failures().len(), 1);
}

#[test]
fn a_host_that_is_never_prepared_is_named_and_a_failed_start() {
    let mut world = World::one(3);
    world.hosts[1].able = false;
    let orders = world.turn();
    assert_eq!(orders.look_at_ms, Some(world.now_ms + PREPARE_MS), "somebody has to look");
    world.now_ms += PREPARE_MS - 20;
    assert_eq!(world.action(), Action::Prepare { incarnation: 0 });
    world.now_ms += 20;
    let orders = world.turn();
    let failure = &world.failures()[0];
    assert_eq!(failure.what, "host gpu01 (host rank 1) was not prepared after 30 s");
    assert_eq!((failure.cause, failure.incarnation), (Cause::Host, 0));
    assert_eq!(orders.gangs[0].action, Action::Prepare { incarnation: 1 });
    world.hosts[1].able = true;
    world.run(1);
}

#[test]
fn who_waits_for_slots_while_it_prepares_has_all_the_time() {
    let mut world = World::one(2);
    world.hosts[1].able = false;
    world.hosts[1].gangs[0].queued = Some("8 GPUs".to_owned());
    world.turn();
    world.now_ms += 10 * PREPARE_MS;
    let orders = world.turn();
    assert_eq!((orders.phase, &orders.reason[..]), (Phase::Queued, "waits for 8 GPUs"));
    assert_eq!(world.failures(), []);
}

#[test]
fn a_stop_that_one_host_was_asked_for_ends_the_job_on_all() {
    let mut world = World::one(3);
    world.run(0);
    let stop = Stop { by: "somebody".to_owned(), grace_ms: 500, code: 143, ..Stop::default() };
    world.hosts[1].stop = Some(stop);
    assert_eq!(world.action(), Action::End);
    assert!(world.journal.iter().any(|entry| matches!(entry, Entry::Stop { .. })));
    // Whoever was asked may be gone by now.
    world.hosts[1].stop = None;
    let orders = world.turn();
    assert_eq!(orders.gangs[0].action, Action::Stopped);
    assert_eq!(orders.over, Some(Over { phase: Phase::Stopped, code: 143 }));
}

#[test]
fn a_stop_before_the_life_began_starts_nothing() {
    let mut world = World::one(2);
    world.turn();
    world.hosts[0].stop = Some(Stop { by: "somebody".to_owned(), code: 143, ..Stop::default() });
    let orders = world.turn();
    assert_eq!(orders.over, Some(Over { phase: Phase::Stopped, code: 143 }));
}

#[test]
fn a_host_that_missed_the_start_is_told_again_and_one_that_failed_first_stops_it() {
    let mut world = World::one(3);
    world.turn();
    let kept = world.hosts[2].clone();
    world.turn();
    let prepared = HostTwin {
        gangs: vec![GangReport {
            prepared: Some(PreparedLife { incarnation: 0, port: None }),
            ..GangReport::default()
        }],
        ..kept
    };
    world.hosts[2] = prepared.clone();
    assert_eq!(world.action(), Action::Start { incarnation: 0 });
    assert!(world.hosts[2].gangs[0].workers.iter().all(|worker| worker.running));
    world.hosts[2] = prepared;
    world.exit(0, 0, 1);
    assert_eq!(world.action(), Action::End, "the life ends although it has not begun everywhere");
    world.run(1);
}

#[test]
fn a_host_that_comes_back_with_an_older_life_ends_it() {
    let mut world = World::one(2);
    world.run(0);
    let paused = world.hosts[1].clone();
    world.lose(1, world.now_ms);
    world.turn();
    world.fill(1);
    world.run(1);
    world.hosts[1] = paused;
    world.turn();
    assert!(world.hosts[1].gangs[0].workers.iter().all(|worker| !worker.running));
}

#[test]
fn nobody_joins_a_life_that_has_begun() {
    let mut world = World::one(3);
    world.run(0);
    // Another host has the place of a lost one before anything was decided about that.
    world.lose(1, world.now_ms);
    world.fill(1);
    assert_eq!(world.action(), Action::End);
    assert_eq!(world.failures()[0].cause, Cause::Host);
    assert!(world.hosts[1].gangs[0].workers.is_empty());
    world.run(1);
}

#[test]
fn the_first_failure_is_the_first_whoever_was_heard_first() {
    let mut world = World::one(2);
    world.run(0);
    world.hosts[0].heard = false;
    world.exit(0, 1, 7);
    world.now_ms += 50;
    world.exit(1, 0, 1);
    world.turn();
    assert_eq!(world.failures()[0].rank, Some(2));
    world.hosts[0].heard = true;
    world.run(1);
    assert_eq!((world.failures().len(), world.failures()[0].rank, world.failures()[0].code), (1, Some(1), 7));
}

#[test]
fn no_host_within_the_time_ends_the_job() {
    let mut world = World::one(2);
    world.run(0);
    world.lose(1, world.now_ms);
    world.turn();
    world.turn();
    world.now_ms += 600_000;
    let orders = world.turn();
    assert_eq!(orders.over, Some(Over { phase: Phase::Failed, code: 1 }));
    assert_eq!(orders.reason, "the job waited 600 s for a host for host rank 1");
}

/// The lives of all ranks of the first role, by host.
fn lives(world: &World) -> Vec<Vec<Option<u32>>> {
    let running = |gang: &GangReport| gang.workers.iter().any(|worker| worker.running);
    let life = |gang: &GangReport| gang.incarnation.filter(|_| running(gang));
    world.hosts.iter().map(|host| host.gangs.iter().map(life).collect()).collect()
}

#[test]
fn a_rank_that_restarts_alone_leaves_all_others_on_all_hosts_alone() {
    let mut world = World::new(3, vec![role("rank", "gang", "one")]);
    (0..4).for_each(|_| drop(world.turn()));
    assert_eq!(lives(&world), vec![vec![Some(0); 2]; 3]);
    let first = world.decider.history().gangs[0].meeting;
    assert!(first.is_some());
    assert!(
        world.decider.history().gangs.iter().all(|gang| gang.meeting == first),
        "all meet at one address"
    );
    world.exit_alone(1, 1, 3);
    (0..5).for_each(|_| drop(world.turn()));
    let mut wanted = vec![vec![Some(0); 2]; 3];
    wanted[1][1] = Some(1);
    assert_eq!(lives(&world), wanted);
    let failures: Vec<usize> = world.decider.history().gangs.iter().map(|gang| gang.failures.len()).collect();
    assert_eq!(failures, [0, 0, 0, 1, 0, 0], "one failure is counted once");
    let failure = &world.decider.history().gangs[3].failures[0];
    assert_eq!((failure.rank, failure.cause), (Some(3), Cause::Crash));
    assert_eq!(world.decider.history().gangs[3].meeting, first);
}

#[test]
fn a_host_that_is_lost_costs_the_ranks_that_restart_alone_only_where_they_were() {
    let mut world = World::new(3, vec![role("rank", "gang", "one")]);
    (0..4).for_each(|_| drop(world.turn()));
    world.lose(1, world.now_ms);
    let mut orders = world.turn();
    for _ in 0..3 {
        orders = world.turn();
    }
    assert!(
        orders.gangs[2].reason.ends_with("waits for a host for host rank 1"),
        "{}",
        orders.gangs[2].reason
    );
    assert_eq!((&lives(&world)[0], &lives(&world)[2]), (&vec![Some(0); 2], &vec![Some(0); 2]));
    world.fill(1);
    (0..6).for_each(|_| drop(world.turn()));
    assert_eq!(lives(&world), vec![vec![Some(0); 2], vec![Some(1); 2], vec![Some(0); 2]]);
    let failures: Vec<usize> = world.decider.history().gangs.iter().map(|gang| gang.failures.len()).collect();
    assert_eq!(failures, [0, 0, 1, 1, 0, 0]);
    (0..3).for_each(|host| (0..2).for_each(|rank| world.exit_alone(host, rank, 0)));
    let mut over = None;
    for _ in 0..3 {
        over = over.or(world.turn().over);
    }
    assert_eq!(over, Some(Over { phase: Phase::Succeeded, code: 0 }));
}

#[test]
fn too_many_ranks_cannot_be_restarted_one_by_one_on_several_hosts() {
    let mut many = role("rank", "gang", "one");
    many["ranks"] = json!(2);
    let mut world = World::new(600, vec![many]);
    let orders = world.turn();
    assert_eq!(orders.over.map(|over| over.phase), Some(Phase::Failed));
    assert!(orders.reason.contains("--restart one"), "{}", orders.reason);
}

#[test]
fn roles_wait_for_each_other_and_services_end_with_the_job_on_many_hosts() {
    let mut train = role("train", "gang", "all");
    train["after"] = json!(["data"]);
    let mut world = World::new(2, vec![train, role("data", "service", "gang")]);
    let orders = world.turn();
    assert_eq!(orders.gangs[0].reason, "waits for data");
    assert_eq!(orders.gangs[1].action, Action::Prepare { incarnation: 0 });
    world.run(0);
    assert!(world.hosts.iter().all(|host| host.gangs[1].workers.iter().all(|worker| worker.running)));
    // A failure of everybody: both begin again, in their order.
    world.exit(0, 0, 1);
    world.run(1);
    assert!(world.hosts.iter().all(|host| host.gangs[1].incarnation == Some(1)));
    [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().for_each(|(host, rank)| world.exit(host, rank, 0));
    let mut over = None;
    for _ in 0..5 {
        over = over.or(world.turn().over);
    }
    assert_eq!(over, Some(Over { phase: Phase::Succeeded, code: 0 }));
    assert_eq!(world.decider.history().gangs[1].outcome, Some(Outcome::Stopped));
}
