//! The log of one stream: every byte of it, at the place where it stood in the stream, over one segment or several.
//!
//! A disk that is full does not stop a worker: what does not fit is counted, and when there is space again a new segment begins at the
//! place where the stream is by then, so that the gap can be seen from the names of the files alone.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memchr::memchr;

use super::segments::segment_path;

/// How long a full disk is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// So much must be free before writing goes on, else a log would be cut into crumbs, and nothing would be left for the state of the job.
const FREE_BYTES_MIN: u64 = 256 << 10;
/// Gaps that are remembered of one log; the newest.
const GAPS_MAX: usize = 16;

/// How a log is cut into segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rotation {
    /// A segment ends with the line that reaches this size; 0 for one segment without end.
    pub segment_bytes: u64,
    /// How many segments stay, the newest; 0 for all.
    pub segments_kept: u64,
}

/// Bytes that are not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// Where in the stream they stood.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// Writes a stream down.
pub(super) struct Log {
    first: PathBuf,
    rotation: Rotation,
    /// The newest segment; nothing while the disk is full.
    file: Option<File>,
    /// Where the segments begin that are there.
    begins: VecDeque<u64>,
    /// Where the stream is.
    at: u64,
    /// Whether its last line has no end yet.
    is_inside_line: bool,
    /// No try before this moment.
    full_until: Option<Instant>,
    lost: VecDeque<Gap>,
    lost_bytes: u64,
}

impl Log {
    /// Continues what is there: segments that begin at these places. A disk that refuses is no error: it may have space later.
    pub(super) fn open(first: &Path, begins: &[u64], rotation: Rotation) -> Self {
        let begins: VecDeque<u64> = begins.iter().copied().collect();
        let mut log = Self {
            first: first.to_owned(),
            rotation,
            file: None,
            at: 0,
            is_inside_line: false,
            begins,
            full_until: None,
            lost: VecDeque::new(),
            lost_bytes: 0,
        };
        if let Some(begin) = log.begins.back().copied() {
            let path = segment_path(first, begin);
            log.at = begin + std::fs::metadata(&path).map_or(0, |about| about.len());
            log.file = File::options().read(true).append(true).open(path).ok();
            log.is_inside_line =
                log.file.as_ref().is_some_and(|file| log.at > begin && !ends_a_line(file, log.at - begin));
        } else {
            log.begin_segment();
        }
        log
    }

    /// Where the stream is: the place of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes that did not fit on the disk.
    pub(super) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// The newest of the gaps that a full disk left, in order.
    pub(super) fn lost(&self) -> impl Iterator<Item = &Gap> {
        self.lost.iter()
    }

    /// Where the oldest segment begins that is kept.
    pub(super) fn kept_from(&self) -> u64 {
        self.begins.front().copied().unwrap_or(0)
    }

    /// Ends the last line, if it has no end: a life that was killed inside of a line has left half of it, and the next one begins its own.
    pub(super) fn end_line(&mut self, now: Instant) {
        if self.is_inside_line {
            self.append(b"\n", now);
        }
    }

    /// Adds bytes of the stream; those that do not fit are counted.
    pub(super) fn append(&mut self, bytes: &[u8], now: Instant) {
        let mut left = bytes;
        while !left.is_empty() && self.is_ready(now) {
            let (take, ends) = self.cut(left);
            let Some(file) = &mut self.file else { break };
            match file.write(&left[..take]) {
                Ok(count) if count > 0 => {
                    self.at += count as u64;
                    self.is_inside_line = left[count - 1] != b'\n';
                    left = &left[count..];
                    if ends && count == take {
                        self.file = None;
                    }
                }
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                // This file may not grow; another one may.
                Err(problem) if problem.kind() == ErrorKind::FileTooLarge && self.segment_bytes() > 0 => {
                    self.file = None;
                }
                _ => self.refuse(now),
            }
        }
        self.lose(left.len() as u64);
    }

    /// How much of the bytes goes into this segment, and whether it ends there: with the line that reaches its size, or at twice
    /// its size, if that line has no end.
    fn cut(&self, bytes: &[u8]) -> (usize, bool) {
        let limit = self.rotation.segment_bytes;
        let (used, more) = (self.segment_bytes(), bytes.len() as u64);
        if limit == 0 || used + more < limit {
            return (bytes.len(), false);
        }
        // Both fit: they are not larger than the bytes.
        let from = limit.saturating_sub(used + 1) as usize;
        let most = (2 * limit).saturating_sub(used).clamp(1, more) as usize;
        match memchr(b'\n', &bytes[from..most]) {
            Some(end) => (from + end + 1, true),
            None => (most, used + most as u64 >= 2 * limit),
        }
    }

    fn segment_bytes(&self) -> u64 {
        self.at - self.begins.back().copied().unwrap_or(self.at)
    }

    /// Whether there is a segment to write to.
    fn is_ready(&mut self, now: Instant) -> bool {
        if self.file.is_some() {
            return true;
        }
        if self.full_until.is_some_and(|until| now < until) {
            return false;
        }
        let begun = (self.full_until.is_none() || self.has_space()) && self.begin_segment();
        self.full_until = if begun { None } else { Some(now + FULL_PAUSE) };
        begun
    }

    fn begin_segment(&mut self) -> bool {
        let path = segment_path(&self.first, self.at);
        self.file = File::options().create(true).append(true).open(path).ok();
        if self.file.is_some() && self.begins.back() != Some(&self.at) {
            self.begins.push_back(self.at);
            self.remove_old();
        }
        self.file.is_some()
    }

