//! A table read while it is written: every look takes what was added since the one before, and nothing twice.
//!
//! The tail is read before the blocks. A block repeats rows that the tail had, so whatever is sealed between the two
//! readings is seen at least once; numbers of rows say what was seen already.

use crate::EventError;
use crate::steps::Column;
use crate::steps::block::Block;
use crate::steps::drain::LATE_ROWS;
use crate::steps::files::{MAGIC, VERSION};
use crate::steps::frame::{self, Content, Frames, HEAD_BYTES};
use crate::steps::tail::{Begun, Tail};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What one look takes from a file at most; the rest comes with the next one.
const LOOK_BYTES_MAX: u64 = 64 << 20;
/// Rows that are kept: those whose values may still come, and the one before them.
const KEPT_ROWS: usize = LATE_ROWS + 1;

/// What is new, and what may have changed.
#[derive(Debug, Default)]
pub struct StepNews {
    /// Numbers of the rows; each replaces what was told of it before.
    pub numbers: Vec<u64>,
    /// Their values, of equal length.
    pub columns: Vec<(Column, Vec<i64>)>,
    /// The step that has begun and has no row.
    pub begun: Option<Begun>,
    /// Whether the table was closed in order.
    pub is_closed: bool,
    /// Rows that the writer has lost.
    pub lost: u64,
    /// Pieces of the files that could not be read, since the beginning.
    pub faults: u64,
    /// Whether rows before these were passed over: by the first look, or because they were thinned or torn away.
    pub is_anew: bool,
}

/// Reads `STEM-N.pst` and the tail beside it again and again.
pub struct StepFollower {
    path: PathBuf,
    wanted: Vec<String>,
    /// Whether there was a look before.
    has_looked: bool,
    /// Which block file it is, and where the next frame of it begins.
    block_file: u64,
    block_at: u64,
    /// The same of the tail.
    tail_file: u64,
    tail_at: u64,
    /// What the tail says so far; only the newest rows of it stay.
    tail: Tail,
    /// Rows before this one are settled and were told.
    settled: u64,
    is_closed: bool,
    lost: u64,
    faults: u64,
}

impl StepFollower {
    /// Nothing is read before the first look.
    pub fn new(path: &Path, wanted: Vec<String>) -> StepFollower {
        StepFollower {
            path: path.to_path_buf(),
            wanted,
            has_looked: false,
            block_file: 0,
            block_at: 0,
            tail_file: 0,
            tail_at: 0,
            tail: Tail::default(),
            settled: 0,
            is_closed: false,
            lost: 0,
            faults: 0,
        }
    }

    /// Takes what is new. The first look gives the newest rows only.
    pub fn look(&mut self) -> Result<StepNews, EventError> {
        let mut news = StepNews { is_anew: !self.has_looked, ..StepNews::default() };
        let tail_bytes = self.new_tail_bytes()?;
        let at_before = (self.block_at, self.tail_at, self.tail_file);
        let blocks = self.new_blocks(&mut news)?;
        self.take_tail(&tail_bytes);
        if self.has_looked && at_before == (self.block_at, self.tail_at, self.tail_file) && !news.is_anew {
            return Ok(self.without_rows(news));
        }
        let mut rows = Rows::default();
        for block in blocks {
            rows.add(block, &self.wanted, self.settled);
        }
        let in_blocks = rows.next;
        let gaps = self.tail.gaps();
        rows.add_tail(&self.tail, &gaps, in_blocks.max(self.settled), &self.wanted);
        if !self.has_looked {
            rows.keep_newest(KEPT_ROWS);
        }
        // A row that is missing for good was thinned, or the disk was full; what is counted upwards must begin anew.
        news.is_anew |= self.has_looked && rows.numbers.first().is_some_and(|first| *first > self.settled);
        self.has_looked = true;
        if let Some(newest) = rows.numbers.last() {
            self.settled = self.settled.max((newest + 1).saturating_sub(LATE_ROWS as u64));
        }
        self.tail.forget(self.tail.len().saturating_sub(KEPT_ROWS));
        (news.numbers, news.columns) = (rows.numbers, rows.columns);
        Ok(self.without_rows(news))
    }

