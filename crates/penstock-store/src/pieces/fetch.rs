//! Getting neighbouring pieces: from the host cache, from whoever is fetching them just now, or from the origin.
//!
//! What comes from the origin is checked before anybody sees it, and fetched again at most twice if it is wrong. Locks of other processes
//! are waited for only after our own fetches are done and given back, so no two processes wait for each other.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::{BLOCK_BYTES, IoError, block_sum, padded_sum};

use super::Far;
use super::cut::Cut;
use super::flight::Outcome;
use super::resident::Resident;
use crate::cache::{Claim, Entry, HostCache};
use crate::counts::COUNTS;

/// How often wrong bytes are fetched again.
const REFETCHES_MAX: u32 = 2;
/// How long to wait before looking again whether another process is done: at first, and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// A fetch of pieces into a buffer that has room for all of them.
pub(crate) struct Fetch<'a> {
    pub(crate) far: &'a Far,
    pub(crate) pieces: Range<u64>,
    pub(crate) buffer: &'a mut [u8],
    /// Which pieces stand in the buffer now, one bit each.
    pub(crate) delivered: u64,
    /// Whether pieces that no cache keeps are kept in memory.
    pub(crate) is_kept: bool,
}

impl Fetch<'_> {
    /// Gets all pieces.
    pub(crate) fn run(&mut self) -> Vec<Outcome> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; (self.pieces.end - self.pieces.start) as usize];
        let Some(cache) = self.far.cache.clone() else {
            self.fetch_run(self.pieces.clone(), &mut outcomes);
            return finished(outcomes);
        };
        let (mut claims, mut theirs) = (Vec::new(), Vec::new());
        for piece in self.pieces.clone() {
            let cached = self.far.of_cache(piece).or_else(|| match cache.claim(&self.far.key, piece) {
                Claim::Theirs => {
                    theirs.push(piece);
                    None
                }
                claim => {
                    // Somebody may have finished it between our look and our lock.
                    let cached = self.far.of_cache(piece);
                    if cached.is_none() {
                        claims.push((piece, claim));
                    }
                    cached
                }
            });
            cache.count_found(cached.is_some());
            outcomes[(piece - self.pieces.start) as usize] = cached.map(|resident| Ok(Some(resident)));
        }
        for run in runs(claims.iter().map(|(piece, _)| *piece), u64::MAX, &self.far.cut) {
            self.fetch_run(run, &mut outcomes);
        }
        drop(claims);
        for piece in theirs {
            self.wait_for(&cache, piece, &mut outcomes);
        }
        finished(outcomes)
    }

    /// Waits until another process has brought a piece, and fetches it if that one gives up or takes too long.
    fn wait_for(&mut self, cache: &HostCache, piece: u64, outcomes: &mut [Option<Outcome>]) {
        let end = Instant::now() + cache.patience();
        let mut pause = LOOK_AGAIN.0;
        COUNTS.flights_joined.add(1);
        // Ends with the patience, or before.
        loop {
            if let Some(cached) = self.far.of_cache(piece) {
                outcomes[(piece - self.pieces.start) as usize] = Some(Ok(Some(cached)));
                return;
            }
            match cache.claim(&self.far.key, piece) {
                Claim::Theirs if Instant::now() >= end => {
                    cache.lose_patience();
                    return self.fetch_run(piece..piece + 1, outcomes);
                }
                Claim::Theirs => std::thread::sleep(pause),
                _held => {
                    match self.far.of_cache(piece) {
                        Some(cached) => {
                            outcomes[(piece - self.pieces.start) as usize] = Some(Ok(Some(cached)))
                        }
                        None => self.fetch_run(piece..piece + 1, outcomes),
                    }
                    return;
                }
            }
            pause = (pause * 2).min(LOOK_AGAIN.1);
        }
    }

    /// Fetches pieces from the origin in one read, checks and keeps them.
    fn fetch_run(&mut self, run: Range<u64>, outcomes: &mut [Option<Outcome>]) {
        let (first, base) = (self.pieces.start, self.far.range(self.pieces.start).start);
        let bytes = self.far.range(run.start).start..self.far.range(run.end - 1).end;
        let place = (bytes.start - base) as usize..(bytes.end - base) as usize;
        let read = self.far.origin.read_at(bytes.start, &mut self.buffer[place]);
        self.count(bytes.end - bytes.start);
        for piece in run {
            let range = self.far.range(piece);
            let place = (range.start - base) as usize..(range.end - base) as usize;
            let outcome = read.clone().and_then(|()| self.checked(piece, place.clone()));
            let outcome = outcome.map(|sums| {
                self.delivered |= 1 << (piece - first);
                self.keep(piece, place, &sums)
            });
            outcomes[(piece - first) as usize] = Some(outcome);
        }
    }

    fn count(&self, bytes: u64) {
        COUNTS.pieces_fetched_bytes.add(bytes);
        if let Some(cache) = &self.far.cache {
            cache.count(Entry::Fetched, bytes);
        }
    }

    /// The sums of a piece's bytes, block by block, once they are right; wrong ones are fetched again a few times.
    fn checked(&mut self, piece: u64, place: Range<usize>) -> Result<Vec<u64>, IoError> {
        let far = self.far;
        let range = far.range(piece);
        let (first, sums) = (range.start / BLOCK_BYTES, &far.sums);
        for tries in 0.. {
            let blocks = self.buffer[place.clone()].chunks(BLOCK_BYTES as usize).enumerate();
            let mut wrong = None;
            let mut found = Vec::with_capacity(blocks.len());
            for (at, block) in blocks {
                let sum = padded_sum(block, first + at as u64, sums.file_bytes());
                if sums.sum(first + at as u64) != Some(sum) {
                    wrong = Some((at, sum));
                    break;
                }
                found.push(if block.len() as u64 == BLOCK_BYTES { sum } else { block_sum(block) });
            }
            let Some((at, sum)) = wrong else { return Ok(found) };
            if tries == REFETCHES_MAX {
                return Err(IoError::Corrupt {
                    name: self.far.origin.name().to_owned(),
                    offset: range.start + at as u64 * BLOCK_BYTES,
                    expected: sums.sum(first + at as u64).unwrap_or(0),
                    found: sum,
                });
            }
            COUNTS.corrupt_refetched.add(1);
            self.far.origin.read_at(range.start, &mut self.buffer[place.clone()])?;
            self.count(range.end - range.start);
        }
        unreachable!("the loop ends by returning")
    }

    /// A checked piece as others will read it.
    fn keep(&self, piece: u64, place: Range<usize>, sums: &[u64]) -> Option<Arc<Resident>> {
        let data = &self.buffer[place];
        let file = self.far.cache.as_ref().and_then(|cache| cache.keep(&self.far.key, piece, data, sums));
        let mapped = file.and_then(|file| Resident::of_file(&file, data.len()));
        mapped.or_else(|| self.is_kept.then(|| Resident::checked(data.into()))).map(Arc::new)
    }
}

fn finished(outcomes: Vec<Option<Outcome>>) -> Vec<Outcome> {
    outcomes.into_iter().map(|outcome| outcome.unwrap_or(Ok(None))).collect()
}

/// Runs of neighbours among rising numbers, of at most `most` each, whose bytes follow each other.
pub(crate) fn runs(pieces: impl Iterator<Item = u64>, most: u64, cut: &Cut) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for piece in pieces {
        match ranges.last_mut() {
            Some(last) if last.end == piece && last.end - last.start < most && cut.follows(piece) => {
                last.end += 1;
            }
            _ => ranges.push(piece..piece + 1),
        }
    }
    ranges
}
