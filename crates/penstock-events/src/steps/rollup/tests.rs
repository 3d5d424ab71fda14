//! Sums lose nothing, and end where training may resume.

use super::*;
use proptest::prelude::*;

fn table(lengths: &[i64], commits: &[i64]) -> (Block, BTreeSet<i64>) {
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
    (Block { first: 0, rows: lengths.len(), columns }, commits.iter().copied().collect())
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
        let (rows, commits) = table(&lengths, &commits);
        let fine = roll_up(&rows, 0, &commits);
        let coarse = roll_up(&fine, 1, &commits);
        prop_assert_eq!(&coarse, &roll_up(&rows, 1, &commits));
        for rolled in [&fine, &coarse] {
            prop_assert_eq!(values(rolled, "rows").iter().sum::<i64>(), lengths.len() as i64);
            prop_assert_eq!(values(rolled, "host.user").iter().sum::<i64>(), lengths.iter().sum::<i64>());
            prop_assert!(values(rolled, "host.forward").iter().all(|value| *value == UNMEASURED));
            prop_assert_eq!(values(rolled, "rss").last().copied(), Some(lengths.len() as i64 - 1));
            let firsts = values(rolled, "first_step");
            let is_cut = |step: &i64| *step >= lengths.len() as i64 || firsts.contains(step);
            prop_assert!(commits.iter().all(is_cut));
        }
    }
}

#[test]
fn steps_that_go_back_and_gaps_are_no_one_roll_up() {
    let (mut rows, commits) = table(&[10, 10, 10, 10], &[]);
    rows.columns[0].1 = vec![4, 5, 4, 5];
    rows.columns[1].1[3] += 1;
    assert_eq!(values(&roll_up(&rows, 0, &commits), "first_step"), [4, 4, 5]);
}
