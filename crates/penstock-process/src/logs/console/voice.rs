//! One stream of one worker, as the person sees it: whole lines, each with the name of the worker before it.
//!
//! A carriage return begins a line anew, as progress bars use it: of each line only the last state is shown. The log has every byte.

use memchr::{memchr, memchr_iter};

use super::width;

/// A line that is longer is shown in pieces of about this many bytes; the log has it whole.
const LINE_BYTES_MAX: usize = 64 << 10;
/// What a line leaves allocated for the next one.
const SPARE_BYTES_MAX: usize = 4 << 10;
/// Colours of prefixes, chosen to be readable on dark and on light.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// Puts the name of a worker before every line of one stream.
pub struct Voice {
    prefix: Vec<u8>,
    prefix_columns: usize,
    /// The beginning of a line whose end was not written yet.
    text: Vec<u8>,
    /// A carriage return came after `text`: what comes next replaces it.
    returned: bool,
    /// Where in the stream the line begins.
    line_from: u64,
    /// Where in the stream begins what was not shown, because the terminal is slow.
    skipped_from: Option<u64>,
}

impl Voice {
    /// A worker's, whose stream goes on at `from`. The number chooses its colour; none for no colour.
    pub fn new(name: &str, colour: Option<u32>, from: u64) -> Self {
        let plain = format!("[{name}] ");
        let prefix_columns = plain.chars().count();
        let prefix = match colour {
            Some(number) => format!("\x1b[{}m{plain}\x1b[0m", COLOURS[number as usize % COLOURS.len()]),
            None => plain,
        };
        let prefix = prefix.into_bytes();
        Self {
            prefix,
            prefix_columns,
            text: Vec::new(),
            returned: false,
            line_from: from,
            skipped_from: None,
        }
    }

    /// How much of a line the name takes.
    pub fn prefix_columns(&self) -> usize {
        self.prefix_columns
    }

    /// Whether there is the beginning of a line that a person would see.
    pub fn has_partial(&self) -> bool {
        self.text.iter().any(|byte| !byte.is_ascii_whitespace())
    }

    /// Appends the lines that are whole now to `out`. `shared`: on a terminal, where moves of the cursor would hit others.
    pub fn feed(&mut self, bytes: &[u8], offset: u64, shared: bool, out: &mut Vec<u8>) {
        let bytes_end = offset + bytes.len() as u64;
        let rest = self.resume(bytes, offset, out);
        let special = if shared { width::steering(rest) } else { memchr(b'\r', rest) };
        let mut begin = 0;
        for end in memchr_iter(b'\n', rest) {
            if special.is_none() && self.text.is_empty() && !self.returned {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(&rest[begin..=end]);
            } else {
                self.add(&rest[begin..end]);
                self.emit(shared, out);
            }
            begin = end + 1;
        }
        if begin > 0 {
            self.line_from = bytes_end - (rest.len() - begin) as u64;
        }
        self.add(&rest[begin..]);
        if self.text.len() >= LINE_BYTES_MAX {
            self.emit(shared, out);
            self.line_from = bytes_end;
        }
    }

    /// Appends what is left as a line of its own: the stream ended at `offset`.
    pub fn finish(&mut self, offset: u64, shared: bool, out: &mut Vec<u8>) {
        self.note_skipped(offset, out);
        if !self.text.is_empty() {
            self.emit(shared, out);
        }
    }

    /// Leaves out what would be shown next, up to `end`, and the beginning of a line that was not shown yet.
    pub fn skip(&mut self, end: u64) {
        self.skipped_from.get_or_insert(self.line_from);
        self.text = Vec::new();
        self.returned = false;
        self.line_from = end;
    }

    /// Whether something was left out and nothing was shown since.
    pub fn is_skipping(&self) -> bool {
        self.skipped_from.is_some()
    }

