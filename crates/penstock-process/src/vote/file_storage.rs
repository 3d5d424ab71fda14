//! Votes in one file: append-only, checked, and durable when an append returns.
//!
//! A frame is its length, a checksum and the bytes. A process that is killed leaves at most one frame half written, the
//! last one, and nobody has been told of it: opening cuts it off. A frame that is wrong while others follow it is
//! damage, and refused, because a voter that forgets a promise could break it.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::{Result, VoteError};
use super::storage::VoteStorage;

/// Length and checksum before each frame.
const HEADER_BYTES: usize = 8;
/// More than any frame has; a greater length is damage.
const FRAME_BYTES_MAX: usize = 512 << 20;

/// Votes in a file that only this process has open.
#[derive(Debug)]
pub struct FileStorage {
    path: PathBuf,
    /// Locked until it is dropped.
    file: File,
    /// Up to here all frames are whole and durable.
    end: u64,
    /// A failed fsync may have dropped bytes that reads still show, so nothing after it can be trusted.
    is_broken: bool,
}

impl FileStorage {
    /// Opens the votes in a directory, which is made if it does not exist.
    pub fn open(directory: &Path) -> Result<Self> {
        let failed = |verb, path: &Path| {
            let path = path.to_owned();
            move |source| VoteError::File { verb, path, source }
        };
        std::fs::create_dir_all(directory).map_err(failed("make", directory))?;
        let path = directory.join("votes.log");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(failed("open", &path))?;
        // SAFETY: a plain call on a descriptor that is open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(VoteError::Busy { path });
        }
        // The name of a new file is as important as its bytes.
        let folder = File::open(directory).map_err(failed("open", directory))?;
        folder.sync_all().map_err(failed("sync", directory))?;
        Ok(Self { path, file, end: 0, is_broken: false })
    }

    fn failed(&self, verb: &'static str) -> impl FnOnce(std::io::Error) -> VoteError + use<> {
        let path = self.path.clone();
        move |source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => VoteError::Full { path, source },
            _ => VoteError::File { verb, path, source },
        }
    }

    fn cut(&mut self) -> Result<()> {
        self.file.set_len(self.end).map_err(self.failed("cut"))?;
        self.file.seek(SeekFrom::Start(self.end)).map_err(self.failed("seek in"))?;
        Ok(())
    }
}

impl VoteStorage for FileStorage {
    fn load(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0)).map_err(self.failed("seek in"))?;
        self.file.read_to_end(&mut bytes).map_err(self.failed("read"))?;
        let mut frames = Vec::new();
        let mut at = 0;
        while let Some(frame) = frame_at(&bytes, at) {
            frames.push(frame.to_vec());
            at += HEADER_BYTES + frame.len();
        }
        if at < bytes.len() {
            if let Some(reason) = damage_at(&bytes, at) {
                return Err(VoteError::Damaged { path: self.path.clone(), offset: at as u64, reason });
            }
        }
        self.end = at as u64;
        self.cut()?;
        self.file.sync_data().map_err(self.failed("sync"))?;
        Ok(frames)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut frame = Vec::with_capacity(HEADER_BYTES + bytes.len());
        frame.extend((bytes.len() as u32).to_le_bytes());
        frame.extend(crc32fast::hash(bytes).to_le_bytes());
        frame.extend(bytes);
        if let Err(source) = self.file.write_all(&frame) {
            let failure = self.failed("write")(source);
            self.is_broken |= self.cut().is_err();
            return Err(failure);
        }
        if let Err(source) = self.file.sync_data() {
            // Where room is found only when bytes are written out, a full disk is told here.
            self.is_broken = true;
            return Err(self.failed("sync")(source));
        }
        self.end += frame.len() as u64;
        Ok(())
    }

    fn may_retry(&self) -> bool {
        !self.is_broken
    }
}

/// The whole frame that begins here.
fn frame_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let header = bytes.get(at..at.checked_add(HEADER_BYTES)?)?;
    let (length, check) = header.split_at(4);
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let start = at + HEADER_BYTES;
    // No frame is empty: a hole of zeros is not a row of frames.
    let frame = bytes.get(start..start.checked_add(length)?).filter(|frame| !frame.is_empty())?;
    (u32::from_le_bytes(check.try_into().ok()?) == crc32fast::hash(frame)).then_some(frame)
}

/// Why the bytes from here on cannot be the frame that was being written when the process ended.
fn damage_at(bytes: &[u8], at: usize) -> Option<String> {
    let length = bytes.get(at..at + 4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    if length > FRAME_BYTES_MAX {
        return Some(format!("a frame of {length} bytes, at most {FRAME_BYTES_MAX}"));
    }
    // Frames are written one after the other, so a whole one after a wrong one means that the wrong one was whole.
    let after = at + HEADER_BYTES + length;
    frame_at(bytes, after).map(|_| "a checksum does not match, and whole frames follow".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn stored(directory: &Path, frames: &[&[u8]]) -> PathBuf {
        let mut storage = FileStorage::open(directory).expect("opens");
        storage.load().expect("loads");
        frames.iter().for_each(|frame| storage.append(frame).expect("appends"));
        storage.path.clone()
    }

    #[test]
    fn a_file_cut_anywhere_gives_back_all_whole_frames_and_takes_new_ones() {
        let directory = tempfile::tempdir().expect("a directory");
        let frames: [&[u8]; 3] = [b"one", b"two two", b"three three three"];
        let path = stored(directory.path(), &frames);
        let whole = std::fs::read(&path).expect("reads");
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).expect("writes");
            let mut storage = FileStorage::open(directory.path()).expect("opens");
            let mut found = storage.load().expect("loads");
            assert!(found.iter().eq(frames[..found.len()].iter()), "{length}: {found:?}");
            assert!(length < whole.len() || found.len() == frames.len());
            storage.append(b"new").expect("appends");
            drop(storage);
            found.push(b"new".to_vec());
            assert_eq!(FileStorage::open(directory.path()).expect("opens").load().expect("loads"), found);
        }
    }

    #[test]
    fn a_changed_byte_before_the_last_frame_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = stored(directory.path(), &[b"one", b"two"]);
        let file = OpenOptions::new().write(true).open(&path).expect("opens");
        file.write_at(b"O", HEADER_BYTES as u64).expect("writes");
        let refused = FileStorage::open(directory.path()).expect("opens").load();
        assert!(matches!(refused, Err(VoteError::Damaged { offset: 0, .. })), "{refused:?}");
    }

    #[test]
    fn two_processes_cannot_vote_with_one_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let _first = FileStorage::open(directory.path()).expect("opens");
        assert!(matches!(FileStorage::open(directory.path()), Err(VoteError::Busy { .. })));
    }

    #[test]
    fn a_full_disk_is_a_typed_error_and_leaves_whole_frames() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut storage = FileStorage::open(directory.path()).expect("opens");
        storage.load().expect("loads");
        storage.append(b"one").expect("appends");
        // A real device that is always full.
        let kept = std::mem::replace(
            &mut storage.file,
            OpenOptions::new().write(true).open("/dev/full").expect("opens"),
        );
        assert!(matches!(storage.append(b"two"), Err(VoteError::Full { .. })));
        storage.file = kept;
        storage.file.seek(SeekFrom::End(0)).expect("seeks");
        assert_eq!(storage.load().expect("loads"), vec![b"one".to_vec()]);
    }
}
