//! Roll-ups: sums over neighbouring rows, for rows that the budget has no room for.
//!
//! A roll-up ends at every committed checkpoint's step, where steps go back, and where rows do not follow each other
//! without a gap, so that what is summed was kept or lost as a whole, and its parts still sum to its time. Rows whose
//! parts leave something open are summed with their like, and rows that a reader would not divide stay alone, so that
//! the sums say what the rows said.

use crate::steps::block::Block;
use crate::steps::{Column, Kind, UNMEASURED};
use std::collections::BTreeSet;

/// How much time a roll-up covers at most, by level, in nanoseconds: 10 s, then 10 min.
pub const SPANS: [i64; 2] = [10_000_000_000, 600_000_000_000];
/// Columns of which the greatest or the smallest value is kept.
const GREATEST: [&str; 4] = ["memory_peak", "memory_reserved", "allocator_retries", "rss"];
const SMALLEST: [&str; 1] = ["feed_depth"];
/// Moments: the last one is kept.
const LATEST: [&str; 1] = ["exchanged"];

/// Where roll-ups have to end.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    /// Steps before which a checkpoint was committed.
    pub commits: BTreeSet<i64>,
    /// From when to when the machine slept: rows that this touches stay alone.
    pub sleeps: Vec<(i64, i64)>,
}

/// Sums rows, or roll-ups of a finer level, of a level. Columns that rows have and roll-ups do not are made: `first_step`, `rows`.
pub fn roll_up(table: &Block, level: usize, cuts: &Cuts) -> Block {
    let ones = vec![1i64; table.rows];
    let column =
        |name: &str| table.columns.iter().find(|(column, _)| column.name == name).map(|(_, values)| values);
    let (Some(steps), Some(begins), Some(ends)) = (column("step"), column("begin"), column("end")) else {
        return Block::default();
    };
    let firsts = column("first_step").unwrap_or(steps);
    let counts = column("rows").unwrap_or(&ones);
    let kinds = kinds(table, begins, ends, &cuts.sleeps);
    let follows = |row: usize, from: usize| {
        firsts[row] == steps[row - 1] + 1
            && begins[row] == ends[row - 1]
            && begins[row].div_euclid(SPANS[level]) == begins[from].div_euclid(SPANS[level])
            && kinds[row].is_some()
            && kinds[row] == kinds[row - 1]
            && !cuts.commits.contains(&firsts[row])
    };
    let groups = groups(table.rows, follows);
    let mut columns = vec![
        (named("first_step", Kind::Integer), groups.iter().map(|group| firsts[group.0]).collect()),
        (
            named("rows", Kind::Integer),
            groups.iter().map(|group| counts[group.0..group.1].iter().sum()).collect(),
        ),
    ];
    for (column, values) in &table.columns {
        if column.name == "first_step" || column.name == "rows" {
            continue;
        }
        let fold = |group: &(usize, usize)| match column.name.as_str() {
            "begin" => begins[group.0],
            "step" | "end" => values[group.1 - 1],
            name => fold_values(name, column.kind, &values[group.0..group.1]),
        };
        columns.push((column.clone(), groups.iter().map(fold).collect()));
    }
    Block { first: table.first, rows: groups.len(), columns }
}

fn named(name: &str, kind: Kind) -> Column {
    Column { name: name.to_owned(), kind }
}

/// Where roll-ups begin and end among rows.
fn groups(rows: usize, follows: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
    let mut groups = Vec::new();
    let mut from = 0;
    for row in 1..=rows {
        if row == rows || !follows(row, from) {
            groups.push((from, row));
            from = row;
        }
    }
    groups
}

/// Which rows may be summed with each other. Bits: parts that were not measured and whose time is missing; whether the
/// device was measured. None: alone, because its parts contradict its length, or the machine slept in it.
fn kinds(table: &Block, begins: &[i64], ends: &[i64], sleeps: &[(i64, i64)]) -> Vec<Option<u64>> {
    let of = |prefix: &str| -> Vec<&Vec<i64>> {
        let columns = table.columns.iter().filter(|(column, _)| column.name.starts_with(prefix));
        columns.map(|(_, values)| values).collect()
    };
    let (parts, of_device) = (of("host."), of("device."));
    let kind = |row: usize| {
        let (mut missing, mut sum, mut is_sound) = (0u64, 0i128, parts.len() < 64);
        for (at, values) in parts.iter().enumerate() {
            match values[row] {
                UNMEASURED => missing |= 1u64.checked_shl(at as u32).unwrap_or(0),
                value => {
                    is_sound &= value >= 0;
                    sum += i128::from(value);
                }
            }
        }
        let length = i128::from(ends[row]) - i128::from(begins[row]);
        let slept = sleeps.iter().any(|(from, to)| *from < ends[row] && begins[row] < *to);
        let is_marked = of_device.iter().any(|values| values[row] != UNMEASURED);
        let bits = if sum < length { missing } else { 0 };
        (is_sound && sum <= length && !slept).then_some(bits | u64::from(is_marked) << 63)
    };
    (0..table.rows).map(kind).collect()
}

/// What was measured, put together; not measured only where nothing was.
fn fold_values(name: &str, kind: Kind, values: &[i64]) -> i64 {
    let measured = || values.iter().copied().filter(|value| *value != kind.unmeasured());
    let folded = if kind == Kind::Float || LATEST.contains(&name) {
        measured().next_back()
    } else if GREATEST.contains(&name) {
        measured().max()
    } else if SMALLEST.contains(&name) {
        measured().min()
    } else {
        // A sum that does not fit says nothing, rather than something else.
        measured().map(Some).reduce(|sum, value| sum?.checked_add(value?)).flatten()
    };
    folded.unwrap_or(if kind == Kind::Float { kind.unmeasured() } else { UNMEASURED })
}

#[cfg(test)]
mod tests;
