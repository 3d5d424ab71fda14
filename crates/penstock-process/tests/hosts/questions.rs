//! Questions over random trees in which hosts die, are cut off, and are slow: accounts say what is true (H5), nobody is counted twice,
//! no work is done twice, and every answer is there in time.

use std::collections::BTreeMap;

use penstock_process::host::Event;
use penstock_process::host::messages::{Body, Question};
use penstock_process::host::questions::{OPEN_MAX, PATIENCE_MS};
use penstock_process::tree::rank_set::RankSet;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::node::{Pause, Plan};
use crate::tasks::LOG_BYTES;
use crate::{for_seeds, plan, running};

/// Seeds that are tried.
const SEEDS: u64 = 60;

/// Everything that hosts are asked.
const KINDS: [&str; 7] = ["ps", "exec", "stacks", "logs", "incident", "usage", "attach"];

fn task(hosts: RankSet) -> Question {
    of_kind("exec", hosts)
}

fn of_kind(kind: &str, hosts: RankSet) -> Question {
    match kind {
        "ps" => Question::Ps,
        kind => Question::Task { hosts, task: json!({"do": kind, "words": ["true"]}) },
    }
}

fn set(value: &Value) -> RankSet {
    serde_json::from_value(value.clone()).expect("a set")
}

/// H5: asked = answered + unheard + refused, each host once.
fn accounted(answer: &Value, asked: &RankSet) -> RankSet {
    let account = &answer["account"];
    assert_eq!(set(&account["asked"]), *asked, "{answer}");
    let (answered, unheard) = (set(&account["answered"]), set(&account["unheard"]));
    let refusals = account["refused"].as_array().expect("refusals");
    let refused = refusals.iter().map(|refusal| set(&refusal["hosts"]));
    let (mut all, mut count) = (answered.union(&unheard), answered.count() + unheard.count());
    for hosts in refused {
        count += hosts.count();
        all = all.union(&hosts);
    }
    assert_eq!((count, &all), (asked.count(), asked), "{answer}");
    answered
}

/// The same, and what was answered is of who answered, each once.
fn check_account(answer: &Value, asked: &RankSet) -> RankSet {
    let answered = accounted(answer, asked);
    let parts = answer["parts"].as_array().expect("parts");
    let of_parts = parts.iter().fold(RankSet::default(), |all, part| {
        let hosts = set(&part["hosts"]);
        assert!(!hosts.overlaps(&all), "a host is in two parts: {answer}");
        let ranks: RankSet =
            hosts.ranges().iter().cloned().flatten().flat_map(|host| [2 * host, 2 * host + 1]).collect();
        assert_eq!(set(&part["ranks"]), ranks, "{answer}");
        all.union(&hosts)
    });
    assert_eq!(of_parts, answered, "{answer}");
    answered
}

/// The same for a question of any kind, as far as what it answers differs.
fn check_answer(kind: &str, answer: &Value, asked: &RankSet) {
    let hosts_of = |part: &Value| set(&part["hosts"]);
    let parts = || answer["parts"].as_array().expect("parts").iter();
    match kind {
        "exec" | "stacks" => drop(check_account(answer, asked)),
        "ps" => {
            let answered = accounted(answer, asked);
            let mut known = BTreeMap::new();
            for row in answer["rows"].as_array().expect("rows") {
                let (host, rank) = (row["host_rank"].as_u64().expect("host"), row["rank"].as_u64());
                assert!(answered.contains(host as u32), "{answer}");
                assert_eq!(known.insert(rank, host), None, "a rank is told twice: {answer}");
            }
        }
        // Each host once, with all that it found or what was cut of that (P5).
        "logs" | "usage" => {
            let answered = accounted(answer, asked);
            assert_eq!(parts().map(|part| hosts_of(part).count()).sum::<u64>(), answered.count(), "{answer}");
            for part in parts().filter(|_| kind == "logs") {
                let left = part["body"].as_str().map_or(0, str::len) as u64;
                assert_eq!(left + part["cut"].as_u64().expect("a number"), LOG_BYTES as u64);
            }
        }
        // Two parts of each host: one that all have in common, and one that is about its ranks.
        _ => {
            let answered = accounted(answer, asked);
            let of = |about_ranks: bool| {
                let mut chosen = parts().filter(|part| set(&part["ranks"]).is_empty() != about_ranks);
                chosen.try_fold(RankSet::default(), |all, part| {
                    (!hosts_of(part).overlaps(&all)).then(|| all.union(&hosts_of(part)))
                })
            };
            assert_eq!(of(false), Some(answered.clone()), "{answer}");
            assert_eq!(of(true), Some(if kind == "incident" { answered } else { RankSet::default() }));
        }
    }
}

