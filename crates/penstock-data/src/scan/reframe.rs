//! A row-addressable copy of lines that cannot be reached row by row: gzip, or zstd in one huge frame.
//!
//! The copy holds the same bytes, as zstd frames of at most 256 KiB of whole lines; a longer line gets a frame of its own,
//! and only one beyond 64 MiB is cut. Memory is bounded by that, whatever the file. The copy appears under its name only
//! when the whole source has been decoded and the copy is on disk.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use penstock_io::{Digest, DigestStream, IoError};

use super::frames::{FrameEnd, FrameReader};
use super::record::read_failed;
use super::{PROGRESS_BYTES, Progress, ProgressFn};
use crate::DataError;
use crate::index::sync_parent;

/// Bytes of whole lines in a frame.
const FRAME_BYTES: usize = 256 << 10;
/// Longest line that is kept in one frame.
const LINE_BYTES_MAX: usize = 64 << 20;
const BUFFER_BYTES: usize = 256 << 10;
/// zstd's own default.
const LEVEL: i32 = 3;

/// How the source is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip, of any number of members.
    Gzip,
    /// zstd, of any number of frames.
    Zstd,
}

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReframeSummary {
    /// Bytes of the source.
    pub source_bytes: u64,
    /// Identity of the source.
    pub source_digest: Digest,
    /// Decompressed bytes.
    pub content_bytes: u64,
    /// Bytes of the copy.
    pub bytes: u64,
    /// Identity of the copy.
    pub digest: Digest,
    /// Frames of the copy.
    pub frames: u64,
}

/// Copies the lines of `input` into small frames at `path`.
pub fn reframe<'p>(
    input: impl Read,
    packing: Packing,
    shard: &str,
    path: &Path,
    progress: Option<&'p mut ProgressFn<'p>>,
) -> Result<ReframeSummary, DataError> {
    let tap = Tap {
        input,
        shard,
        digest: DigestStream::default(),
        bytes: 0,
        progress,
        progress_at: PROGRESS_BYTES,
    };
    let mut copy = Copy::create(path)?;
    let tap = match packing {
        Packing::Plain => pour(tap, shard, &mut copy)?,
        Packing::Gzip => {
            let members = Members {
                decoder: GzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, tap)).into(),
                shard,
                member_at: 0,
            };
            pour(members, shard, &mut copy)?.into_tap().ok_or_else(|| copy.failed(&"its source is gone"))?
        }
        Packing::Zstd => {
            let mut tap = tap;
            pour(FrameReader::new(&mut tap, shard, |_: FrameEnd| Ok(()))?, shard, &mut copy)?;
            tap
        }
    };
    let (source_digest, source_bytes) = tap.digest.finish();
    let written = copy.finish()?;
    Ok(ReframeSummary {
        source_bytes,
        source_digest,
        content_bytes: written.content_bytes,
        bytes: written.bytes,
        digest: written.digest,
        frames: written.frames,
    })
}

/// Moves everything from `input` into `copy` and gives `input` back.
fn pour<R: Read>(mut input: R, shard: &str, copy: &mut Copy) -> Result<R, DataError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut content_at = 0;
    // Each turn copies at least one byte or ends; interrupts apart.
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(input),
            Ok(count) => {
                copy.push(&buffer[..count])?;
                content_at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_failed(shard, content_at, error)),
        }
    }
}

/// The source on its way to a decoder: summed, counted, and stopped when the caller wishes.
struct Tap<'s, 'p, R> {
    input: R,
    shard: &'s str,
    digest: DigestStream,
    bytes: u64,
    progress: Option<&'p mut ProgressFn<'p>>,
    /// Bytes at which `progress` is told next.
    progress_at: u64,
}

impl<R: Read> Read for Tap<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into)?;
        self.digest.update(&into[..count]);
        self.bytes += count as u64;
        if self.bytes >= self.progress_at {
            self.progress_at = self.bytes + PROGRESS_BYTES;
            let now = Progress { bytes: self.bytes, rows: 0 };
            if self.progress.as_mut().is_some_and(|progress| progress(now).is_break()) {
                let error = DataError::Cancelled { shard: self.shard.to_owned(), offset: self.bytes };
                return Err(io::Error::other(error));
            }
        }
        Ok(count)
    }
}

/// The members of a gzip file as one stream; an error names the member it is in.
struct Members<'s, R> {
    /// The member under way. Empty only for the moment between two members, and after the last one.
    decoder: Stage<R>,
    shard: &'s str,
    /// Byte of the source at which the member under way begins.
    member_at: u64,
}