    fn remove_old(&mut self) {
        let kept = usize::try_from(self.rotation.segments_kept).unwrap_or(usize::MAX);
        while kept > 0 && self.begins.len() > kept {
            if let Some(begin) = self.begins.pop_front() {
                let _ = std::fs::remove_file(segment_path(&self.first, begin));
            }
        }
    }

    /// The disk took nothing. A segment that stayed empty would have the wrong name later.
    fn refuse(&mut self, now: Instant) {
        self.file = None;
        self.full_until = Some(now + FULL_PAUSE);
        if self.segment_bytes() == 0 {
            if let Some(begin) = self.begins.pop_back() {
                let _ = std::fs::remove_file(segment_path(&self.first, begin));
            }
        }
    }

    fn has_space(&self) -> bool {
        let Some(folder) = self.first.parent().and_then(|folder| File::open(folder).ok()) else {
            return false;
        };
        // SAFETY: zero is a valid place to write to, and the descriptor is open.
        let about = unsafe {
            let mut about: libc::statvfs = std::mem::zeroed();
            (libc::fstatvfs(folder.as_raw_fd(), &mut about) == 0).then_some(about)
        };
        about.is_none_or(|about| about.f_bavail.saturating_mul(about.f_frsize) >= FREE_BYTES_MIN)
    }

    fn lose(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.lost.back_mut().filter(|gap| gap.offset + gap.bytes == self.at) {
            Some(gap) => gap.bytes += bytes,
            None => self.lost.push_back(Gap { offset: self.at, bytes }),
        }
        if self.lost.len() > GAPS_MAX {
            self.lost.pop_front();
        }
        self.at += bytes;
        self.lost_bytes += bytes;
    }
}

/// Whether so many bytes of a file end with the end of a line.
fn ends_a_line(file: &File, bytes: u64) -> bool {
    let mut last = [0];
    file.read_exact_at(&mut last, bytes - 1).is_ok() && last == *b"\n"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::segments::Listing;
    use super::*;

    fn begins(first: &Path) -> Vec<u64> {
        Listing::read(first.parent().unwrap()).begins("rank-0.stdout").to_vec()
    }

    fn open(first: &Path, rotation: Rotation) -> Log {
        Log::open(first, &begins(first), rotation)
    }

    #[test]
    fn old_segments_are_removed_and_places_stay() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("rank-0.stdout");
        let rotation = Rotation { segment_bytes: 100, segments_kept: 3 };
        let mut log = open(&first, rotation);
        for line in 0..100u32 {
            log.append(format!("line {line:04}\n").as_bytes(), Instant::now());
        }
        assert_eq!((log.at(), log.lost_bytes()), (1000, 0));
        assert_eq!(begins(&first), [700, 800, 900]);
        assert_eq!(log.kept_from(), 700);
        let kept = std::fs::read_to_string(segment_path(&first, 800)).unwrap();
        assert!(kept.starts_with("line 0080\n") && kept.ends_with("line 0089\n"));
        let again = open(&first, rotation);
        assert_eq!((again.at(), again.kept_from()), (1000, 700));
    }

    #[test]
    fn half_a_line_is_ended_once_also_by_who_opens_the_log_again() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("rank-0.stdout");
        open(&first, Rotation::default()).append(b"whole\nha", Instant::now());
        for _ in 0..2 {
            open(&first, Rotation::default()).end_line(Instant::now());
        }
        assert_eq!(std::fs::read(&first).unwrap(), b"whole\nha\n");
    }

    #[test]
    fn without_space_the_stream_goes_on_and_the_gap_is_seen_from_the_names() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("gone").join("rank-0.stdout");
        let mut log = open(&first, Rotation::default());
        let begun = Instant::now();
        log.append(b"lost\n", begun);
        std::fs::create_dir(first.parent().unwrap()).unwrap();
        log.append(b"too soon\n", begun);
        log.append(b"kept\n", begun + 2 * FULL_PAUSE);
        assert_eq!(begins(&first), [14]);
        assert_eq!(log.lost().collect::<Vec<_>>(), [&Gap { offset: 0, bytes: 14 }]);
        assert_eq!((log.at(), log.lost_bytes()), (19, 14));
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_segments_together_are_the_stream(
            pieces in proptest::collection::vec("[ab\n]{0,40}", 0..20), segment_bytes in 0..60u64,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let first = folder.path().join("rank-0.stdout");
            let mut log = open(&first, Rotation { segment_bytes, segments_kept: 0 });
            for piece in &pieces {
                log.append(piece.as_bytes(), Instant::now());
            }
            let whole = pieces.concat();
            prop_assert_eq!(log.at(), whole.len() as u64);
            prop_assert_eq!(Listing::read(folder.path()).tail("rank-0.stdout", 0, u64::MAX).unwrap(), whole.as_bytes());
            let mut from = 0;
            for begin in begins(&first) {
                prop_assert_eq!(begin, from);
                let bytes = std::fs::metadata(segment_path(&first, begin)).unwrap().len();
                prop_assert!(segment_bytes == 0 || bytes <= 2 * segment_bytes);
                from += bytes;
                let last = whole.as_bytes()[..from as usize].last();
                prop_assert!(from == whole.len() as u64 || last == Some(&b'\n') || bytes == 2 * segment_bytes);
            }
        }
    }
}
