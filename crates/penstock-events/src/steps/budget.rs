//! Keeps what one rank's files take within a budget: the oldest rows become roll-ups, and the oldest roll-ups coarser ones.

use crate::EventError;
use crate::steps::block::Block;
use crate::steps::files::head;
use crate::steps::frame::{self, Content};
use crate::steps::read::{Anchor, StepFile, read_blocks, read_steps, rows_in};
use crate::steps::rollup::{Cuts, SPANS, roll_up};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Files looked at in one go; more are no table of ours.
const FILES_MAX: usize = 100_000;
/// Roll-ups of a frame.
const FRAME_ROWS: usize = 4096;
/// Boot time that went on for so long while monotonic time did not is sleep, in nanoseconds.
const SLEEP_NS: i64 = 1_000_000_000;

/// Makes room beside the thread that writes rows, which must not be held up: a kill would take the rows that wait.
pub(crate) struct Thinner {
    folder: PathBuf,
    rank: String,
    bytes_max: u64,
    work: Option<JoinHandle<Result<u64, EventError>>>,
    is_wanted: bool,
}

impl Thinner {
    /// Earlier lives may have left too much already, so room is wanted at once.
    pub(crate) fn new(folder: &Path, rank: &str, bytes_max: u64) -> Thinner {
        Thinner {
            folder: folder.to_path_buf(),
            rank: rank.to_owned(),
            bytes_max,
            work: None,
            is_wanted: true,
        }
    }

    /// A file is full: look again.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Begins what is wanted once the work before is over; what went wrong with that.
    pub(crate) fn turn(&mut self, current: &Path) -> Option<EventError> {
        let trouble = match &self.work {
            Some(work) if work.is_finished() => self.finish(),
            Some(_) => return None,
            None => None,
        };
        if self.is_wanted {
            self.is_wanted = false;
            let (folder, rank, bytes_max) = (self.folder.clone(), self.rank.clone(), self.bytes_max);
            let current = current.to_path_buf();
            // A system without room for a thread is asked again with the next file.
            self.work = std::thread::Builder::new()
                .name("penstock-thin".into())
                .spawn(move || keep_within(&folder, &rank, bytes_max, &current))
                .ok();
        }
        trouble
    }

    /// Waits for all that is wanted.
    pub(crate) fn close(&mut self, current: &Path) {
        self.finish();
        if self.is_wanted {
            let _ = keep_within(&self.folder, &self.rank, self.bytes_max, current);
        }
    }

    fn finish(&mut self) -> Option<EventError> {
        self.work.take().and_then(|work| work.join().ok()).and_then(Result::err)
    }
}

/// Bytes of a block file and of the tail that a kill left beside it.
fn size(path: &Path) -> std::io::Result<u64> {
    let tail = fs::metadata(path.with_extension("tail")).map_or(0, |tail| tail.len());
    Ok(fs::metadata(path)?.len() + tail)
}

/// Life, number, path and bytes of a rank's block files, oldest first.
fn files_of(folder: &Path, rank: &str) -> Vec<(u64, u64, PathBuf, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX);
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".pst")?.to_owned();
            let mut words = name.split('-');
            let (life, whose, number) = (words.next()?, words.next()?, words.next()?);
            let bytes = size(&path).ok()?;
            (whose == rank).then_some((life.parse().ok()?, number.parse().ok()?, path, bytes))
        })
        .collect();
    files.sort();
    files
}

/// Thins the oldest files of a rank until all take less than `bytes_max`; the one that is being written stays as it is.
pub(crate) fn keep_within(
    folder: &Path,
    rank: &str,
    bytes_max: u64,
    current: &Path,
) -> Result<u64, EventError> {
    let files = files_of(folder, rank);
    let mut sizes: Vec<u64> = files.iter().map(|(_, _, _, bytes)| *bytes).collect();
    if sizes.iter().sum::<u64>() <= bytes_max {
        return Ok(sizes.iter().sum());
    }
    // Training may resume from a checkpoint of any life, so all of them cut.
    let mut commits = BTreeSet::new();
    for (_, _, path, _) in &files {
        commits.extend(read_steps(path, Some(&[]))?.commits);
    }
    for level in 0..SPANS.len() {
        for (at, (_, _, path, _)) in files.iter().enumerate().filter(|(_, file)| file.2 != current) {
            if sizes.iter().sum::<u64>() <= bytes_max {
                return Ok(sizes.iter().sum());
            }
            sizes[at] = thin(path, level, &commits)?;
        }
    }
    Ok(sizes.iter().sum())
}

/// One file with roll-ups of a level instead of rows. What it takes then.
fn thin(path: &Path, level: usize, commits: &BTreeSet<i64>) -> Result<u64, EventError> {
    let io = |reason| EventError::Io { verb: "thin", path: path.to_path_buf(), reason };
    let anchors = read_steps(path, Some(&[]))?.anchors;
    let cuts = Cuts { commits: commits.clone(), sleeps: sleeps(&anchors) };
    // Block by block: sums of sums are the sums of all rows, and a file of rows may be much in memory.
    let mut sum = |file: &mut StepFile, block: Block| file.add_rolled(roll_up(&block, level, &cuts));
    let table = read_blocks(path, None, &mut sum)?;
    let bytes = thinned(&table, &roll_up(&table.rolled, level, &cuts));
    let before = size(path).map_err(io)?;
    if bytes.len() as u64 >= before {
        // A few rows may take less than sums of them.
        return Ok(before);
    }
    let beside = path.with_extension("pst-new");
    fs::write(&beside, &bytes).and_then(|()| fs::rename(&beside, path)).map_err(io)?;
    let _ = fs::remove_file(path.with_extension("tail"));
    Ok(bytes.len() as u64)
}

/// From when to when the machine slept; as the ledger says it.
fn sleeps(anchors: &[Anchor]) -> Vec<(i64, i64)> {
    let slept = |pair: &[Anchor]| {
        let (before, after) = (pair[0], pair[1]);
        let slept = (after.0 - before.0) - (after.1 - before.1);
        (slept >= SLEEP_NS).then_some((after.0 - slept, after.0))
    };
    anchors.windows(2).filter_map(slept).collect()
}

fn thinned(table: &StepFile, rolled: &Block) -> Vec<u8> {
    let mut bytes = head(&table.header);
    for (boot, monotonic, wall) in &table.anchors {
        frame::push(&mut bytes, &frame::integers(Content::Anchor, &[*boot, *monotonic, *wall]));
    }
    for step in &table.commits {
        frame::push(&mut bytes, &frame::integers(Content::Commit, &[*step]));
    }
    if table.lost > 0 {
        frame::push(&mut bytes, &frame::integers(Content::Lost, &[table.lost as i64]));
    }
    let mut first = table.next_row.saturating_sub(rows_in(rolled));
    for from in (0..rolled.rows).step_by(FRAME_ROWS) {
        let to = rolled.rows.min(from + FRAME_ROWS);
        let cut = |(column, values): &(_, Vec<i64>)| (Clone::clone(column), values[from..to].to_vec());
        let piece = Block { first, rows: to - from, columns: rolled.columns.iter().map(cut).collect() };
        let mut payload = piece.encode();
        payload[0] = Content::RollUp as u8;
        frame::push(&mut bytes, &payload);
        first += rows_in(&piece);
    }
    if let Some((step, at)) = table.begun {
        frame::push(&mut bytes, &frame::integers(Content::Begin, &[step, at]));
    }
    if table.is_closed {
        frame::push(&mut bytes, &frame::integers(Content::Closed, &[]));
    }
    bytes
}
