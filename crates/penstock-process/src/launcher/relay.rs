//! The launcher's hands: what the agent sends goes to the terminal, the file or the pipe that the person gave.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;

use crate::system::{self, interest};

const PIECE_BYTES: usize = 1 << 20;

/// Moves bytes until there are no more. A reader that is gone ends the job; workers are not blocked by it. A file that cannot grow is no
/// reason to end a job whose logs have everything: what does not fit is left out, and how many bytes that were is the answer.
pub fn relay(from: &mut File, to: RawFd) -> u64 {
    // SAFETY: ours since the process began, and never closed: the guard keeps `File` from doing so.
    let mut reader = ManuallyDrop::new(unsafe { File::from_raw_fd(to) });
    // Only to a pipe: in a file, pages would go to the place where it ended when the wait for them began, over what others wrote since.
    let pipe = reader.metadata().is_ok_and(|about| about.file_type().is_fifo());
    let mut left_out = 0;
    let moved = if pipe { hand_over(from, to) } else { copy(from, Some(&mut reader), &mut left_out) };
    if moved.is_err() {
        // SAFETY: plain integers. To the process, not to this thread, so that the main thread sees it.
        unsafe { libc::kill(libc::getpid(), libc::SIGPIPE) };
        let _ = copy(from, None, &mut 0);
    }
    left_out
}

/// Gives the pages of the one pipe to the other, without looking at them.
fn hand_over(from: &File, to: RawFd) -> io::Result<()> {
    loop {
        // SAFETY: both descriptors are open, and no places in files are given.
        let moved = unsafe {
            libc::splice(from.as_raw_fd(), std::ptr::null_mut(), to, std::ptr::null_mut(), PIECE_BYTES, 0)
        };
        match moved {
            0 => return Ok(()),
            1.. => {}
            _ => wait_after(io::Error::last_os_error(), to)?,
        }
    }
}

/// Reads and writes, or reads only. Counts what does not fit.
fn copy(from: &mut File, mut to: Option<&mut File>, left_out: &mut u64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES / 4];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(problem) if problem.kind() == ErrorKind::Interrupted => continue,
            Err(problem) => return Err(problem),
        };
        let mut left = &buffer[..count];
        while let Some(to) = to.as_mut().filter(|_| !left.is_empty()) {
            match to.write(left) {
                Ok(count) => left = &left[count..],
                Err(problem) if is_full(&problem) => {
                    *left_out += left.len() as u64;
                    left = &[];
                }
                Err(problem) => wait_after(problem, to.as_raw_fd())?,
            }
        }
    }
}

/// A disk, a quota or a limit that is used up; the next piece may fit.
fn is_full(problem: &io::Error) -> bool {
    matches!(problem.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

/// Somebody else may have made the reader one that does not block; that is no reason to lose anything.
fn wait_after(problem: io::Error, to: RawFd) -> io::Result<()> {
    match problem.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock => {
            system::poll(&mut [interest(to, libc::POLLOUT)], None);
            Ok(())
        }
        _ => Err(problem),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_pipe_that_does_not_block_and_is_read_slowly_gets_everything() {
        let (reader, writer) = system::pipe().unwrap();
        let (shown, showing) = system::pipe().unwrap();
        system::set_nonblocking(&showing).unwrap();
        let text: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
        let written = text.clone();
        let speaker = thread::spawn(move || File::from(writer).write_all(&written).unwrap());
        let number = showing.as_raw_fd();
        let relaying = thread::spawn(move || {
            relay(&mut File::from(reader), number);
            drop(showing);
        });
        let (mut shown, mut found, mut piece) = (File::from(shown), Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = shown.read(&mut piece) {
            found.extend_from_slice(&piece[..count]);
        }
        speaker.join().unwrap();
        relaying.join().unwrap();
        assert!(found == text);
    }

    #[test]
    fn a_file_that_is_output_and_error_at_once_has_everything_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("both");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"before\n").unwrap();
        let relayed = |text: &'static [u8]| {
            let (reader, writer) = system::pipe().unwrap();
            let number = file.as_raw_fd();
            let relaying = thread::spawn(move || relay(&mut File::from(reader), number));
            let mut writer = File::from(writer);
            writer.write_all(text).unwrap();
            (writer, relaying)
        };
        let (error, quiet) = relayed(b"");
        let (output, loud) = relayed(b"said\n");
        drop(output);
        loud.join().unwrap();
        drop(error);
        quiet.join().unwrap();
        file.write_all(b"after\n").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "before\nsaid\nafter\n");
    }
}
