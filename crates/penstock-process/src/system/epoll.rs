//! Waiting for many descriptors at a cost that depends on how many have something, not on how many there are.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::error::{ProcessError, Result};

/// So many are answered at once; the kernel gives the others their turn in the next round.
pub const READY_MAX: usize = 64;

/// A set of descriptors, each with a name of ours. It can itself be polled.
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub fn new() -> Result<Self> {
        // SAFETY: plain integers; the answer is checked before it is taken over.
        unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                let source = std::io::Error::last_os_error();
                return Err(ProcessError::System { call: "epoll_create1", source });
            }
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Waits for something to read there, too. A descriptor leaves the set when it and all of its copies are closed, also those that other
    /// processes have.
    pub fn add(&self, fd: &impl AsRawFd, name: u64) -> Result<()> {
        self.set(libc::EPOLL_CTL_ADD, fd, name, libc::EPOLLIN)
    }

    /// From now on waits for other events of a descriptor that was added; errors and ends are told in any case.
    pub fn change(&self, fd: &impl AsRawFd, name: u64, events: i32) -> Result<()> {
        self.set(libc::EPOLL_CTL_MOD, fd, name, events)
    }

    /// Waits for it no more. Before it is closed, where others have copies: else it would be told of for as long as they have them.
    pub fn remove(&self, fd: &impl AsRawFd) -> Result<()> {
        self.set(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn set(&self, what: i32, fd: &impl AsRawFd, name: u64, events: i32) -> Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: name };
        // SAFETY: both descriptors are open while they are borrowed, and the event is valid to read.
        let answer = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd.as_raw_fd(), &mut event) };
        if answer < 0 {
            return Err(ProcessError::System { call: "epoll_ctl", source: std::io::Error::last_os_error() });
        }
        Ok(())
    }

    /// Names of those that have something now, without waiting.
    pub fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY_MAX];
        // SAFETY: the array has room for as many as we say.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), READY_MAX as i32, 0) };
        events.into_iter().take(usize::try_from(count).unwrap_or(0)).map(|event| event.u64)
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

    #[test]
    fn a_pipe_that_was_removed_is_silent_while_a_copy_of_it_is_open() {
        let set = Epoll::new().unwrap();
        let (reader, writer) = system::pipe().unwrap();
        let copy = reader.try_clone().unwrap();
        set.add(&reader, 7).unwrap();
        drop(writer);
        assert_eq!(set.ready().collect::<Vec<_>>(), [7]);

        set.remove(&reader).unwrap();
        drop(reader);
        assert_eq!(set.ready().count(), 0, "the end of the pipe would be told of for ever");
        drop(copy);
    }
}
