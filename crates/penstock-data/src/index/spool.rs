//! Numbers that wait for the end of a scan: in memory up to a limit, then in a file without a name.
//!
//! Sums and frames become known when bytes are *read*, which depends on how a source hands them out; rows when they are
//! *parsed*. Were they to leave together as they come, the same shard could give two different indexes. So they wait here
//! and are written behind the rows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::PathBuf;

/// Numbers held in memory, and in one batch of the index.
pub(super) const CHUNK: usize = 1 << 20;

/// A list of numbers of any length in 8 MiB of memory.
pub(super) struct Spool {
    /// Where a file is made when one is needed. It is unlinked at once, so nothing is left behind however we end.
    path: PathBuf,
    /// The numbers that are not in the file: the newest.
    held: Vec<u64>,
    /// The numbers before them, in order, 8 bytes each.
    spilled: Option<File>,
}

impl Spool {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, held: Vec::new(), spilled: None }
    }

    pub(super) fn extend(&mut self, numbers: &[u64]) -> io::Result<()> {
        let mut numbers = numbers;
        while !numbers.is_empty() {
            if self.held.len() == CHUNK {
                self.spill()?;
            }
            let (now, later) = numbers.split_at(numbers.len().min(CHUNK - self.held.len()));
            self.held.extend_from_slice(now);
            numbers = later;
        }
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        let mut file = match self.spilled.take() {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(&self.path)?;
                fs::remove_file(&self.path)?;
                file
            }
        };
        let bytes: Vec<u8> = self.held.iter().flat_map(|number| number.to_le_bytes()).collect();
        file.write_all(&bytes)?;
        self.held.clear();
        self.spilled = Some(file);
        Ok(())
    }

    /// Everything, in order, in chunks of 2^20 of which only the last is shorter.
    pub(super) fn into_chunks(mut self) -> io::Result<Chunks> {
        let spilled = match self.spilled.take() {
            None => None,
            Some(mut file) => {
                file.rewind()?;
                Some(BufReader::new(file))
            }
        };
        Ok(Chunks { spilled, held: self.held })
    }
}

/// The numbers of a spool on their way out.
pub(super) struct Chunks {
    spilled: Option<BufReader<File>>,
    held: Vec<u64>,
}

impl Chunks {
    /// The next chunk; empty when all are out.
    pub(super) fn next(&mut self) -> io::Result<Vec<u64>> {
        if let Some(file) = &mut self.spilled {
            // What is in the file is whole chunks, because only a full one is spilled.
            let mut bytes = vec![0; CHUNK * 8];
            match file.read_exact(&mut bytes) {
                Ok(()) => return Ok(numbers(&bytes)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.spilled = None,
                Err(error) => return Err(error),
            }
        }
        Ok(std::mem::take(&mut self.held))
    }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let number = |piece: &[u8]| piece.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    bytes.chunks_exact(8).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_in_order_and_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5] {
            let mut spool = Spool::new(dir.path().join("spool"));
            let all: Vec<u64> = (0..count as u64).map(|i| i * 0x0123_4567_89ab).collect();
            all.chunks(70_001).for_each(|piece| spool.extend(piece).unwrap());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            let (mut chunks, mut numbers) = (spool.into_chunks().unwrap(), Vec::new());
            loop {
                let chunk = chunks.next().unwrap();
                if chunk.is_empty() {
                    break;
                }
                numbers.extend(chunk);
            }
            assert_eq!(numbers, all);
        }
    }
}
