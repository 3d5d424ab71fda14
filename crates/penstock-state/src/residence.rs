//! What of a file is in the page cache, asked without bringing anything in.
//!
//! A direct read leaves the page cache as it is, also where that has the bytes already, and then the disk is slower than memory.
//! `mincore` over a mapping that is never touched says which pages are there. Where the kernel does not tell (the file is neither ours nor
//! ours to write), it says that all are, and reading through the cache is right too, if not as fast.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::aligned::PAGE;

/// A file opened through the page cache, beside the same one opened past it.
pub(crate) struct Residence {
    file: File,
    mapping: NonNull<libc::c_void>,
    bytes: usize,
}

// SAFETY: the mapping is asked about, and never read or written.
unsafe impl Send for Residence {}
// SAFETY: as above.
unsafe impl Sync for Residence {}

impl Residence {
    /// Of a file of `bytes` bytes; nothing if it cannot be mapped, or is empty.
    pub(crate) fn new(file: File, bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
        // SAFETY: a new mapping; nothing that exists is touched.
        let mapping = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        let mapping = if mapping == libc::MAP_FAILED { None } else { NonNull::new(mapping) };
        Some(Self { file, mapping: mapping?, bytes })
    }

    /// The file, if every page of a range that begins at a page is in memory now.
    pub(crate) fn file_with(&self, offset: u64, bytes: usize) -> Option<&File> {
        let first = usize::try_from(offset).ok().filter(|first| first % PAGE == 0)?;
        let bytes = bytes.min(self.bytes.checked_sub(first)?);
        let mut pages = vec![0_u8; bytes.div_ceil(PAGE)];
        // SAFETY: the range lies inside the mapping, and there is a byte for each of its pages.
        let done = unsafe {
            libc::mincore(self.mapping.as_ptr().cast::<u8>().add(first).cast(), bytes, pages.as_mut_ptr())
        };
        (done == 0 && pages.iter().all(|page| page & 1 == 1)).then_some(&self.file)
    }
}

impl Drop for Residence {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody refers to any more.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn pages_that_were_read_are_there_and_others_are_not() {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let bytes = 16 * PAGE + 5;
        file.write_all(&vec![7; bytes]).unwrap();
        file.as_file().sync_all().unwrap();
        // SAFETY: advice about a file of ours.
        let forgotten =
            unsafe { libc::posix_fadvise(file.as_file().as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(forgotten, 0);
        let residence = Residence::new(file.reopen().unwrap(), bytes as u64).unwrap();
        assert!(residence.file_with(0, PAGE).is_none(), "the cache was emptied");

        file.as_file().read_exact_at(&mut vec![0; bytes], 0).unwrap();
        assert!(residence.file_with(0, bytes).is_some());
        assert!(residence.file_with(15 * PAGE as u64, 10 * PAGE).is_some(), "up to the end of the file");
        assert!(residence.file_with(1, PAGE).is_none(), "no page begins there");
        assert!(residence.file_with(1 << 40, PAGE).is_none(), "behind the end");
    }

    #[test]
    fn an_empty_file_has_none() {
        assert!(Residence::new(tempfile::tempfile().unwrap(), 0).is_none());
    }
}
