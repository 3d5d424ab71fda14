//! When a worker began to fail: the moments at which it wrote a line that a failure begins with, and where in its log that stands.
//!
//! Who exits first is seldom who failed first: a rank that raised closes its connections and may need seconds to end, and its peers are gone by
//! then. The line is only found here; what it says is read once all of the life is gone (`last_words`).

use std::collections::VecDeque;

use memchr::memmem;

use crate::job::Stream;

/// What failures begin with, whatever else stands in the line: Python's, with any dress; the interpreter's own end; C++, C and Rust.
const BEGINNINGS: [&[u8]; 7] = [
    TRACEBACK,
    b"Fatal Python error: ",
    b"terminate called ",
    b"*** SIG",
    b"' panicked at ",
    b"Assertion `",
    b"*** stack smashing detected",
];
const TRACEBACK: &[u8] = b"Traceback (most recent call last)";
/// Standard output may be a flood, so only tracebacks are looked for there: of programs whose errors go the same way.
const OF_OUTPUT: usize = 1;
/// The longest of them, less one: so much of a read may be the first part of one.
const CARRIED_BYTES: usize = 32;
/// Only the last ones matter; a worker that complains all the time must not fill the memory.
const KEPT: usize = 32;

/// A line that a failure begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distress {
    /// When it was read, on the clock of [`crate::system::now_ms`].
    pub at_ms: u64,
    /// Of which stream.
    pub stream: Stream,
    /// Where in it.
    pub offset: u64,
}

/// The newest of them, of one life.
#[derive(Debug, Default)]
pub(super) struct Distresses(VecDeque<Distress>);

impl Distresses {
    /// A new life has none.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn add(&mut self, distress: Distress) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(distress);
    }

    pub(super) fn all(&self) -> Vec<Distress> {
        self.0.iter().copied().collect()
    }
}

/// Looks for them in one stream, read by read.
pub(super) struct DistressScanner {
    beginnings: Vec<memmem::Finder<'static>>,
    /// The end of the last read.
    carried: Vec<u8>,
}

impl DistressScanner {
    pub(super) fn new(stream: Stream, is_terminal: bool) -> Self {
        let all = stream == Stream::Err || is_terminal;
        let wanted = if all { &BEGINNINGS[..] } else { &BEGINNINGS[..OF_OUTPUT] };
        let beginnings = wanted.iter().map(|text| memmem::Finder::new(*text)).collect();
        Self { beginnings, carried: Vec::new() }
    }

    /// Where the first one in what was read at `offset` begins. One for each read is enough: what follows belongs to it.
    pub(super) fn find(&mut self, bytes: &[u8], offset: u64) -> Option<u64> {
        let carried = self.carried.len();
        self.carried.extend_from_slice(&bytes[..bytes.len().min(CARRIED_BYTES)]);
        let torn = self.first_in(&self.carried).map(|at| offset + at as u64 - carried as u64);
        let found = torn.or_else(|| self.first_in(bytes).map(|at| offset + at as u64));
        let end = if bytes.len() >= CARRIED_BYTES { bytes } else { &self.carried };
        let mut end = end[end.len().saturating_sub(CARRIED_BYTES)..].to_vec();
        if found.is_some() {
            // It is not found a second time.
            end.clear();
        }
        self.carried = end;
        found
    }

    fn first_in(&self, bytes: &[u8]) -> Option<usize> {
        self.beginnings.iter().filter_map(|beginning| beginning.find(bytes)).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_beginning_is_found_once_however_it_is_cut(before in 0..200usize, cuts in prop::collection::vec(1..60usize, 1..12)) {
            let mut text = vec![b'.'; before];
            text.extend_from_slice(b"[rank1]: Traceback (most recent call last):\n  File");
            let (mut scanner, mut found, mut at) = (DistressScanner::new(Stream::Err, false), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(text.len());
                found.extend(scanner.find(&text[at..end], at as u64));
                at = end;
                if at == text.len() {
                    break;
                }
            }
            prop_assert_eq!(found, vec![before as u64 + 9]);
        }
    }

    #[test]
    fn output_is_searched_for_tracebacks_only_and_the_newest_are_kept() {
        let text = b"terminate called after throwing";
        assert_eq!(DistressScanner::new(Stream::Err, false).find(text, 7), Some(7));
        assert_eq!(DistressScanner::new(Stream::Out, false).find(text, 7), None);
        assert_eq!(DistressScanner::new(Stream::Out, true).find(text, 7), Some(7));
        let mut kept = Distresses::default();
        (0..100).for_each(|at_ms| kept.add(Distress { at_ms, stream: Stream::Err, offset: 0 }));
        assert_eq!((kept.all().len(), kept.all()[KEPT - 1].at_ms), (KEPT, 99));
    }
}
