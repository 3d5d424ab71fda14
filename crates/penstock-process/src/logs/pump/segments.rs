//! Which files hold a log. A log is one file or several *segments*; the name of a segment says where in the stream it begins.
//!
//! The first is `rank-3.stdout`; one that begins at byte 12345 is `rank-3.stdout.0000000000012345`. No file is ever renamed, so a place
//! in the stream never changes its meaning, and what is missing (removed, or never written for want of space) is what no file covers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Digits of a name: enough for ten petabytes, so that names sort like numbers.
const DIGITS: usize = 16;

/// The file that begins at a place of the stream.
pub(super) fn segment_path(first: &Path, from: u64) -> PathBuf {
    if from == 0 {
        return first.to_owned();
    }
    let mut name = first.as_os_str().to_owned();
    name.push(format!(".{from:0DIGITS$}"));
    name.into()
}

/// Which segments there are of all logs of a job, looked up once: a job may have thousands.
#[derive(Debug, Default)]
pub struct Listing {
    folder: PathBuf,
    /// Where the segments begin, in order, by the name of the first.
    begins: BTreeMap<String, Vec<u64>>,
}

impl Listing {
    /// What a folder has now; nothing when there is none.
    pub fn read(folder: &Path) -> Self {
        let mut begins: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let numbered =
                name.rsplit_once('.').and_then(|(stem, digits)| Some((stem, digits.parse().ok()?)));
            let (stem, begin) = numbered.unwrap_or((name, 0));
            begins.entry(stem.to_owned()).or_default().push(begin);
        }
        begins.values_mut().for_each(|begins| begins.sort_unstable());
        Self { folder: folder.to_owned(), begins }
    }

    /// Where the segments of a log begin, in order.
    pub fn begins(&self, name: &str) -> &[u64] {
        self.begins.get(name).map_or(&[], Vec::as_slice)
    }

    /// At most `most` bytes of a log from the place `from` on. What is missing is left out.
    pub fn head(&self, name: &str, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let first = self.folder.join(name);
        let mut found = Vec::new();
        let begins = self.begins(name);
        let holding = begins.partition_point(|begin| *begin <= from).saturating_sub(1);
        for begin in &begins[holding..] {
            let left = most - found.len() as u64;
            if left == 0 {
                break;
            }
            let mut file = File::open(segment_path(&first, *begin))?;
            file.seek(SeekFrom::Start(from.saturating_sub(*begin)))?;
            file.take(left).read_to_end(&mut found)?;
        }
        Ok(found)
    }

    /// At most the last `most` bytes of a log, but nothing before the place `from`. What is missing is left out.
    pub fn tail(&self, name: &str, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let first = self.folder.join(name);
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let mut left = most;
        for begin in self.begins(name).iter().rev().copied() {
            let mut file = File::open(segment_path(&first, begin))?;
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
        let there = Listing::read(folder.path());
        assert_eq!(there.begins("rank-1.stdout"), [0, 5, 100]);
        let tail = |from, most| there.tail("rank-1.stdout", from, most).unwrap();
        assert_eq!(tail(0, 1 << 20), b"abcdefghxyz");
        assert_eq!(tail(0, 5), b"ghxyz");
        assert_eq!(tail(6, 100), b"ghxyz");
        assert_eq!(tail(101, 100), b"yz");
        assert_eq!(there.tail("nobody.stdout", 0, 100).unwrap(), b"");
        let head = |from, most| there.head("rank-1.stdout", from, most).unwrap();
        assert_eq!(head(3, 1 << 20), b"defghxyz");
        assert_eq!(head(3, 4), b"defg");
        assert_eq!(head(50, 9), b"xyz");
        assert_eq!(there.head("nobody.stdout", 0, 100).unwrap(), b"");
    }
}
