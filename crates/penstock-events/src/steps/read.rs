//! Reads a table back: its blocks, then what the tail has beyond them. Damage costs what it hits, and is named.

use crate::EventError;
use crate::steps::block::Block;
use crate::steps::files::{MAGIC, VERSION};
use crate::steps::frame::{self, Content, Fault, Frames};
use crate::steps::tail::{Begun, Tail};
use crate::steps::{Column, Kind};
use std::path::{Path, PathBuf};

/// Several clocks at one moment, in nanoseconds: boot time, monotonic time, wall time.
pub type Anchor = (i64, i64, i64);

/// Everything that a pair of files says.
#[derive(Debug, Default)]
pub struct StepFile {
    /// Who wrote, as JSON; empty when it is damaged.
    pub header: String,
    /// Rows as columns of equal length.
    pub columns: Vec<(Column, Vec<i64>)>,
    /// How many rows.
    pub rows: usize,
    /// Sums over rows that were thinned.
    pub rolled: Block,
    /// The number that the next row of the writer would have.
    pub next_row: u64,
    /// Clocks, in order.
    pub anchors: Vec<Anchor>,
    /// Steps before which a checkpoint was committed.
    pub commits: Vec<i64>,
    /// Rows that the writer has lost.
    pub lost: u64,
    /// Whether it was closed in order.
    pub is_closed: bool,
    /// The step that has begun and has no row.
    pub begun: Option<Begun>,
    /// File, place and reason of what could not be read.
    pub faults: Vec<(PathBuf, Fault)>,
}

impl StepFile {
    fn add(&mut self, block: Block) {
        extend(&mut self.columns, &mut self.rows, block);
    }

    /// Sums behind sums.
    pub(crate) fn add_rolled(&mut self, block: Block) {
        extend(&mut self.rolled.columns, &mut self.rolled.rows, block);
    }

    /// Takes what a frame of the block file says; whether it makes sense.
    fn take(&mut self, payload: &[u8], wanted: Option<&[String]>, keep: Keep<'_>) -> bool {
        let integers = frame::integers_of(payload);
        match (Content::of(payload[0]), &integers[..]) {
            (Some(Content::Block), _) => {
                let Some(block) = Block::decode(payload, wanted) else { return false };
                self.next_row = block.first + block.rows as u64;
                keep(self, block);
            }
            (Some(Content::RollUp), _) => {
                let Some(block) = Block::decode(payload, None) else { return false };
                // A kill between sums and the end of a tail leaves its rows in both.
                self.next_row = self.next_row.max(block.first.saturating_add(rows_in(&block)));
                self.add_rolled(block);
            }
            (Some(Content::Anchor), &[boot, monotonic, wall]) => self.anchors.push((boot, monotonic, wall)),
            (Some(Content::Commit), steps) => self.commits.extend(steps),
            (Some(Content::Lost), &[lost]) => self.lost = self.lost.max(u64::try_from(lost).unwrap_or(0)),
            (Some(Content::Begin), &[step, at]) => self.begun = Some((step, at)),
            (Some(Content::Closed), _) => self.is_closed = true,
            _ => return false,
        }
        true
    }
}

/// Columns behind columns; what one side does not have was not measured there.
fn extend(columns: &mut Vec<(Column, Vec<i64>)>, rows: &mut usize, block: Block) {
    for (column, values) in block.columns {
        let at = columns.iter().position(|(known, _)| known.name == column.name).unwrap_or_else(|| {
            let absent = vec![column.kind.unmeasured(); *rows];
            columns.push((column.clone(), absent));
            columns.len() - 1
        });
        columns[at].1.extend(values);
    }
    *rows += block.rows;
    for (column, values) in columns {
        values.resize(*rows, column.kind.unmeasured());
    }
}

/// What is done with rows as they are read.
pub(crate) type Keep<'a> = &'a mut dyn FnMut(&mut StepFile, Block);

