//! Parts of a source: where tokens are read, and the list of parts, which may grow while it is read.
//!
//! Most sources are one part, all of a version. A version that is measured era by era has one part per era. Nothing here
//! waits: [`super::Turns`] says when a step has all that it needs, and nothing before a part depends on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::FeedError;
use super::batch::Origin;
use super::leg::{Found, Leg};
use super::tokens::TokenSource;
use crate::plan::{LegPlace, Phase, Span, Stop};

/// Row of the version by row of a part: (row of the part, row of the version) where a run of neighbours begins, rising in the
/// first. Without entries they are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowMap(Vec<(u64, u64)>);

impl RowMap {
    /// From the beginnings of runs; the first run begins at row 0 of the part.
    pub fn new(runs: Vec<(u64, u64)>) -> Result<Self, FeedError> {
        let begins = runs.first().is_none_or(|first| first.0 == 0);
        if !begins || !runs.is_sorted_by(|one, other| one.0 < other.0) {
            return Err(FeedError::Plan { reason: "the rows of a part are not in order".into() });
        }
        Ok(Self(runs))
    }

    /// The row of the version.
    pub fn of(&self, row: u64) -> u64 {
        let run = self.0.partition_point(|run| run.0 <= row);
        match run.checked_sub(1).and_then(|run| self.0.get(run)) {
            Some((first, of_version)) => of_version + (row - first),
            None => row,
        }
    }
}

/// A row to be filled.
pub struct RowBytes<'a> {
    /// Its tokens, as they are stored.
    pub tokens: &'a mut [u8],
    /// A byte per token that says whether it counts in the loss, where anybody asks for it.
    pub mask: Option<&'a mut [u8]>,
}

/// One part: its tokens, and its leg under each length of rows.
pub struct Part {
    tokens: TokenSource,
    /// One byte per token, 1 where it counts in the loss; its rows are as long as those of `tokens`.
    mask: Option<TokenSource>,
    rows: RowMap,
    /// One per phase.
    legs: Vec<Leg>,
}

impl Part {
    /// A part whose rows are numbered by `rows`; `legs` has one leg per phase of the source.
    pub fn new(tokens: TokenSource, rows: RowMap, legs: Vec<Leg>) -> Self {
        Self { tokens, mask: None, rows, legs }
    }

    /// The same with a mask that says which tokens count in the loss.
    pub fn with_mask(self, mask: TokenSource) -> Result<Self, FeedError> {
        if mask.item_bytes() != 1 || mask.rows() != self.tokens.rows() {
            let reason = format!("a mask of {} rows was given for {}", mask.rows(), self.tokens.rows());
            return Err(FeedError::Plan { reason });
        }
        Ok(Self { mask: Some(mask), ..self })
    }

    /// Its leg in a phase.
    pub fn leg(&self, phase: usize) -> &Leg {
        &self.legs[phase]
    }

    /// Bytes of a stored token.
    pub fn item_bytes(&self) -> usize {
        self.tokens.item_bytes()
    }

    /// Whether its tokens are somewhere else.
    pub fn is_far(&self) -> bool {
        self.tokens.is_far()
    }

    /// Says what will be read soon: rows of so many tokens each.
    pub fn will_need(&self, rows: &[&Found], tokens: usize) {
        let mut wanted = Vec::with_capacity(rows.len() * 4);
        for found in rows {
            // What cannot be planned is said when it is read.
            let spans = spans(found, tokens).unwrap_or_default();
            wanted.extend(spans.iter().map(|span| {
                let (row, start) = place(found, span);
                (row, start, span.length)
            }));
        }
        self.tokens.will_need(&wanted);
        if let Some(mask) = &self.mask {
            mask.will_need(&wanted);
        }
    }

    /// Fills `into` with what was found and appends what it is made of; how many tokens that are. What is left of `into` stays
    /// as it is.
    pub fn read(
        &self,
        found: &Found,
        epoch: u64,
        into: &mut RowBytes<'_>,
        origins: &mut Vec<Origin>,
    ) -> Result<usize, FeedError> {
        let item = self.item_bytes();
        let mut used = 0;
        for span in spans(found, into.tokens.len() / item)? {
            let (Span { length, at, .. }, (row, start)) = (span, place(found, &span));
            let range = at as usize..(at + length) as usize;
            used = range.end;
            self.tokens.read(row, start, &mut into.tokens[range.start * item..range.end * item])?;
            match (&mut into.mask, &self.mask) {
                (Some(into), Some(mask)) => mask.read(row, start, &mut into[range])?,
                (Some(into), None) => into[range].fill(1),
                (None, _) => {}
            }
            origins.push(Origin { row: 0, at, length, source: 0, sample: self.rows.of(row), start, epoch });
        }
        Ok(used)
    }
}

