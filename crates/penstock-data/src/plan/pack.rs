//! Samples of one block joined into packs of a fixed number of tokens.
//!
//! | policy   | rule                                                                                                     |
//! |----------|----------------------------------------------------------------------------------------------------------|
//! | `Concat` | samples end to end in the epoch's order, cut every `pack_tokens`; only the last pack has padding          |
//! | `Fit`    | samples longer than a pack are cut into full pieces and a rest; rests and whole samples by best fit       |
//! | `Single` | each sample is a pack; one that does not fit is an error, one without tokens makes no pack               |
//! | `Crop`   | samples end to end as they are stored; a pack is `pack_tokens` tokens from *any* token on                |
//!
//! The epoch's order never changes *how many* packs there are: `Concat` counts tokens, and `Fit` sees only the sorted
//! lengths, so that an epoch decides which of several equally long samples stands where and in which order the samples of a
//! pack stand, but not the shape of any pack. That is what allows the number of packs to be stored with the length column.
//!
//! A block's packs are kept as where each begins (`Concat`) or as eight bytes per piece (`Fit`); spans are worked out from
//! the length column when a pack is asked for, so that hundreds of blocks can be held at a time.

use super::error::PlanError;
use super::fit::best_fit;
use super::order::Permutation;

/// How samples are joined into packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// End to end, cut where a pack is full.
    Concat,
    /// Whole samples where they fit best; only a sample longer than a pack is cut.
    Fit,
    /// One sample in each pack.
    Single,
    /// From any token on: a block has as many packs as there are tokens at which one can begin. Which of them an epoch has is
    /// drawn, see [`crop_at`](super::crop_at).
    Crop,
}

/// A run of tokens of one sample, at its place in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The sample's place in its block.
    pub sample: u32,
    /// First token, counted in the sample.
    pub start: u32,
    /// How many tokens; never 0.
    pub length: u32,
    /// Where they begin in the pack.
    pub at: u32,
}

/// How many packs the samples of a block make, in whatever order they come.
pub fn pack_count(lengths: &[u32], pack_tokens: u32, policy: Policy) -> Result<u32, PlanError> {
    check(lengths, pack_tokens)?;
    let packs = match policy {
        Policy::Concat => tokens_of(lengths).div_ceil(u64::from(pack_tokens)),
        Policy::Fit => {
            let mut rests: Vec<u32> = rests(lengths, pack_tokens).collect();
            rests.sort_unstable_by(|a, b| b.cmp(a));
            let (_, bins) = best_fit(rests.into_iter(), pack_tokens)?;
            full_pieces(lengths, pack_tokens) + u64::from(bins)
        }
        Policy::Single => {
            check_whole(lengths, pack_tokens)?;
            lengths.iter().filter(|length| **length > 0).count() as u64
        }
        Policy::Crop => crop_count(tokens_of(lengths), pack_tokens),
    };
    u32::try_from(packs).map_err(|_| PlanError::TooManyPacks { packs })
}

/// The packs of one block in one epoch.
#[derive(Debug, Clone)]
pub struct Packs {
    pack_tokens: u32,
    /// The epoch's order of the block's samples.
    order: Permutation,
    joined: Joined,
}

#[derive(Debug, Clone)]
enum Joined {
    /// Where each pack begins: the index in the order, and the first token of that sample.
    Concat(Vec<(u32, u32)>),
    /// The pieces of all packs, pack by pack, and where each pack begins among them, with the end of the last.
    Fit { pieces: Vec<Piece>, starts: Vec<u32> },
    /// The sample of each pack.
    Single(Vec<u32>),
    /// Where each sample begins among the tokens of all, and where the last one ends.
    Crop(Vec<u64>),
}

/// The part of a sample in one pack; it goes on to the end of the sample or of the pack.
#[derive(Debug, Clone, Copy, Default)]
struct Piece {
    sample: u32,
    start: u32,
}

impl Packs {
    /// Joins the samples of a block. `lengths` are by place in the block, `order` is the epoch's order of those places.
    pub fn new(
        lengths: &[u32],
        order: Permutation,
        pack_tokens: u32,
        policy: Policy,
    ) -> Result<Self, PlanError> {
        check(lengths, pack_tokens)?;
        check_count(order.len(), lengths)?;
        let joined = match policy {
            Policy::Concat => concat(lengths, &order, pack_tokens)?,
            Policy::Fit => fit(lengths, &order, pack_tokens)?,
            Policy::Single => single(lengths, &order, pack_tokens)?,
            Policy::Crop => crop(lengths, &order, pack_tokens)?,
        };
        Ok(Self { pack_tokens, order, joined })
    }

