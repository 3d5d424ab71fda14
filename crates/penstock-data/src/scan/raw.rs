//! Raw bytes on their way from the file to a decoder or walker; they are summed as they pass.
//!
//! All in the thread of the scan. Shards are scanned side by side, so the cores are busy already, and handing bytes from a
//! reading thread to a parsing one costs processor time that another shard could use.

use std::cell::RefCell;
use std::io::{self, BufRead, Read};
use std::ops::Range;

use penstock_io::{BLOCK_BYTES, BlockHasher};

use super::record::Recorder;

/// Bytes held for walkers that ask for a few at a time: whole blocks, and they fit the second-level cache.
const BUFFER_BYTES: usize = 256 << 10;

/// The raw bytes of a shard.
pub(crate) struct RawStream<'r, 'a, R> {
    input: R,
    /// Told of all bytes and sums.
    recorder: &'r RefCell<Recorder<'a>>,
    /// Sums of what has been read. Taken when the end has been reported.
    hasher: Option<BlockHasher>,
    /// Sums on their way to the recorder.
    sums: Vec<u64>,
    /// Bytes read; `held` of them are not yet given out. Large reads go past it.
    buffer: Vec<u8>,
    held: Range<usize>,
}

impl<'r, 'a, R: Read> RawStream<'r, 'a, R> {
    pub(crate) fn new(input: R, recorder: &'r RefCell<Recorder<'a>>) -> Self {
        let hasher = Some(BlockHasher::new());
        Self { input, recorder, hasher, sums: Vec::new(), buffer: Vec::new(), held: 0..0 }
    }

    /// Reads into `into` from the input itself, and reports what was read, or the end.
    fn pull(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(hasher) = &mut self.hasher else { return Ok(0) };
        // Ending on a block boundary lets the sums take whole blocks from `into`, without carrying parts over.
        let at = hasher.bytes();
        let end = (at + into.len() as u64) / BLOCK_BYTES * BLOCK_BYTES;
        let wanted = if end > at { (end - at) as usize } else { into.len() };
        let count = self.input.read(&mut into[..wanted])?;
        if count == 0 {
            if let Some((last, digest)) = self.hasher.take().map(BlockHasher::finish) {
                self.recorder.borrow_mut().ended(last, digest).map_err(io::Error::other)?;
            }
            return Ok(0);
        }
        self.sums.clear();
        hasher.update(&into[..count], &mut self.sums);
        self.recorder.borrow_mut().pass(count, &self.sums).map_err(io::Error::other)?;
        Ok(count)
    }
}

impl<R: Read> Read for RawStream<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.held.is_empty() && into.len() as u64 >= BLOCK_BYTES {
            return self.pull(into);
        }
        let held = self.fill_buf()?;
        let count = held.len().min(into.len());
        into[..count].copy_from_slice(&held[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read> BufRead for RawStream<'_, '_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.held.is_empty() {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(BUFFER_BYTES, 0);
            let got = self.pull(&mut buffer);
            self.buffer = buffer;
            self.held = 0..got?;
        }
        Ok(&self.buffer[self.held.clone()])
    }

    fn consume(&mut self, count: usize) {
        self.held.start = (self.held.start + count).min(self.held.end);
    }
}

/// Fills as much of `into` as the stream has. Less than all of it means the end.
pub(crate) fn read_full(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    // Each turn reads at least one byte or ends the loop; interrupts apart.
    while got < into.len() {
        match input.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Shows `each` the next `bytes` bytes in pieces; returns how many there were.
pub(crate) fn pass_over(
    input: &mut impl BufRead,
    bytes: u64,
    mut each: impl FnMut(&[u8]),
) -> io::Result<u64> {
    let mut left = bytes;
    // Each turn passes over at least one byte or ends the loop; interrupts apart.
    while left > 0 {
        let held = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            held => held?,
        };
        let count = held.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            break;
        }
        each(&held[..count]);
        input.consume(count);
        left -= count as u64;
    }
    Ok(bytes - left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Format, LineFormat, ScanOptions};
    use crate::testing::Scanned;

    /// Gives its bytes, then fails.
    struct Failing<'a>(&'a [u8]);

    impl Read for Failing<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::Error::other("the disk is gone")),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn a_read_that_fails_ends_the_scan_with_its_reason() {
        let text = "line\n".repeat(500_000);
        let format = Format::Lines(LineFormat::Text);
        let error = Scanned::new(format, b"", Failing(text.as_bytes()), &ScanOptions::default()).unwrap_err();
        assert!(error.to_string().contains("at byte 2500000: the disk is gone"), "{error}");
    }
}