/// How many rows sums stand for.
pub(crate) fn rows_in(rolled: &Block) -> u64 {
    let counts = rolled.columns.iter().find(|(column, _)| column.name == "rows").map(|(_, values)| values);
    counts.into_iter().flatten().map(|count| u64::try_from(*count).unwrap_or(0)).sum()
}

/// Reads `STEM-N.pst` and the tail beside it; of the columns only the wanted ones, unless all are.
pub fn read_steps(path: &Path, wanted: Option<&[String]>) -> Result<StepFile, EventError> {
    read_blocks(path, wanted, &mut StepFile::add)
}

/// The same, with rows handed over block by block, so that only one has to be in memory.
pub(crate) fn read_blocks(
    path: &Path,
    wanted: Option<&[String]>,
    keep: Keep<'_>,
) -> Result<StepFile, EventError> {
    let io = |reason| EventError::Io { verb: "read", path: path.to_path_buf(), reason };
    let bytes = std::fs::read(path).map_err(io)?;
    let mut table = StepFile::default();
    let head = bytes.get(..12).unwrap_or_default();
    let mut at = 12;
    if head.get(..8) != Some(MAGIC.as_slice()) {
        let reason = "it does not begin with PENSTEPS".to_owned();
        table.faults.push((path.to_path_buf(), Fault { offset: 0, reason }));
        at = 0;
    } else if u16::from_le_bytes([head[8], head[9]]) > VERSION {
        let found = u16::from_le_bytes([head[8], head[9]]);
        return Err(EventError::Version { path: path.to_path_buf(), found, known: VERSION });
    }
    let mut frames = Frames::new(&bytes, at);
    while let Some((offset, payload)) = frames.next() {
        let is_header = table.header.is_empty() && payload[0] == b'{';
        if is_header {
            table.header = String::from_utf8_lossy(payload).into_owned();
        }
        let known = is_header || table.take(payload, wanted, keep);
        if !known {
            frames.faults.push(Fault { offset, reason: "a frame holds what no reader knows".to_owned() });
        }
    }
    let faults = std::mem::take(&mut frames.faults);
    table.faults.extend(faults.into_iter().map(|fault| (path.to_path_buf(), fault)));
    add_tail(&mut table, &path.with_extension("tail"), wanted, keep)?;
    Ok(table)
}

fn add_tail(
    table: &mut StepFile,
    path: &Path,
    wanted: Option<&[String]>,
    keep: Keep<'_>,
) -> Result<(), EventError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(reason) => return Err(EventError::Io { verb: "read", path: path.to_path_buf(), reason }),
    };
    let mut tail = Tail::default();
    let mut frames = Frames::new(&bytes, 0);
    while let Some((offset, payload)) = frames.next() {
        if !tail.take(payload) {
            frames.faults.push(Fault { offset, reason: "a frame holds what no reader knows".to_owned() });
        }
    }
    let faults = std::mem::take(&mut frames.faults);
    table.faults.extend(faults.into_iter().map(|fault| (path.to_path_buf(), fault)));
    table.begun = tail.begun.or(table.begun);
    // A kill between a block and the tail without its rows leaves them in both.
    let double = table.next_row.saturating_sub(tail.first).min(tail.len() as u64) as usize;
    tail.forget(double);
    let gaps = tail.gaps();
    let mut block = tail.block(tail.len());
    block.columns.retain(|(column, _)| wanted.is_none_or(|wanted| wanted.contains(&column.name)));
    for (_, values) in &mut block.columns {
        let mut at = 0;
        values.retain(|_| {
            at += 1;
            gaps.binary_search(&(at - 1)).is_err()
        });
    }
    block.rows -= gaps.len();
    table.next_row = table.next_row.max(tail.first + tail.len() as u64);
    keep(table, block);
    Ok(())
}

impl Kind {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Integer => "integer",
            Kind::Float => "float",
        }
    }
}
