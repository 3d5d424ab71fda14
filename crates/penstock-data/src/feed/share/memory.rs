//! Memory that one process fills and others look at: a nameless file that nobody can change once it is sealed.
//!
//! It stands in no directory, so nothing of it can be left behind: the kernel frees it with the last process that holds it. The seals are
//! checked before it is mapped, because a file that somebody could still shorten would kill whoever reads it.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use memmap2::MmapOptions;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};

use super::super::buffer::Memory;
use super::table::Shared;

const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE).union(SealFlags::SEAL);

/// Fills new memory with slices, one after the other, and seals it.
pub(super) fn seal(slices: &[&[u8]]) -> io::Result<Shared> {
    let file = memfd_create(c"penstock-batch", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(file);
    let mut left: Vec<IoSlice<'_>> =
        slices.iter().filter(|slice| !slice.is_empty()).map(|slice| IoSlice::new(slice)).collect();
    let mut left = &mut left[..];
    // Every turn writes at least a byte.
    while !left.is_empty() {
        match file.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(problem),
        }
    }
    fcntl_add_seals(&file, SEALS)?;
    let bytes = slices.iter().map(|slice| slice.len() as u64).sum();
    Ok(Shared { file: Arc::new(OwnedFd::from(file)), bytes })
}

/// Looks at sealed memory; refused when it is not sealed, or has not as many bytes as were told.
pub(super) fn map(shared: &Shared) -> io::Result<Memory> {
    let refused = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    if !fcntl_get_seals(shared.file.as_fd())?.contains(SEALS) {
        return Err(refused("it is not sealed"));
    }
    let (found, told) = (fstat(shared.file.as_fd())?.st_size as u64, shared.bytes);
    if found != told || told == 0 {
        return Err(refused(&format!("it has {found} bytes instead of {told}")));
    }
    // SAFETY: the seals that were just checked keep everybody, whoever they are, from writing to the memory or shortening it.
    let mapped = unsafe { MmapOptions::new().len(told as usize).populate().map(&*shared.file)? };
    Ok(Arc::new(mapped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_what_is_seen_and_nobody_can_change_it() {
        let shared = seal(&[b"abc", b"", b"de"]).unwrap();
        assert_eq!((*map(&shared).unwrap()).as_ref(), b"abcde");
        let mut file = File::from(shared.file.try_clone().unwrap());
        assert!(file.write(b"x").is_err());
        assert!(file.set_len(1).is_err());
        assert!(file.set_len(99).is_err());
    }

    #[test]
    fn memory_that_could_change_or_is_shorter_than_told_is_refused() {
        let open = memfd_create(c"open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let mut file = File::from(open);
        file.write_all(b"abc").unwrap();
        let shared = Shared { file: Arc::new(file.into()), bytes: 3 };
        assert!(map(&shared).is_err());
        let shared = seal(&[b"abc"]).unwrap();
        assert!(map(&Shared { bytes: 4, ..shared.clone() }).is_err());
        assert!(map(&Shared { bytes: 0, ..shared }).is_err());
    }
}
