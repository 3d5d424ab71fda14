//! Reading pieces into targets: any layout to any layout, chunk by chunk, each checked before a byte of it is used.
//!
//! Only chunks that a target needs are read, each once however many targets need it, and neighbours in one go. A thread holds one
//! read at a time, so memory is bounded by threads, not by state.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use penstock_io::ReadAt;

use super::aligned::{PAGE, Pages};
use super::boxes::{Extent, Overlap};
use super::error::StateError;
use super::hash::chunk_hash;
use super::parallel;
use super::residence::Residence;

/// How much is read in one go, unless a chunk is larger.
const READ_BYTES: u64 = 8 << 20;
/// Gaps that are cheaper to read than to jump over.
const GAP_BYTES: u64 = 64 << 10;

/// A box of a tensor in a file.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Which tensor it is of; targets have the same number.
    pub tensor: usize,
    /// Which of the files.
    pub file: usize,
    /// Its first byte there.
    pub start: u64,
    /// Which part of the tensor it is.
    pub extent: Extent,
    /// Bytes of an element.
    pub item_bytes: u64,
    /// One per chunk.
    pub hashes: Vec<u128>,
}

/// Memory that wants a box of a tensor.
#[derive(Debug, Clone)]
pub struct Target {
    /// Which tensor it is of.
    pub tensor: usize,
    /// Which part of it.
    pub extent: Extent,
    memory: *mut u8,
    bytes: u64,
}

// SAFETY: whoever makes a target promises that its memory is there and nobody else's until reading is done.
unsafe impl Send for Target {}
// SAFETY: as above; threads write disjoint parts of it, since pieces of a tensor do not overlap.
unsafe impl Sync for Target {}

impl Target {
    /// Memory of `bytes` bytes for a box.
    ///
    /// # Safety
    /// The memory is there, and nobody else reads or writes it, until reading is done.
    pub unsafe fn new(tensor: usize, extent: Extent, memory: *mut u8, bytes: u64) -> Self {
        Self { tensor, extent, memory, bytes }
    }
}

/// A file open for reading past the page cache, where that works; what the cache has already is read there.
pub struct DirectFile {
    file: File,
    /// The same file through the page cache, where `file` goes past it.
    cached: Option<Residence>,
    name: String,
    bytes: u64,
}

impl DirectFile {
    /// Opens a file; `direct` asks for reads past the page cache.
    pub fn open(path: &Path, direct: bool) -> Result<Self, StateError> {
        let name = path.display().to_string();
        let failed =
            |error: std::io::Error| StateError::from(penstock_io::IoError::from_system(&name, None, &error));
        let mut options = OpenOptions::new();
        options.read(true);
        let through = options.open(path).map_err(failed)?;
        let bytes = through.metadata().map_err(failed)?.len();
        if direct {
            match options.custom_flags(libc::O_DIRECT).open(path) {
                Ok(file) => return Ok(Self { file, cached: Residence::new(through, bytes), name, bytes }),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(Self { file: through, cached: None, name, bytes })
    }

    /// Fills whole pages from a page boundary on; what lies behind the end of the file stays as it is.
    fn read_pages(&self, offset: u64, into: &mut [u8]) -> Result<(), StateError> {
        let wanted = into.len().min(self.bytes.saturating_sub(offset) as usize);
        let cached = self.cached.as_ref().and_then(|cached| cached.file_with(offset, wanted));
        let file = cached.unwrap_or(&self.file);
        let mut done = 0;
        while done < wanted {
            // A short read ends at a page boundary or at the end of the file, so that going on stays aligned.
            match file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(penstock_io::IoError::from_system(&self.name, Some(offset), &error).into());
                }
            }
        }
        Ok(())
    }
}

/// Where the bytes of pieces are.
pub enum Reading {
    /// A file of this machine.
    Direct(DirectFile),
    /// Anything else.
    Other(Arc<dyn ReadAt>),
}

impl Reading {
    fn name(&self) -> &str {
        match self {
            Self::Direct(file) => &file.name,
            Self::Other(file) => file.name(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Direct(file) => file.bytes,
            Self::Other(file) => file.len(),
        }
    }

    /// The bytes of a range, somewhere in `pages`.
    fn read<'a>(&self, range: Range<u64>, pages: &'a mut Pages) -> Result<&'a [u8], StateError> {
        let length = (range.end - range.start) as usize;
        let memory = pages.bytes();
        match self {
            Self::Other(file) => {
                file.read_at(range.start, &mut memory[..length])?;
                Ok(&memory[..length])
            }
            Self::Direct(file) => {
                let first = range.start - range.start % PAGE as u64;
                let end = range.end.next_multiple_of(PAGE as u64);
                file.read_pages(first, &mut memory[..(end - first) as usize])?;
                let skip = (range.start - first) as usize;
                Ok(&memory[skip..skip + length])
            }
        }
    }
}

/// One chunk that somebody needs.
struct Job {
    piece: usize,
    chunk: usize,
    /// In the file.
    range: Range<u64>,
    /// Target and what it shares with the piece.
    wanted: Vec<(usize, Arc<Overlap>)>,
}

