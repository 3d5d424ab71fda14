//! Voters in imagined worlds, on real files where files matter.
//!
//! A failing seed can be repeated: `PENSTOCK_SEED=N cargo test -p penstock-process --test vote 500_worlds`;
//! `PENSTOCK_SEEDS=N` tries more.

#[path = "../simulation/chance.rs"]
mod chance;
mod world;

use penstock_process::vote::Configuration;
use penstock_process::vote::error::{NotLeader, VoteError};
use penstock_process::vote::group::VoterGroup;
use penstock_process::vote::message::{RECORD_BYTES_MAX, VoteBody};
use penstock_process::vote::storage::MemoryStorage;
use world::{Weather, World, host};

/// One world with faults, healed at its end: all that was ever told is told by every voter, and new records are decided.
fn live(seed: u64, voters: u64, place: Option<std::path::PathBuf>, steps: u64) {
    let mut world = World::new(seed, voters, place);
    let loss = world.chance.pick(&[0, 0, 3, 15]);
    let repeat = world.chance.pick(&[0, 10, 30]);
    let delay_max = world.chance.pick(&[0, 0, 1, 4]);
    world.weather = Weather { loss, repeat, delay_max };
    world.steps(20);
    for _ in 0..steps {
        disturb(&mut world, voters);
        if world.chance.percent(40) {
            world.propose();
        }
        world.step();
    }
    world.weather = Weather::default();
    world.cuts.clear();
    for id in world.ids() {
        world.fill(id, false);
        world.start(id);
    }
    let before = world.told.len();
    for _ in 0..400 {
        world.propose();
        world.step();
        let voters = world.configuration.voters.clone();
        if world.told.len() > before + 3
            && voters
                .iter()
                .all(|voter| world.hosts.get(voter).is_some_and(|host| host.told == world.told.len()))
        {
            return;
        }
    }
    let state_of = |(id, host): (&u64, &world::Host)| {
        let group = host.group.as_ref()?;
        let (known, leader, seen) = (group.configuration(), group.leader(), group.statistics());
        let (told, term) = (host.told, group.term());
        Some(format!("{id:x} told {told}: {known:x?}, term {term:x}, leader {leader:x?}, {seen:?}"))
    };
    let states: Vec<String> = world.hosts.iter().filter_map(state_of).collect();
    panic!("seed {seed}: no progress after {before} records were told and all was healed: {states:#?}");
}

fn disturb(world: &mut World, voters: u64) {
    let pick = |world: &mut World| {
        let ids = world.ids();
        world.chance.pick(&ids)
    };
    match world.chance.between(0, 99) {
        0..=3 => {
            let (from, to) = (pick(world), pick(world));
            world.cuts.insert((from, to));
        }
        4..=6 => {
            if let Some(cut) = world.cuts.iter().next().copied() {
                world.cuts.remove(&cut);
            }
        }
        7 => {
            // One host is cut off altogether.
            let alone = pick(world);
            world.ids().iter().for_each(|other| {
                world.cuts.insert((alone, *other));
                world.cuts.insert((*other, alone));
            });
        }
        8 => world.cuts.clear(),
        9..=11 => {
            let id = pick(world);
            world.kill(id);
        }
        12..=17 => {
            let id = pick(world);
            world.start(id);
        }
        18 => {
            let id = pick(world);
            let is_full = world.chance.percent(50);
            world.fill(id, is_full);
        }
        19..=20 => {
            // Some of seven hosts, at least one of which votes now.
            let keep = world.chance.pick(&world.configuration.voters.clone());
            let mut next: Vec<u64> = (0..7).map(host).filter(|id| *id != keep).collect();
            while next.len() as u64 >= voters {
                let index = world.chance.between(0, next.len() as u64 - 1);
                next.remove(index as usize);
            }
            next.insert(0, keep);
            world.reconfigure(&next);
        }
        _ => {}
    }
}

#[test]
fn voters_agree_and_keep_what_they_told_in_500_worlds() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds =
        number("PENSTOCK_SEED").map_or(0..number("PENSTOCK_SEEDS").unwrap_or(500), |seed| seed..seed + 1);
    for seed in seeds {
        live(seed, if seed % 3 == 2 { 5 } else { 3 }, None, 120);
    }
}

