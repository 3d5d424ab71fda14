//! Best fit decreasing: lengths, longest first, each put where it leaves the least room.
//!
//! Bins of equal room wait in one list, and a bitmap says which rooms have bins, so the tightest bin for a length is found
//! in as many steps as a number has digits to base 64: four at most, however many bins there are. What goes where depends
//! on nothing but the sorted lengths.

use super::error::PlanError;

/// Most tokens in a pack that is filled by best fit: there is a list for every room a bin can have.
pub const FIT_TOKENS_MAX: u32 = 1 << 24;

/// Stands for "no bin" at the end of a list.
const NOBODY: u32 = u32::MAX;

/// The bin of each length, bins counted from 0 in the order they are opened; and how many there are.
///
/// `lengths` come longest first, each of `1..=size`; there are fewer than 2^32 of them.
pub(crate) fn best_fit(
    lengths: impl ExactSizeIterator<Item = u32>,
    size: u32,
) -> Result<(Vec<u32>, u32), PlanError> {
    if size == 0 || size > FIT_TOKENS_MAX {
        return Err(PlanError::PackTokens { pack_tokens: size, most: FIT_TOKENS_MAX });
    }
    let mut rooms = Rooms::new(size);
    let mut bins = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (bin, room) = rooms.take(length).unwrap_or_else(|| rooms.open(size));
        rooms.put(bin, room - length);
        bins.push(bin);
    }
    Ok((bins, rooms.next.len() as u32))
}

/// The open bins by how much room they have.
struct Rooms {
    /// The bin on top of each room's list.
    tops: Vec<u32>,
    /// For each bin, the one below it in its list.
    next: Vec<u32>,
    /// Bitmaps, finest first: a bit of the first says that a room has a bin, a bit of another that a word of the one before
    /// is not 0. The last has one word.
    levels: Vec<Vec<u64>>,
}

impl Rooms {
    fn new(size: u32) -> Self {
        let mut levels = vec![];
        let mut bits = size as usize + 1;
        loop {
            bits = bits.div_ceil(64);
            levels.push(vec![0; bits]);
            if bits == 1 {
                break;
            }
        }
        Self { tops: vec![NOBODY; size as usize + 1], next: vec![], levels }
    }

    /// A new bin, with all its room.
    fn open(&mut self, size: u32) -> (u32, u32) {
        self.next.push(NOBODY);
        (self.next.len() as u32 - 1, size)
    }

    /// Puts a bin into the list of its room.
    fn put(&mut self, bin: u32, room: u32) {
        if room == 0 {
            return;
        }
        let top = &mut self.tops[room as usize];
        self.next[bin as usize] = std::mem::replace(top, bin);
        let mut at = room as usize;
        for level in &mut self.levels {
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    /// Takes out a bin with the least room that holds `length`, and says how much that is.
    fn take(&mut self, length: u32) -> Option<(u32, u32)> {
        let room = self.least(length as usize)?;
        let bin = self.tops[room];
        self.tops[room] = self.next[bin as usize];
        if self.tops[room] == NOBODY {
            let mut at = room;
            for level in &mut self.levels {
                level[at / 64] &= !(1 << (at % 64));
                if level[at / 64] != 0 {
                    break;
                }
                at /= 64;
            }
        }
        Some((bin, room as u32))
    }

    /// The least room of at least `from` that has a bin.
    fn least(&self, from: usize) -> Option<usize> {
        let mut at = from;
        for (height, level) in self.levels.iter().enumerate() {
            let rest = level.get(at / 64)? & (u64::MAX << (at % 64));
            if rest != 0 {
                let start = at / 64 * 64 + rest.trailing_zeros() as usize;
                // Down again: the first bit of each word on the way.
                return Some(
                    self.levels[..height]
                        .iter()
                        .rev()
                        .fold(start, |word, finer| word * 64 + finer[word].trailing_zeros() as usize),
                );
            }
            at = at / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by looking at every bin.
    fn slow(lengths: &[u32], size: u32) -> Vec<u32> {
        let mut rooms: Vec<u32> = vec![];
        for &length in lengths {
            match rooms.iter_mut().filter(|room| **room >= length).min() {
                Some(room) => *room -= length,
                None => rooms.push(size - length),
            }
        }
        rooms.sort_unstable();
        rooms
    }

    fn rooms_left(lengths: &[u32], bins: &[u32], count: u32, size: u32) -> Vec<u32> {
        let mut rooms = vec![size; count as usize];
        lengths.iter().zip(bins).for_each(|(length, bin)| rooms[*bin as usize] -= length);
        rooms.sort_unstable();
        rooms
    }

    proptest! {
        /// Goal: it is best fit. Method: compare with a search through all bins, at sizes of one to four bitmap levels.
        #[test]
        fn the_tightest_bin_is_taken(
            size in prop_oneof![1..5_u32, 60..70_u32, 1..5_000_u32, 250_000..300_000_u32, Just(FIT_TOKENS_MAX)],
            shares in prop::collection::vec(0.0..1.0_f64, 0..120),
        ) {
            let mut lengths: Vec<u32> =
                shares.iter().map(|share| 1 + (share * share * f64::from(size - 1)) as u32).collect();
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            let (bins, count) = best_fit(lengths.iter().copied(), size).unwrap();
            prop_assert_eq!(rooms_left(&lengths, &bins, count, size), slow(&lengths, size));
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for size in [0, FIT_TOKENS_MAX + 1, u32::MAX] {
            let refused = best_fit([].into_iter(), size).unwrap_err();
            assert_eq!(refused, PlanError::PackTokens { pack_tokens: size, most: FIT_TOKENS_MAX });
        }
    }
}
