//! Makes the batch of a step for one lane, from nothing but the step's number.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::{Histogram, ReaderStep};

use super::FeedError;
use super::ahead::MakeBatch;
use super::batch::{Batch, BatchBuilder, Origin, Pool};
use super::part::{Part, RowBytes};
use super::stream::{Located, SourceStream};
use super::times::{Doing, StageClock, StageTimes};
use super::turns::Turns;
use crate::plan::{BatchSchedule, Place, lane_rows};

/// Rows that go through a stage together: few enough to stay in the cache of a core, and enough that looking at the clock
/// costs nothing.
const GROUP_ROWS: u64 = 16;

/// Whose turn it is, and how many rows a step has.
pub struct MixturePlan {
    /// Whose turn it is at every position.
    pub turns: Turns,
    /// Rows per step.
    pub steps: BatchSchedule,
    /// Whether a last step that the stream does not fill is delivered with empty rows, instead of not at all.
    pub pad_last: bool,
    /// Steps that are left out, in order and apart from each other.
    pub skips: Vec<Range<u64>>,
    /// Tokens of a row, by the first step that has so many; begins at step 0.
    pub lengths: Vec<(u64, u32)>,
}

impl MixturePlan {
    /// The first step from `step` on that is not left out.
    fn unskipped(&self, step: u64) -> u64 {
        self.skips.iter().find(|range| range.contains(&step)).map_or(step, |range| range.end)
    }

    /// Tokens of a row of a step.
    fn length(&self, step: u64) -> usize {
        let begun = self.lengths.partition_point(|(first, _)| *first <= step);
        self.lengths.get(begun.max(1) - 1).map_or(0, |(_, length)| *length as usize)
    }
}

/// All that is needed to make any step of one lane.
pub struct Maker {
    streams: Arc<Vec<SourceStream>>,
    plan: Arc<MixturePlan>,
    /// This lane, and how many there are.
    lane: (u64, u64),
    /// Bytes of a token in a batch: the widest of the sources'.
    item_bytes: usize,
    /// Whether any source has a mask.
    masked: bool,
    /// What rows without a source are filled with: the sources' padding, or 0 when they differ.
    pad: u64,
    pool: Arc<Pool>,
    clock: Arc<StageClock>,
}

impl Maker {
    /// Joins sources; `lane` is this lane's number and how many there are.
    pub fn new(streams: Vec<SourceStream>, plan: MixturePlan, lane: (u64, u64)) -> Self {
        let tokens = || streams.iter().map(SourceStream::tokens);
        let item_bytes = tokens().map(|tokens| tokens.item_bytes).max().unwrap_or(1);
        let masked = tokens().any(|tokens| tokens.masked);
        let first = tokens().next().map_or(0, |tokens| tokens.pad);
        let pad = if tokens().all(|tokens| tokens.pad == first) { first } else { 0 };
        let (pool, clock) = (Arc::default(), Arc::default());
        let (streams, plan) = (Arc::new(streams), Arc::new(plan));
        Self { streams, plan, lane, item_bytes, masked, pad, pool, clock }
    }

    /// The same for another lane. Everything is shared with it, what is open and what is measured included.
    pub fn for_lane(&self, lane: (u64, u64)) -> Self {
        let (streams, plan) = (Arc::clone(&self.streams), Arc::clone(&self.plan));
        let (pool, clock) = (Arc::clone(&self.pool), Arc::clone(&self.clock));
        Self { streams, plan, lane, pool, clock, ..*self }
    }

    /// Whether the stream has a step, as far as it is known; asking for [what it needs](MakeBatch::wait) comes first.
    pub fn has_step(&self, step: u64) -> Result<bool, FeedError> {
        let all = self.plan.steps.positions(step)?;
        // A step that the stream does not fill is no step, whichever lane asks, unless it is to be padded.
        let end = self.plan.turns.end_by(all.end);
        let last = end.is_some_and(|end| all.end > end);
        Ok(!last || self.plan.pad_last && end.is_some_and(|end| all.start < end))
    }

    /// Where the time of all threads went since opening.
    pub fn stage_times(&self) -> StageTimes {
        self.clock.times()
    }

    /// How the times of batches are spread: planning, reading, hashing.
    pub fn stage_spread(&self) -> &[Histogram; 3] {
        self.clock.spread()
    }