#[test]
fn voters_agree_when_they_restart_from_files() {
    for seed in 0..20 {
        let place = tempfile::tempdir().expect("a directory");
        live(seed + 10_000, 3, Some(place.path().to_owned()), 80);
    }
}

#[test]
fn one_way_cuts_between_voters_do_not_change_the_leader() {
    // Each ordered pair of A, B and C in turn, with A, B or C as the leader.
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        let mut world = World::new(from * 3 + to, 3, None);
        world.steps(30);
        let leader = world.leader().expect("a leader");
        world.cuts.insert((host(from), host(to)));
        world.steps(60);
        let terms = world.leaders.len();
        for _ in 0..400 {
            world.propose();
            world.step();
        }
        assert_eq!(world.leaders.len(), terms, "the leader changed during a cut from {from} to {to}");
        assert!(terms <= 2, "{terms} terms after one cut");
        assert!(world.told.len() >= 390, "{} of 400 records", world.told.len());
        // The cut of a follower from another changes nothing at all.
        if host(from) != leader && host(to) != leader {
            assert_eq!(terms, 1);
        }
    }
}

#[test]
fn a_lost_leader_of_voters_is_replaced_within_four_rounds() {
    for voters in [3, 5] {
        let mut world = World::new(7, voters, None);
        world.steps(30);
        let leader = world.leader().expect("a leader");
        assert_eq!(leader, host(0), "the first voter leads first");
        world.kill(leader);
        let ticks = (1..100).find(|_| {
            world.step();
            world.leader().is_some()
        });
        assert!(ticks.is_some_and(|ticks| ticks <= 22), "{ticks:?}");
    }
}

#[test]
fn every_first_voter_of_five_is_replaced_in_turn_and_history_stays() {
    let mut world = World::new(3, 3, None);
    world.steps(30);
    for round in 0..5 {
        for _ in 0..30 {
            world.propose();
            world.step();
        }
        let told = world.told.len();
        let lost = world.configuration.voters[0];
        world.kill(lost);
        world.steps(40);
        let mut next: Vec<u64> =
            world.configuration.voters.iter().copied().filter(|id| *id != lost).collect();
        next.push(host((round + 3) % 5));
        world.reconfigure(&next);
        world.steps(20);
        // A host that voted before comes back with what it remembers; a new one begins empty.
        world.start(host((round + 3) % 5));
        world.steps(40);
        assert_eq!(world.configuration, Configuration { number: round as u32 + 2, voters: next });
        assert!(world.leader().is_some_and(|leader| leader != lost));
        assert!(world.told.len() >= told);
        let voters = world.configuration.voters.clone();
        voters.iter().for_each(|voter| assert_eq!(world.hosts[voter].told, world.told.len()));
    }
    assert!(world.told.len() >= 140, "{}", world.told.len());
}

#[test]
fn a_voter_with_a_full_disk_is_silent_until_there_is_room() {
    let mut world = World::new(11, 3, None);
    world.steps(30);
    let leader = world.leader().expect("a leader");
    world.fill(leader, true);
    world.propose();
    world.steps(60);
    assert!(matches!(world.group(leader).failure(), Some(VoteError::Full { .. })));
    assert!(!world.group(leader).is_leader());
    let other = world.leader().expect("another leader");
    assert_ne!(other, leader);
    world.propose();
    world.steps(5);
    world.fill(leader, false);
    world.steps(60);
    assert!(world.group(leader).failure().is_none());
    assert_eq!(world.hosts[&leader].told, world.told.len());
}

#[test]
fn the_only_voter_decides_alone_and_hands_over_to_three() {
    let mut world = World::new(5, 1, None);
    for _ in 0..20 {
        world.propose();
        world.step();
    }
    assert_eq!(world.told.len(), 20);
    let first = world.group(host(0)).term();
    world.kill(host(0));
    world.start(host(0));
    world.step();
    assert!(world.group(host(0)).term() > first, "a restart is a new term");
    world.reconfigure(&[host(0), host(1), host(2)]);
    world.steps(40);
    assert_eq!(world.configuration.number, 2);
    assert_eq!(world.leader(), Some(host(0)));
    world.propose();
    world.steps(10);
    (0..3).for_each(|index| assert_eq!(world.hosts[&host(index)].told, 21));
}

