//! The terminal of a person: lines scroll, and below them stand the lines that are not finished, one for each worker that has one.
//!
//! A prompt or a progress bar appears a moment after it was written. While some stand there, whole lines wait for the next redraw,
//! so that a bar is rewritten in place and nothing flickers; there are at most ten redraws in a second.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::voice::Voice;
use crate::system::terminal::Size;

/// Between two redraws, and from the first letter of an unfinished line to its appearance.
const FRAME: Duration = Duration::from_millis(100);
/// More lines than this do not wait for the next redraw.
const ABOVE_BYTES_MAX: usize = 32 << 10;
/// Fewer rows are no terminal to draw on.
const ROWS_MIN: usize = 2;

/// What stands on the terminal.
pub struct Screen {
    /// To ask for the size; the launcher writes.
    terminal: OwnedFd,
    size: Size,
    /// Columns of each unfinished line that stands at the bottom.
    drawn: Vec<usize>,
    /// Whole lines that are not on the terminal yet.
    above: Vec<u8>,
    due: Option<Instant>,
}

impl Screen {
    /// A terminal on which nothing of ours stands yet.
    pub fn new(terminal: OwnedFd) -> Self {
        let size = Size::of(&terminal).unwrap_or(Size::UNSEEN);
        Self { terminal, size, drawn: Vec::new(), above: Vec::new(), due: None }
    }

    /// How large it is.
    pub fn size(&self) -> Size {
        self.size
    }

    /// It has another size now.
    pub fn resize(&mut self, now: Instant) {
        self.size = Size::of(&self.terminal).unwrap_or(self.size);
        if !self.drawn.is_empty() {
            self.due.get_or_insert(now);
        }
    }

    /// When to draw.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether whole lines wait for the next redraw.
    pub fn has_lines(&self) -> bool {
        !self.above.is_empty()
    }

    /// What a voice has now: whole lines go to the terminal, at once if nothing stands in their way.
    pub fn feed(&mut self, voice: &mut Voice, bytes: &[u8], offset: u64, now: Instant, out: &mut Vec<u8>) {
        voice.feed(bytes, offset, true, &mut self.above);
        self.follow(voice.has_partial(), now, out);
    }

    /// The stream of a voice ended.
    pub fn finish(&mut self, voice: &mut Voice, offset: u64, now: Instant, out: &mut Vec<u8>) {
        voice.finish(offset, true, &mut self.above);
        self.follow(false, now, out);
    }

    fn follow(&mut self, has_partial: bool, now: Instant, out: &mut Vec<u8>) {
        if self.drawn.is_empty() || self.above.len() > ABOVE_BYTES_MAX {
            self.show_lines(out);
        }
        if has_partial || !self.drawn.is_empty() || !self.above.is_empty() {
            self.due.get_or_insert(now + FRAME);
        }
    }

    /// Puts whole lines where the unfinished ones stand; those are drawn again when it is due.
    fn show_lines(&mut self, out: &mut Vec<u8>) {
        if !self.above.is_empty() {
            if !self.drawn.is_empty() {
                self.rewind(out);
                out.extend_from_slice(b"\x1b[J");
                self.drawn.clear();
            }
            out.append(&mut self.above);
        }
    }