    /// What stands in the files as a whole.
    fn without_rows(&self, news: StepNews) -> StepNews {
        let (is_closed, lost, faults) = (self.is_closed, self.lost, self.faults);
        StepNews { begun: self.tail.begun, is_closed, lost, faults, ..news }
    }

    /// What was appended to the tail; all of it, where another one took its place.
    fn new_tail_bytes(&mut self) -> Result<Vec<u8>, EventError> {
        let path = self.path.with_extension("tail");
        let Some((file, inode, length)) = opened(&path)? else {
            (self.tail_file, self.tail_at) = (0, 0);
            self.tail = Tail::default();
            return Ok(Vec::new());
        };
        if inode != self.tail_file || length < self.tail_at {
            (self.tail_file, self.tail_at) = (inode, 0);
            self.tail = Tail::default();
        }
        read_from(&path, file, self.tail_at)
    }

    fn take_tail(&mut self, bytes: &[u8]) {
        let whole = whole_frames(bytes);
        let mut frames = Frames::new(&bytes[..whole], 0);
        for (_, payload) in frames.by_ref() {
            if !self.tail.take(payload) {
                self.faults += 1;
            }
        }
        self.faults += frames.faults.len() as u64;
        self.tail_at += whole as u64;
    }

    /// Frames that were appended to the block file; of the blocks those that have rows which were not told.
    fn new_blocks(&mut self, news: &mut StepNews) -> Result<Vec<Block>, EventError> {
        let Some((file, inode, length)) = opened(&self.path)? else { return Ok(Vec::new()) };
        if inode != self.block_file || length < self.block_at {
            if self.block_file != 0 {
                // Thinned, or another run: other content under the same name, of which the newest rows are told again.
                news.is_anew = true;
                (self.has_looked, self.settled, self.is_closed) = (false, 0, false);
            }
            (self.block_file, self.block_at) = (inode, 0);
        }
        let mut bytes = read_from(&self.path, file, self.block_at)?;
        if self.block_at == 0 {
            let Some(head) = bytes.get(..12) else { return Ok(Vec::new()) };
            if &head[..8] != MAGIC {
                self.faults += 1;
            } else if u16::from_le_bytes([head[8], head[9]]) > VERSION {
                let found = u16::from_le_bytes([head[8], head[9]]);
                return Err(EventError::Version { path: self.path.clone(), found, known: VERSION });
            } else {
                bytes.drain(..12);
                self.block_at = 12;
            }
        }
        let whole = whole_frames(&bytes);
        self.block_at += whole as u64;
        let mut payloads: Vec<&[u8]> = Vec::new();
        let mut frames = Frames::new(&bytes[..whole], 0);
        for (_, payload) in frames.by_ref() {
            match Content::of(payload[0]) {
                Some(Content::Block) => payloads.push(payload),
                Some(Content::Closed) => self.is_closed = true,
                Some(Content::Lost) => {
                    let told = frame::integers_of(payload).first().copied().unwrap_or(0);
                    self.lost = self.lost.max(u64::try_from(told).unwrap_or(0));
                }
                _ => {}
            }
        }
        self.faults += frames.faults.len() as u64;
        if !self.has_looked {
            // Only the newest rows are told.
            payloads.drain(..payloads.len().saturating_sub(1));
        }
        let mut blocks = Vec::new();
        for payload in payloads {
            if ends_before(payload, self.settled) {
                continue;
            }
            match Block::decode(payload, None) {
                Some(block) => blocks.push(block),
                None => self.faults += 1,
            }
        }
        Ok(blocks)
    }
}

/// Rows of several places as columns.
#[derive(Default)]
struct Rows {
    numbers: Vec<u64>,
    columns: Vec<(Column, Vec<i64>)>,
    /// The number after the last one.
    next: u64,
}