/// What a row of `tokens` tokens is made of.
fn spans(found: &Found, tokens: usize) -> Result<Vec<Span>, FeedError> {
    let mut spans = Vec::with_capacity(16);
    match found {
        Found::Row(_) => spans.push(Span { sample: 0, start: 0, length: tokens as u32, at: 0 }),
        Found::Pack { block, pack } => block.packs.spans(*pack, &block.block.lengths, &mut spans)?,
    }
    Ok(spans)
}

/// The row of the part that a span lies in, and its first token there.
fn place(found: &Found, span: &Span) -> (u64, u32) {
    match found {
        Found::Row(row) => (*row, span.start),
        Found::Pack { block, .. } => {
            let sample = span.sample as usize;
            (block.block.rows[sample], block.block.start(sample) + span.start)
        }
    }
}

/// The parts of a source, in order, as far as they are known.
pub struct Parts {
    state: Mutex<State>,
    /// How many there will be.
    expected: usize,
}

#[derive(Default)]
struct State {
    parts: Vec<Arc<Part>>,
    /// For each phase, the packs up to and including each part.
    ends: Vec<Vec<u64>>,
}

impl Parts {
    /// No parts yet; `expected` will be [added](Self::add), for `phases` phases.
    pub fn growing(expected: usize, phases: usize) -> Self {
        let state = State { ends: vec![vec![]; phases], ..State::default() };
        Self { state: Mutex::new(state), expected }
    }

    /// All parts at once.
    pub fn whole(parts: Vec<Part>, phases: usize) -> Result<Self, FeedError> {
        let all = Self::growing(parts.len(), phases);
        parts.into_iter().try_for_each(|part| all.add(part))?;
        Ok(all)
    }

    /// Adds the next part.
    pub fn add(&self, part: Part) -> Result<(), FeedError> {
        let mut state = self.hold();
        let of_another_kind =
            state.parts.first().is_some_and(|first| first.item_bytes() != part.item_bytes());
        if part.legs.len() != state.ends.len() || state.parts.len() == self.expected || of_another_kind {
            let reason =
                "a part does not belong to its source: too many, of other tokens, or of other lengths";
            return Err(FeedError::Plan { reason: reason.into() });
        }
        for (ends, leg) in state.ends.iter_mut().zip(&part.legs) {
            ends.push(ends.last().copied().unwrap_or(0) + leg.packs());
        }
        state.parts.push(Arc::new(part));
        Ok(())
    }

    /// Where an index of the source lies, and the part that it lies in; an error where that is not there (yet).
    pub fn locate(&self, number: usize, phase: &Phase, index: u64) -> Result<(Stop, Arc<Part>), FeedError> {
        let state = self.hold();
        let whole = state.parts.len() == self.expected;
        let stop = phase.locate(index, &state.ends[number], whole);
        let located = stop.and_then(|stop| {
            let part = match stop.leg {
                LegPlace::Rest => phase.rest_part(),
                LegPlace::Part(part) => part,
            };
            Some((stop, Arc::clone(state.parts.get(part)?)))
        });
        let known = state.parts.len();
        located.ok_or_else(|| FeedError::Plan {
            reason: format!(
                "there is no index {index} in the {known} of {} parts of the source",
                self.expected
            ),
        })
    }

    /// Whether all parts are there.
    pub fn is_whole(&self) -> bool {
        self.hold().parts.len() == self.expected
    }

    /// For a phase, the packs up to and including each part that is known.
    pub fn ends(&self, phase: usize) -> Vec<u64> {
        self.hold().ends[phase].clone()
    }

    /// The same and their sum, when all parts are known.
    pub fn ends_if_whole(&self, phase: usize) -> Option<(Vec<u64>, u64)> {
        let state = self.hold();
        let total = state.ends[phase].last().copied()?;
        (state.parts.len() == self.expected).then(|| (state.ends[phase].clone(), total))
    }

    /// The parts that are known.
    pub fn known(&self) -> Vec<Arc<Part>> {
        self.hold().parts.clone()
    }

    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