    /// Appends the beginning of the line as far as it fits; how many columns it takes, with the name.
    pub fn draw(&self, columns: usize, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&self.prefix);
        let left = columns.saturating_sub(self.prefix_columns);
        self.prefix_columns + width::fit(&self.text, left, out)
    }

    /// After something was left out, lines are shown again from the next whole one on, and it is told what is missing.
    fn resume<'a>(&mut self, bytes: &'a [u8], offset: u64, out: &mut Vec<u8>) -> &'a [u8] {
        if self.skipped_from.is_none() {
            return bytes;
        }
        let Some(end) = memchr(b'\n', bytes) else {
            self.line_from = offset + bytes.len() as u64;
            return &[];
        };
        self.line_from = offset + end as u64 + 1;
        self.note_skipped(self.line_from, out);
        &bytes[end + 1..]
    }

    fn note_skipped(&mut self, to: u64, out: &mut Vec<u8>) {
        let Some(from) = self.skipped_from.take() else { return };
        out.extend_from_slice(&self.prefix);
        let note = format!("… {} bytes from offset {from} are not shown, the terminal is slow\n", to - from);
        out.extend_from_slice(note.as_bytes());
    }

    fn add(&mut self, mut bytes: &[u8]) {
        while let Some(at) = memchr(b'\r', bytes) {
            self.put(&bytes[..at]);
            self.returned = true;
            bytes = &bytes[at + 1..];
        }
        self.put(bytes);
    }

    fn put(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        if std::mem::take(&mut self.returned) {
            self.text.clear();
        }
        self.text.extend_from_slice(piece);
    }

    fn emit(&mut self, shared: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        if shared {
            width::without_moves(&self.text, out);
        } else {
            out.extend_from_slice(&self.text);
        }
        out.push(b'\n');
        self.returned = false;
        self.text.clear();
        self.text.shrink_to(SPARE_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let (mut voice, mut out, mut offset) = (Voice::new("3", None, 0), Vec::new(), 0);
        for piece in pieces {
            voice.feed(piece, offset, false, &mut out);
            offset += piece.len() as u64;
        }
        voice.finish(offset, false, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_whole_and_a_torn_last_one_is_shown() {
        assert_eq!(shown(&[b"one\ntw", b"o\nthree"]), "[3] one\n[3] two\n[3] three\n");
    }

    #[test]
    fn of_a_progress_bar_the_last_state_is_shown() {
        assert_eq!(shown(&[b"\r 0%\r 50%", b"\r100%\nsaved\r\n"]), "[3] 100%\n[3] saved\n");
        assert_eq!(shown(&[b" 0%\r", b"50%\r", b"\n"]), "[3] 50%\n");
    }

    #[test]
    fn what_was_left_out_is_told_with_its_place_and_lines_stay_whole() {
        let (mut voice, mut out) = (Voice::new("0", None, 0), Vec::new());
        voice.feed(b"one\nbegi", 0, false, &mut out);
        voice.skip(20);
        voice.skip(30);
        voice.feed(b"torn", 30, false, &mut out);
        voice.feed(b" end\nnext\n", 34, false, &mut out);
        let note = "[0] … 35 bytes from offset 4 are not shown, the terminal is slow\n";
        assert_eq!(String::from_utf8(out).unwrap(), format!("[0] one\n{note}[0] next\n"));
    }

    #[test]
    fn a_line_without_an_end_does_not_grow_for_ever() {
        let (mut voice, mut out) = (Voice::new("0", None, 0), Vec::new());
        for at in 0..64 {
            voice.feed(&[b'x'; 16 << 10], at * (16 << 10), false, &mut out);
            assert!(voice.text.len() <= LINE_BYTES_MAX);
        }
        assert_eq!(out.iter().filter(|byte| **byte == b'x').count(), 1 << 20);
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_does_not_matter(text in "[a\r\n]{0,80}", cuts in proptest::collection::vec(0..80usize, 0..6)) {
            let text = text.into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let mut at = 0;
            let mut pieces = Vec::new();
            for cut in cuts {
                pieces.push(&text[at..cut]);
                at = cut;
            }
            prop_assert_eq!(shown(&[&text]), shown(&pieces));
        }
    }
}
