//! Terminals: the one where the person looks, and those that are made for workers.
//!
//! A worker with a terminal of its own draws progress bars and colours as it would for a person. Its standard output and error are
//! the same terminal then, so they come as one stream; the kernel puts `\r` before each `\n`. Nobody can type there:
//! standard input stays empty.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::error::{ProcessError, Result};

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Lines that are seen at once.
    pub rows: u16,
    /// Characters that fit beside each other.
    pub columns: u16,
}

impl Size {
    /// Where nobody looks.
    pub const UNSEEN: Self = Self { rows: 24, columns: 80 };

    /// That of a terminal; nothing when it does not say or is none.
    pub fn of(terminal: &impl AsRawFd) -> Option<Self> {
        // SAFETY: zero is a valid size, and the place is valid to write to.
        let (answer, found) = unsafe {
            let mut found: libc::winsize = std::mem::zeroed();
            (libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &mut found), found)
        };
        (answer == 0 && found.ws_row > 0 && found.ws_col > 0)
            .then_some(Self { rows: found.ws_row, columns: found.ws_col })
    }

    /// What is left of every line after a prefix, so that a bar that fills its terminal fits beside it.
    pub fn beside(self, prefix_columns: usize) -> Self {
        let taken = u16::try_from(prefix_columns).unwrap_or(u16::MAX);
        Self { rows: self.rows, columns: self.columns.saturating_sub(taken).max(20) }
    }

    /// Tells it to a terminal; whoever runs there gets SIGWINCH when it is another one than before.
    pub fn give(self, terminal: &impl AsRawFd) {
        let size = libc::winsize { ws_row: self.rows, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the structure is valid to read, and the descriptor is open while it is borrowed.
        unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    }
}

/// A new terminal: our end first, then the worker's. Both are closed by `exec`.
pub fn open(size: Size) -> Result<(OwnedFd, OwnedFd)> {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: all places are valid to write to; no name and no settings are wanted.
    let answer =
        unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null_mut(), &size) };
    if answer < 0 {
        return Err(ProcessError::System { call: "openpty", source: io::Error::last_os_error() });
    }
    for fd in [ours, theirs] {
        // SAFETY: the kernel just gave us both.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: as above, and nobody else has them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) })
}

/// Makes a terminal the one of this session, so that `/dev/tty` is it and a new size is told. For the leader of a new session,
/// between fork and exec.
pub fn control(fd: RawFd) -> io::Result<()> {
    // SAFETY: plain integers; a descriptor that is no terminal is answered with an error.
    if unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a descriptor is a terminal.
pub fn is_terminal(fd: &impl AsRawFd) -> bool {
    // SAFETY: plain integers.
    unsafe { libc::isatty(fd.as_raw_fd()) == 1 }
}

/// Whether both are the same terminal.
pub fn is_same(one: &impl AsRawFd, other: &impl AsRawFd) -> bool {
    let device = |fd: RawFd| {
        // SAFETY: zero is a valid place to write to.
        unsafe {
            let mut about: libc::stat = std::mem::zeroed();
            (libc::fstat(fd, &mut about) == 0).then_some(about.st_rdev)
        }
    };
    device(one.as_raw_fd()).is_some_and(|rdev| device(other.as_raw_fd()) == Some(rdev))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_the_size_that_it_was_given() {
        let (ours, theirs) = open(Size { rows: 7, columns: 33 }).unwrap();
        assert_eq!(Size::of(&theirs), Some(Size { rows: 7, columns: 33 }));
        Size { rows: 9, columns: 100 }.beside(6).give(&ours);
        assert_eq!(Size::of(&theirs), Some(Size { rows: 9, columns: 94 }));
        assert!(is_terminal(&theirs) && is_same(&theirs, &theirs));
    }

    #[test]
    fn a_pipe_is_no_terminal() {
        let (reader, _writer) = crate::system::pipe().unwrap();
        assert_eq!((Size::of(&reader), is_terminal(&reader)), (None, false));
    }
}