/// Goal: H5. Method: questions of every kind to random hosts, asked anywhere, while something goes wrong.
#[test]
fn every_host_that_was_asked_answers_is_unheard_or_refuses_and_none_counts_twice() {
    for_seeds(SEEDS, "questions", |seed| {
        let mut chance = Chance::new(seed, &[11]);
        let hosts = chance.between(3, 14) as u32;
        let usual = plan(hosts);
        let fanout = chance.pick(&[2, 2, 3, 64]);
        let delay_ms = chance.pick(&[1, 5, 20]);
        let late = chance.pick(&[0, 0, 40]);
        let mut world = running(seed, Plan { lease_ms: 3000, fanout, delay_ms, late, ..usual });
        world.run_until(world.now_ms + 1500);
        for _ in 0..6 {
            let asker = chance.between(0, u64::from(hosts) - 1) as usize;
            if world.nodes[asker].host.is_none() || world.nodes[asker].pause.is_some() {
                continue;
            }
            let kind = chance.pick(&KINDS);
            let chosen: RankSet = match if kind == "ps" { 2 } else { chance.between(0, 3) } {
                0 => RankSet::one(chance.between(0, u64::from(hosts) - 1) as u32),
                1 => (0..hosts).filter(|_| chance.percent(50)).collect(),
                _ => RankSet::of(0..hosts),
            };
            let before_ms = world.now_ms;
            world.ask(asker, of_kind(kind, chosen.clone()));
            world.run_until(before_ms + chance.between(0, 60));
            let victim = chance.between(0, u64::from(hosts) - 1) as usize;
            match chance.between(0, 6) {
                0 => world.isolate(victim, 1),
                1 if victim != asker && victim > 2 => world.kill(victim),
                2 if victim != asker => world.restart_coordinator(victim),
                3 if victim != asker => world.pause(victim, Pause::Processes, 1500),
                4 => world.cut(asker, victim),
                _ => world.heal(),
            }
            // Clocks differ by a percent.
            world.run_until(before_ms + PATIENCE_MS + PATIENCE_MS / 50 + 50);
            assert_eq!(world.answers.len(), 1, "it is answered once and in time\n{}", world.notes.join("\n"));
            check_answer(kind, &world.answers.pop().expect("an answer"), &chosen);
            assert!(
                world.answered.pop().expect("a moment") <= before_ms + PATIENCE_MS + PATIENCE_MS / 50 + 2
            );
        }
    });
}

/// Goal: the loss of a host between two others costs those below a retry. Method: it dies, while they work for a question.
#[test]
fn an_interior_host_that_dies_takes_no_answer_with_it() {
    for_seeds(60, "interior", |seed| {
        let mut world = running(seed, Plan { lease_ms: 3000, fanout: 2, delay_ms: 2, ..plan(15) });
        world.run_until(world.now_ms + 3000);
        let leader = world.leader().expect("a leader");
        let mut below: BTreeMap<usize, usize> = BTreeMap::new();
        for index in 0..15 {
            let parent = world.nodes[index].host.as_ref().and_then(|host| host.status().parent);
            parent.iter().for_each(|parent| *below.entry(*parent as usize).or_default() += 1);
        }
        let victim = below.keys().copied().find(|host| *host != leader).expect("an interior host");
        let asker = (0..15).rev().find(|index| *index != victim).expect("another");
        world.ask(asker, Question::Ps);
        world.run_until(world.now_ms + 3);
        world.kill(victim);
        world.run_until(world.now_ms + 2500);
        let answer = world.answers.pop().expect("an answer");
        let unheard = set(&answer["account"]["unheard"]);
        assert!(unheard.is_within(&RankSet::one(victim as u32)), "{}", answer["account"]);
    });
}

