//! A far object read piece by piece: each piece is fetched once, checked, and then read as if it were here.
//!
//! ```text
//! reader → shelf (memory, mappings; no lock) → flights of this process → host cache → flights of other processes → origin
//! ```
//! A piece is absent, on its way (others wait for it), or here. What the host cache keeps is mapped, so that all processes share its
//! memory; without a cache a bounded amount is kept in memory. An error reaches all who wait and is not remembered.

mod budget;
mod cut;
mod fetch;
mod flight;
mod pool;
mod resident;
mod shelf;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use penstock_io::{BLOCK_BYTES, BlockSums, Digest, IoError, ReadAt};

use crate::cache::HostCache;
use crate::counts::COUNTS;
use cut::Cut;
use fetch::{Fetch, runs};
use flight::Flight;
use resident::Resident;
use shelf::{Boarding, Shelf};

/// Bytes of a piece, the last one excepted.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Pieces that one request to the origin may ask for: 8 MiB.
const RUN_PIECES: u64 = 8;
/// How long a fetch of another thread is waited for; then one fetches oneself. Longer than the deadlines of any store.
const FLIGHT_PATIENCE: Duration = Duration::from_secs(300);
/// How often something that went wrong on the way is tried another way: pieces that rot, or are put out before they are read.
const TURNS_MAX: u32 = 4;
/// How often the host cache is told that a piece is still read.
const TOUCH_S: u32 = 60;

/// An object behind its pieces: read like a file, fetched piece by piece.
pub struct PieceFile {
    far: Arc<Far>,
}

/// The piece that a thread read last. Rows come in order, so the next one often lies in it too, and taking it off the shelf again
/// would cost more than copying a short row.
struct Last {
    shelf: u64,
    piece: u64,
    resident: Arc<Resident>,
}

thread_local! {
    static LAST: Cell<Option<Last>> = const { Cell::new(None) };
}

/// What a fetch needs to know.
pub(crate) struct Far {
    origin: Arc<dyn ReadAt>,
    sums: Arc<dyn BlockSums>,
    key: Digest,
    bytes: u64,
    cut: Arc<Cut>,
    shelf: Arc<Shelf>,
    cache: Option<Arc<HostCache>>,
    /// When the host cache was last told which pieces are still read, in seconds of [`seconds`].
    touched_s: AtomicU32,
}

impl PieceFile {
    /// Stands before `origin`, whose content has the digest `key` and the sums `sums`. An origin of another length is refused.
    pub fn new(
        origin: Arc<dyn ReadAt>,
        key: Digest,
        sums: Arc<dyn BlockSums>,
        cache: Option<Arc<HostCache>>,
    ) -> Result<Self, IoError> {
        let cut = Cut::Even { bytes: origin.len() };
        Self::of(origin, key, sums, cache, cut)
    }

    /// The same before many files that are joined (see [`crate::JoinedFile`]): a piece never holds bytes of two of them. `key` is the
    /// digest of what they are together.
    pub fn of_files(
        origin: Arc<dyn ReadAt>,
        key: Digest,
        sums: Arc<dyn BlockSums>,
        cache: Option<Arc<HostCache>>,
        lengths: &[u64],
    ) -> Result<Self, IoError> {
        // Pieces are numbered otherwise than those of one file with the same bytes, so they are called otherwise.
        let mut name = b"joined files ".to_vec();
        name.extend_from_slice(key.as_bytes());
        name.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
        Self::of(origin, Digest::of(&name), sums, cache, Cut::of_files(lengths))
    }

    fn of(
        origin: Arc<dyn ReadAt>,
        key: Digest,
        sums: Arc<dyn BlockSums>,
        cache: Option<Arc<HostCache>>,
        cut: Cut,
    ) -> Result<Self, IoError> {
        let (expected, found) = (sums.file_bytes(), origin.len());
        if expected != found {
            return Err(IoError::SizeChanged { name: origin.name().to_owned(), expected, found });
        }
        let behind = cache.as_ref().map_or(0, |cache| Arc::as_ptr(cache) as usize);
        let shelf = Shelf::of(key, found, cut.count(), behind);
        Ok(Self {
            far: Arc::new(Far {
                origin,
                sums,
                key,
                bytes: found,
                cut: Arc::new(cut),
                shelf,
                cache,
                touched_s: AtomicU32::new(seconds()),
            }),
        })
    }
}

impl ReadAt for PieceFile {
    fn len(&self) -> u64 {
        self.far.bytes
    }

