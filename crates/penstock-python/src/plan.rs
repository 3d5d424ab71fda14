//! A plan across the border: what Python has measured comes in as plain values and becomes streams; tables are built.

use crate::error;
use crate::shard::IndexSource;
use crate::source::{Raised, Source};
use crate::structure::structure;
use penstock_data::feed::{
    FeedError, Keying, LazyShard, Leg, LegKind, Maker, Measured, MixturePlan, MixtureRecipe, Packing, Part,
    Parts, RowLayout, RowMap, Separator, SourceStream, StreamPhase, Table, TokenKind, TokenSource, Turns,
    build_rest as build_rest_table, build_table as build_whole_table,
};
use penstock_data::plan::{
    BatchSchedule, Change, Course, Curve, Exhaustion, Key, LegPlace, Phase, Policy, Ramp, RampTo, Shuffle,
    WeightEntry, changes_of, mark_held_out, stops_at as stops,
};
use penstock_data::{DataError, Shard};
use penstock_io::Digest;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// Source, index, the index's digest, rows, and (first byte, bytes of a row) where rows follow each other without gaps.
type ShardParts = (Source, IndexSource, String, u64, Option<(u64, u64)>);

structure! {
    /// A recipe with everything measured, as Python passes it.
    pub(crate) struct FeedPlan {
        sources: Vec<SourcePlan>,
        mixture: TurnPlan,
        /// Tokens of a row, by step.
        lengths: Vec<(u64, u32)>,
        /// Steps that are left out.
        skips: Vec<(u64, u64)>,
    }
}

structure! {
    /// What decides whose turn it is.
    pub(crate) struct TurnPlan {
        seed: u64,
        batch: Vec<(u64, u64)>,
        weights: Vec<(u64, Vec<f64>)>,
        /// Those of the weights that move.
        ramps: Vec<RampPlan>,
        shuffle: String,
        exhaustion: String,
    }
}

structure! {
    /// Weights that move from a step of the weights on.
    pub(crate) struct RampPlan {
        step: u64,
        until: u64,
        to: Vec<f64>,
        shape: String,
        every: u64,
    }
}

structure! {
    pub(crate) struct SourcePlan {
        /// Those that are there; more are to come where `expected` says so.
        parts: Vec<PartPlan>,
        /// How many parts there will be.
        expected: usize,
        phases: Vec<PhasePlan>,
        item_bytes: usize,
        /// What padding is.
        pad: u64,
        /// Whether its parts say which tokens count in the loss.
        masked: bool,
        policy: String,
        epochs: Option<u64>,
    }
}

structure! {
    pub(crate) struct PartPlan {
        /// What its orders derive from.
        digest: String,
        shards: Vec<ShardParts>,
        /// Shards of bytes that say which tokens count in the loss.
        mask: Option<Vec<ShardParts>>,
        /// What is put after every row, and how many stored tokens come before it at most.
        separator: Option<(u64, u32)>,
        /// Runs of rows: (row of the part, row of the version).
        rows: Vec<(u64, u64)>,
        /// One per phase; none where every stored row is a row.
        tables: Vec<Option<Source>>,
    }
}

structure! {
    pub(crate) struct PhasePlan {
        first: u64,
        epoch: u64,
        part: usize,
        /// What the orders of the rest derive from, and its table.
        rest: Option<(String, Source)>,
    }
}

fn shuffle_named(name: &str) -> PyResult<Shuffle> {
    match name {
        "full" => Ok(Shuffle::Full),
        "local" => Ok(Shuffle::Local),
        "none" => Ok(Shuffle::None),
        other => Err(PyValueError::new_err(format!("unknown shuffle {other:?}"))),
    }
}

fn policy_named(name: &str) -> PyResult<Policy> {
    match name {
        "concat" => Ok(Policy::Concat),
        "fit" => Ok(Policy::Fit),
        "single" => Ok(Policy::Single),
        "crop" => Ok(Policy::Crop),
        other => Err(PyValueError::new_err(format!("unknown policy {other:?}"))),
    }
}

fn curve_named(name: &str, every: u64) -> Result<Curve, FeedError> {
    match name {
        "linear" => Ok(Curve::Linear),
        "cosine" => Ok(Curve::Cosine),
        "steps" => Ok(Curve::Stairs { every }),
        other => Err(FeedError::Plan { reason: format!("unknown ramp {other:?}") }),
    }
}

/// How far a ramp of `length` steps has come at one of them: 0 where it begins, 1 where it ends.
#[pyfunction]
pub(crate) fn ramp_part(py: Python<'_>, shape: &str, every: u64, length: u64, at: u64) -> PyResult<f64> {
    let ramp = curve_named(shape, every).and_then(|curve| Ok(Ramp::new(curve, length)?));
    ramp.map(|ramp| ramp.part(at)).map_err(|problem| error::from_feed(py, problem))
}