    /// How many packs there are.
    pub fn count(&self) -> u32 {
        // All fit: `new` checked them.
        match &self.joined {
            Joined::Concat(starts) => starts.len() as u32,
            Joined::Fit { starts, .. } => (starts.len().max(1) - 1) as u32,
            Joined::Single(samples) => samples.len() as u32,
            Joined::Crop(begins) => crop_count(begins.last().copied().unwrap_or(0), self.pack_tokens) as u32,
        }
    }

    /// Memory that they take, about.
    pub fn bytes(&self) -> usize {
        match &self.joined {
            Joined::Concat(starts) => starts.len() * 8,
            Joined::Fit { pieces, starts } => pieces.len() * 8 + starts.len() * 4,
            Joined::Single(samples) => samples.len() * 4,
            Joined::Crop(begins) => begins.len() * 8,
        }
    }

    /// Appends the spans of a pack to `into`, in their order in the pack. `lengths` are those the packs were made from.
    pub fn spans(&self, pack: u32, lengths: &[u32], into: &mut Vec<Span>) -> Result<(), PlanError> {
        check_count(self.order.len(), lengths)?;
        if pack >= self.count() {
            return Err(PlanError::NoSuchPack { pack, packs: self.count() });
        }
        let mut at = 0;
        let mut put = |sample: u32, start: u32| {
            let length = lengths[sample as usize].saturating_sub(start).min(self.pack_tokens - at);
            if length > 0 {
                into.push(Span { sample, start, length, at });
                at += length;
            }
            at < self.pack_tokens
        };
        match &self.joined {
            Joined::Concat(starts) => {
                let (index, start) = starts[pack as usize];
                let from = u64::from(index);
                let mut rest = (from..self.order.len()).filter_map(|index| self.order.at(index));
                let mut more = rest.next().is_some_and(|sample| put(sample as u32, start));
                while more {
                    more = rest.next().is_some_and(|sample| put(sample as u32, 0));
                }
            }
            Joined::Fit { pieces, starts } => {
                let range = starts[pack as usize] as usize..starts[pack as usize + 1] as usize;
                pieces[range].iter().for_each(|piece| _ = put(piece.sample, piece.start));
            }
            Joined::Single(samples) => _ = put(samples[pack as usize], 0),
            Joined::Crop(begins) => {
                let from = u64::from(pack);
                let first = begins.partition_point(|begin| *begin <= from).max(1) - 1;
                let mut start = (from - begins[first]) as u32;
                for sample in first..lengths.len() {
                    if !put(sample as u32, start) {
                        break;
                    }
                    start = 0;
                }
            }
        }
        Ok(())
    }
}

fn concat(lengths: &[u32], order: &Permutation, pack_tokens: u32) -> Result<Joined, PlanError> {
    let packs = tokens_of(lengths).div_ceil(u64::from(pack_tokens));
    let mut starts = room_for(packs)?;
    // Tokens from the beginning of the sample to the next cut.
    let mut cut = 0;
    for (index, sample) in order.iter().enumerate() {
        let length = u64::from(lengths[sample as usize]);
        while cut < length {
            starts.push((index as u32, cut as u32));
            cut += u64::from(pack_tokens);
        }
        cut -= length;
    }
    Ok(Joined::Concat(starts))
}

