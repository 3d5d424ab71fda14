//! The newest of what the ranks of one host wrote to standard error: so little that others may keep it, for the case that the host vanishes.
//!
//! All ranks of a host share the room. Who wrote most loses its oldest lines first, so one that complains all the time leaves room for
//! the last line of another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is kept of a host.
pub const TAIL_BYTES_MAX: usize = 16 << 10;

/// What one rank wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStderr {
    /// Its role.
    pub role: String,
    /// Its place in the role: on its host where an agent says so, else among all hosts.
    pub rank: u32,
    /// Which life.
    pub incarnation: u32,
    /// Whole lines, as far as they have an end.
    pub text: String,
}

/// The newest of what ranks of a host wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StderrTail {
    texts: BTreeMap<(String, u32), (u32, String)>,
    bytes: usize,
}

impl StderrTail {
    /// Of what was told by another.
    pub fn of(told: Vec<RankStderr>) -> Self {
        let mut tail = Self::default();
        told.into_iter().for_each(|one| tail.add(one));
        tail
    }

    /// Adds what a rank wrote next. Nothing of an earlier life of it stays.
    pub fn add(&mut self, one: RankStderr) {
        let known = self.texts.entry((one.role, one.rank)).or_default();
        if known.0 < one.incarnation {
            self.bytes -= known.1.len();
            known.1.clear();
        } else if known.0 > one.incarnation {
            return;
        }
        known.0 = one.incarnation;
        self.bytes += one.text.len();
        known.1.push_str(&one.text);
        while self.bytes > TAIL_BYTES_MAX {
            let Some((_, text)) = self.texts.values_mut().max_by_key(|(_, text)| text.len()) else { return };
            let surplus = (self.bytes - TAIL_BYTES_MAX).min(text.len().div_ceil(2));
            self.bytes -= cut_front(text, surplus);
        }
    }

    /// What there is, by role and rank.
    pub fn all(&self) -> Vec<RankStderr> {
        let texts = self.texts.iter().filter(|(_, (_, text))| !text.is_empty());
        let one = |((role, rank), (incarnation, text)): (&(String, u32), &(u32, String))| RankStderr {
            role: role.clone(),
            rank: *rank,
            incarnation: *incarnation,
            text: text.clone(),
        };
        texts.map(one).collect()
    }

    /// What a rank wrote in a life.
    pub fn of_rank(&self, role: &str, rank: u32, incarnation: u32) -> Option<&str> {
        let (life, text) = self.texts.get(&(role.to_owned(), rank))?;
        (*life == incarnation && !text.is_empty()).then_some(text)
    }

    /// Whether nobody wrote anything.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

/// Removes so many bytes at least from the front: up to the end of a line, or of a character where the line has no end. How many it were.
fn cut_front(text: &mut String, least: usize) -> usize {
    let line_end = text.as_bytes()[least.saturating_sub(1)..].iter().position(|byte| *byte == b'\n');
    let mut cut = line_end.map_or(least, |end| least.saturating_sub(1) + end + 1).min(text.len());
    while !text.is_char_boundary(cut) {
        cut += 1;
    }
    text.drain(..cut);
    cut
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrote(rank: u32, incarnation: u32, text: &str) -> RankStderr {
        RankStderr { role: "rank".to_owned(), rank, incarnation, text: text.to_owned() }
    }

    #[test]
    fn a_flood_of_one_rank_leaves_the_last_line_of_another() {
        let mut tail = StderrTail::of(vec![wrote(1, 0, "the one that counts\n")]);
        (0..10_000).for_each(|number| tail.add(wrote(0, 0, &format!("warning {number}\n"))));
        assert_eq!(tail.of_rank("rank", 1, 0), Some("the one that counts\n"));
        let flood = tail.of_rank("rank", 0, 0).unwrap();
        assert!(flood.starts_with("warning ") && flood.ends_with("warning 9999\n"));
        assert_eq!(StderrTail::of(tail.all()), tail);
    }

    #[test]
    fn a_new_life_begins_with_nothing_and_an_old_one_adds_nothing() {
        let tail = StderrTail::of(vec![wrote(0, 1, "old\n"), wrote(0, 2, "new\n"), wrote(0, 1, "late\n")]);
        assert_eq!((tail.of_rank("rank", 0, 2), tail.of_rank("rank", 0, 1)), (Some("new\n"), None));
    }

    proptest! {
        #[test]
        fn it_is_never_more_than_its_room_and_always_the_end(
            pieces in prop::collection::vec((0..4u32, "[aä\n]{0,3000}"), 1..40),
        ) {
            let (mut tail, mut whole) = (StderrTail::default(), BTreeMap::<u32, String>::new());
            for (rank, text) in &pieces {
                tail.add(wrote(*rank, 0, text));
                whole.entry(*rank).or_default().push_str(text);
                let all = tail.all();
                let bytes: usize = all.iter().map(|one| one.text.len()).sum();
                prop_assert!(bytes <= TAIL_BYTES_MAX && bytes == tail.bytes);
                for one in all {
                    prop_assert!(whole[&one.rank].ends_with(&one.text));
                }
            }
            let all: usize = whole.values().map(String::len).sum();
            prop_assert!(all > TAIL_BYTES_MAX || tail.bytes == all);
        }
    }
}