/// Fills every target from the pieces of its tensor; the bytes that were read. A target that pieces do not cover is filled as far as
/// they do.
pub fn read_pieces(
    files: &[Reading],
    pieces: &[Piece],
    targets: &[Target],
    chunk_bytes: u64,
    threads: usize,
) -> Result<u64, StateError> {
    let jobs = plan(files, pieces, targets, chunk_bytes)?;
    let reads = join(jobs, files.len(), pieces);
    let largest = reads.iter().map(|read| read.range.end - read.range.start).max().unwrap_or(0);
    let work = |pages: &mut Pages, number: usize| -> Result<(), StateError> {
        let read = &reads[number];
        let file = &files[read.file];
        let bytes = file.read(read.range.clone(), pages)?;
        for job in &read.jobs {
            let within =
                (job.range.start - read.range.start) as usize..(job.range.end - read.range.start) as usize;
            deliver(file, &bytes[within], job, pieces, targets, chunk_bytes)?;
        }
        Ok(())
    };
    let begin = || Ok(Pages::new(largest as usize + 2 * PAGE));
    parallel::for_each(reads.len(), threads, begin, work)?;
    Ok(reads.iter().map(|read| read.range.end - read.range.start).sum())
}

fn deliver(
    file: &Reading,
    chunk: &[u8],
    job: &Job,
    pieces: &[Piece],
    targets: &[Target],
    chunk_bytes: u64,
) -> Result<(), StateError> {
    let (expected, found) = (pieces[job.piece].hashes[job.chunk], chunk_hash(chunk));
    if expected != found {
        let (file, offset, piece) = (file.name().to_owned(), job.range.start, job.piece);
        return Err(StateError::Damaged { file, offset, piece, expected, found });
    }
    let first = job.chunk as u64 * chunk_bytes;
    for (target, overlap) in &job.wanted {
        let memory = targets[*target].memory;
        overlap.within(first..first + chunk.len() as u64, |from, to, bytes| {
            // SAFETY: `plan` checked that the target's memory is as large as its box, and an overlap stays inside both boxes; pieces
            // do not overlap, so no other thread writes here.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    chunk.as_ptr().add((from - first) as usize),
                    memory.add(to as usize),
                    bytes as usize,
                );
            }
        });
    }
    Ok(())
}

/// Which chunks are needed, and for what.
fn plan(
    files: &[Reading],
    pieces: &[Piece],
    targets: &[Target],
    chunk_bytes: u64,
) -> Result<Vec<Job>, StateError> {
    let mut of_tensor: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, piece) in pieces.iter().enumerate() {
        check(files, number, piece, chunk_bytes)?;
        of_tensor.entry(piece.tensor).or_default().push(number);
    }
    let mut jobs: BTreeMap<(usize, u64, usize), Job> = BTreeMap::new();
    for (number, target) in targets.iter().enumerate() {
        for &at in of_tensor.get(&target.tensor).into_iter().flatten() {
            let piece = &pieces[at];
            if target.extent.elements() * piece.item_bytes != target.bytes {
                let reason = format!("a target of {} bytes stands for a box of another size", target.bytes);
                return Err(StateError::Shape { reason });
            }
            let Some(overlap) = Overlap::new(&piece.extent, &target.extent, piece.item_bytes) else {
                continue;
            };
            let (range, bytes) = (overlap.range(), piece.extent.elements() * piece.item_bytes);
            let overlap = Arc::new(overlap);
            for chunk in range.start / chunk_bytes..range.end.div_ceil(chunk_bytes) {
                let first = chunk * chunk_bytes;
                let place = piece.start + first..piece.start + (first + chunk_bytes).min(bytes);
                jobs.entry((piece.file, place.start, at))
                    .or_insert_with(|| Job { piece: at, chunk: chunk as usize, range: place, wanted: vec![] })
                    .wanted
                    .push((number, Arc::clone(&overlap)));
            }
        }
    }
    Ok(jobs.into_values().collect())
}

fn check(files: &[Reading], number: usize, piece: &Piece, chunk_bytes: u64) -> Result<(), StateError> {
    let bytes = piece.extent.elements() * piece.item_bytes;
    let Some(file) = files.get(piece.file) else {
        return Err(StateError::Shape { reason: format!("piece {number} is in a file that is not there") });
    };
    if piece.hashes.len() as u64 != bytes.div_ceil(chunk_bytes.max(1)) {
        let reason = format!("piece {number} of {bytes} bytes has {} hashes", piece.hashes.len());
        return Err(StateError::Shape { reason });
    }
    let end = piece.start.saturating_add(bytes);
    if end > file.bytes() {
        return Err(StateError::Short {
            file: file.name().to_owned(),
            bytes: file.bytes(),
            end,
            piece: number,
        });
    }
    Ok(())
}

/// Neighbouring chunks of one file, read in one go.
struct Read {
    file: usize,
    range: Range<u64>,
    jobs: Vec<Job>,
}

/// Joins neighbours, and deals the files out in turns, so that no file is waited for while others are idle.
fn join(jobs: Vec<Job>, files: usize, pieces: &[Piece]) -> Vec<Read> {
    let mut of_file: Vec<Vec<Read>> = (0..files).map(|_| Vec::new()).collect();
    for job in jobs {
        let file = pieces[job.piece].file;
        match of_file[file].last_mut() {
            Some(last)
                if job.range.start <= last.range.end + GAP_BYTES
                    && job.range.end.max(last.range.end) - last.range.start <= READ_BYTES =>
            {
                last.range.end = last.range.end.max(job.range.end);
                last.jobs.push(job);
            }
            _ => of_file[file].push(Read { file, range: job.range.clone(), jobs: vec![job] }),
        }
    }
    let longest = of_file.iter().map(Vec::len).max().unwrap_or(0);
    let mut waiting: Vec<_> = of_file.into_iter().map(Vec::into_iter).collect();
    (0..longest).flat_map(|_| waiting.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests;