pub(crate) fn digest_of(text: &str) -> PyResult<Digest> {
    text.parse().map_err(|reason: penstock_io::DigestParseError| PyValueError::new_err(reason.to_string()))
}

fn token_source(
    shards: Vec<ShardParts>,
    item_bytes: usize,
    raised: &Raised,
) -> Result<TokenSource, FeedError> {
    let lazy = shards.into_iter().map(|(source, index, digest, rows, fixed)| {
        let layout =
            fixed.map_or(RowLayout::Ranges, |(offset, row_bytes)| RowLayout::Fixed { offset, row_bytes });
        let raised = raised.clone();
        let is_far = source.is_far();
        let open = move || -> Result<Shard, FeedError> {
            let index = Arc::new(index.open(&digest)?);
            Ok(Shard::open(source.open_indexed(&raised, &index)?, index)?)
        };
        LazyShard::new(rows, layout, Box::new(open)).far(is_far)
    });
    TokenSource::new(lazy.collect(), item_bytes)
}

/// What it takes to make further parts of the sources of a feed.
pub(crate) struct Growth {
    keying: Keying,
    lengths: Vec<(u64, u32)>,
    /// Policy, bytes of a stored token, and epochs of each source.
    sources: Vec<(Policy, usize, Option<u64>)>,
    raised: Raised,
}

impl Growth {
    /// The next part of a source, and how often the source is read.
    pub(crate) fn part(
        &self,
        source: usize,
        plan: PartPlan,
    ) -> PyResult<Result<(Part, Option<u64>), FeedError>> {
        let digest = digest_of(&plan.digest)?;
        let Some(&(policy, item_bytes, epochs)) = self.sources.get(source) else {
            return Err(PyValueError::new_err(format!("there is no source {source}")));
        };
        let legs = Legs { keying: self.keying, policy, lengths: &self.lengths, raised: &self.raised };
        Ok(legs.part(plan, digest, item_bytes).map(|part| (part, epochs)))
    }
}

/// How the legs of a source are made from tables.
struct Legs<'a> {
    keying: Keying,
    policy: Policy,
    lengths: &'a [(u64, u32)],
    raised: &'a Raised,
}

impl Legs<'_> {
    fn packed(&self, table: Source, digest: Digest, length: u32) -> Result<Leg, FeedError> {
        let table = Table::open(table.open(self.raised).map_err(DataError::from)?)?;
        Ok(Leg::new(LegKind::Packed { table, policy: self.policy }, digest, self.keying, length))
    }

    fn part(&self, part: PartPlan, digest: Digest, item_bytes: usize) -> Result<Part, FeedError> {
        let separator = part.separator.map(|(token, row_tokens_max)| Separator { token, row_tokens_max });
        let tokens = token_source(part.shards, item_bytes, self.raised)?.with_separator(separator)?;
        let legs = part.tables.into_iter().zip(self.lengths).map(|(table, &(_, length))| match table {
            Some(table) => self.packed(table, digest, length),
            None => Ok(Leg::new(LegKind::Rows(tokens.rows()), digest, self.keying, length)),
        });
        let legs = legs.collect::<Result<_, _>>()?;
        let whole = Part::new(tokens, RowMap::new(part.rows)?, legs);
        match part.mask {
            Some(mask) => {
                // The separator counts in the loss.
                let counts = separator.map(|separator| Separator { token: 1, ..separator });
                whole.with_mask(token_source(mask, 1, self.raised)?.with_separator(counts)?)
            }
            None => Ok(whole),
        }
    }

    fn phase(&self, plan: PhasePlan, rest: Option<Digest>, length: u32) -> Result<StreamPhase, FeedError> {
        let table = plan.rest.map(|(_, table)| table);
        let rest = rest.zip(table).map(|(digest, table)| self.packed(table, digest, length)).transpose()?;
        let packs = rest.as_ref().map_or(0, Leg::packs);
        let phase = Phase { first: plan.first, epoch: plan.epoch, rest: packs, part: plan.part };
        StreamPhase::new(phase, rest)
    }
}

