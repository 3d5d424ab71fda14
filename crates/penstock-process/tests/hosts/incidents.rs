//! What hosts are told of failures: the same on all that live, with the last words of a host that is gone, however deep it stood.

use serde_json::Value;

use crate::world::World;
use crate::{await_life, for_seeds, plan, running};

const HOSTS: u32 = 12;

/// A tree of four levels whose ranks have all said something.
fn talkative(seed: u64) -> World {
    let mut plan = plan(HOSTS);
    plan.fanout = 2;
    let mut world = running(seed, plan);
    for index in 0..world.nodes.len() {
        world.nodes[index].twin.says = true;
        world.report(index);
    }
    world.run_until(world.now_ms + 5000);
    world
}

/// Loses a host, for which another is in reserve; what every host that lives was told last.
fn told_of(world: &mut World, lost: usize) -> Vec<Value> {
    world.incidents.clear();
    world.add_host(world.nodes.len(), None);
    world.run_until(world.now_ms + 3000);
    world.kill(lost);
    await_life(world, HOSTS as usize, 1, 120_000);
    world.run_until(world.now_ms + 5000);
    let last = |index: usize| world.incidents.iter().rev().find(|(host, _)| *host == index);
    let living = (0..HOSTS as usize).filter(|index| *index != lost);
    living.map(|index| last(index).map_or(Value::Null, |(_, told)| Value::clone(told))).collect()
}

/// Goal: one story. Method: in trees of fan-out 2 any host is lost, who leads among them; every other host is told of it and of what its rank
/// had said, and that another host took its rank.
#[test]
fn whichever_host_is_lost_all_others_have_its_last_words() {
    for_seeds(2 * u64::from(HOSTS), "incidents", |seed| {
        let mut world = talkative(seed);
        let lost = (seed % u64::from(HOSTS)) as usize;
        for (place, told) in told_of(&mut world, lost).iter().enumerate() {
            let notes = || format!("{place}: {told:#}\n{}", world.notes.join("\n"));
            let losses = told["lost_hosts"].as_array().cloned().unwrap_or_default();
            assert_eq!(losses.len(), 1, "{}", notes());
            assert_eq!(losses[0]["host_rank"], lost as u64, "{}", notes());
            let said = format!("host rank Some({lost}) in life 0\n");
            assert_eq!(losses[0]["stderr"][0]["text"], said, "{}", notes());
            assert_eq!(told["took_over"][0]["host_rank"].as_u64(), Some(lost as u64), "{}", notes());
            assert!(told["times"]["started_ms"].is_u64(), "{}", notes());
        }
    });
}

/// Goal: first failures. Method: a rank fails on a host far from who leads; the words of that rank are in what all are told.
#[test]
fn the_words_of_the_rank_that_failed_first_reach_all_hosts() {
    for_seeds(10, "first words", |seed| {
        let mut world = talkative(seed);
        let failing = HOSTS as usize - 1 - (seed % 4) as usize;
        world.incidents.clear();
        world.end_ranks(failing, 7);
        await_life(&mut world, HOSTS as usize, 1, 60_000);
        world.run_until(world.now_ms + 3000);
        for index in 0..HOSTS as usize {
            let (_, told) =
                world.incidents.iter().rev().find(|(host, _)| *host == index).expect("one for each");
            assert_eq!(told["failures"][0]["host_rank"], failing as u64, "{told:#}");
            assert_eq!(
                told["words"][0]["text"],
                format!("host rank Some({failing}) in life 0\n"),
                "{told:#}"
            );
        }
    });
}