impl Rows {
    fn add(&mut self, mut block: Block, wanted: &[String], from: u64) {
        let from = from.max(self.next);
        let first = from.saturating_sub(block.first).min(block.rows as u64) as usize;
        self.next = self.next.max(block.first + block.rows as u64);
        block.columns.retain(|(column, _)| is_wanted(wanted, &column.name));
        self.numbers.extend((first..block.rows).map(|at| block.first + at as u64));
        for (column, values) in block.columns {
            self.extend(column, &values[first..]);
        }
        self.level();
    }

    fn add_tail(&mut self, tail: &Tail, gaps: &[usize], from: u64, wanted: &[String]) {
        let mut block = tail.block(tail.len());
        let first = from.saturating_sub(tail.first).min(tail.len() as u64) as usize;
        block.columns.retain(|(column, _)| is_wanted(wanted, &column.name));
        let kept: Vec<usize> = (first..tail.len()).filter(|at| gaps.binary_search(at).is_err()).collect();
        self.numbers.extend(kept.iter().map(|at| tail.first + *at as u64));
        for (column, values) in block.columns {
            let values: Vec<i64> = kept.iter().map(|at| values[*at]).collect();
            self.extend(column, &values);
        }
        self.level();
    }

    fn extend(&mut self, column: Column, values: &[i64]) {
        let before = self.numbers.len() - values.len();
        let at = self.columns.iter().position(|(known, _)| known.name == column.name).unwrap_or_else(|| {
            self.columns.push((column, Vec::new()));
            self.columns.len() - 1
        });
        let (column, known) = &mut self.columns[at];
        known.resize(before, column.kind.unmeasured());
        known.extend_from_slice(values);
    }

    /// What a place does not have was not measured there.
    fn level(&mut self) {
        for (column, values) in &mut self.columns {
            values.resize(self.numbers.len(), column.kind.unmeasured());
        }
    }

    fn keep_newest(&mut self, count: usize) {
        let passed = self.numbers.len().saturating_sub(count);
        self.numbers.drain(..passed);
        for (_, values) in &mut self.columns {
            values.drain(..passed);
        }
    }
}

/// Numbers of the program have names that nobody knows before.
fn is_wanted(wanted: &[String], name: &str) -> bool {
    wanted.iter().any(|one| one == name || (one.ends_with('.') && name.starts_with(one.as_str())))
}

/// Whether all rows of a block come before a number.
fn ends_before(payload: &[u8], number: u64) -> bool {
    let (Some(first), Some(rows)) = (payload.get(1..9), payload.get(9..13)) else { return false };
    let first = u64::from_le_bytes(first.try_into().expect("8 bytes"));
    first.saturating_add(u32::from_le_bytes(rows.try_into().expect("4 bytes")).into()) <= number
}

/// How many bytes are whole frames, or damage in front of one; what is still being written is left for the next look.
fn whole_frames(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + HEAD_BYTES) {
        if &head[..4] != frame::MARK {
            // Damage: to the next mark, or everything, if there is none.
            match bytes[at + 1..].windows(4).position(|window| window == frame::MARK) {
                Some(next) => at += 1 + next,
                None => return bytes.len(),
            }
            continue;
        }
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if length == 0 || length > frame::PAYLOAD_BYTES_MAX {
            at += 4;
            continue;
        }
        if at + HEAD_BYTES + length > bytes.len() {
            return at;
        }
        at += HEAD_BYTES + length;
    }
    at
}

/// A file, its inode and its length; None where there is none.
fn opened(path: &Path) -> Result<Option<(File, u64, u64)>, EventError> {
    let io = |reason| EventError::Io { verb: "read", path: path.to_path_buf(), reason };
    match File::open(path) {
        Ok(file) => {
            let about = file.metadata().map_err(io)?;
            Ok(Some((file, about.ino(), about.len())))
        }
        Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(reason) => Err(io(reason)),
    }
}

fn read_from(path: &Path, mut file: File, at: u64) -> Result<Vec<u8>, EventError> {
    let io = |reason| EventError::Io { verb: "read", path: path.to_path_buf(), reason };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at)).map_err(io)?;
    file.take(LOOK_BYTES_MAX).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}
