//! One source as an endless stream of rows: what stands at an index, found without reading what comes before it.
//!
//! The source is a chain of legs ([`crate::plan::Phase`]): finding an index finds its leg, and the leg finds the samples.
//! Finding and reading are two steps, because the first is all planning and the second all input.

use std::sync::Arc;

use super::FeedError;
use super::batch::Origin;
use super::kept::Kept;
use super::leg::{Found, Leg};
use super::part::{Part, Parts, RowBytes};
use super::recurrence::recurrence;
use super::turns::Reach;
use crate::plan::{LegPlace, Phase};

/// A phase of a source with what it needs beside the legs of parts.
pub struct StreamPhase {
    /// Where it begins.
    pub phase: Phase,
    /// What an earlier phase left of a part; there is one where [`Phase::rest`] says so.
    pub rest: Option<Leg>,
}

impl StreamPhase {
    /// A phase that begins with a rest of `rest.packs()` rows, or without one.
    pub fn new(phase: Phase, rest: Option<Leg>) -> Result<Self, FeedError> {
        let rest_packs = rest.as_ref().map_or(0, Leg::packs);
        if rest_packs != phase.rest {
            let reason = format!("a rest of {} rows was planned, but its table has {rest_packs}", phase.rest);
            return Err(FeedError::Plan { reason });
        }
        Ok(Self { phase, rest })
    }
}

/// One source as a chain of legs.
pub struct SourceStream {
    parts: Parts,
    /// Never empty; their first indexes do not fall.
    phases: Vec<StreamPhase>,
    kept: Kept,
    tokens: TokenKind,
}

/// What the tokens of a source are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenKind {
    /// Bytes of a stored token.
    pub item_bytes: usize,
    /// What padding is.
    pub pad: u64,
    /// Whether a mask says which of them count in the loss.
    pub masked: bool,
}

impl TokenKind {
    /// Tokens of so many bytes, padded with 0.
    pub fn plain(item_bytes: usize) -> Self {
        Self { item_bytes, pad: 0, masked: false }
    }
}

/// What stands at an index of a source.
pub struct Located {
    part: Arc<Part>,
    found: Found,
    epoch: u64,
    /// Tokens of the row.
    pub length: u32,
}

impl SourceStream {
    /// A stream over parts; each part has a leg for each phase.
    pub fn new(parts: Parts, phases: Vec<StreamPhase>, tokens: TokenKind) -> Result<Self, FeedError> {
        if phases.is_empty() || !phases.is_sorted_by_key(|phase| phase.phase.first) {
            return Err(FeedError::Plan { reason: "the phases of a source are not in order".into() });
        }
        let empty = |phase: usize| {
            let ends = parts.ends(phase);
            ends.last() == Some(&0)
        };
        if (0..phases.len()).any(empty) {
            return Err(FeedError::Plan { reason: "a source has no rows".into() });
        }
        Ok(Self { parts, phases, kept: Kept::default(), tokens })
    }

    /// How far the source is known; it may be read `epochs` times.
    pub fn reach(&self, epochs: Option<u64>) -> Reach {
        if self.parts.is_whole() {
            return Reach::Whole(epochs.map(|epochs| self.rows_until(epochs)));
        }
        // Sources grow in one phase only, so that what is known are its first rows.
        let rows = self.parts.ends(0).last().copied().unwrap_or(0);
        Reach::Growing { rows, ends: epochs.is_some() }
    }

    /// Rows that the source has up to the end of an epoch, when all parts are known.
    pub fn rows_until(&self, epochs: u64) -> u64 {
        let last = self.phases.len() - 1;
        self.phases[last].phase.end(epochs, &self.parts.ends(last))
    }

    /// How often the source has been read before an index; `None` while not all parts are known. The share of an epoch that is
    /// not over is what is missing of it, counted in rows of the index's own length.
    pub fn epochs_before(&self, index: u64) -> Option<f64> {
        let number = self.phase_at(index);
        let phase = &self.phases[number].phase;
        let (ends, total) = self.parts.ends_if_whole(number)?;
        let stop = phase.locate(index, &ends, true)?;
        let left = match stop.leg {
            LegPlace::Rest => {
                phase.rest - stop.within + total - if phase.part == 0 { 0 } else { ends[phase.part - 1] }
            }
            LegPlace::Part(part) => total - stop.within - if part == 0 { 0 } else { ends[part - 1] },
        };
        Some(stop.epoch as f64 + (1.0 - left as f64 / total as f64).max(0.0))
    }

    /// The share of neighbours in packs that come together again in the next epoch, from `blocks_max` blocks of the first part.
    pub fn recurrence(&self, blocks_max: u64) -> Result<f64, FeedError> {
        let last = self.phases.len() - 1;
        self.parts.known().first().map_or(Ok(0.0), |part| recurrence(part.leg(last), blocks_max))
    }

    /// What its tokens are.
    pub fn tokens(&self) -> TokenKind {
        self.tokens
    }

    /// The parts, to add more.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    fn phase_at(&self, index: u64) -> usize {
        self.phases.partition_point(|phase| phase.phase.first <= index).max(1) - 1
    }

    /// What stands at `index`; an error where its part is still to come.
    pub fn find(&self, index: u64) -> Result<Located, FeedError> {
        let number = self.phase_at(index);
        let StreamPhase { phase, rest } = &self.phases[number];
        let (stop, part) = self.parts.locate(number, phase, index)?;
        let leg = match (stop.leg, rest) {
            (LegPlace::Rest, Some(rest)) => rest,
            _ => part.leg(number),
        };
        let found = leg.find(&self.kept, stop.epoch, stop.within)?;
        let length = leg.length();
        Ok(Located { found, epoch: stop.epoch, length, part })
    }

    /// Whether any of its tokens are somewhere else.
    pub fn is_far(&self) -> bool {
        self.parts.known().iter().any(|part| part.is_far())
    }

    /// Says which rows will be read soon.
    pub fn will_need(&self, rows: &[Located]) {
        for part in self.parts.known() {
            let of_part = |row: &&Located| Arc::ptr_eq(&row.part, &part);
            let found: Vec<&Found> = rows.iter().filter(of_part).map(|row| &row.found).collect();
            let tokens = rows.iter().find(of_part).map_or(0, |row| row.length as usize);
            if part.is_far() && !found.is_empty() {
                part.will_need(&found, tokens);
            }
        }
    }

    /// Fills `into` with a row and appends what it is made of; how many tokens that are. What is left of `into`, the padding,
    /// stays as it is.
    pub fn read(
        &self,
        located: &Located,
        into: &mut RowBytes<'_>,
        origins: &mut Vec<Origin>,
    ) -> Result<usize, FeedError> {
        located.part.read(&located.found, located.epoch, into, origins)
    }
}

#[cfg(test)]
mod tests;
