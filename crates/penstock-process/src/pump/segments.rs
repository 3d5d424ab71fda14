//! Which files hold a log. A log is one file or several *segments*; the name of a segment says where in the stream it begins.
//!
//! The first is `rank-3.stdout`; one that begins at byte 12345 is `rank-3.stdout.0000000000012345`. No file is ever renamed, so a place
//! in the stream never changes its meaning, and what is missing (removed, or never written for want of space) is what no file covers.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Digits of a name: enough for ten petabytes, so that names sort like numbers.
const DIGITS: usize = 16;

/// The file that begins at a place of the stream.
pub fn segment_path(first: &Path, from: u64) -> PathBuf {
    if from == 0 {
        return first.to_owned();
    }
    let mut name = first.as_os_str().to_owned();
    name.push(format!(".{from:0DIGITS$}"));
    name.into()
}

/// Where the segments of a log begin, in order.
pub fn segments(first: &Path) -> io::Result<Vec<u64>> {
    let (Some(folder), Some(stem)) = (first.parent(), first.file_name().and_then(|name| name.to_str()))
    else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        match name.to_str().and_then(|name| name.strip_prefix(stem)) {
            Some("") => found.push(0),
            Some(rest) => found.extend(rest.strip_prefix('.').and_then(|digits| digits.parse::<u64>().ok())),
            None => {}
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// At most the last `most` bytes of a log, but nothing before the place `from`. What is missing is left out.
pub fn tail(first: &Path, from: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut left = most;
    for begin in segments(first)?.into_iter().rev() {
        let mut file = File::open(segment_path(first, begin))?;
        let end = begin + file.metadata()?.len();
        let start = begin.max(from).max(end.saturating_sub(left));
        if start < end {
            file.seek(SeekFrom::Start(start - begin))?;
            let mut piece = Vec::new();
            file.take(end - start).read_to_end(&mut piece)?;
            left = left.saturating_sub(piece.len() as u64);
            pieces.push(piece);
        }
        if begin <= from || left == 0 {
            break;
        }
    }
    pieces.reverse();
    Ok(pieces.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_goes_over_segments_and_over_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("rank-1.stdout");
        std::fs::write(segment_path(&first, 0), "abcde").unwrap();
        std::fs::write(segment_path(&first, 5), "fgh").unwrap();
        std::fs::write(segment_path(&first, 100), "xyz").unwrap();
        std::fs::write(folder.path().join("rank-11.stdout"), "another").unwrap();
        std::fs::write(folder.path().join("rank-1.times"), "another").unwrap();
        assert_eq!(segments(&first).unwrap(), [0, 5, 100]);
        assert_eq!(tail(&first, 0, 1 << 20).unwrap(), b"abcdefghxyz");
        assert_eq!(tail(&first, 0, 5).unwrap(), b"ghxyz");
        assert_eq!(tail(&first, 6, 100).unwrap(), b"ghxyz");
        assert_eq!(tail(&first, 101, 100).unwrap(), b"yz");
    }
}
