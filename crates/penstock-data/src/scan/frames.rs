//! Lines compressed with zstd: rows lie in the decompressed stream, and a frame table leads back to the file.
//!
//! A file may hold any number of frames, and skippable frames between them. Rows may cross frames. Reading one row means
//! decompressing the frames it touches, so `details.frame_bytes_max` tells the caller whether that is cheap or a
//! re-framed copy should be made first.

use std::cell::RefCell;
use std::io::{self, Read};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::lines::walk_lines;
use super::raw::RawStream;
use super::record::{Findings, Recorder};
use super::{Format, LineFormat, ScanRequest, ScanSummary};
use crate::DataError;
use crate::index::Layout;

/// Compressed bytes read at a time.
const INPUT_BYTES: usize = 256 << 10;

/// Scans a zstd file of lines.
pub fn scan_frames(
    input: impl Read,
    format: LineFormat,
    request: ScanRequest<'_>,
) -> Result<ScanSummary, DataError> {
    let recorder = RefCell::new(Recorder::new(request)?);
    let shard = recorder.borrow().shard();
    let raw = RawStream::new(input, &recorder);
    let frames = FrameReader::new(raw, shard, |frame: FrameEnd| {
        recorder.borrow_mut().frame(frame.packed_start, frame.content_start)
    })?;
    let (frames, mut walked) = walk_lines(frames, format, &recorder)?;
    let totals = frames.totals();
    drop(frames);
    walked.details.insert("content_bytes".into(), totals.content_bytes.into());
    walked.details.insert("frame_bytes_max".into(), totals.frame_bytes_max.into());
    walked.details.insert("frames".into(), totals.frames.into());
    recorder.into_inner().finish(Findings {
        format: Format::Frames(format).name().to_owned(),
        layout: Layout::Frames,
        rows: None,
        schema: walked.schema,
        details: walked.details,
    })
}

/// A frame that has been decoded to its end and was not empty.
pub(crate) struct FrameEnd {
    /// Compressed byte at which it begins, or at which skippable or empty frames before it begin.
    pub(crate) packed_start: u64,
    /// Decompressed byte at which it begins.
    pub(crate) content_start: u64,
}

/// Counts over all frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Frames that hold something.
    pub(crate) frames: u64,
    /// Decompressed bytes.
    pub(crate) content_bytes: u64,
    /// Decompressed bytes of the largest frame.
    pub(crate) frame_bytes_max: u64,
}

/// The decompressed stream of a zstd file. `each` is told every frame when it ends.
pub(crate) struct FrameReader<'s, R, F> {
    input: R,
    decoder: Decoder<'static>,
    each: F,
    /// What errors call the shard.
    shard: &'s str,
    /// Compressed bytes read; those from `at` on are not yet decoded.
    packed: Vec<u8>,
    at: usize,
    /// Compressed bytes decoded before `packed`.
    packed_before: u64,
    /// Compressed byte at which the frame under way begins.
    frame_at: u64,
    /// Compressed byte at which the last reported frame ended.
    reported_to: u64,
    /// Decompressed byte at which the frame under way begins.
    content_at: u64,
    /// Whether a frame is under way.
    inside: bool,
    totals: Totals,
}

