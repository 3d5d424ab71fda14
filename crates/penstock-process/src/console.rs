//! What the person at the terminal sees: whole lines, each with the rank that wrote it.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use memchr::memchr;

use crate::job::{Job, Role};

/// A line that is longer is shown in pieces of this many bytes; the log file has it whole.
const LINE_BYTES_MAX: usize = 64 << 10;
/// So much may wait for the terminal before ranks have to wait as well.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Colours of prefixes, chosen to be readable on dark and on light.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// Puts the rank before every line of one stream.
pub struct Prefixer {
    prefix: Vec<u8>,
    /// The beginning of a line whose end was not written yet.
    partial: Vec<u8>,
}

impl Prefixer {
    /// For a worker of a job: its rank, after its role where the job has several.
    pub fn new(job: &Job, role: usize, rank: u32) -> Self {
        let widest = |role: &Role| role.ranks.saturating_sub(1).to_string().len();
        let plain = match &job.roles[..] {
            [only] => format!("[{rank:>width$}] ", width = widest(only)),
            roles => {
                let named = format!("{}-{rank}", roles[role].name);
                let width = roles.iter().map(|role| role.name.len() + 1 + widest(role)).max().unwrap_or(0);
                format!("[{named:>width$}] ")
            }
        };
        Self::with(&plain, job.colour.then_some(job.place(role, rank)))
    }

    fn with(plain: &str, hue: Option<u32>) -> Self {
        let prefix = match hue {
            Some(place) => {
                let hue = COLOURS[place as usize % COLOURS.len()];
                format!("\x1b[{hue}m{plain}\x1b[0m")
            }
            None => plain.to_owned(),
        };
        Self { prefix: prefix.into_bytes(), partial: Vec::new() }
    }

    /// Appends the lines that are whole now to `out`.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = memchr(b'\n', bytes) {
            out.extend_from_slice(&self.prefix);
            out.append(&mut self.partial);
            out.extend_from_slice(&bytes[..=end]);
            bytes = &bytes[end + 1..];
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() >= LINE_BYTES_MAX {
            self.finish(out);
        }
    }

    /// Appends what is left as a line of its own.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            out.extend_from_slice(&self.prefix);
            out.append(&mut self.partial);
            out.push(b'\n');
        }
    }
}

/// One way to the launcher, which writes what it gets to the terminal. Never blocks.
pub struct Sink {
    /// Our end of the pipe; nothing when there is no launcher, or it left.
    pipe: Option<File>,
    waiting: Vec<u8>,
    /// How much of `waiting` is written already.
    written: usize,
}

impl Sink {
    /// A sink into a pipe that does not block, or into nothing.
    pub fn new(pipe: Option<OwnedFd>) -> Self {
        Self { pipe: pipe.map(File::from), waiting: Vec::new(), written: 0 }
    }

    /// Whether anybody looks.
    pub fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Whether all was written that will ever be.
    pub fn is_empty(&self) -> bool {
        self.waiting.len() == self.written
    }

    /// Whether ranks should wait.
    pub fn is_full(&self) -> bool {
        self.waiting.len() - self.written >= WAITING_BYTES_MAX
    }

    /// The descriptor to poll for room; negative when nothing waits.
    pub fn interest(&self) -> RawFd {
        if self.is_empty() { -1 } else { self.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd) }
    }

    /// Where to append what should be shown.
    pub fn room(&mut self) -> &mut Vec<u8> {
        &mut self.waiting
    }

    /// Writes as much as goes without waiting.
    pub fn flush(&mut self) {
        while let Some(pipe) = self.pipe.as_mut().filter(|_| self.waiting.len() > self.written) {
            match pipe.write(&self.waiting[self.written..]) {
                Ok(count) => self.written += count,
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) if problem.kind() == ErrorKind::WouldBlock => return,
                // The launcher left. The log files have everything.
                Err(_) => self.pipe = None,
            }
        }
        self.waiting.clear();
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_whole_and_a_torn_last_one_is_shown() {
        let mut prefixer = Prefixer::with("[ 3] ", None);
        let mut out = Vec::new();
        prefixer.feed(b"one\ntw", &mut out);
        prefixer.feed(b"o\nthree", &mut out);
        assert_eq!(out, b"[ 3] one\n[ 3] two\n");
        prefixer.finish(&mut out);
        assert_eq!(out, b"[ 3] one\n[ 3] two\n[ 3] three\n");
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_does_not_matter(text in "[a\n]{0,80}", cuts in proptest::collection::vec(0..80usize, 0..6)) {
            let text = text.into_bytes();
            let (mut whole, mut pieces) = (Vec::new(), Vec::new());
            let mut prefixer = Prefixer::with("[0] ", Some(0));
            prefixer.feed(&text, &mut whole);
            prefixer.finish(&mut whole);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut at = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                prefixer.feed(&text[at..cut], &mut pieces);
                at = cut;
            }
            prefixer.finish(&mut pieces);
            prop_assert_eq!(whole, pieces);
        }
    }
}
