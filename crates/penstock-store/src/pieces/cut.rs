//! How an object is cut into pieces: evenly, or, where it is many files one after another, each file on its own.
//!
//! Files that are joined begin at block boundaries, and the space behind each reads as zeros. A piece then never holds bytes of two
//! files, so that reading one fetches no other, and it ends with its file: the space is known without being fetched or kept.

use std::ops::Range;

use penstock_io::BLOCK_BYTES;

use super::PIECE_BYTES;

/// Where pieces of an object begin and end.
pub(crate) enum Cut {
    /// Every piece but the last has [`PIECE_BYTES`] bytes.
    Even {
        /// Of the object.
        bytes: u64,
    },
    /// The bytes of each piece, in rising order.
    Files(Box<[Range<u64>]>),
}

impl Cut {
    /// Cuts files of these lengths, one after another as they are joined.
    pub(crate) fn of_files(lengths: &[u64]) -> Self {
        let (mut pieces, mut start) = (Vec::with_capacity(lengths.len()), 0_u64);
        for length in lengths {
            let end = start + length;
            let firsts = (start..end).step_by(PIECE_BYTES as usize);
            pieces.extend(firsts.map(|first| first..(first + PIECE_BYTES).min(end)));
            start = end.next_multiple_of(BLOCK_BYTES);
        }
        Self::Files(pieces.into())
    }

    /// How many pieces there are.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Even { bytes } => bytes.div_ceil(PIECE_BYTES),
            Self::Files(pieces) => pieces.len() as u64,
        }
    }

    /// Which bytes a piece is.
    pub(crate) fn range(&self, piece: u64) -> Range<u64> {
        match self {
            Self::Even { bytes } => piece * PIECE_BYTES..((piece + 1) * PIECE_BYTES).min(*bytes),
            Self::Files(pieces) => pieces[piece as usize].clone(),
        }
    }

    /// The first piece that ends behind byte `at`: the one that it lies in, or the next one where it lies in space.
    pub(crate) fn piece_at(&self, at: u64) -> u64 {
        match self {
            Self::Even { .. } => at / PIECE_BYTES,
            Self::Files(pieces) => pieces.partition_point(|piece| piece.end <= at) as u64,
        }
    }

    /// The pieces that hold bytes of a range.
    pub(crate) fn pieces(&self, range: &Range<u64>) -> Range<u64> {
        match self {
            Self::Even { .. } => range.start / PIECE_BYTES..range.end.div_ceil(PIECE_BYTES),
            Self::Files(pieces) => {
                self.piece_at(range.start)..pieces.partition_point(|piece| piece.start < range.end) as u64
            }
        }
    }

    /// Whether a piece begins where the one before it ends, so that both can be had in one read.
    pub(crate) fn follows(&self, piece: u64) -> bool {
        match self {
            Self::Even { .. } => true,
            Self::Files(pieces) => {
                let at = piece as usize;
                at > 0 && at < pieces.len() && pieces[at - 1].end == pieces[at].start
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every byte of every file lies in one piece, and no piece holds bytes of two. Method: lengths around the borders.
    #[test]
    fn pieces_cover_each_file_and_nothing_else() {
        let lengths =
            [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1, 0, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES - 1];
        let cut = Cut::of_files(&lengths);
        let (mut start, mut piece) = (0, 0);
        for length in lengths {
            let mut at = start;
            while at < start + length {
                assert_eq!((cut.piece_at(at), cut.range(piece).start), (piece, at));
                at = cut.range(piece).end;
                assert!(at <= start + length && cut.range(piece).end - cut.range(piece).start <= PIECE_BYTES);
                assert_eq!(
                    cut.follows(piece + 1),
                    at < start + length || (at % BLOCK_BYTES == 0 && piece + 1 < cut.count())
                );
                piece += 1;
            }
            assert_eq!(cut.pieces(&(start..start + length)).end, piece);
            start = (start + length).next_multiple_of(BLOCK_BYTES);
        }
        assert_eq!((cut.count(), cut.piece_at(start)), (piece, piece));
    }
}
