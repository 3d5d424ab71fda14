//! The table of a rest leg: what a part has not delivered of an epoch when the length of rows changes.

use std::path::Path;

use super::FeedError;
use super::build::{Packing, write_table};
use super::leg::Leg;
use super::table::{BlockRows, TableHead};

/// Plans everything that `leg` has not delivered of `epoch` after its first `delivered` rows, packed anew, and returns the
/// head of the table.
pub fn build_rest(
    path: &Path,
    leg: &Leg,
    epoch: u64,
    delivered: u64,
    packing: Packing<'_>,
) -> Result<TableHead, FeedError> {
    write_table(path, &joined(undelivered(leg, epoch, delivered)?), packing)
}

/// Row, first token and tokens of every span that was not delivered.
fn undelivered(leg: &Leg, epoch: u64, delivered: u64) -> Result<Vec<(u64, u32, u32)>, FeedError> {
    let mut packs = leg.packs_from(epoch, delivered)?;
    // Block by block, so that each is planned once.
    packs.sort_unstable();
    let mut left = Vec::new();
    let mut spans = Vec::new();
    for of_block in packs.chunk_by(|one, other| one.0 == other.0) {
        let planned = leg.planned_in(epoch, of_block[0].0)?;
        for &(_, pack) in of_block {
            spans.clear();
            planned.packs.spans(pack, &planned.block.lengths, &mut spans)?;
            left.extend(spans.iter().map(|span| {
                let sample = span.sample as usize;
                (planned.block.rows[sample], planned.block.start(sample) + span.start, span.length)
            }));
        }
    }
    Ok(left)
}

/// Spans as samples of a table, in the order of the version's rows; what a cut between two packs divided is whole again.
fn joined(mut spans: Vec<(u64, u32, u32)>) -> BlockRows {
    spans.sort_unstable();
    let mut samples = BlockRows::default();
    for (row, start, length) in spans {
        let last = samples.rows.len().wrapping_sub(1);
        let goes_on =
            samples.rows.last() == Some(&row) && samples.starts[last] + samples.lengths[last] == start;
        if goes_on {
            samples.lengths[last] += length;
        } else {
            samples.rows.push(row);
            samples.starts.push(start);
            samples.lengths.push(length);
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_touch_are_joined_and_others_are_not() {
        let joined_spans = joined(vec![(7, 8, 2), (3, 4, 4), (3, 0, 4), (7, 0, 6), (4, 0, 1), (3, 8, 1)]);
        assert_eq!(joined_spans.rows, [3, 4, 7, 7]);
        assert_eq!((joined_spans.starts, joined_spans.lengths), (vec![0, 0, 0, 8], vec![9, 1, 6, 2]));
    }
}
