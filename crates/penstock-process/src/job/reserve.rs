//! Space that is held for the state of a job, so that a full disk does not hide how the job ended.
//!
//! A file of its own takes it. When the state does not fit any more, that file is given up and the state is written into its place; when
//! there is space again, it is taken again.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::job::JobDirectory;

const NAME: &str = "reserve";
/// Even a small job has more to say when it fails.
const BYTES_MIN: u64 = 64 << 10;

/// Holds space for a state of this size and a larger one; nothing happens when it is held, or cannot be.
pub fn hold(directory: &JobDirectory, state_bytes: u64) {
    let wanted = (2 * state_bytes).max(BYTES_MIN);
    let path = directory.file(NAME);
    if std::fs::metadata(&path).is_ok_and(|about| about.len() >= wanted) {
        return;
    }
    let held = File::create(&path).is_ok_and(|file| {
        let bytes = i64::try_from(wanted).unwrap_or(i64::MAX);
        // SAFETY: plain integers, and the descriptor is open.
        unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) == 0 }
    });
    if !held {
        give_up(directory);
    }
}

/// Gives the space back; false when none was held.
pub fn give_up(directory: &JobDirectory) -> bool {
    std::fs::remove_file(directory.file(NAME)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_held_once_grows_with_the_state_and_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let directory = JobDirectory::open(folder.path()).unwrap();
        let bytes = || std::fs::metadata(directory.file(NAME)).map(|about| about.len()).ok();
        hold(&directory, 10);
        assert_eq!(bytes(), Some(BYTES_MIN));
        hold(&directory, BYTES_MIN);
        assert_eq!(bytes(), Some(2 * BYTES_MIN));
        assert!(give_up(&directory) && !give_up(&directory));
    }
}