fn fit(lengths: &[u32], order: &Permutation, pack_tokens: u32) -> Result<Joined, PlanError> {
    let order: Vec<u32> = order.iter().map(|sample| sample as u32).collect();
    // Longest first, and the epoch's order among equals: the complement of the rest above the index.
    let mut rests: Vec<u64> = vec![];
    for (index, &sample) in order.iter().enumerate() {
        let rest = lengths[sample as usize] % pack_tokens;
        if rest > 0 {
            rests.push((u64::from(!rest) << 32) | index as u64);
        }
    }
    rests.sort_unstable();
    let (bins, bin_count) = best_fit(rests.iter().map(|rest| !((rest >> 32) as u32)), pack_tokens)?;
    let packs = full_pieces(lengths, pack_tokens) + u64::from(bin_count);
    u32::try_from(packs + rests.len() as u64).map_err(|_| PlanError::TooManyPacks { packs })?;

    let mut bin_of = vec![u32::MAX; order.len()];
    rests.iter().zip(&bins).for_each(|(rest, bin)| bin_of[*rest as u32 as usize] = *bin);
    let mut bin_pieces = vec![0_u32; bin_count as usize];
    bins.iter().for_each(|bin| bin_pieces[*bin as usize] += 1);

    // Packs are numbered as their first samples come in the epoch's order, so that an unshuffled source stays in order.
    let mut pieces = room_for::<Piece>(packs + rests.len() as u64)?;
    let mut starts = room_for(packs + 1)?;
    // Where the next piece of each bin goes, once the bin has its pack number.
    let mut bin_next = vec![u32::MAX; bin_count as usize];
    for (index, &sample) in order.iter().enumerate() {
        let length = lengths[sample as usize];
        for full in 0..length / pack_tokens {
            starts.push(pieces.len() as u32);
            pieces.push(Piece { sample, start: full * pack_tokens });
        }
        let bin = bin_of[index] as usize;
        let Some(next) = bin_next.get_mut(bin) else { continue };
        if *next == u32::MAX {
            *next = pieces.len() as u32;
            starts.push(*next);
            pieces.resize(pieces.len() + bin_pieces[bin] as usize, Piece::default());
        }
        pieces[*next as usize] = Piece { sample, start: length - length % pack_tokens };
        *next += 1;
    }
    starts.push(pieces.len() as u32);
    Ok(Joined::Fit { pieces, starts })
}

fn single(lengths: &[u32], order: &Permutation, pack_tokens: u32) -> Result<Joined, PlanError> {
    check_whole(lengths, pack_tokens)?;
    let samples = order.iter().filter(|sample| lengths[*sample as usize] > 0);
    Ok(Joined::Single(samples.map(|sample| sample as u32).collect()))
}

fn crop(lengths: &[u32], order: &Permutation, pack_tokens: u32) -> Result<Joined, PlanError> {
    // Crops are of samples as they are stored.
    debug_assert!(order.iter().zip(0..).all(|(sample, index)| sample == index));
    let mut begins = vec![0];
    begins.extend(lengths.iter().scan(0, |end, &length| {
        *end += u64::from(length);
        Some(*end)
    }));
    let packs = crop_count(tokens_of(lengths), pack_tokens);
    u32::try_from(packs).map_err(|_| PlanError::TooManyPacks { packs })?;
    Ok(Joined::Crop(begins))
}

/// At how many of so many tokens a pack can begin.
fn crop_count(tokens: u64, pack_tokens: u32) -> u64 {
    (tokens + 1).saturating_sub(u64::from(pack_tokens))
}

/// No sample is longer than a pack.
fn check_whole(lengths: &[u32], pack_tokens: u32) -> Result<(), PlanError> {
    match lengths.iter().find(|length| **length > pack_tokens) {
        Some(&tokens) => Err(PlanError::SampleTooLong { tokens, pack_tokens }),
        None => Ok(()),
    }
}

fn check(lengths: &[u32], pack_tokens: u32) -> Result<(), PlanError> {
    if pack_tokens == 0 {
        return Err(PlanError::PackTokens { pack_tokens, most: u32::MAX });
    }
    // One below the largest number, which stands for "none" in the tables above.
    let most = u64::from(u32::MAX) - 1;
    if lengths.len() as u64 > most {
        return Err(PlanError::TooManySamples { samples: lengths.len() as u64, most });
    }
    Ok(())
}

fn check_count(expected: u64, lengths: &[u32]) -> Result<(), PlanError> {
    let found = lengths.len() as u64;
    if found == expected { Ok(()) } else { Err(PlanError::Lengths { expected, found }) }
}

/// An empty list that will hold `count` items, or an error when there is no memory for them.
fn room_for<T>(count: u64) -> Result<Vec<T>, PlanError> {
    let too_many = PlanError::TooManyPacks { packs: count };
    let mut items = vec![];
    match u32::try_from(count) {
        Ok(count) if items.try_reserve_exact(count as usize).is_ok() => Ok(items),
        _ => Err(too_many),
    }
}

fn tokens_of(lengths: &[u32]) -> u64 {
    lengths.iter().map(|&length| u64::from(length)).sum()
}

/// Pieces that fill a pack by themselves.
fn full_pieces(lengths: &[u32], pack_tokens: u32) -> u64 {
    lengths.iter().map(|&length| u64::from(length / pack_tokens)).sum()
}

/// What is left of each sample beyond its full pieces, where something is.
fn rests(lengths: &[u32], pack_tokens: u32) -> impl Iterator<Item = u32> + '_ {
    lengths.iter().map(move |length| length % pack_tokens).filter(|rest| *rest > 0)
}

#[cfg(test)]
mod tests;
