//! Sums lose nothing, and end where training may resume.

use super::*;
use proptest::prelude::*;

fn table(lengths: &[i64], commits: &[i64]) -> (Block, Cuts) {
    let count = lengths.len() as i64;
    let ends: Vec<i64> = lengths
        .iter()
        .scan(5, |at, length| {
            *at += length;
            Some(*at)
        })
        .collect();
    let begins = ends.iter().zip(lengths).map(|(end, length)| end - length).collect();
    let column = |name: &str, values: Vec<i64>| (named(name, Kind::Integer), values);
    let columns = vec![
        column("step", (0..count).collect()),
        column("begin", begins),
        column("end", ends),
        column("host.user", lengths.to_vec()),
        column("host.forward", vec![UNMEASURED; lengths.len()]),
        column("rss", (0..count).collect()),
    ];
    let cuts = Cuts { commits: commits.iter().copied().collect(), sleeps: Vec::new() };
    (Block { first: 0, rows: lengths.len(), columns }, cuts)
}

fn values(block: &Block, name: &str) -> Vec<i64> {
    block
        .columns
        .iter()
        .find(|(column, _)| column.name == name)
        .map(|(_, values)| values.clone())
        .expect("a column")
}

proptest! {
    #[test]
    fn both_levels_keep_every_nanosecond(
        lengths in prop::collection::vec(1i64..20_000_000_000, 1..200),
        commits in prop::collection::vec(0i64..200, 0..6),
    ) {
        let (rows, cuts) = table(&lengths, &commits);
        let fine = roll_up(&rows, 0, &cuts);
        let coarse = roll_up(&fine, 1, &cuts);
        prop_assert_eq!(&coarse, &roll_up(&rows, 1, &cuts));
        for rolled in [&fine, &coarse] {
            prop_assert_eq!(values(rolled, "rows").iter().sum::<i64>(), lengths.len() as i64);
            prop_assert_eq!(values(rolled, "host.user").iter().sum::<i64>(), lengths.iter().sum::<i64>());
            prop_assert!(values(rolled, "host.forward").iter().all(|value| *value == UNMEASURED));
            prop_assert_eq!(values(rolled, "rss").last().copied(), Some(lengths.len() as i64 - 1));
            let firsts = values(rolled, "first_step");
            let is_cut = |step: &i64| *step >= lengths.len() as i64 || firsts.contains(step);
            prop_assert!(cuts.commits.iter().all(is_cut));
        }
    }
}

#[test]
fn steps_that_go_back_and_gaps_are_no_one_roll_up() {
    let (mut rows, cuts) = table(&[10, 10, 10, 10], &[]);
    rows.columns[0].1 = vec![4, 5, 4, 5];
    rows.columns[1].1[3] += 1;
    assert_eq!(values(&roll_up(&rows, 0, &cuts), "first_step"), [4, 4, 5]);
}

#[test]
fn rows_that_a_reader_would_not_divide_stay_alone() {
    let (mut rows, mut cuts) = table(&[10; 9], &[]);
    // Parts longer than the step; below zero; open; a sleep in the seventh.
    rows.columns[3].1 = vec![10, 10, 11, -1, 4, 4, 10, 10, 10];
    cuts.sleeps = vec![(70, 72)];
    let rolled = roll_up(&rows, 0, &cuts);
    assert_eq!(values(&rolled, "rows"), [2, 1, 1, 2, 1, 2]);
    assert_eq!(values(&rolled, "host.user"), [20, 11, -1, 8, 10, 20]);
}

#[test]
fn rows_that_lack_different_parts_are_not_one_roll_up() {
    let (mut rows, cuts) = table(&[10; 4], &[]);
    rows.columns[3].1 = vec![4, 4, UNMEASURED, UNMEASURED];
    rows.columns[4].1 = vec![UNMEASURED, UNMEASURED, 3, 3];
    let rolled = roll_up(&rows, 0, &cuts);
    assert_eq!(values(&rolled, "rows"), [2, 2]);
    assert_eq!(values(&rolled, "host.user"), [8, UNMEASURED]);
    assert_eq!(values(&rolled, "host.forward"), [UNMEASURED, 6]);
}
