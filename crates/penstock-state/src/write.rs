//! Writing one file from many pieces of memory: in large blocks, past the page cache where that works, synced at the end.
//!
//! A gigabyte through the page cache is written twice by the memory and throttled by the kernel in between; written directly it goes
//! at the disk's own speed. Direct writes want whole pages at page boundaries, so blocks are put together in aligned memory, and
//! the file is cut to its length afterwards.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::aligned::{PAGE, Pages};
use super::error::StateError;
use super::parallel;

/// Bytes of one write.
const BLOCK_BYTES: usize = 8 << 20;
/// Smaller files are not worth a direct write.
const DIRECT_MIN: u64 = 1 << 20;

/// How bytes reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Past the page cache, where the file system can.
    Direct,
    /// Through the page cache.
    Cached,
}

/// Writes a new file that holds the segments one after another, and syncs it. Returns its length. A file that exists is an error;
/// a file that could not be finished is removed.
pub fn write_file(path: &Path, segments: &[&[u8]], mode: Mode, threads: usize) -> Result<u64, StateError> {
    let name = path.display().to_string();
    let bytes: u64 = segments.iter().map(|segment| segment.len() as u64).sum();
    let direct = mode == Mode::Direct && bytes >= DIRECT_MIN;
    let (file, direct) = create(path, direct).map_err(|error| StateError::system("create", &name, &error))?;
    let written = fill(&file, &name, segments, bytes, direct, threads);
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written.map(|()| bytes)
}

/// The new file, and whether it takes direct writes.
fn create(path: &Path, direct: bool) -> std::io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if !direct {
        return options.open(path).map(|file| (file, false));
    }
    match options.clone().custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, true)),
        // Some file systems (tmpfs) refuse, and some of them only after the file was made.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let _ = std::fs::remove_file(path);
            options.open(path).map(|file| (file, false))
        }
        Err(error) => Err(error),
    }
}

fn fill(
    file: &File,
    name: &str,
    segments: &[&[u8]],
    bytes: u64,
    direct: bool,
    threads: usize,
) -> Result<(), StateError> {
    let failed = |verb| move |error: std::io::Error| StateError::system(verb, name, &error);
    reserve(file, bytes).map_err(failed("reserve room for"))?;
    let mut starts = Vec::with_capacity(segments.len());
    let mut end = 0_u64;
    for segment in segments {
        starts.push(end);
        end += segment.len() as u64;
    }
    let blocks = bytes.div_ceil(BLOCK_BYTES as u64) as usize;
    let work = |pages: &mut Pages, block: usize| {
        let first = block as u64 * BLOCK_BYTES as u64;
        let length = (bytes - first).min(BLOCK_BYTES as u64) as usize;
        let ready = ready_block(segments, &starts, first, length);
        let whole = if let Some(ready) = ready.filter(|ready| !direct || is_aligned(ready)) {
            ready
        } else {
            let pages = pages.bytes();
            gather(segments, &starts, first, &mut pages[..length]);
            let padded = if direct { length.next_multiple_of(PAGE) } else { length };
            pages[length..padded].fill(0);
            &pages[..padded]
        };
        file.write_all_at(whole, first).map_err(failed("write"))
    };
    parallel::for_each(blocks, threads, || Ok(Pages::new(BLOCK_BYTES)), work)?;
    if direct {
        file.set_len(bytes).map_err(failed("cut"))?;
    }
    file.sync_all().map_err(failed("sync"))
}

/// Asks for all blocks at once, so that a full disk is noticed before anything is written.
fn reserve(file: &File, bytes: u64) -> std::io::Result<()> {
    let Ok(length) = libc::off_t::try_from(bytes) else {
        return Err(std::io::Error::from_raw_os_error(libc::EFBIG));
    };
    if length == 0 {
        return Ok(());
    }
    // SAFETY: a file descriptor that is open, and numbers.
    let answer = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) };
    if answer == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    // Not every file system can; then the writes themselves find out.
    if error.raw_os_error() == Some(libc::EOPNOTSUPP) { Ok(()) } else { Err(error) }
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr() as usize % PAGE == 0 && bytes.len() % PAGE == 0
}

/// The block where it already lies in one piece in memory.
fn ready_block<'a>(segments: &[&'a [u8]], starts: &[u64], first: u64, length: usize) -> Option<&'a [u8]> {
    let at = starts.partition_point(|&start| start <= first).checked_sub(1)?;
    let within = (first - starts[at]) as usize;
    segments[at].get(within..within + length)
}

fn gather(segments: &[&[u8]], starts: &[u64], first: u64, into: &mut [u8]) {
    let mut at = starts.partition_point(|&start| start <= first).saturating_sub(1);
    let mut done = 0;
    while done < into.len() && at < segments.len() {
        let within = (first + done as u64).saturating_sub(starts[at]) as usize;
        let rest = &segments[at][within.min(segments[at].len())..];
        let length = rest.len().min(into.len() - done);
        into[done..done + length].copy_from_slice(&rest[..length]);
        done += length;
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segments(sizes: &[usize]) -> Vec<Vec<u8>> {
        let fill = |seed: usize, size: usize| (0..size).map(move |at| (at * 31 + seed) as u8).collect();
        sizes.iter().enumerate().map(|(seed, &size)| fill(seed, size)).collect()
    }

    fn written(sizes: &[usize], mode: Mode, threads: usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let parts = segments(sizes);
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let bytes = write_file(&path, &slices, mode, threads).unwrap();
        assert_eq!(bytes as usize, sizes.iter().sum::<usize>());
        assert!(std::fs::read(&path).unwrap() == parts.concat());
    }

    #[test]
    fn sizes_around_blocks_and_pages() {
        for mode in [Mode::Direct, Mode::Cached] {
            for sizes in [
                &[][..],
                &[0, 0],
                &[1],
                &[PAGE],
                &[BLOCK_BYTES, 0, BLOCK_BYTES],
                &[BLOCK_BYTES - 1, 2, BLOCK_BYTES * 2 + 5],
                &[3 * BLOCK_BYTES + 1],
            ] {
                written(sizes, mode, 3);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn files_are_their_segments(sizes in prop::collection::vec(prop_oneof![0..50_usize, 0..5_000_000_usize], 0..8), threads in 1..4_usize) {
            written(&sizes, Mode::Direct, threads);
        }
    }

    #[test]
    fn a_file_that_exists_is_left_alone_and_one_that_cannot_be_made_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"old").unwrap();
        let outcome = write_file(&path, &[b"new"], Mode::Cached, 1);
        assert!(
            matches!(outcome, Err(StateError::System { verb: "create", full: false, .. })),
            "{outcome:?}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert!(write_file(&folder.path().join("no/file"), &[], Mode::Direct, 1).is_err());
    }
}