/// Goal: H5 while the leader changes. Method: the leader dies at once after the question; another leads long before the deadline. Hosts
/// that change places meanwhile may be unheard, and are counted so; most answer.
#[test]
fn a_question_outlives_its_leader() {
    let told = std::sync::atomic::AtomicU64::new(0);
    for_seeds(40, "leader", |seed| {
        let mut world = running(seed, Plan { lease_ms: 3000, fanout: 2, delay_ms: 2, ..plan(9) });
        world.run_until(world.now_ms + 3000);
        let leader = world.leader().expect("a leader");
        let asker = (0..9).rev().find(|index| *index != leader).expect("another");
        world.give(asker, Event::Asked(1, task(RankSet::of(0..9)), 10_000));
        world.run_until(world.now_ms + seed % 12);
        world.kill(leader);
        world.run_until(world.now_ms + 10_500);
        let answer = world.answers.pop().expect("an answer");
        let answered = check_account(&answer, &RankSet::of(0..9));
        told.fetch_add(answered.count(), std::sync::atomic::Ordering::Relaxed);
    });
    assert!(told.into_inner() > 40 * 4);
}

/// Method: one host is silent and nobody knows it yet; the answer comes at the deadline and has all others.
#[test]
fn a_silent_host_costs_the_deadline_and_no_other_answer() {
    for_seeds(30, "silent", |seed| {
        let mut world = running(seed, Plan { fanout: 3, delay_ms: 2, ..plan(10) });
        world.run_until(world.now_ms + 3000);
        world.pause(9, Pause::Processes, 20_000);
        let before_ms = world.now_ms;
        world.ask(4, Question::Ps);
        world.run_until(before_ms + 2500);
        let answer = world.answers.pop().expect("an answer");
        assert_eq!(set(&answer["account"]["unheard"]), RankSet::one(9));
        let took_ms = world.answered[0] - before_ms;
        assert!((PATIENCE_MS / 2..=PATIENCE_MS + 50).contains(&took_ms), "{took_ms}");
    });
}

/// Goal: no question is dropped in silence. Method: more than a host takes, and one that no host knows.
#[test]
fn too_many_questions_and_unknown_ones_are_refused_with_a_reason() {
    let mut world = running(1, Plan { delay_ms: 2, ..plan(3) });
    world.run_until(world.now_ms + 3000);
    let leader = world.leader().expect("a leader");
    let asker = (leader + 1) % 3;
    (0..OPEN_MAX + 3).for_each(|_| world.ask(asker, Question::Ps));
    world.run_until(world.now_ms + 2500);
    let refused = |answer: &Value| {
        set(&answer["account"]["unheard"]).is_empty()
            && answer["account"]["refused"][0]["why"]
                .as_str()
                .is_some_and(|why| why.contains("under way at h"))
    };
    assert_eq!(world.answers.len(), OPEN_MAX + 3);
    assert!(world.answers.iter().filter(|answer| refused(answer)).count() >= 3);

    world.answers.clear();
    let told = r#"{"term":1,"leader":null,"list":1,"body":{"ask":{"question":7,"down":true,"what":{"weather":{"where":"here"}},"patience_ms":900}}}"#;
    let message: penstock_process::host::messages::Message = serde_json::from_str(told).expect("a message");
    let Body::Ask { what, .. } = message.body else { panic!("a question") };
    assert!(serde_json::to_string(&what).expect("text").contains("weather"));
    world.ask(asker, what);
    world.run_until(world.now_ms + 500);
    let answer = world.answers.pop().expect("an answer");
    assert_eq!(set(&answer["account"]["refused"][0]["hosts"]), RankSet::of(0..3), "{answer}");
    assert!(answer["account"]["answered"].as_str() == Some(""));
}