enum Stage<R> {
    Inside(Box<GzDecoder<BufReader<R>>>),
    Ended(BufReader<R>),
    Between,
}

impl<R> From<GzDecoder<BufReader<R>>> for Stage<R> {
    fn from(decoder: GzDecoder<BufReader<R>>) -> Self {
        Self::Inside(Box::new(decoder))
    }
}

impl<'s, 'p, R: Read> Members<'s, Tap<'s, 'p, R>> {
    fn into_tap(self) -> Option<Tap<'s, 'p, R>> {
        match self.decoder {
            Stage::Inside(decoder) => Some(decoder.into_inner().into_inner()),
            Stage::Ended(source) => Some(source.into_inner()),
            Stage::Between => None,
        }
    }

    /// Goes on to the next member, if there is one.
    fn advance(&mut self) -> io::Result<bool> {
        let mut source = match std::mem::replace(&mut self.decoder, Stage::Between) {
            Stage::Inside(decoder) => decoder.into_inner(),
            Stage::Ended(source) => source,
            Stage::Between => return Ok(false),
        };
        let more = source.fill_buf().map(|rest| !rest.is_empty());
        self.member_at = source.get_ref().bytes - source.buffer().len() as u64;
        match more {
            Ok(true) => self.decoder = GzDecoder::new(source).into(),
            _ => self.decoder = Stage::Ended(source),
        }
        more
    }

    fn typed(&self, error: io::Error) -> io::Error {
        let (shard, offset) = (self.shard.to_owned(), self.member_at);
        match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other(DataError::Truncated { shard, offset }),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                io::Error::other(DataError::BadStream { shard, offset, reason: error.to_string() })
            }
            _ => error,
        }
    }
}

impl<'s, R: Read> Read for Members<'s, Tap<'s, '_, R>> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Each turn returns, or goes on to a member that begins at a later byte.
        loop {
            let Stage::Inside(decoder) = &mut self.decoder else { return Ok(0) };
            match decoder.read(into) {
                Ok(0) if !into.is_empty() => {
                    if !self.advance()? {
                        return Ok(0);
                    }
                }
                Ok(count) => return Ok(count),
                Err(error) => return Err(self.typed(error)),
            }
        }
    }
}

/// The copy under way. Dropped before `finish`, it leaves no file.
struct Copy {
    path: PathBuf,
    partial: PathBuf,
    out: BufWriter<File>,
    compressor: zstd::bulk::Compressor<'static>,
    /// Whole lines, then the line under way.
    pending: Vec<u8>,
    /// End of the whole lines in `pending`.
    lines_end: usize,
    digest: DigestStream,
    content_bytes: u64,
    frames: u64,
}

/// A copy that is whole and under its name.
struct WrittenCopy {
    bytes: u64,
    digest: Digest,
    content_bytes: u64,
    frames: u64,
}