    fn name(&self) -> &str {
        self.far.origin.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let far = &self.far;
        let end = offset.saturating_add(into.len() as u64);
        if end > far.bytes {
            let got = far.bytes.saturating_sub(offset);
            return Err(IoError::Short {
                name: self.name().to_owned(),
                offset,
                wanted: into.len() as u64,
                got,
            });
        }
        let mut at = offset;
        // Each turn delivers at least one byte or returns.
        while at < end {
            let rest = &mut into[(at - offset) as usize..];
            at += match far.read_here(at, rest) {
                Some(count) => count,
                None => far.read_absent(at, rest)?,
            };
        }
        Ok(())
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        let far = &self.far;
        let mut wanted: Vec<u64> = Vec::with_capacity(ranges.len());
        for range in ranges {
            let end = range.end.min(far.bytes);
            if range.start < end {
                let pieces = far.cut.pieces(&(range.start..end));
                // Most ranges come in order, and many lie in the piece of the one before.
                let known = wanted.last().is_some_and(|&last| last == pieces.start);
                wanted.extend(pieces.start + u64::from(known)..pieces.end);
            }
        }
        if !wanted.is_sorted() {
            wanted.sort_unstable();
        }
        wanted.dedup();
        let now = seconds();
        let is_due = now.saturating_sub(far.touched_s.load(Ordering::Relaxed)) > TOUCH_S;
        if is_due {
            far.touched_s.store(now, Ordering::Relaxed);
        }
        // What the host has is here in microseconds; only the rest is worth a thread.
        wanted.retain(|&piece| !far.is_near(piece, is_due));
        if far.cache.is_none() {
            // What memory cannot hold until it is read would be fetched twice.
            wanted.truncate(budget::MEMORY_BYTES_MAX / PIECE_BYTES as usize / 2);
        }
        for run in runs(wanted.into_iter(), RUN_PIECES, &far.cut) {
            if let Boarding::Ours(flight) = far.shelf.board(run, true) {
                if !pool::submit(far, &flight) {
                    // Nobody has time for it: whoever reads it fetches it.
                    far.shelf.land(&flight, vec![]);
                    return;
                }
            }
        }
    }

    fn is_far(&self) -> bool {
        true
    }

    fn is_checked(&self) -> bool {
        true
    }
}

impl Far {
    /// Which bytes a piece is.
    fn range(&self, piece: u64) -> Range<u64> {
        self.cut.range(piece)
    }

    /// Reads from the piece that byte `at` lies in, if it is here; how many bytes that were.
    fn read_here(&self, at: u64, into: &mut [u8]) -> Option<u64> {
        let piece = self.cut.piece_at(at);
        let space_end = if piece < self.cut.count() { self.range(piece).start } else { self.bytes };
        if at < space_end {
            let count = (space_end - at).min(into.len() as u64);
            into[..count as usize].fill(0);
            return Some(count);
        }
        let last = LAST.take().filter(|last| (last.shelf, last.piece) == (self.shelf.number, piece));
        let last = match last {
            Some(last) => last,
            None => Last { shelf: self.shelf.number, piece, resident: self.shelf.get(piece).clone()? },
        };
        let count = self.copy(&last.resident, at, into)?;
        LAST.set(Some(last));
        Some(count)
    }

    fn copy(&self, resident: &Arc<Resident>, at: u64, into: &mut [u8]) -> Option<u64> {
        let piece = self.cut.piece_at(at);
        let range = self.range(piece);
        let count = (range.end - at).min(into.len() as u64);
        let skip = (at - range.start) as usize;
        let first_block = range.start / BLOCK_BYTES;
        match resident.copy(skip, &mut into[..count as usize], &*self.sums, first_block) {
            Ok(()) => Some(count),
            Err(_rotten) => {
                self.shelf.forget(piece, resident);
                if let Some(cache) = &self.cache {
                    cache.drop_rotten(&self.key, piece);
                }
                None
            }
        }
    }

    /// Reads from a piece that is not here, and from as many of its neighbours as can be had with it; how many bytes that were.
    fn read_absent(&self, at: u64, into: &mut [u8]) -> Result<u64, IoError> {
        let end = at + into.len() as u64;
        let Range { start: piece, end: behind } = self.cut.pieces(&(at..end));
        let most = behind.min(piece + RUN_PIECES);
        let limit = (piece + 1..most).find(|&next| !self.cut.follows(next)).unwrap_or(most);
        for _ in 0..TURNS_MAX {
            let outcome = match self.shelf.board(piece..limit, false) {
                Boarding::Here(resident) => Ok(Some(resident)),
                Boarding::Theirs(flight) if flight.begin() => self.fly(&flight, piece, &mut Vec::new()),
                Boarding::Theirs(flight) => {
                    COUNTS.flights_joined.add(1);
                    match flight.wait(piece, FLIGHT_PATIENCE) {
                        Some(outcome) => outcome,
                        None => break,
                    }
                }
                Boarding::Ours(flight) => match self.fly_into(&flight, at, into) {
                    Some(Ok(0)) => continue,
                    Some(delivered) => return delivered,
                    None => self.fly(&flight, piece, &mut Vec::new()),
                },
            };
            if let Some(count) = outcome?.and_then(|resident| self.copy(&resident, at, into)) {
                return Ok(count);
            }
        }
        self.read_alone(at, into)
    }

