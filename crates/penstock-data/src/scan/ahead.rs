//! Raw bytes on their way from the file to a walker: read and summed ahead by a thread of their own.
//!
//! Waiting for the disk and summing (this thread) overlap with parsing (the caller's). A few buffers go round between the
//! two, so memory is bounded and neither allocates; when the walker stops, for whatever reason, the thread's next hand-over
//! fails and it ends.

use std::cell::RefCell;
use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use penstock_io::{BlockHasher, Digest};

use super::record::Recorder;
use crate::DataError;
use crate::shard::no_thread;

/// Bytes of a buffer: a multiple of a block, so that sums are taken from whole blocks.
const PIECE_BYTES: usize = 512 << 10;
/// Buffers that go round.
const PIECES: usize = 4;

/// What the reading thread hands over.
enum Message {
    /// The next bytes, and the sums of the blocks they complete.
    Piece(Piece),
    /// There are no more: the sum of a short last block, and the identity of all.
    End(Option<u64>, Digest),
    /// Reading failed.
    Failed(io::Error),
}

/// A buffer that goes round.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    sums: Vec<u64>,
}

/// Lets `walk` consume `input`, which is read ahead by another thread. The thread has ended when this returns.
pub(crate) fn read_ahead<'a, T>(
    input: impl Read + Send,
    recorder: &RefCell<Recorder<'a>>,
    walk: impl FnOnce(RawStream<'_, 'a>) -> Result<T, DataError>,
) -> Result<T, DataError> {
    let shard = recorder.borrow().shard();
    thread::scope(|scope| {
        let (give, take) = sync_channel(PIECES);
        let (give_back, take_back) = sync_channel(PIECES);
        let named = thread::Builder::new().name("penstock-scan-read".to_owned());
        let reader = named
            .spawn_scoped(scope, move || read_all(input, &give, &take_back))
            .map_err(|error| no_thread(shard, &error))?;
        let outcome =
            walk(RawStream { recorder, take, give_back, piece: Piece::default(), at: 0, ended: false });
        if let Err(panic) = reader.join() {
            std::panic::resume_unwind(panic);
        }
        outcome
    })
}

/// Reads and sums until the end, a failure, or the other side's end.
fn read_all(mut input: impl Read, give: &SyncSender<Message>, take_back: &Receiver<Piece>) {
    let mut hasher = BlockHasher::new();
    let mut made = 0;
    // Each turn hands over at least one byte, or ends.
    loop {
        let mut piece = if made < PIECES {
            made += 1;
            Piece::default()
        } else {
            let Ok(piece) = take_back.recv() else { return };
            piece
        };
        piece.bytes.resize(PIECE_BYTES, 0);
        piece.sums.clear();
        let message = match read_full(&mut input, &mut piece.bytes) {
            Err(error) => Message::Failed(error),
            Ok(0) => {
                let (last, digest) = hasher.finish();
                let _ = give.send(Message::End(last, digest));
                return;
            }
            Ok(count) => {
                piece.bytes.truncate(count);
                hasher.update(&piece.bytes, &mut piece.sums);
                Message::Piece(piece)
            }
        };
        let failed = matches!(message, Message::Failed(_));
        if give.send(message).is_err() || failed {
            return;
        }
    }
}

/// The raw bytes as a walker sees them. The recorder learns of each piece when the walker gets to it.
pub(crate) struct RawStream<'r, 'a> {
    recorder: &'r RefCell<Recorder<'a>>,
    /// Pieces from the reading thread.
    take: Receiver<Message>,
    /// Spent pieces, back to it.
    give_back: SyncSender<Piece>,
    /// The piece under way; its bytes before `at` are spent.
    piece: Piece,
    at: usize,
    ended: bool,
}

impl RawStream<'_, '_> {
    fn next_piece(&mut self) -> io::Result<()> {
        let spent = std::mem::take(&mut self.piece);
        self.at = 0;
        if spent.bytes.capacity() > 0 {
            // There is room for all pieces that exist; after its end the thread takes no more, which is no loss.
            let _ = self.give_back.try_send(spent);
        }
        match self.take.recv() {
            Ok(Message::Piece(piece)) => {
                let passed = self.recorder.borrow_mut().pass(piece.bytes.len(), &piece.sums);
                passed.map_err(io::Error::other)?;
                self.piece = piece;
            }
            Ok(Message::End(last, digest)) => {
                self.ended = true;
                self.recorder.borrow_mut().ended(last, digest).map_err(io::Error::other)?;
            }
            Ok(Message::Failed(error)) => return Err(error),
            Err(_) => return Err(io::Error::other("reading ended after a failure")),
        }
        Ok(())
    }
}

impl BufRead for RawStream<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.piece.bytes.len() && !self.ended {
            self.next_piece()?;
        }
        Ok(&self.piece.bytes[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at = (self.at + count).min(self.piece.bytes.len());
    }
}

impl Read for RawStream<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let held = self.fill_buf()?;
        let count = held.len().min(into.len());
        into[..count].copy_from_slice(&held[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Fills as much of `into` as the stream has. Less than all of it means the end.
pub(crate) fn read_full(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    // Each turn reads at least one byte or ends the loop; interrupts apart.
    while got < into.len() {
        match input.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Shows `each` the next `bytes` bytes in pieces; returns how many there were.
pub(crate) fn pass_over(
    input: &mut impl BufRead,
    bytes: u64,
    mut each: impl FnMut(&[u8]),
) -> io::Result<u64> {
    let mut left = bytes;
    while left > 0 {
        let held = input.fill_buf()?;
        let count = held.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            break;
        }
        each(&held[..count]);
        input.consume(count);
        left -= count as u64;
    }
    Ok(bytes - left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Format, LineFormat, ScanOptions};
    use crate::testing::Scanned;

    /// Gives its bytes, then fails.
    struct Failing<'a>(&'a [u8]);

    impl Read for Failing<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::Error::other("the disk is gone")),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn a_read_that_fails_ends_the_scan_with_its_reason() {
        let text = "line\n".repeat(500_000);
        let format = Format::Lines(LineFormat::Text);
        let error = Scanned::new(format, b"", Failing(text.as_bytes()), &ScanOptions::default()).unwrap_err();
        assert!(error.to_string().contains("the disk is gone"), "{error}");
    }

    #[test]
    fn a_walker_that_stops_ends_the_reading() {
        let endless = io::repeat(b'x');
        let format = Format::Tfrecord;
        let error = Scanned::new(format, b"", endless, &ScanOptions::default()).unwrap_err();
        assert!(matches!(error, DataError::NotThisFormat { offset: 0, .. }));
    }
}
