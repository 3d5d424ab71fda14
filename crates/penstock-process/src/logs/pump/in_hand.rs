//! What the pump has read and not yet written down, in memory that keeper and launcher share: the agent may be killed between the two.
//!
//! Before a read it stands here whose bytes come and how many: as many as wait in the pipe, so that the read gives exactly those. Their last
//! bytes are a seal until the kernel writes over it. So whoever looks after a kill knows whether the bytes are here or in the pipe, though the
//! reader may have died with its read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, compiler_fence};

use super::Speaker;
use crate::error::{ProcessError, Result};
use crate::job::Stream;

const READ_BYTES: usize = 256 << 10;
/// Role, rank, incarnation, stream, place in the stream, count.
const NUMBERS: usize = 6;
const COUNT: usize = NUMBERS - 1;
const SEAL_BYTES: usize = 16;
const SEAL_AT: usize = NUMBERS * 8;
const BYTES_AT: usize = SEAL_AT + SEAL_BYTES;
const WHOLE: usize = BYTES_AT + READ_BYTES;

/// The shared memory, as the pump has it. Nobody else writes to it, and nobody reads it while the agent lives.
pub(super) struct InHand {
    memory: *mut u8,
    seal: [u8; SEAL_BYTES],
}

// SAFETY: the memory is ours alone until the process ends.
unsafe impl Send for InHand {}

/// Bytes that an agent had in its hands when it was killed.
pub struct LeftInHand {
    /// Who wrote them.
    pub speaker: Speaker,
    /// To which of its streams.
    pub stream: Stream,
    /// Where in it they belong.
    pub at: u64,
    /// All of them, whether or not some are written down.
    pub bytes: Vec<u8>,
}

fn failed(call: &'static str) -> ProcessError {
    ProcessError::System { call, source: io::Error::last_os_error() }
}

impl InHand {
    /// Empty; and a descriptor for others.
    pub(super) fn open() -> Result<(Self, OwnedFd)> {
        let mut seal = [0; SEAL_BYTES];
        // SAFETY: the name ends with a zero, the mapping is as long as the file, and `seal` has room for what is asked for.
        unsafe {
            let fd = libc::memfd_create(c"penstock-in-hand".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(failed("memfd_create"));
            }
            let file = OwnedFd::from_raw_fd(fd);
            if libc::ftruncate(fd, WHOLE as libc::off_t) < 0 {
                return Err(failed("ftruncate"));
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let memory = libc::mmap(std::ptr::null_mut(), WHOLE, access, libc::MAP_SHARED, fd, 0);
            if memory == libc::MAP_FAILED {
                return Err(failed("mmap"));
            }
            // Bits that no output repeats. Where the system has none to give, zeros do nearly as well.
            libc::getrandom(seal.as_mut_ptr().cast(), SEAL_BYTES, libc::GRND_NONBLOCK);
            std::ptr::copy_nonoverlapping(seal.as_ptr(), memory.cast::<u8>().add(SEAL_AT), SEAL_BYTES);
            Ok((Self { memory: memory.cast(), seal }, file))
        }
    }

    /// Reads what waits, at most as much as there is room for. It is in hand until [`InHand::put_down`].
    pub(super) fn read(
        &mut self,
        pipe: &mut File,
        (speaker, stream, at): (Speaker, Stream, u64),
    ) -> io::Result<&[u8]> {
        let mut waiting: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the place is valid to write to.
        unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut waiting) };
        // One, where there is nothing: the read says why, or gives what came since.
        let count = usize::try_from(waiting).unwrap_or(0).clamp(1, READ_BYTES);
        let whose = [
            speaker.role as u64,
            u64::from(speaker.rank),
            u64::from(speaker.incarnation),
            stream as u64,
            at,
            count as u64,
        ];
        let sealed = count.min(SEAL_BYTES);
        let seal = self.seal;
        self.bytes()[count - sealed..count].copy_from_slice(&seal[..sealed]);
        compiler_fence(Ordering::SeqCst);
        whose.iter().enumerate().for_each(|(place, number)| self.set(place, *number));
        compiler_fence(Ordering::SeqCst);
        match pipe.read(&mut self.bytes()[..count]) {
            Ok(count) => Ok(&self.bytes()[..count]),
            Err(problem) => {
                self.put_down();
                Err(problem)
            }
        }
    }

    /// What was read is written down.
    pub(super) fn put_down(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.set(COUNT, 0);
    }

    fn set(&mut self, place: usize, number: u64) {
        // SAFETY: the mapping begins with these numbers and is aligned to pages. Volatile, because those who look are not of this program.
        unsafe { self.memory.cast::<u64>().add(place).write_volatile(number) };
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: inside the mapping, which lives as long as we do, and borrowed from us.
        unsafe { std::slice::from_raw_parts_mut(self.memory.add(BYTES_AT), READ_BYTES) }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        // SAFETY: the whole of what was mapped, once.
        unsafe { libc::munmap(self.memory.cast(), WHOLE) };
    }
}