impl<'s, R: Read, F: FnMut(FrameEnd) -> Result<(), DataError>> FrameReader<'s, R, F> {
    pub(crate) fn new(input: R, shard: &'s str, each: F) -> Result<Self, DataError> {
        let decoder = Decoder::new().map_err(|error| bad_stream(shard, 0, &error))?;
        Ok(Self {
            input,
            decoder,
            each,
            shard,
            packed: Vec::with_capacity(INPUT_BYTES),
            at: 0,
            packed_before: 0,
            frame_at: 0,
            reported_to: 0,
            content_at: 0,
            inside: false,
            totals: Totals::default(),
        })
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Reads compressed bytes when all are decoded. False at the end of the file.
    fn refill(&mut self) -> io::Result<bool> {
        if self.at < self.packed.len() {
            return Ok(true);
        }
        self.packed_before += self.packed.len() as u64;
        self.packed.resize(INPUT_BYTES, 0);
        self.at = 0;
        let got = self.input.read(&mut self.packed);
        self.packed.truncate(*got.as_ref().unwrap_or(&0));
        got.map(|count| count > 0)
    }

    /// One step of the decoder: moves `at`, returns bytes put into `into`.
    fn step(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut input = InBuffer::around(&self.packed[self.at..]);
        let mut output = OutBuffer::around(into);
        let hint = self.decoder.run(&mut input, &mut output);
        let (used, written) = (input.pos(), output.pos());
        let hint = hint.map_err(|error| io::Error::other(self.undecodable(&error)))?;
        self.at += used;
        self.inside = hint != 0;
        self.totals.content_bytes += written as u64;
        if hint == 0 {
            self.end_frame().map_err(io::Error::other)?;
        }
        Ok(written)
    }

    fn end_frame(&mut self) -> Result<(), DataError> {
        self.frame_at = self.packed_before + self.at as u64;
        let bytes = self.totals.content_bytes - self.content_at;
        if bytes == 0 {
            return Ok(());
        }
        (self.each)(FrameEnd { packed_start: self.reported_to, content_start: self.content_at })?;
        self.reported_to = self.frame_at;
        self.content_at = self.totals.content_bytes;
        self.totals.frames += 1;
        self.totals.frame_bytes_max = self.totals.frame_bytes_max.max(bytes);
        Ok(())
    }

    fn undecodable(&self, error: &io::Error) -> DataError {
        if self.frame_at == 0 && self.totals.content_bytes == 0 {
            let (shard, format) = (self.shard.to_owned(), "zstd".to_owned());
            return DataError::NotThisFormat { shard, format, offset: 0, reason: error.to_string() };
        }
        bad_stream(self.shard, self.frame_at, error)
    }
}

impl<R: Read, F: FnMut(FrameEnd) -> Result<(), DataError>> Read for FrameReader<'_, R, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        // Each turn decodes compressed bytes, makes decompressed ones, or returns. A decoder that holds back output has
        // `inside` set, so it is run again even when the file has no more bytes.
        loop {
            let more = self.refill()?;
            if !more && !self.inside {
                return Ok(0);
            }
            let before = self.at;
            let written = self.step(into)?;
            if written > 0 {
                return Ok(written);
            }
            if !more && self.inside && self.at == before {
                let error = DataError::Truncated { shard: self.shard.to_owned(), offset: self.frame_at };
                return Err(io::Error::other(error));
            }
        }
    }
}

fn bad_stream(shard: &str, offset: u64, error: &io::Error) -> DataError {
    DataError::BadStream { shard: shard.to_owned(), offset, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::ScanOptions;
    use crate::testing::{Scanned, try_scan};

    const FORMAT: Format = Format::Frames(LineFormat::Jsonl);

    fn pack(text: &str) -> Vec<u8> {
        zstd::bulk::compress(text.as_bytes(), 3).unwrap()
    }

    fn skippable(bytes: &[u8]) -> Vec<u8> {
        [&0x184D_2A53_u32.to_le_bytes(), &(bytes.len() as u32).to_le_bytes(), bytes].concat()
    }

    fn rows(scanned: &Scanned) -> Vec<String> {
        scanned.rows().into_iter().map(|row| String::from_utf8(row).unwrap()).collect()
    }

    #[test]
    fn rows_cross_frames_and_skippable_frames() {
        let file = [
            skippable(b"hi"),
            pack("{\"a\":1}\n{\"a\""),
            pack(""),
            skippable(b""),
            pack(":2}\n"),
            pack("{\"a\":3}"),
        ];
        let scanned = try_scan(FORMAT, &file.concat(), &ScanOptions::default()).unwrap();
        assert_eq!(rows(&scanned), ["{\"a\":1}", "{\"a\":2}", "{\"a\":3}"]);
        assert_eq!(scanned.summary.details["frames"], 3);
        assert_eq!(scanned.summary.details["content_bytes"], 23);
        assert_eq!(scanned.summary.details["frame_bytes_max"], 12);
    }

    #[test]
    fn a_cut_or_damaged_file_names_the_frame() {
        let first = pack("{\"a\":1}\n");
        let second = pack(&"{\"a\":12345678}\n".repeat(5_000));
        let file = [first.as_slice(), &second].concat();
        for end in first.len() + 1..file.len() {
            let error = try_scan(FORMAT, &file[..end], &ScanOptions::default()).unwrap_err();
            assert_eq!(
                error,
                DataError::Truncated { shard: "shard".into(), offset: first.len() as u64 },
                "{end}"
            );
        }
        let junk = [first.as_slice(), b"not a frame"].concat();
        let error = try_scan(FORMAT, &junk, &ScanOptions::default()).unwrap_err();
        assert!(matches!(error, DataError::BadStream { offset, .. } if offset == first.len() as u64));
        let error = try_scan(FORMAT, b"{\"a\":1}\n", &ScanOptions::default()).unwrap_err();
        assert!(matches!(error, DataError::NotThisFormat { offset: 0, .. }));
    }
}