    /// What its threads do now, if anything.
    pub fn doing(&self) -> Option<Doing> {
        self.clock.doing()
    }

    /// The streams of the sources.
    pub fn streams(&self) -> &[SourceStream] {
        &self.streams
    }

    /// How often each source has been read before a step, with the share of an epoch that is not over; `None` for a source
    /// whose end is not known yet, and for all when the stream ends before the step.
    pub fn epochs_before(&self, step: u64) -> Result<Vec<Option<f64>>, FeedError> {
        let position = self.plan.steps.positions(step)?.start;
        let counts = self.plan.turns.counts_before(position);
        let epochs =
            |(number, stream): (usize, &SourceStream)| stream.epochs_before(*counts.as_ref()?.get(number)?);
        Ok(self.streams.iter().enumerate().map(epochs).collect())
    }

    /// Bytes of a batch of the step, or why lanes cannot share it; steps before the one that a feed opens at do not matter.
    pub fn batch_bytes(&self, step: u64) -> Result<usize, FeedError> {
        let (_, mine) = self.positions(step)?;
        let tokens = (mine.end - mine.start).saturating_mul(self.plan.length(step) as u64);
        if i32::try_from(tokens).is_err() {
            let reason = format!("a lane would get {tokens} tokens at once, but boundaries are 32 bits wide");
            return Err(FeedError::Plan { reason });
        }
        Ok(tokens as usize * (self.item_bytes + usize::from(self.masked)))
    }

    /// Bytes of the largest batch from a step on: sizes change only where the rows of a step or their length do.
    pub fn batch_bytes_max(&self, step: u64) -> Result<usize, FeedError> {
        let lengths = self.plan.lengths.iter().map(|&(first, _)| first).filter(|first| *first > step);
        let changes = self.plan.steps.changes(step..u64::MAX).chain(lengths);
        changes
            .map(|change| self.batch_bytes(change))
            .try_fold(self.batch_bytes(step)?, |most, bytes| Ok(most.max(bytes?)))
    }

    /// All positions of a step, and this lane's.
    fn positions(&self, step: u64) -> Result<(Range<u64>, Range<u64>), FeedError> {
        let all = self.plan.steps.positions(step)?;
        let mine = lane_rows(all.clone(), self.lane.0, self.lane.1)?;
        Ok((all, mine))
    }

    /// Adds the next part of a source that grows; with its last one, the source is read `epochs` times at most.
    pub fn add_part(&self, source: usize, part: Part, epochs: Option<u64>) -> Result<(), FeedError> {
        let Some(stream) = self.streams.get(source) else {
            return Err(FeedError::Plan { reason: format!("there is no source {source}") });
        };
        stream.parts().add(part)?;
        Ok(self.plan.turns.extend(source, stream.reach(epochs))?)
    }

    /// Says that no more parts of a source will come.
    pub fn fail(&self, source: usize, why: FeedError) {
        self.plan.turns.fail(source, why);
    }

    /// How many rows of each source the furthest step that was begun needs.
    pub fn wanted(&self) -> Vec<u64> {
        self.plan.turns.wanted()
    }

    /// Says to sources that are far away what a step will read of them. Planning costs little beside fetching, so it is done twice.
    fn announce(&self, positions: Range<u64>) -> Result<(), FeedError> {
        for (number, stream) in self.streams.iter().enumerate().filter(|(_, stream)| stream.is_far()) {
            let places = positions.clone().filter_map(|position| self.plan.turns.place(position));
            let of_stream = places.filter(|place| usize::from(place.source) == number);
            let located = of_stream.map(|place| stream.find(place.index)).collect::<Result<Vec<_>, _>>()?;
            stream.will_need(&located);
        }
        Ok(())
    }

