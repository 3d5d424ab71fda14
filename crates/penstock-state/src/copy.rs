//! Copying on the host, by several threads.

use super::error::StateError;
use super::parallel;

/// How much one work item copies.
const ITEM_BYTES: usize = 4 << 20;

/// Some bytes on their way from one place to another.
#[derive(Debug, Clone, Copy)]
pub struct Move {
    from: *const u8,
    to: *mut u8,
    bytes: usize,
}

// SAFETY: whoever makes a move promises that both sides stay as they are until it is done.
unsafe impl Send for Move {}
// SAFETY: as above.
unsafe impl Sync for Move {}

impl Move {
    /// A copy of `bytes` bytes.
    ///
    /// # Safety
    /// Both sides have that many bytes, do not overlap each other or the target of another move, and outlive the copying.
    pub unsafe fn new(from: *const u8, to: *mut u8, bytes: usize) -> Self {
        Self { from, to, bytes }
    }
}

/// Does all moves.
pub fn copy_all(moves: &[Move], threads: usize) -> Result<(), StateError> {
    let mut items = Vec::new();
    for job in moves {
        let mut first = 0;
        while first < job.bytes {
            let length = ITEM_BYTES.min(job.bytes - first);
            // SAFETY: a part of a move whose maker promised that it is right.
            items.push(unsafe { Move::new(job.from.add(first), job.to.add(first), length) });
            first += length;
        }
    }
    let work = |_: &mut (), item: usize| {
        let job = &items[item];
        // SAFETY: as promised to `Move::new`.
        unsafe { std::ptr::copy_nonoverlapping(job.from, job.to, job.bytes) };
        Ok(())
    };
    parallel::for_each(items.len(), threads, || Ok(()), work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_whatever_their_sizes() {
        let sizes = [0, 1, 4095, 4 << 20, (4 << 20) + 1, (9 << 20) + 17];
        let from: Vec<Vec<u8>> =
            sizes.iter().map(|&size| (0..size).map(|at| (at * 7 + size) as u8).collect()).collect();
        let mut to: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0; size]).collect();
        let moves: Vec<Move> = from
            .iter()
            .zip(&mut to)
            // SAFETY: vectors of equal sizes that outlive the copying.
            .map(|(from, to)| unsafe { Move::new(from.as_ptr(), to.as_mut_ptr(), from.len()) })
            .collect();
        copy_all(&moves, 3).unwrap();
        assert_eq!(from, to);
    }
}