    /// Draws the unfinished lines. `behind`: the terminal has not taken what it got before, so only lines are shown.
    pub fn draw<'a>(
        &mut self,
        voices: impl Iterator<Item = &'a Voice>,
        behind: bool,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        self.due = None;
        if behind {
            self.show_lines(out);
            self.due = Some(now + FRAME);
            return;
        }
        if !self.drawn.is_empty() {
            self.rewind(out);
        }
        if !self.above.is_empty() {
            // What stood there is overwritten by lines of any length.
            out.extend_from_slice(b"\x1b[J");
            out.append(&mut self.above);
        }
        self.drawn.clear();
        let rows = (usize::from(self.size.rows).max(ROWS_MIN)) - 1;
        // The last column stays free: a cursor behind it is on different lines on different terminals.
        let columns = usize::from(self.size.columns) - 1;
        let mut left = 0;
        for voice in voices {
            if self.drawn.len() >= rows {
                left += 1;
                continue;
            }
            if !self.drawn.is_empty() {
                out.extend_from_slice(b"\x1b[K\n");
            }
            self.drawn.push(voice.draw(columns, out));
        }
        if left > 0 {
            let note = format!(" and {left} more");
            if columns > note.len() {
                out.extend_from_slice(format!("\x1b[{}G{note}", columns - note.len()).as_bytes());
                self.drawn.pop();
                self.drawn.push(columns);
            }
        }
        out.extend_from_slice(b"\x1b[K\x1b[J");
    }

    /// Takes the unfinished lines away and shows what waits: there is nobody left who draws.
    pub fn clear(&mut self, out: &mut Vec<u8>) {
        self.due = None;
        if !self.drawn.is_empty() {
            self.rewind(out);
            out.extend_from_slice(b"\x1b[J");
            self.drawn.clear();
        }
        out.append(&mut self.above);
    }

    /// Moves the cursor to where the first unfinished line begins. A terminal that became narrow has folded them.
    fn rewind(&self, out: &mut Vec<u8>) {
        let columns = usize::from(self.size.columns).max(1);
        let rows: usize = self.drawn.iter().map(|drawn| drawn.div_ceil(columns).max(1)).sum();
        out.push(b'\r');
        if rows > 1 {
            out.extend_from_slice(format!("\x1b[{}A", rows - 1).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::terminal;

    /// A terminal as simple as can be: rows of text, a cursor, and the sequences that a screen uses.
    struct Paper {
        rows: Vec<Vec<char>>,
        at: (usize, usize),
    }

    impl Paper {
        fn write(&mut self, text: &str) {
            let mut letters = text.chars().peekable();
            while let Some(letter) = letters.next() {
                match letter {
                    '\n' => self.at = (self.at.0 + 1, 0),
                    '\r' => self.at.1 = 0,
                    '\x1b' => {
                        letters.next();
                        let mut number = 0;
                        while let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(10)) {
                            number = number * 10 + digit as usize;
                            letters.next();
                        }
                        match letters.next() {
                            Some('A') => self.at.0 -= number,
                            Some('G') => self.at.1 = number - 1,
                            Some('K') => self.row().clear_from(),
                            Some('J') => {
                                self.row().clear_from();
                                self.rows.truncate(self.at.0 + 1);
                            }
                            _ => {}
                        }
                    }
                    _ => {
                        let at = self.at.1;
                        let row = self.row().0;
                        row.resize(row.len().max(at + 1), ' ');
                        row[at] = letter;
                        self.at.1 += 1;
                    }
                }
            }
        }

        fn row(&mut self) -> Row<'_> {
            let at = self.at;
            self.rows.resize(self.rows.len().max(at.0 + 1), Vec::new());
            Row(&mut self.rows[at.0], at.1)
        }

        fn text(&self) -> Vec<String> {
            self.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
        }
    }

    struct Row<'a>(&'a mut Vec<char>, usize);

    impl Row<'_> {
        fn clear_from(&mut self) {
            self.0.truncate(self.1);
        }
    }

    #[test]
    fn bars_of_two_workers_are_rewritten_in_place_and_lines_go_above_them() {
        let (_ours, theirs) = terminal::open(Size { rows: 10, columns: 20 }).unwrap();
        let (mut screen, now) = (Screen::new(theirs), Instant::now());
        let mut voices = [Voice::new("0", None, 0), Voice::new("1", None, 0)];
        let mut paper = Paper { rows: Vec::new(), at: (0, 0) };
        let mut offset = 0;
        for percent in ["10%", "55%", "100%"] {
            for voice in &mut voices {
                let (mut out, bar) = (Vec::new(), format!("\r{percent} and far beyond the edge"));
                screen.feed(voice, bar.as_bytes(), offset, now, &mut out);
                assert!(out.is_empty(), "nothing before it is due");
            }
            assert!(screen.due().is_some_and(|due| due == now + FRAME));
            let mut out = Vec::new();
            screen.feed(&mut voices[1], b"", offset, now, &mut out);
            screen.draw(voices.iter(), false, now, &mut out);
            paper.write(std::str::from_utf8(&out).unwrap());
            let cut =
                |rank: u32| format!("[{rank}] {percent} and far beyond").chars().take(19).collect::<String>();
            let tail = paper.text().split_off(paper.text().len() - 2);
            assert_eq!(tail, [cut(0).trim_end(), cut(1).trim_end()]);
            offset += 100;
        }
        let mut out = Vec::new();
        screen.feed(&mut voices[0], b"\rdone\n", offset, now, &mut out);
        assert!(out.is_empty(), "a line waits for the redraw while a bar stands there");
        screen.draw(voices[1..].iter(), false, now, &mut out);
        paper.write(std::str::from_utf8(&out).unwrap());
        assert_eq!(paper.text(), ["[0] done", "[1] 100% and far be"]);
        out.clear();
        screen.finish(&mut voices[1], offset, now, &mut out);
        screen.clear(&mut out);
        paper.write(std::str::from_utf8(&out).unwrap());
        assert_eq!(paper.text()[..2], ["[0] done", "[1] 100% and far beyond the edge"]);
    }

    #[test]
    fn more_bars_than_rows_are_counted() {
        let (_ours, theirs) = terminal::open(Size { rows: 4, columns: 40 }).unwrap();
        let (mut screen, now) = (Screen::new(theirs), Instant::now());
        let mut voices: Vec<_> = (0..9).map(|rank| Voice::new(&rank.to_string(), None, 0)).collect();
        let mut out = Vec::new();
        for voice in &mut voices {
            screen.feed(voice, b"50%", 0, now, &mut out);
        }
        screen.draw(voices.iter(), false, now, &mut out);
        let mut paper = Paper { rows: Vec::new(), at: (0, 0) };
        paper.write(std::str::from_utf8(&out).unwrap());
        assert_eq!(paper.text().len(), 3);
        assert!(paper.text()[2].ends_with("and 6 more"), "{:?}", paper.text());
    }
}
