//! Subscriptions over random trees in which hosts are lost and come back, and another leads: every chosen host that is heard sends, what it
//! sends finds its way to who follows, and when nobody follows any more nobody sends (P2).

use penstock_process::host::Event;
use penstock_process::host::subscriptions::{SUBSCRIPTIONS_MAX, Subscription, Toward};
use serde_json::json;

use crate::node::Plan;
use crate::world::World;
use crate::{Chance, for_seeds, plan, running};

const STREAM: u64 = 99;
/// A subscription that is not repeated is over after this time.
const OVER_MS: u64 = 11_000;

fn follow(world: &mut World, asker: usize, stream: u64, number: u64, chosen: &[u32]) {
    let told = chosen.iter().map(|rank| (*rank, json!({}))).collect();
    world.give(asker, Event::Follow(Subscription { stream, number, what: json!({}), told }));
}

/// Repeats a subscription for a while, as whoever follows does.
fn keep_following(world: &mut World, asker: usize, number: &mut u64, chosen: &[u32], times: u64) {
    for _ in 0..times {
        *number += 1;
        follow(world, asker, STREAM, *number, chosen);
        world.run_until(world.now_ms + 1000);
    }
}

/// Where what a host sends arrives, and over how many links.
fn arrival(world: &World, from: usize, stream: u64) -> Option<(usize, usize)> {
    let mut at = from;
    for links in 0..world.nodes.len() {
        match world.nodes[at].host.as_ref()?.toward(stream)? {
            Toward::Here => return Some((at, links)),
            Toward::Link(link) => {
                let (wire, end) = world.nodes[at].wire(link)?;
                at = world.wires[wire as usize].ends[1 - end as usize].0 as usize;
            }
        }
    }
    None
}

fn check(world: &World, asker: usize, chosen: &[u32], lost: Option<usize>) {
    for index in chosen.iter().map(|rank| *rank as usize).filter(|index| Some(*index) != lost) {
        assert!(world.sources.contains(&(index, STREAM)), "h{index} sends nothing to h{asker}");
        let end = arrival(world, index, STREAM).map(|(end, _)| end);
        assert_eq!(end, Some(asker), "from h{index}");
    }
}

#[test]
fn what_is_sent_finds_its_way_whoever_is_lost_and_whoever_leads() {
    for_seeds(40, "subscriptions", |seed| {
        let mut chance = Chance::new(seed, &[12]);
        let hosts = chance.between(3, 14) as u32;
        let fanout = chance.pick(&[2, 2, 3, 64]);
        let mut world = running(seed, Plan { lease_ms: 3000, fanout, delay_ms: 5, ..plan(hosts) });
        world.run_until(world.now_ms + 1500);
        let asker = chance.between(0, u64::from(hosts) - 1) as usize;
        let chosen: Vec<u32> = (0..hosts).filter(|_| chance.percent(70)).collect();
        let mut number = 0;
        keep_following(&mut world, asker, &mut number, &chosen, 2);
        check(&world, asker, &chosen, None);

        let leader = world.leader().expect("a leader");
        let victim =
            if chance.percent(50) { leader } else { chance.between(0, u64::from(hosts) - 1) as usize };
        let victim = Some(victim).filter(|victim| *victim != asker);
        if let Some(victim) = victim {
            world.kill(victim);
        }
        keep_following(&mut world, asker, &mut number, &chosen, 8);
        check(&world, asker, &chosen, victim);

        world.give(asker, Event::Unfollow(STREAM));
        world.run_until(world.now_ms + OVER_MS);
        let sends = world.sources.iter().filter(|(index, _)| Some(*index) != victim).count();
        assert_eq!(sends, 0, "{:?}", world.sources);
    });
}

/// Method: who follows says nothing any more, as after a kill of everything on its host.
#[test]
fn a_subscription_that_nobody_repeats_ends_everywhere() {
    let mut world = running(3, Plan { fanout: 2, delay_ms: 2, ..plan(7) });
    world.run_until(world.now_ms + 3000);
    let chosen: Vec<u32> = (0..7).collect();
    keep_following(&mut world, 5, &mut 0, &chosen, 2);
    assert_eq!(world.sources.len(), 7);
    world.run_until(world.now_ms + OVER_MS);
    assert!(world.sources.is_empty(), "{:?}", world.sources);
}

#[test]
fn subscriptions_that_are_too_many_are_refused_with_the_name_of_the_host() {
    let mut world = running(4, Plan { fanout: 2, delay_ms: 2, ..plan(3) });
    world.run_until(world.now_ms + 3000);
    for stream in 0..=SUBSCRIPTIONS_MAX as u64 {
        follow(&mut world, 1, stream, 1, &[0, 1, 2]);
    }
    let refused = world.notes.iter().filter(|note| note.contains("subscriptions already")).count();
    assert_eq!(refused, 1, "{:?}", world.notes);
}