    /// Does a flight whose pieces the reader wants as they are, straight into his buffer; nothing if he does not want all of them.
    fn fly_into(&self, flight: &Arc<Flight>, at: u64, into: &mut [u8]) -> Option<Result<u64, IoError>> {
        let bytes = self.range(flight.pieces.end - 1).end - at;
        if at != self.range(flight.pieces.start).start || bytes > into.len() as u64 {
            return None;
        }
        let landing = Landing { far: self, flight };
        let buffer = &mut into[..bytes as usize];
        let pieces = flight.pieces.clone();
        let mut fetch = Fetch { far: self, pieces: pieces.clone(), buffer, delivered: 0, is_kept: false };
        let outcomes = fetch.run();
        let delivered = fetch.delivered;
        landing.land(outcomes.clone());
        for (number, (piece, outcome)) in pieces.zip(outcomes).enumerate() {
            let range = self.range(piece);
            let place = (range.start - at) as usize..(range.end - at) as usize;
            match outcome {
                Err(problem) => return Some(Err(problem)),
                Ok(_) if delivered & (1 << number) != 0 => {}
                Ok(Some(resident))
                    if self.copy(&resident, range.start, &mut into[place.clone()]).is_some() => {}
                // Rotten: what came before it is delivered, and it is read anew.
                Ok(_) => return Some(Ok(place.start as u64)),
            }
        }
        Some(Ok(bytes))
    }

    /// Does a flight; what became of one of its pieces.
    fn fly(&self, flight: &Arc<Flight>, piece: u64, scratch: &mut Vec<u8>) -> flight::Outcome {
        let landing = Landing { far: self, flight };
        let pieces = flight.pieces.clone();
        let bytes = self.range(pieces.end - 1).end - self.range(pieces.start).start;
        if scratch.len() < bytes as usize {
            scratch.resize(bytes as usize, 0);
        }
        let buffer = &mut scratch[..bytes as usize];
        let outcomes = Fetch { far: self, pieces, buffer, delivered: 0, is_kept: true }.run();
        let wanted = outcomes.get((piece - flight.pieces.start) as usize).cloned();
        landing.land(outcomes);
        wanted.unwrap_or(Ok(None))
    }

    /// Fetches one piece without anybody, for when everything else went wrong.
    fn read_alone(&self, at: u64, into: &mut [u8]) -> Result<u64, IoError> {
        let piece = self.cut.piece_at(at);
        let range = self.range(piece);
        let mut buffer = vec![0; (range.end - range.start) as usize];
        let alone = Far {
            origin: Arc::clone(&self.origin),
            sums: Arc::clone(&self.sums),
            cut: Arc::clone(&self.cut),
            shelf: Arc::clone(&self.shelf),
            cache: None,
            touched_s: AtomicU32::new(0),
            ..*self
        };
        let mut fetch = Fetch {
            far: &alone,
            pieces: piece..piece + 1,
            buffer: &mut buffer,
            delivered: 0,
            is_kept: false,
        };
        fetch.run().pop().unwrap_or(Ok(None))?;
        let count = (range.end - at).min(into.len() as u64) as usize;
        let skip = (at - range.start) as usize;
        into[..count].copy_from_slice(&buffer[skip..skip + count]);
        Ok(count as u64)
    }

    /// A piece of the host cache.
    fn of_cache(&self, piece: u64) -> Option<Arc<Resident>> {
        let range = self.range(piece);
        let bytes = range.end - range.start;
        let file = self.cache.as_ref()?.find(&self.key, piece, bytes)?;
        Resident::of_file(&file, bytes as usize).map(Arc::new)
    }

    /// Whether a piece is here, or was in the host cache and now is.
    fn is_near(&self, piece: u64, is_due: bool) -> bool {
        if self.shelf.seems_here(piece) {
            if let Some(cache) = self.cache.as_ref().filter(|_| is_due) {
                cache.touch(&self.key, piece);
            }
            return true;
        }
        let Some(cache) = &self.cache else { return false };
        let Some(resident) = self.of_cache(piece) else { return false };
        cache.count_found(true);
        self.shelf.put(piece, resident);
        true
    }
}

/// Makes sure that those who wait for a flight hear of its end, even if it ends in a panic.
struct Landing<'a> {
    far: &'a Far,
    flight: &'a Flight,
}

impl Landing<'_> {
    fn land(self, outcomes: Vec<flight::Outcome>) {
        self.far.shelf.land(self.flight, outcomes);
        std::mem::forget(self);
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.far.shelf.land(self.flight, vec![]);
    }
}

/// Seconds since this process first asked.
pub(crate) fn seconds() -> u32 {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed().as_secs() as u32
}

#[cfg(test)]
mod tests;