    /// Makes the rows at some positions of a batch that begins at `start`; how long each stage took.
    fn make_rows(
        &self,
        builder: &mut BatchBuilder,
        start: u64,
        positions: Range<u64>,
    ) -> Result<[Duration; 3], FeedError> {
        let begun = Instant::now();
        let located = |position| -> Result<Option<(Place, Located)>, FeedError> {
            let Some(place) = self.plan.turns.place(position) else { return Ok(None) };
            Ok(Some((place, self.streams[usize::from(place.source)].find(place.index)?)))
        };
        let doing = self.clock.enter(Doing::Plan);
        let rows = positions.clone().map(located).collect::<Result<Vec<_>, _>>()?;
        drop(doing);
        let planned_at = Instant::now();
        let doing = self.clock.enter(Doing::Read);
        let first = (positions.start - start) as usize;
        let mut origins = Vec::with_capacity(rows.len() * 8);
        let mut ends = Vec::with_capacity(rows.len());
        for (row, place) in (first..).zip(&rows) {
            let before = origins.len();
            match place {
                Some((place, located)) => self.fill_row(*place, located, builder.row(row), &mut origins)?,
                None => self.pad(builder.row(row), 0, self.pad),
            }
            origins[before..].iter_mut().for_each(|origin| origin.row = row as u32);
            ends.push(origins.len());
        }
        drop(doing);
        let read = Instant::now();
        let mut before = 0;
        for (((row, position), place), end) in (first..).zip(positions).zip(&rows).zip(ends) {
            let masked =
                |(place, _): &(Place, Located)| self.streams[usize::from(place.source)].tokens().masked;
            builder.close_row(row, position, &origins[before..end], place.as_ref().is_some_and(masked));
            before = end;
        }
        Ok([planned_at - begun, read - planned_at, read.elapsed()])
    }

    /// Fills a row and appends what it is made of; what is left of it is padding.
    fn fill_row(
        &self,
        place: Place,
        located: &Located,
        mut into: RowBytes<'_>,
        origins: &mut Vec<Origin>,
    ) -> Result<(), FeedError> {
        let (stream, length) =
            (&self.streams[usize::from(place.source)], into.tokens.len() / self.item_bytes);
        if located.length as usize != length {
            let reason = format!("a row of {} tokens was planned where {length} are due", located.length);
            return Err(FeedError::Plan { reason });
        }
        let (stored, known) = (stream.tokens().item_bytes, origins.len());
        let used = if stored == self.item_bytes {
            stream.read(located, &mut into, origins)?
        } else {
            let mut narrow = vec![0; length * stored];
            let mut row = RowBytes { tokens: &mut narrow, mask: into.mask.as_deref_mut() };
            let used = stream.read(located, &mut row, origins)?;
            widen(&narrow, stored, into.tokens, self.item_bytes);
            used
        };
        self.pad(into, used, stream.tokens().pad);
        let source = u32::from(place.source);
        origins[known..].iter_mut().for_each(|origin| origin.source = source);
        Ok(())
    }

    /// Fills what comes after the first `used` tokens of a row with the token `pad`, which counts in no loss.
    fn pad(&self, into: RowBytes<'_>, used: usize, pad: u64) {
        let token = &pad.to_le_bytes()[..self.item_bytes];
        let padding = &mut into.tokens[used * self.item_bytes..];
        if pad == 0 {
            padding.fill(0);
        } else {
            padding.chunks_exact_mut(self.item_bytes).for_each(|place| place.copy_from_slice(token));
        }
        if let Some(mask) = into.mask {
            mask[used..].fill(0);
        }
    }
}

/// Numbers of `stored` bytes as numbers of `wanted`; little endian, so zeros come after the value's bytes.
fn widen(from: &[u8], stored: usize, into: &mut [u8], wanted: usize) {
    for (wide, narrow) in into.chunks_exact_mut(wanted).zip(from.chunks_exact(stored)) {
        wide[..stored].copy_from_slice(narrow);
        wide[stored..].fill(0);
    }
}

impl MakeBatch for Maker {
    fn first_from(&self, step: u64) -> u64 {
        self.plan.unskipped(step)
    }

    fn stop(&self) {
        self.plan.turns.stop();
    }

    fn wait(&self, step: u64, timeout: Duration) -> Result<bool, FeedError> {
        let _doing = (!timeout.is_zero()).then(|| self.clock.enter(Doing::Measure));
        self.plan.turns.wait(self.plan.steps.positions(step)?.end, timeout)
    }

