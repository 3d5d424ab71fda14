//! The history is a fold of its journal.

use proptest::prelude::*;

use super::*;
use crate::job::policy::Cause;

fn empty(gangs: usize) -> JobHistory {
    let gang = || GangHistory { charges: vec![0; 4], ..GangHistory::default() };
    JobHistory {
        gangs: (0..gangs).map(|_| gang()).collect(),
        stop: None,
        over: None,
        reserved: None,
        reason: "as asked for".to_owned(),
    }
}

fn entries() -> impl Strategy<Value = Entry> {
    let reason = || "[a-z]{0,6}";
    let outcome = prop_oneof![Just(Outcome::Succeeded), Just(Outcome::Failed), Just(Outcome::Stopped)];
    let failure = (0..4u32, 0..4u32, 0..99u64).prop_map(|(incarnation, rank, at_ms)| Failure {
        incarnation,
        what: "x".to_owned(),
        cause: Cause::Crash,
        rank: Some(rank),
        code: 1,
        likeness: None,
        lived_ms: None,
        step: None,
        at_ms,
    });
    prop_oneof![
        (0..4usize, 0..4u32, proptest::collection::vec(0..9u32, 0..3), reason()).prop_map(
            |(gang, incarnation, placement, reason)| Entry::Ordered {
                gang,
                incarnation,
                placement,
                reason,
                at_ms: None
            }
        ),
        (0..4usize, 0..4u32).prop_map(|(gang, incarnation)| Entry::Started {
            gang,
            incarnation,
            pids: Vec::new()
        }),
        (0..4usize, 0..4u32, 0..4u32).prop_map(|(gang, incarnation, rank)| Entry::Exited {
            gang,
            incarnation,
            rank,
            pid: 1,
            exit: None,
            at_ms: None
        }),
        (0..4usize, failure.clone()).prop_map(|(gang, failure)| Entry::Failed { gang, failure }),
        (0..4usize, failure).prop_map(|(gang, failure)| Entry::Blamed { gang, failure }),
        (0..4usize, 0..4u32, proptest::option::of(reason()), proptest::option::of(0..9u64)).prop_map(
            |(gang, incarnation, likeness, lived_ms)| Entry::Examined {
                gang,
                incarnation,
                likeness,
                lived_ms
            }
        ),
        (0..4usize, outcome, reason()).prop_map(|(gang, outcome, reason)| Entry::Finished {
            gang,
            outcome,
            reason
        }),
    ]
}

fn some_failure() -> Failure {
    Failure {
        incarnation: 0,
        what: "rank 0 exited with code 1".to_owned(),
        cause: Cause::Crash,
        rank: Some(0),
        code: 1,
        likeness: None,
        lived_ms: None,
        step: None,
        at_ms: 5,
    }
}

fn folded(entries: &[Entry]) -> JobHistory {
    let mut history = empty(3);
    entries.iter().for_each(|entry| history.fold(entry));
    history
}

