//! Cutting a stream into lines, in a buffer that grows only as far as the longest line that is allowed.
//!
//! A line ends at `\n` or `\r\n`, or with the stream. A UTF-8 byte order mark at the very start is not part of the first
//! line. A line over the limit is stepped over without being held.

use std::io::Read;
use std::ops::Range;

use memchr::memchr;

/// Bytes of the buffer to begin with: fits the second-level cache, so the sums and the walk touch memory once.
const BUFFER_BYTES: usize = 320 << 10;
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Lines of a stream.
pub(crate) struct Lines<R> {
    input: R,
    /// Bytes read; `held` of them are not yet given out.
    buffer: Vec<u8>,
    held: Range<usize>,
    /// Where the search for a newline goes on: everything held before it has none.
    searched: usize,
    /// Stream offset of `held.start`.
    offset: u64,
    /// Lines given out so far.
    lines: u64,
    /// Longest line that is held whole.
    line_bytes_max: usize,
    /// Whether the input has ended.
    ended: bool,
}

/// A line of the stream.
pub(crate) struct Line {
    /// Counted from 1.
    pub(crate) number: u64,
    /// Stream offset of its first byte.
    pub(crate) offset: u64,
    /// Where its bytes are, without terminator, until the next call; nothing if it is over the limit.
    pub(crate) place: Option<Range<usize>>,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R, line_bytes_max: u32) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER_BYTES],
            held: 0..0,
            searched: 0,
            offset: 0,
            lines: 0,
            line_bytes_max: line_bytes_max as usize,
            ended: false,
        }
    }

    /// The bytes of a line just found.
    #[inline]
    pub(crate) fn bytes(&self, place: Range<usize>) -> &[u8] {
        &self.buffer[place]
    }

    /// The input, once the lines are spent.
    pub(crate) fn into_input(self) -> R {
        self.input
    }

    /// The next line, or nothing at the end.
    pub(crate) fn next(&mut self) -> std::io::Result<Option<Line>> {
        if self.offset == 0 && self.lines == 0 {
            self.skip_mark()?;
        }
        // Each turn finds a line, reads at least one byte, or ends.
        loop {
            if let Some(newline) = memchr(b'\n', &self.buffer[self.searched..self.held.end]) {
                let end = self.searched + newline;
                return Ok(Some(self.take(end, end + 1)));
            }
            self.searched = self.held.end;
            if self.ended {
                return Ok((!self.held.is_empty()).then(|| self.take(self.held.end, self.held.end)));
            }
            // One byte over the limit may still be the `\r` of the terminator.
            if self.held.len() > self.line_bytes_max + 1 {
                return self.step_over().map(Some);
            }
            self.read_more()?;
        }
    }

    fn skip_mark(&mut self) -> std::io::Result<()> {
        while !self.ended && self.held.len() < MARK.len() {
            self.read_more()?;
        }
        if self.buffer[self.held.clone()].starts_with(MARK) {
            self.drop_until(self.held.start + MARK.len());
        }
        Ok(())
    }

    /// Gives out the line that is held up to `end`, and goes on at `next`.
    fn take(&mut self, end: usize, next: usize) -> Line {
        let (start, offset) = (self.held.start, self.offset);
        let ends_in_return = next > end && end > start && self.buffer[end - 1] == b'\r';
        let place = start..end - usize::from(ends_in_return);
        self.drop_until(next);
        self.lines += 1;
        let place = (place.len() <= self.line_bytes_max).then_some(place);
        Line { number: self.lines, offset, place }
    }

    fn drop_until(&mut self, next: usize) {
        self.offset += (next - self.held.start) as u64;
        self.held.start = next;
        self.searched = next;
    }

    /// Drops bytes up to and including the next newline.
    fn step_over(&mut self) -> std::io::Result<Line> {
        let offset = self.offset;
        loop {
            if let Some(newline) = memchr(b'\n', &self.buffer[self.searched..self.held.end]) {
                self.drop_until(self.searched + newline + 1);
                break;
            }
            self.drop_until(self.held.end);
            if self.ended {
                break;
            }
            self.read_more()?;
        }
        self.lines += 1;
        Ok(Line { number: self.lines, offset, place: None })
    }

    fn read_more(&mut self) -> std::io::Result<()> {
        if self.held.start > 0 {
            self.buffer.copy_within(self.held.clone(), 0);
            self.searched -= self.held.start;
            self.held = 0..self.held.len();
        }
        if self.held.end * 2 > self.buffer.len() {
            let limit = self.line_bytes_max.saturating_add(BUFFER_BYTES);
            let grown = (self.buffer.len() * 2).min(limit).max(self.buffer.len());
            self.buffer.resize(grown, 0);
        }
        match self.input.read(&mut self.buffer[self.held.end..]) {
            Ok(count) => {
                self.held.end += count;
                self.ended = count == 0;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &[u8], limit: u32) -> Vec<(u64, u64, Option<Vec<u8>>)> {
        let mut lines = Lines::new(text, limit);
        let mut pieces = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            pieces.push((line.number, line.offset, line.place.map(|place| lines.bytes(place).to_vec())));
        }
        pieces
    }

    #[test]
    fn both_terminators_and_none_end_a_line() {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        let lines = split(b"\xef\xbb\xbfab\r\n\n\rc\n\r\nd\r", 100);
        let expected = [
            (1, 3, some("ab")),
            (2, 7, some("")),
            (3, 8, some("\rc")),
            (4, 11, some("")),
            (5, 13, some("d\r")),
        ];
        assert_eq!(lines, expected);
        assert_eq!(split(b"", 10), []);
        assert_eq!(split(b"\xef\xbb\xbf", 10), []);
        assert_eq!(split(b"\xef", 10), [(1, 0, Some(vec![0xef]))]);
    }

    #[test]
    fn a_line_over_the_limit_is_stepped_over() {
        let text = [b"ok\n".as_slice(), &[b'x'; 1_000_000], b"\nfine\n", &[b'y'; 11]].concat();
        let lines = split(&text, 10);
        assert_eq!(lines[1], (2, 3, None));
        assert_eq!(lines[2], (3, 1_000_004, Some(b"fine".to_vec())));
        assert_eq!(lines[3], (4, 1_000_009, None));
        assert_eq!(split(b"0123456789\r\n", 10)[0].2, Some(b"0123456789".to_vec()));
        assert_eq!(split(&text, 1_000_000)[1].2.as_ref().map(Vec::len), Some(1_000_000));
    }
}
