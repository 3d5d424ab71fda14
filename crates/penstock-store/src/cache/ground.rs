//! What a process holds open of a cache's directory: the file of locks and the ledger.
//!
//! A lock is one byte of the file `locks`, by an open file description: the kernel takes it back when its process ends, however it
//! ends, so a lock cannot be stale. A directory that was removed is noticed by its lock file being another one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::forks;
use super::ledger::Ledger;

/// The byte that whoever evicts holds.
pub(crate) const EVICTING: i64 = i64::MAX - 1;
/// The byte that whoever counts the directory anew holds.
pub(crate) const COUNTING: i64 = i64::MAX - 2;
/// Locks of pieces are below this.
const PIECES_END: u64 = 1 << 62;

/// The open files of a cache's directory.
pub(crate) struct Ground {
    locks: File,
    /// Device and number of the lock file, to notice that it is not there any more.
    identity: (u64, u64),
    /// The process that opened it; a child must open its own.
    pub(crate) generation: u64,
    pub(crate) ledger: Ledger,
}

/// A lock that is held until this is dropped.
pub(crate) struct Held {
    ground: Arc<Ground>,
    at: i64,
}

impl Ground {
    /// Makes what is missing of the directory and opens it.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let generation = forks::generation();
        make_folder(root)?;
        let locks = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o666)
            .custom_flags(libc::O_NOFOLLOW)
            .open(root.join("locks"))?;
        forks::closed_by_children(locks.as_raw_fd());
        let status = locks.metadata()?;
        let identity = (status.dev(), status.ino());
        Ok(Self { locks, identity, generation, ledger: Ledger::open(root)? })
    }

    /// Whether the directory is still the one that was opened.
    pub(crate) fn stands(&self, root: &Path) -> bool {
        std::fs::metadata(root.join("locks"))
            .is_ok_and(|status| (status.dev(), status.ino()) == self.identity)
    }

    /// Takes a lock if nobody else has it; an error where locks cannot be had at all.
    pub(crate) fn try_lock(self: &Arc<Self>, at: i64) -> io::Result<Option<Held>> {
        match self.set(libc::F_WRLCK, at) {
            Ok(()) => Ok(Some(Held { ground: Arc::clone(self), at })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set(&self, kind: i32, at: i64) -> io::Result<()> {
        if self.generation != forks::generation() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        // SAFETY: plain data; the open file description's own fields are filled in.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = at;
        lock.l_len = 1;
        // SAFETY: an open file, and a lock that lives through the call.
        match unsafe { libc::fcntl(self.locks.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        forks::kept_by_children(self.locks.as_raw_fd());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A lock that cannot be given back goes with the process.
        let _ = self.ground.set(libc::F_UNLCK, self.at);
    }
}

/// Where the lock of a piece is.
pub(crate) fn place_of(hash: u64) -> i64 {
    (hash % PIECES_END) as i64
}

/// Makes a folder and those above it; only for its owner.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