impl SourcePlan {
    fn stream(self, legs: &Legs<'_>) -> PyResult<Result<SourceStream, FeedError>> {
        let digests = self.parts.iter().map(|part| digest_of(&part.digest)).collect::<PyResult<Vec<_>>>()?;
        let rest = |phase: &PhasePlan| phase.rest.as_ref().map(|(digest, _)| digest_of(digest)).transpose();
        let rests = self.phases.iter().map(rest).collect::<PyResult<Vec<_>>>()?;
        let build = || {
            let item_bytes = self.item_bytes;
            let parts = self.parts.into_iter().zip(digests);
            let parts = parts.map(|(part, digest)| legs.part(part, digest, item_bytes));
            let parts: Vec<Part> = parts.collect::<Result<_, _>>()?;
            let phases = self.phases.into_iter().zip(rests).zip(legs.lengths);
            let phases = phases.map(|((phase, rest), &(_, length))| legs.phase(phase, rest, length));
            let phases: Vec<StreamPhase> = phases.collect::<Result<_, _>>()?;
            let tokens = TokenKind { item_bytes, pad: self.pad, masked: self.masked };
            let all = Parts::growing(self.expected, phases.len());
            parts.into_iter().try_for_each(|part| all.add(part))?;
            SourceStream::new(all, phases, tokens)
        };
        Ok(build())
    }
}

impl TurnPlan {
    fn exhaustion(&self) -> Exhaustion {
        if self.exhaustion == "drop" { Exhaustion::Drop } else { Exhaustion::Stop }
    }

    /// Rows per step, and weights by position.
    fn schedules(&self) -> Result<(BatchSchedule, Vec<Change>), FeedError> {
        let steps = BatchSchedule::new(&self.batch)?;
        let entry = |(step, weights): &(u64, Vec<f64>)| {
            let ramp = self.ramps.iter().find(|ramp| ramp.step == *step);
            let ramp = ramp.map(|ramp| {
                let curve = curve_named(&ramp.shape, ramp.every)?;
                Ok::<_, FeedError>(RampTo { weights: ramp.to.clone(), until: ramp.until, curve })
            });
            Ok(WeightEntry { step: *step, weights: weights.clone(), ramp: ramp.transpose()? })
        };
        let entries = self.weights.iter().map(entry).collect::<Result<Vec<_>, FeedError>>()?;
        let changes = changes_of(&steps, &entries)?;
        Ok((steps, changes))
    }
}

impl FeedPlan {
    pub(crate) fn maker(
        self,
        lane: (u64, u64),
        raised: &Raised,
    ) -> PyResult<Result<(Maker, Growth), FeedError>> {
        let keying = Keying { seed: self.mixture.seed, shuffle: shuffle_named(&self.mixture.shuffle)? };
        let mut streams = Vec::new();
        let mut sources = Vec::new();
        for source in self.sources {
            let policy = policy_named(&source.policy)?;
            sources.push((policy, source.item_bytes, source.epochs));
            let legs = Legs { keying, policy, lengths: &self.lengths, raised };
            match source.stream(&legs)? {
                Err(problem) => return Ok(Err(problem)),
                Ok(stream) => streams.push(stream),
            }
        }
        let build = || {
            let (steps, changes) = self.mixture.schedules()?;
            let key = Key::mixture(self.mixture.seed);
            let reaches: Vec<_> =
                streams.iter().zip(&sources).map(|(stream, source)| stream.reach(source.2)).collect();
            let recipe = MixtureRecipe { key, changes, exhaustion: self.mixture.exhaustion() };
            let turns = Turns::new(recipe, &reaches)?;
            let pad_last = self.mixture.exhaustion == "pad";
            let skips = self.skips.iter().map(|&(first, stop)| first..stop).collect();
            let growth = Growth { keying, lengths: self.lengths.clone(), sources, raised: raised.clone() };
            let plan = MixturePlan { turns, steps, pad_last, skips, lengths: self.lengths };
            Ok((Maker::new(streams, plan, lane), growth))
        };
        Ok(build())
    }
}

/// A source as far as its phases are planned: epochs, the last phase (first, epoch, rest, part), packs up to each part.
type CoursePlan = (Option<u64>, (u64, u64, u64, usize), Vec<u64>);

/// How many rows a source has given, and where the next one lies: part (none for the rest), epoch, index.
type StopPlan = (u64, Option<usize>, u64, u64);

/// Where each source stands before a step; None when the stream ends before it.
#[pyfunction]
pub(crate) fn stops_at(
    py: Python<'_>,
    mixture: TurnPlan,
    sources: Vec<CoursePlan>,
    step: u64,
) -> PyResult<Option<Vec<StopPlan>>> {
    let courses: Vec<Course> = sources
        .into_iter()
        .map(|(epochs, (first, epoch, rest, part), ends)| {
            let phase = Phase { first, epoch, rest, part };
            Course { epochs, phase, ends }
        })
        .collect();
    let find = || {
        let (steps, changes) = mixture.schedules()?;
        let position = steps.positions(step)?.start;
        Ok(stops(Key::mixture(mixture.seed), &changes, mixture.exhaustion(), &courses, position)?)
    };
    let stands = py.detach(find).map_err(|problem: FeedError| error::from_feed(py, problem))?;
    Ok(stands.map(|stops| {
        let shown = stops.into_iter().map(|(count, stop)| {
            let part = match stop.leg {
                LegPlace::Rest => None,
                LegPlace::Part(part) => Some(part),
            };
            (count, part, stop.epoch, stop.within)
        });
        shown.collect()
    }))
}