impl Copy {
    fn create(path: &Path) -> Result<Self, DataError> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|error| failed(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::new(file),
            compressor: zstd::bulk::Compressor::new(LEVEL).map_err(|error| failed(path, &error))?,
            partial,
            pending: Vec::with_capacity(2 * FRAME_BYTES),
            lines_end: 0,
            digest: DigestStream::default(),
            content_bytes: 0,
            frames: 0,
        })
    }

    /// Takes the next decompressed bytes, and writes the frames they complete.
    fn push(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.content_bytes += bytes.len() as u64;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.pending.extend_from_slice(line);
            let whole = line.ends_with(b"\n");
            // The line that ends here, or is under way, does not fit behind the lines before it.
            if self.pending.len() > FRAME_BYTES && self.lines_end > 0 {
                self.write_frame(self.lines_end)?;
            }
            if whole {
                self.lines_end = self.pending.len();
            }
            if self.pending.len() >= LINE_BYTES_MAX || (whole && self.pending.len() >= FRAME_BYTES) {
                self.write_frame(self.pending.len())?;
            }
        }
        Ok(())
    }

    fn write_frame(&mut self, bytes: usize) -> Result<(), DataError> {
        let frame = self.compressor.compress(&self.pending[..bytes]).map_err(|error| self.failed(&error))?;
        self.out.write_all(&frame).map_err(|error| self.failed(&error))?;
        self.digest.update(&frame);
        self.pending.drain(..bytes);
        self.pending.shrink_to(2 * FRAME_BYTES);
        self.lines_end = 0;
        self.frames += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<WrittenCopy, DataError> {
        if !self.pending.is_empty() {
            self.write_frame(self.pending.len())?;
        }
        self.out.flush().map_err(|error| self.failed(&error))?;
        self.out.get_ref().sync_all().map_err(|error| self.failed(&error))?;
        fs::rename(&self.partial, &self.path).map_err(|error| self.failed(&error))?;
        sync_parent(&self.path).map_err(|error| self.failed(&error))?;
        let (digest, bytes) = std::mem::take(&mut self.digest).finish();
        Ok(WrittenCopy { bytes, digest, content_bytes: self.content_bytes, frames: self.frames })
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> DataError {
        failed(&self.path, error)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // After `finish` the name is gone and this fails, which is as it should be.
        let _ = fs::remove_file(&self.partial);
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> DataError {
    DataError::Io(IoError::Other {
        name: path.display().to_string(),
        offset: None,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::scan::{Format, LineFormat, ScanOptions};
    use crate::testing::try_scan;

    fn lines() -> String {
        let row = |i: usize| format!("{{\"id\":{i},\"text\":\"{}\"}}\n", "word ".repeat(i % 400));
        let long = format!("{{\"id\":0,\"text\":\"{}\"}}\n", "x".repeat(600_000));
        (0..2_000).map(row).collect::<String>() + &long + &row(1) + "{\"id\":3,\"text\":\"end\"}"
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn copy_of(source: &[u8], packing: Packing) -> Result<(Vec<u8>, ReframeSummary), DataError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copy.zst");
        let outcome = reframe(source, packing, "shard", &path, None);
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, usize::from(outcome.is_ok()), "a copy is whole or absent");
        outcome.map(|summary| (fs::read(&path).unwrap(), summary))
    }

    #[test]
    fn the_copy_holds_the_same_rows_in_small_frames() {
        let text = lines();
        let cut = text.len() / 3;
        let two_members = [gzip(&text[..cut]), gzip(&text[cut..])].concat();
        let one_frame = zstd::bulk::compress(text.as_bytes(), 1).unwrap();
        let (plain, summary) = copy_of(text.as_bytes(), Packing::Plain).unwrap();
        assert_eq!(summary.digest, Digest::of(&plain));
        assert_eq!(summary.source_digest, Digest::of(text.as_bytes()));
        assert_eq!(copy_of(&two_members, Packing::Gzip).unwrap().0, plain);
        assert_eq!(copy_of(&two_members, Packing::Gzip).unwrap().1.source_digest, Digest::of(&two_members));
        assert_eq!(copy_of(&one_frame, Packing::Zstd).unwrap().0, plain);
        let scanned = try_scan(Format::Frames(LineFormat::Jsonl), &plain, &ScanOptions::default()).unwrap();
        let expected: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        assert_eq!(scanned.rows(), expected);
        assert_eq!(scanned.summary.details["frames"], summary.frames);
        assert_eq!(scanned.summary.details["frame_bytes_max"], 600_019);
    }

    #[test]
    fn a_cut_source_is_truncated_and_a_damaged_one_is_not_copied() {
        let first = gzip("{\"a\":1}\n");
        let file = [first.clone(), gzip(&lines())].concat();
        for end in [first.len() + 5, file.len() / 2, file.len() - 1] {
            let error = copy_of(&file[..end], Packing::Gzip).unwrap_err();
            assert_eq!(error, DataError::Truncated { shard: "shard".into(), offset: first.len() as u64 });
        }
        let mut damaged = file.clone();
        let at = file.len() - 6;
        damaged[at] ^= 1;
        assert!(matches!(copy_of(&damaged, Packing::Gzip), Err(DataError::BadStream { .. })));
        let packed = zstd::bulk::compress(lines().as_bytes(), 1).unwrap();
        let error = copy_of(&packed[..packed.len() - 1], Packing::Zstd).unwrap_err();
        assert_eq!(error, DataError::Truncated { shard: "shard".into(), offset: 0 });
    }

    #[test]
    fn it_stops_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let mut stop = |_: Progress| ControlFlow::Break(());
        let text = lines().repeat(12);
        let outcome =
            reframe(text.as_bytes(), Packing::Plain, "shard", &dir.path().join("copy"), Some(&mut stop));
        assert!(matches!(outcome, Err(DataError::Cancelled { .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