    fn make(&self, step: u64) -> Result<Option<Batch>, FeedError> {
        let (_, mine) = self.positions(step)?;
        if !self.has_step(step)? {
            return Ok(None);
        }
        let shape = ((mine.end - mine.start) as usize, self.plan.length(step), self.item_bytes);
        let mut builder = BatchBuilder::new(step, mine.start, shape, &self.pool);
        if self.masked {
            builder = builder.with_mask();
        }
        self.announce(mine.clone())?;
        let _reader = ReaderStep::enter(step);
        let mut times = StageTimes::default();
        for first in (mine.start..mine.end).step_by(GROUP_ROWS as usize) {
            let group = first..mine.end.min(first + GROUP_ROWS);
            let spent = self.make_rows(&mut builder, mine.start, group);
            times.add(spent.map_err(|problem| problem.before_step(step))?);
        }
        self.clock.add(times);
        Ok(Some(builder.finish()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use penstock_io::Digest;

    use super::super::leg::{Keying, Leg, LegKind};
    use super::super::part::{Part, Parts, RowMap};
    use super::super::stream::{StreamPhase, TokenKind};
    use super::super::tokens::tests::fixed_rows;
    use super::super::turns::{MixtureRecipe, Reach};
    use super::*;
    use crate::plan::{Change, Exhaustion, Key, Phase, Shuffle};

    /// Rows of two bytes beside rows of four: letters as narrow tokens, digits as wide ones; four tokens each.
    fn maker(lane: (u64, u64), limit: Option<u64>, pad_last: bool, skips: Vec<Range<u64>>) -> Maker {
        let narrow: Vec<String> =
            (b'a'..=b'j').map(|letter| char::from(letter).to_string().repeat(7)).collect();
        let wide: Vec<String> = (b'0'..=b'9').map(|digit| char::from(digit).to_string().repeat(15)).collect();
        let stream = |lines: &[String], item_bytes, name: &[u8]| {
            let tokens = fixed_rows(lines, item_bytes);
            let keying = Keying { seed: 1, shuffle: Shuffle::Full };
            let leg = Leg::new(LegKind::Rows(tokens.rows()), Digest::of(name), keying, 4);
            let parts = Parts::whole(vec![Part::new(tokens, RowMap::default(), vec![leg])], 1).unwrap();
            let phase = StreamPhase::new(Phase::FIRST, None).unwrap();
            SourceStream::new(parts, vec![phase], TokenKind::plain(item_bytes)).unwrap()
        };
        let streams = vec![stream(&narrow, 2, b"narrow"), stream(&wide, 4, b"wide")];
        let changes = vec![Change::fixed(0, vec![1.0, 1.0])];
        let recipe = MixtureRecipe { key: Key::mixture(1), changes, exhaustion: Exhaustion::Stop };
        let turns = Turns::new(recipe, &[Reach::Whole(limit), Reach::Whole(None)]).unwrap();
        let steps = BatchSchedule::new(&[(0, 12), (3, 24)]).unwrap();
        let lengths = vec![(0, 4)];
        Maker::new(streams, MixturePlan { turns, steps, pad_last, skips, lengths }, lane)
    }

    fn whole(step: u64) -> Batch {
        maker((0, 1), None, false, vec![]).make(step).unwrap().unwrap()
    }

    #[test]
    fn the_largest_batch_that_is_still_to_come_is_known() {
        // 12 rows of 4 tokens of 4 bytes, and 24 from step 3 on, dealt to two lanes.
        let maker = maker((0, 2), None, false, Vec::new());
        assert_eq!(maker.batch_bytes(0).unwrap(), 6 * 4 * 4);
        for step in [0, 2, 3, 100] {
            assert_eq!(maker.batch_bytes_max(step).unwrap(), 12 * 4 * 4, "{step}");
        }
    }

    #[test]
    fn narrow_tokens_are_widened_and_stay_the_same_numbers() {
        let batch = whole(0);
        assert_eq!((batch.item_bytes, batch.tokens().len()), (4, 12 * 4 * 4));
        let mut sources = [0, 0];
        for (origin, row) in batch.origins.iter().zip(batch.tokens().chunks_exact(16)) {
            sources[origin.source as usize] += 1;
            let line = if origin.source == 0 { b'a' } else { b'0' } + origin.sample as u8;
            let (bytes, item) = if origin.source == 0 { (8, 2) } else { (16, 4) };
            let mut stored = vec![line; bytes];
            stored[bytes - 1] = b'\n';
            for (token, number) in stored.chunks_exact(item).zip(row.chunks_exact(4)) {
                assert_eq!(&number[..item], token);
                assert!(number[item..].iter().all(|byte| *byte == 0));
            }
        }
        assert!(sources[0] > 0 && sources[1] > 0);
    }

    #[test]
    fn lanes_share_a_step_and_their_digests_add_up() {
        for step in [0, 2, 3, 7, 1_000_000] {
            let all = whole(step);
            for lanes in [1, 2, 3, 4, 6, 12] {
                let parts: Vec<Batch> = (0..lanes)
                    .map(|lane| maker((lane, lanes), None, false, vec![]).make(step).unwrap().unwrap())
                    .collect();
                let digest = parts.iter().fold(0_u128, |sum, part| sum.wrapping_add(part.digest));
                assert_eq!(digest, all.digest, "step {step}, {lanes} lanes");
                assert_eq!(
                    parts.iter().flat_map(|part| part.tokens().to_vec()).collect::<Vec<u8>>(),
                    all.tokens()
                );
            }
        }
    }

    #[test]
    fn lanes_that_do_not_divide_a_step_are_refused_there_and_only_there() {
        let maker = maker((0, 8), None, false, vec![]);
        assert!(matches!(maker.make(2), Err(FeedError::Plan { .. })));
        assert!(matches!(maker.batch_bytes(2), Err(FeedError::Plan { .. })));
        assert_eq!(maker.make(3).unwrap().unwrap().rows, 3);
        assert_eq!(maker.batch_bytes(3), Ok(3 * 4 * 4));
    }

    /// Goal: a step is delivered by all lanes or by none. Method: a source that ends in the middle of step 1.
    #[test]
    fn a_step_that_is_not_filled_is_left_out_or_padded_on_every_lane() {
        let end = maker((0, 1), Some(9), false, vec![]).plan.turns.end_by(1_000).unwrap();
        assert!(end > 12 && end < 24, "{end}");
        for lanes in [1, 2, 4] {
            for lane in 0..lanes {
                let stopping = maker((lane, lanes), Some(9), false, vec![]);
                assert!(stopping.make(0).unwrap().is_some() && stopping.make(1).unwrap().is_none());
                let padding = maker((lane, lanes), Some(9), true, vec![]);
                let batch = padding.make(1).unwrap().unwrap();
                let share = 12 / lanes;
                let real = end.saturating_sub(12 + lane * share).min(share);
                assert_eq!(batch.origins.len() as u64, real);
                assert_eq!(batch.padding, (share - real) * 4);
                assert!(batch.tokens()[real as usize * 16..].iter().all(|byte| *byte == 0));
                assert!(padding.make(2).unwrap().is_none());
            }
        }
    }

    #[test]
    fn time_is_counted_by_stage_and_epochs_by_source() {
        let maker = maker((0, 1), None, false, vec![]);
        assert_eq!(maker.stage_times(), StageTimes::default());
        maker.make(0).unwrap();
        let times = maker.stage_times();
        assert!(times.plan > Duration::ZERO && times.read > Duration::ZERO && times.digest > Duration::ZERO);
        assert_eq!(maker.epochs_before(0), Ok(vec![Some(0.0), Some(0.0)]));
        let epochs = maker.epochs_before(3).unwrap();
        // Ten rows an epoch, and 36 rows in three steps.
        let rows: f64 = epochs.iter().flatten().map(|epochs| epochs * 10.0).sum();
        assert!((rows - 36.0).abs() < 1e-9, "{epochs:?}");
        let ends = self::maker((0, 1), Some(9), false, vec![]);
        assert_eq!(ends.epochs_before(100), Ok(vec![None, None]));
    }

    #[test]
    fn skipped_steps_are_passed_over() {
        let maker = maker((0, 1), None, false, vec![2..4, 7..8]);
        let next: Vec<u64> = (0..9).map(|step| maker.first_from(step)).collect();
        assert_eq!(next, [0, 1, 4, 4, 4, 5, 6, 8, 8]);
        assert_eq!(maker.make(5).unwrap().unwrap().digest, whole(5).digest);
    }
}
