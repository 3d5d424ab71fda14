//! The directory that a job brings along, over random trees: every host gets it, whoever has it first, no host sends it to more than stand
//! directly around it, and no rank begins before it is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_process::host::Event;
use penstock_process::job::Job;

use crate::node::Plan;
use crate::world::World;
use crate::{Chance, for_seeds, plan};

/// Rounds of a tenth of a second in which what was sent arrives.
const ROUNDS: u32 = 400;

fn whole() -> Event {
    Event::Shipment { wants: None, has_all: true, is_ready: true }
}

fn lacking() -> Event {
    Event::Shipment { wants: Some(Vec::new()), has_all: false, is_ready: false }
}

#[test]
fn every_host_gets_it_from_a_neighbour_whoever_has_it_first_and_whoever_is_lost() {
    for_seeds(40, "shipping", |seed| {
        let mut chance = Chance::new(seed, &[13]);
        let hosts = chance.between(2, 14) as u32;
        let fanout = chance.pick(&[2, 2, 3, 64]);
        let usual = plan(hosts);
        let job = Arc::new(Job { ships: true, ..(*usual.job).clone() });
        let mut world = World::new(seed, Plan { lease_ms: 3000, fanout, delay_ms: 5, job, ..usual });
        let origin = chance.between(0, u64::from(hosts) - 1) as usize;
        let mut has: BTreeSet<usize> = BTreeSet::from([origin]);
        (0..hosts as usize).for_each(|index| world.give(index, lacking()));
        world.give(origin, whole());
        let restarted =
            (hosts > 3 && chance.percent(40)).then(|| chance.between(0, u64::from(hosts) - 1) as usize);
        let mut sent: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); hosts as usize];
        for round in 0..ROUNDS {
            world.run_until(world.now_ms + 100);
            if has.len() < hosts as usize {
                assert!(
                    world
                        .nodes
                        .iter()
                        .zip(0..)
                        .all(|(node, index)| has.contains(&index) || !node.twin.running)
                );
            }
            for (from, to) in std::mem::take(&mut world.shipped) {
                assert!(has.contains(&from), "h{from} sends what it does not have");
                sent[from].insert(to);
                if has.insert(to) {
                    world.give(to, whole());
                }
            }
            if let Some(index) = restarted.filter(|_| round == 30) {
                world.restart_coordinator(index);
                world.run_until(world.now_ms + 100);
                let event = if has.contains(&index) { whole() } else { lacking() };
                world.give(index, event);
            }
        }
        assert_eq!(has.len(), hosts as usize, "{:?}", world.notes);
        let most = sent.iter().map(BTreeSet::len).max().unwrap_or(0);
        assert!(most <= fanout as usize + 1 || restarted.is_some(), "{most} of {fanout}");
    });
}