#[test]
fn a_voter_counts_and_survives_messages_that_are_wrong() {
    let mut world = World::new(13, 3, None);
    world.steps(30);
    world.propose();
    world.steps(5);
    let configuration = world.configuration.clone();
    let mut voter =
        VoterGroup::open(host(0), configuration.clone(), MemoryStorage::default()).expect("opens");
    let mut sender = VoterGroup::open(host(1), configuration, MemoryStorage::default()).expect("opens");
    sender.tick();
    let (_, heartbeat) = sender.outgoing().into_iter().find(|(to, _)| *to == host(0)).expect("a heartbeat");
    let ballot = |n: u64, pid: u64| format!(r#"{{"config_id":1,"n":{n},"priority":0,"pid":{pid}}}"#);
    let bad = [
        format!(
            r#"{{"Prepare":{{"n":{},"decided_idx":9,"n_accepted":{},"accepted_idx":3}}}}"#,
            ballot(1, 2),
            ballot(1, 2)
        ),
        format!(
            r#"{{"Prepare":{{"n":{},"decided_idx":0,"n_accepted":{},"accepted_idx":0}}}}"#,
            ballot(4_000_000_000, 2),
            ballot(1, 2)
        ),
        format!(r#"{{"Accepted":{{"n":{},"accepted_idx":99}}}}"#, ballot(1, 3)),
        format!(r#"{{"Accepted":{{"n":{},"accepted_idx":0}}}}"#, ballot(1, 77)),
        format!(
            r#"{{"Decide":{{"n":{},"seq_num":{{"session":0,"counter":1}},"decided_idx":9}}}}"#,
            ballot(1, 0)
        ),
        r#"{"Compaction":{"Snapshot":null}}"#.to_owned(),
        r#"{"Compaction":{"Trim":5}}"#.to_owned(),
        r#"{"ProposalForward":["a record"]}"#.to_owned(),
        format!(
            r#"{{"AcceptSync":{{"n":{},"seq_num":{{"session":1,"counter":1}},"decided_idx":0,"log_sync":{{"decided_snapshot":{{"Complete":null}},"suffix":[],"sync_idx":0,"stopsign":null}}}}}}"#,
            ballot(1, 2)
        ),
        format!(
            r#"{{"AcceptSync":{{"n":{},"seq_num":{{"session":1,"counter":1}},"decided_idx":0,"log_sync":{{"decided_snapshot":null,"suffix":[],"sync_idx":18446744073709551615,"stopsign":null}}}}}}"#,
            ballot(1, 2)
        ),
    ];
    for (index, step) in bad.iter().enumerate() {
        let mut message = heartbeat.clone();
        (message.serial, message.sent, message.to_opening) = (index as u64 + 100, index as u64 + 1, 1);
        message.body = VoteBody::Log(serde_json::from_str(step).expect("a step"));
        voter.receive(message);
    }
    assert_eq!(voter.statistics().refused, bad.len() as u64);
    let mut stranger = heartbeat;
    (stranger.from, stranger.serial) = (99, 1);
    voter.receive(stranger);
    assert_eq!(voter.statistics().refused, bad.len() as u64 + 1);
    assert!(voter.failure().is_none() && !voter.outgoing().is_empty());
}

#[test]
fn a_voter_that_was_away_for_megabytes_catches_up_in_parts() {
    let mut world = World::new(17, 3, None);
    world.steps(30);
    world.kill(host(2));
    let mut group = world.hosts.get_mut(&host(0)).and_then(|entry| entry.group.take()).expect("it runs");
    for index in 0..100 {
        group.propose(format!("{index:0>width$}", width = RECORD_BYTES_MAX - 1).into_bytes()).expect("leads");
    }
    let refused = group.propose(vec![0; RECORD_BYTES_MAX + 1]);
    assert!(matches!(refused, Err(NotLeader::TooLarge { .. })));
    world.hosts.get_mut(&host(0)).expect("there").group = Some(group);
    world.steps(20);
    world.start(host(2));
    world.steps(40);
    (0..3).for_each(|index| assert_eq!(world.hosts[&host(index)].told, 100));
}