/// What an agent that is gone had in its hands, if anything.
pub fn left_in_hand(memory: &File) -> Option<LeftInHand> {
    let mut words = [0u8; BYTES_AT];
    memory.read_exact_at(&mut words, 0).ok()?;
    let number =
        |place: usize| u64::from_ne_bytes(words[8 * place..8 * place + 8].try_into().expect("eight bytes"));
    let count = usize::try_from(number(COUNT)).ok().filter(|count| (1..=READ_BYTES).contains(count))?;
    let mut bytes = vec![0; count];
    memory.read_exact_at(&mut bytes, BYTES_AT as u64).ok()?;
    let sealed = count.min(SEAL_BYTES);
    if bytes[count - sealed..] == words[SEAL_AT..SEAL_AT + sealed] {
        return None;
    }
    let speaker = Speaker {
        role: usize::try_from(number(0)).ok()?,
        rank: u32::try_from(number(1)).ok()?,
        incarnation: u32::try_from(number(2)).ok()?,
    };
    let stream = Stream::ALL.into_iter().find(|stream| *stream as u64 == number(3))?;
    Some(LeftInHand { speaker, stream, at: number(4), bytes })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::system;

    const SPEAKER: Speaker = Speaker { role: 1, rank: 3, incarnation: 7 };

    #[test]
    fn bytes_are_left_in_hand_between_the_read_and_the_writing_and_at_no_other_time() {
        let (pipe, writer) = system::pipe().unwrap();
        system::set_nonblocking(&pipe).unwrap();
        let (mut pipe, mut writer) = (File::from(pipe), File::from(writer));
        let (mut hand, shared) = InHand::open().unwrap();
        let shared = File::from(shared);
        assert!(left_in_hand(&shared).is_none());
        for words in [&b"x"[..], b"a line\n", &[b'y'; 70_000][..60_000]] {
            writer.write_all(words).unwrap();
            assert_eq!(hand.read(&mut pipe, (SPEAKER, Stream::Err, 40)).unwrap(), words);
            let left = left_in_hand(&shared).unwrap();
            assert_eq!((left.speaker.role, left.speaker.rank, left.speaker.incarnation), (1, 3, 7));
            assert_eq!((left.stream, left.at, left.bytes), (Stream::Err, 40, words.to_vec()));
            hand.put_down();
            assert!(left_in_hand(&shared).is_none());
        }
        assert!(hand.read(&mut pipe, (SPEAKER, Stream::Out, 0)).is_err());
        assert!(left_in_hand(&shared).is_none());
    }

    #[test]
    fn what_was_to_be_read_and_was_not_is_not_in_hand() {
        let (mut hand, shared) = InHand::open().unwrap();
        hand.bytes()[..2].copy_from_slice(b"ol");
        let seal = hand.seal;
        hand.bytes()[4..4 + SEAL_BYTES].copy_from_slice(&seal);
        hand.set(COUNT, 4 + SEAL_BYTES as u64);
        assert!(left_in_hand(&File::from(shared)).is_none());
    }
}
