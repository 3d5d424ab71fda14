//! How often samples that stand next to each other in a pack come together again in the next epoch.
//!
//! Best fit sees only lengths, so samples whose lengths fit together meet again and again; this says how often. A few blocks
//! tell, since every block is packed by the same rule.

use std::collections::HashMap;

use super::FeedError;
use super::kept::PlannedBlock;
use super::leg::Leg;
use crate::plan::{Even, Span};

/// Of the neighbour pairs in packs of the first epoch, the share that is in one pack again in the second; 0 without pairs.
/// Looks at `blocks_max` blocks, spread over the leg.
pub(super) fn recurrence(leg: &Leg, blocks_max: u64) -> Result<f64, FeedError> {
    // Crops are of neighbours as they are stored.
    let Some(table) = leg.table().filter(|_| !leg.is_cropped()) else { return Ok(0.0) };
    let blocks = table.head().samples.len() as u64;
    let runs = Even::at_least(blocks, blocks.div_ceil(blocks_max.max(1)));
    let (mut pairs, mut again) = (0_u64, 0_u64);
    for block in (0..runs.parts()).filter_map(|run| runs.range(run)).map(|run| run.start) {
        let (one, other) = (packs_of(&leg.planned_in(0, block)?)?, packs_of(&leg.planned_in(1, block)?)?);
        let mut places: HashMap<u32, Vec<usize>> = HashMap::new();
        for (pack, samples) in other.iter().enumerate() {
            samples.iter().for_each(|sample| places.entry(*sample).or_default().push(pack));
        }
        for pair in one.iter().flat_map(|samples| samples.windows(2)) {
            pairs += 1;
            let [left, right] = [pair[0], pair[1]].map(|sample| places.get(&sample));
            let meet =
                left.zip(right).is_some_and(|(left, right)| left.iter().any(|pack| right.contains(pack)));
            again += u64::from(meet);
        }
    }
    Ok(if pairs == 0 { 0.0 } else { again as f64 / pairs as f64 })
}

/// The samples of each pack of a block.
fn packs_of(planned: &PlannedBlock) -> Result<Vec<Vec<u32>>, FeedError> {
    let mut spans: Vec<Span> = vec![];
    let samples = |pack| {
        spans.clear();
        planned.packs.spans(pack, &planned.block.lengths, &mut spans)?;
        Ok(spans.iter().map(|span| span.sample).collect())
    };
    (0..planned.packs.count()).map(samples).collect()
}
