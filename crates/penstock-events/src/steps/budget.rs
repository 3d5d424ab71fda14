//! Keeps what one rank's files take within a budget: the oldest rows become roll-ups, and the oldest roll-ups coarser ones.

use crate::EventError;
use crate::steps::files::head;
use crate::steps::frame::{self, Content};
use crate::steps::read::{StepFile, read_steps};
use crate::steps::rollup::{SPANS, roll_up};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files looked at in one go; more are no table of ours.
const FILES_MAX: usize = 100_000;

/// Life, number, path and bytes of a rank's block files, oldest first.
fn files_of(folder: &Path, rank: &str) -> Vec<(u64, u64, PathBuf, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX);
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".pst")?.to_owned();
            let mut words = name.split('-');
            let (life, whose, number) = (words.next()?, words.next()?, words.next()?);
            let bytes = entry.metadata().ok()?.len();
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
    let mut bytes: u64 = files.iter().map(|(_, _, _, bytes)| bytes).sum();
    for level in 0..SPANS.len() {
        for (life, _, path, before) in files.iter().filter(|(_, _, path, _)| path != current) {
            if bytes <= bytes_max {
                return Ok(bytes);
            }
            let theirs = files.iter().filter(|(other, _, _, _)| other == life).map(|(_, _, path, _)| path);
            let mut commits = BTreeSet::new();
            for path in theirs {
                commits.extend(read_steps(path, Some(&[]))?.commits);
            }
            let after = thin(path, level, &commits)?;
            bytes = bytes.saturating_sub(*before) + after.min(*before);
        }
    }
    Ok(bytes)
}

/// One file with roll-ups of a level instead of rows. What it takes then.
fn thin(path: &Path, level: usize, commits: &BTreeSet<i64>) -> Result<u64, EventError> {
    let io = |reason| EventError::Io { verb: "thin", path: path.to_path_buf(), reason };
    let table = read_steps(path, None)?;
    let bytes = thinned(&table, level, commits);
    let beside = path.with_extension("pst-new");
    fs::write(&beside, &bytes).and_then(|()| fs::rename(&beside, path)).map_err(io)?;
    let _ = fs::remove_file(path.with_extension("tail"));
    Ok(bytes.len() as u64)
}

fn thinned(table: &StepFile, level: usize, commits: &BTreeSet<i64>) -> Vec<u8> {
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
    for rolled in [roll_up(&table.rolled, level, commits), roll_up(&table.rows_block(), level, commits)] {
        if rolled.rows > 0 {
            let mut payload = rolled.encode();
            payload[0] = Content::RollUp as u8;
            frame::push(&mut bytes, &payload);
        }
    }
    if let Some((step, at)) = table.begun {
        frame::push(&mut bytes, &frame::integers(Content::Begin, &[step, at]));
    }
    if table.is_closed {
        frame::push(&mut bytes, &frame::integers(Content::Closed, &[]));
    }
    bytes
}