proptest! {
    /// Goal: what is remembered depends on whole lines of ours alone. Method: garbage, lines of others and the beginnings of lines
    /// stand between them; gangs that are not there (3 of 0..3) are named.
    #[test]
    fn lines_that_say_nothing_to_us_are_passed_over(
        entries in proptest::collection::vec(entries(), 0..12), garbage in proptest::collection::vec(any::<Vec<u8>>(), 12), cut in 1..20usize,
    ) {
        let mut journal = Vec::new();
        for (entry, noise) in entries.iter().zip(&garbage) {
            let line = serde_json::to_vec(entry).unwrap();
            journal.extend(noise.iter().filter(|byte| **byte != b'\n'));
            journal.push(b'\n');
            journal.extend_from_slice(b"{\"event\":\"zygote-lost\",\"about\":{\"gang\":0}}\n");
            journal.extend_from_slice(&line[..cut.min(line.len() - 1)]);
            journal.push(b'\n');
            journal.extend_from_slice(&line);
            journal.push(b'\n');
        }
        prop_assert_eq!(JobHistory::read(empty(3), &journal), folded(&entries));
    }

    /// Goal: a journal may be read in pieces. Method: fold the beginning, then the rest.
    #[test]
    fn what_comes_back_in_the_middle_goes_on_where_it_was(entries in proptest::collection::vec(entries(), 0..12), at in 0..12usize) {
        let (first, rest) = entries.split_at(at.min(entries.len()));
        let mut history = folded(first);
        rest.iter().for_each(|entry| history.fold(entry));
        prop_assert_eq!(history, folded(&entries));
    }

    /// Goal: failures are one a life, in order of lives, and each charges one slot at most.
    #[test]
    fn failures_are_kept_in_order_and_charged_once(entries in proptest::collection::vec(entries(), 0..20)) {
        for gang in folded(&entries).gangs {
            let lives: Vec<u32> = gang.failures.iter().map(|failure| failure.incarnation).collect();
            prop_assert!(lives.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", lives);
            prop_assert!(gang.charges.iter().sum::<u32>() <= lives.len() as u32);
        }
    }
}

#[test]
fn another_who_is_blamed_takes_the_place_of_the_first_and_its_slot_the_charge() {
    let mut history = empty(1);
    history.fold(&Entry::Ordered {
        gang: 0,
        incarnation: 0,
        placement: vec![2, 0],
        reason: String::new(),
        at_ms: None,
    });
    let noted = some_failure();
    history.fold(&Entry::Failed { gang: 0, failure: noted.clone() });
    assert_eq!(history.gangs[0].charges, [0, 0, 1, 0]);
    let blamed = Failure { rank: Some(1), what: "rank 1 exited with code 1: KeyError".to_owned(), ..noted };
    history.fold(&Entry::Blamed { gang: 0, failure: blamed.clone() });
    assert_eq!(history.gangs[0].charges, [1, 0, 0, 0]);
    assert_eq!(
        (history.gangs[0].failures.clone(), history.reason.clone()),
        (vec![blamed.clone()], blamed.what)
    );
    // A journal of before this was known.
    let old = br#"{"event":"examined","gang":0,"incarnation":0,"likeness":"rank 1 code 1: KeyError"}"#;
    assert_eq!(history.read(old).gangs[0].failures[0].likeness.as_deref(), Some("rank 1 code 1: KeyError"));
}

/// Goal: no number of a life comes twice, and budgets continue. Method: a history that ended in each way, and a start after it.
#[test]
fn a_job_that_is_started_again_keeps_its_failures_and_begins_above_all_lives() {
    let before = [
        Entry::Ordered { gang: 0, incarnation: 0, placement: vec![0], reason: String::new(), at_ms: Some(1) },
        Entry::Failed { gang: 0, failure: some_failure() },
        Entry::Ordered { gang: 0, incarnation: 1, placement: vec![0], reason: String::new(), at_ms: Some(2) },
        Entry::Over { phase: Phase::Stopped, reason: String::new() },
    ];
    for (lives, first_life) in [(0, 2), (2, 2), (18, 18)] {
        let mut history = folded(&before);
        history.fold(&Entry::Resumed { lives, reserved: lives + 16 });
        let gang = &history.gangs[0];
        assert_eq!((gang.incarnation, gang.first_life, gang.failures.len()), (None, first_life, 1));
        assert_eq!((history.over, history.lives(), history.reserved), (None, first_life, Some(lives + 16)));
    }
    let done = Entry::Finished { gang: 0, outcome: Outcome::Succeeded, reason: String::new() };
    let mut history = folded(&before);
    history.fold(&done);
    history.fold(&Entry::Resumed { lives: 0, reserved: 16 });
    assert_eq!((history.gangs[0].first_life, history.gangs[0].failures.len()), (2, 0), "another task");
}
