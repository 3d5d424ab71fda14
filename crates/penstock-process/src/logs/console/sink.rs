//! One way to the launcher, which writes what it gets to the terminal. Never blocks.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// What a burst leaves allocated.
const SPARE_BYTES_MAX: usize = 4 << 20;

/// What waits for the launcher.
pub(super) struct Sink {
    /// Our end of the pipe; nothing when there is no launcher, or it left.
    pipe: Option<File>,
    waiting: Vec<u8>,
    /// How much of `waiting` is written already.
    written: usize,
}

impl Sink {
    /// A sink into a pipe that does not block, or into nothing.
    pub(super) fn new(pipe: Option<OwnedFd>) -> Self {
        Self { pipe: pipe.map(File::from), waiting: Vec::new(), written: 0 }
    }

    /// Whether anybody looks.
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// How much is not written yet.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.len() - self.written
    }

    /// The descriptor to poll for room; negative when nothing waits.
    pub(super) fn interest(&self) -> RawFd {
        if self.waiting_bytes() == 0 { -1 } else { self.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd) }
    }

    /// Where to append what should be shown.
    pub(super) fn directory(&mut self) -> &mut Vec<u8> {
        &mut self.waiting
    }

    /// Writes as much as goes without waiting.
    pub(super) fn flush(&mut self) {
        while let Some(pipe) = self.pipe.as_mut().filter(|_| self.waiting.len() > self.written) {
            match pipe.write(&self.waiting[self.written..]) {
                Ok(count) => self.written += count,
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) if problem.kind() == ErrorKind::WouldBlock => {
                    self.forget_written();
                    return;
                }
                // The launcher left. The log files have everything.
                Err(_) => self.pipe = None,
            }
        }
        self.waiting.clear();
        self.waiting.shrink_to(SPARE_BYTES_MAX);
        self.written = 0;
    }

    /// A terminal that is always a little behind must not make the buffer grow with all that was ever shown.
    fn forget_written(&mut self) {
        if self.written > self.waiting.len() / 2 {
            self.waiting.drain(..self.written);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::system;

    #[test]
    fn a_reader_that_is_always_behind_does_not_make_the_sink_grow() {
        let (reader, writer) = system::pipe().unwrap();
        system::set_nonblocking(&writer).unwrap();
        let (mut reader, mut sink) = (File::from(reader), Sink::new(Some(writer)));
        let mut taken = vec![0; 8 << 10];
        for _ in 0..2000 {
            sink.directory().extend_from_slice(&[b'x'; 8 << 10]);
            sink.flush();
            if sink.waiting_bytes() > 32 << 10 {
                reader.read_exact(&mut taken).unwrap();
            }
            assert!(sink.waiting.len() < 256 << 10);
        }
    }
}