structure! {
    /// How samples become packs, as Python passes it.
    pub(crate) struct PackingPlan {
        length: u32,
        policy: String,
        shuffle: String,
        /// What decides which samples share a block.
        source: String,
    }
}

/// Builds a plan table from measured lengths; its rows per epoch.
#[pyfunction]
pub(crate) fn build_table(
    py: Python<'_>,
    path: PathBuf,
    lengths: PyBuffer<u32>,
    kept: Option<PyBuffer<u8>>,
    starts: Option<PyBuffer<u32>>,
    packing: PackingPlan,
) -> PyResult<u64> {
    let lengths = lengths.to_vec(py)?;
    let kept = kept.map(|kept| kept.to_vec(py)).transpose()?;
    let starts = starts.map(|starts| starts.to_vec(py)).transpose()?;
    let source = digest_of(&packing.source)?;
    let (policy, shuffle) = (policy_named(&packing.policy)?, shuffle_named(&packing.shuffle)?);
    let length = packing.length;
    let packing = Packing { length, policy, shuffle, source: &source };
    let measured = Measured { lengths: &lengths, kept: kept.as_deref(), starts: starts.as_deref() };
    let head = py
        .detach(|| build_whole_table(&path, measured, packing))
        .map_err(|problem| error::from_feed(py, problem))?;
    Ok(head.epoch_rows(policy, length))
}

structure! {
    /// What was delivered of a leg when the length of rows changes, as Python passes it.
    pub(crate) struct BrokenLegPlan {
        table: Source,
        /// What its orders derive from.
        source: String,
        seed: u64,
        length: u32,
        epoch: u64,
        delivered: u64,
    }
}

/// Builds the table of what a leg has not delivered of an epoch, packed anew; its packs.
#[pyfunction]
pub(crate) fn build_rest(
    py: Python<'_>,
    path: PathBuf,
    broken: BrokenLegPlan,
    packing: PackingPlan,
) -> PyResult<u64> {
    let raised = Raised::default();
    let (source, broken_source) = (digest_of(&packing.source)?, digest_of(&broken.source)?);
    let (policy, shuffle) = (policy_named(&packing.policy)?, shuffle_named(&packing.shuffle)?);
    let packing = Packing { length: packing.length, policy, shuffle, source: &source };
    let lengths = [(0, broken.length)];
    let legs =
        Legs { keying: Keying { seed: broken.seed, shuffle }, policy, lengths: &lengths, raised: &raised };
    let build = || {
        let leg = legs.packed(broken.table, broken_source, broken.length)?;
        build_rest_table(&path, &leg, broken.epoch, broken.delivered, packing)
    };
    let head =
        py.detach(build).map_err(|problem| raised.take().unwrap_or_else(|| error::from_feed(py, problem)))?;
    Ok(head.pack_count())
}

/// 1 for the rows of a version that are held out (u8, as bytes): a fixed share of them, drawn by a key of the version.
#[pyfunction]
pub(crate) fn held_out<'py>(
    py: Python<'py>,
    version: &str,
    rows: usize,
    share: f64,
) -> PyResult<Bound<'py, PyBytes>> {
    let version = digest_of(version)?;
    PyBytes::new_with(py, rows, |into| {
        mark_held_out(&version, share, into);
        Ok(())
    })
}

/// The length in tokens of every row of a version (u32, as bytes), from its indexes.
#[pyfunction]
pub(crate) fn token_lengths<'py>(
    py: Python<'py>,
    shards: Vec<ShardParts>,
    item_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let raised = Raised::default();
    let outcome = py.detach(|| token_source(shards, item_bytes, &raised)?.lengths());
    let lengths =
        outcome.map_err(|problem| raised.take().unwrap_or_else(|| error::from_feed(py, problem)))?;
    let bytes: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
    Ok(PyBytes::new(py, &bytes))
}

/// The first position of a step under a schedule of batches.
#[pyfunction]
pub(crate) fn first_position(py: Python<'_>, batch: Vec<(u64, u64)>, step: u64) -> PyResult<u64> {
    let positions = BatchSchedule::new(&batch).and_then(|steps| steps.positions(step));
    Ok(positions.map_err(|problem| error::from_feed(py, problem.into()))?.start)
}
