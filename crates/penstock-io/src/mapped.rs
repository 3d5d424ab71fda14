//! A mapped file that survives its file: a page that is gone becomes an error, not the end of the process.
//!
//! Copying from a mapping costs a fraction of a system call, which is most of what reading a short row costs. But a file that
//! shrinks under a mapping raises SIGBUS. The handler here knows the mappings of this module by address: a fault in one of them puts
//! an empty page there and marks the mapping, whose reader then reports the file as cut off; any other fault goes to
//! whoever handled it before. Mapping is only done on file systems of this machine: over a network it is slow.

use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// How many mappings there may be at once; further files are read without. Half of what Linux allows a process by default.
const SLOTS: usize = 32_768;
const PAGE: usize = 4096;
/// ext2/3/4, xfs, btrfs, tmpfs, overlay, f2fs, zfs.
const LOCAL_FILE_SYSTEMS: [i64; 7] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0xF2F5_2010, 0x2FC1_2FC1];

/// Where a mapping is; the handler reads these, so they are plain atomics.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    torn: AtomicBool,
    taken: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        torn: AtomicBool::new(false),
        taken: AtomicBool::new(false),
    }
}; SLOTS];
static INSTALL: Once = Once::new();
/// Where a free slot was found last; looking goes on from there.
static FREE_HINT: AtomicUsize = AtomicUsize::new(0);
/// What handled SIGBUS before, as a leaked box; null when nothing did.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// The bytes of a file, mapped for reading, or as words that processes share.
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    slot: &'static Slot,
    /// Whether it was mapped for writing; then it is used as atomic words only.
    shared: bool,
}

// SAFETY: the memory is only read, or written by atomic operations.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file of `bytes` bytes; nothing where that is not possible or not wise.
    pub fn new(file: &File, bytes: u64) -> Option<Self> {
        Self::with(file, bytes, false)
    }

    /// Maps the first page of a file, which is open for writing, as words that all who map it share.
    pub fn shared(file: &File) -> Option<Self> {
        Self::with(file, PAGE as u64, true)
    }

    fn with(file: &File, bytes: u64, shared: bool) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes >= PAGE)?;
        if !is_local(file) {
            return None;
        }
        INSTALL.call_once(install);
        let slot = free_slot()?;
        let access = if shared { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping of an open file; nothing that exists is touched.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast::<u8>()) };
        let Some(start) = start else {
            slot.taken.store(false, Ordering::Release);
            return None;
        };
        slot.torn.store(false, Ordering::Relaxed);
        slot.end.store(start.as_ptr() as usize + bytes.next_multiple_of(PAGE), Ordering::Relaxed);
        slot.start.store(start.as_ptr() as usize, Ordering::Release);
        Some(Self { start, bytes, slot, shared })
    }

    /// What `look` finds in some of the bytes; nothing if the file no longer has them, or never had. Whoever changes the file meanwhile
    /// changes what is seen.
    pub fn look<T>(&self, range: Range<usize>, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.shared || range.start > range.end || range.end > self.bytes {
            return None;
        }
        // SAFETY: inside the mapping, which lives as long as `self`; a page that is gone is replaced by the handler.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.end - range.start)
        };
        let answer = look(bytes);
        (!self.slot.torn.load(Ordering::Acquire)).then_some(answer)
    }

    /// The words of a shared page; none of a mapping for reading.
    pub fn words(&self) -> &[AtomicU64] {
        let count = if self.shared { self.bytes / 8 } else { 0 };
        // SAFETY: a mapping begins at a page and is writable; every process uses its words atomically.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU64>(), count) }
    }

    /// Fills `into` with the bytes at `offset`; false if the file no longer has them, or never had.
    pub fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(end) = usize::try_from(offset).ok().and_then(|first| first.checked_add(into.len())) else {
            return false;
        };
        if end > self.bytes {
            return false;
        }
        // SAFETY: inside the mapping, which lives as long as `self`; a page that is gone is replaced by the handler.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset as usize),
                into.as_mut_ptr(),
                into.len(),
            );
        }
        !self.slot.torn.load(Ordering::Acquire)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.slot.start.store(0, Ordering::Release);
        self.slot.end.store(0, Ordering::Release);
        // SAFETY: the whole mapping, which nobody refers to any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        self.slot.taken.store(false, Ordering::Release);
    }
}

/// A slot that is now taken. Looking begins where one was found last, so that a full table is not gone through each time.
fn free_slot() -> Option<&'static Slot> {
    let first = FREE_HINT.load(Ordering::Relaxed);
    for number in (first..SLOTS).chain(0..first.min(SLOTS)) {
        let slot = &TABLE[number];
        if !slot.taken.load(Ordering::Relaxed)
            && slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            FREE_HINT.store(number + 1, Ordering::Relaxed);
            return Some(slot);
        }
    }
    None
}

fn is_local(file: &File) -> bool {
    let mut status = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: an open file, and memory for the answer.
    let answer = unsafe { libc::fstatfs(file.as_raw_fd(), status.as_mut_ptr()) };
    // SAFETY: filled in, if the call says so.
    answer == 0 && LOCAL_FILE_SYSTEMS.contains(&unsafe { status.assume_init() }.f_type)
}

fn install() {
    // SAFETY: both structures are plain data and filled before use; the handler only does what a handler may.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_fault as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        let before = Box::into_raw(Box::new(std::mem::zeroed::<libc::sigaction>()));
        if libc::sigaction(libc::SIGBUS, &ours, before) == 0 {
            BEFORE.store(before, Ordering::Release);
        }
    }
}

/// Looks whether the fault is in one of our mappings. Calls nothing that could not be called in a handler.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel fills in `info`; `mmap` replaces a page of a mapping of ours, which is only read.
    unsafe {
        let address = (*info).si_addr() as usize;
        for slot in &TABLE {
            let start = slot.start.load(Ordering::Acquire);
            if start != 0 && (start..slot.end.load(Ordering::Relaxed)).contains(&address) {
                slot.torn.store(true, Ordering::Release);
                let page = (address / PAGE * PAGE) as *mut libc::c_void;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                if libc::mmap(page, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
                    != libc::MAP_FAILED
                {
                    return;
                }
            }
        }
        let before = BEFORE.load(Ordering::Acquire);
        let handler = if before.is_null() { libc::SIG_DFL } else { (*before).sa_sigaction };
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            // Not ours, and nobody else's: the fault comes again and ends the process, as it would have without us.
            libc::signal(signal, libc::SIG_DFL);
        } else if (*before).sa_flags & libc::SA_SIGINFO != 0 {
            let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            call(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_of(bytes: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| ((at * 31) >> 3) as u8).collect();
        file.write_all(&content).unwrap();
        (file, content)
    }

    #[test]
    fn bytes_are_those_of_the_file() {
        let (file, content) = file_of(100_000);
        let mapping = Mapping::new(file.as_file(), content.len() as u64).unwrap();
        for (offset, length) in [(0, 100_000), (99_999, 1), (5_000, 9_000), (7, 0)] {
            let mut into = vec![1; length];
            assert!(mapping.copy(offset as u64, &mut into));
            assert_eq!(into, content[offset..offset + length]);
        }
        assert!(!mapping.copy(99_999, &mut [0; 2]));
        assert!(!mapping.copy(u64::MAX, &mut [0; 2]));
    }

    /// Goal: a file that shrinks is an error, not the end. Method: cut it under the mapping and read where it was.
    #[test]
    fn a_file_that_shrinks_is_noticed_by_its_reader_and_by_no_other() {
        let (file, content) = file_of(100_000);
        let (_other, kept) = file_of(50_000);
        let mapping = Mapping::new(file.as_file(), content.len() as u64).unwrap();
        let other = Mapping::new(_other.as_file(), kept.len() as u64).unwrap();
        let mut into = vec![0; 10_000];
        assert!(mapping.copy(80_000, &mut into));
        file.as_file().set_len(4_096).unwrap();
        assert!(!mapping.copy(80_000, &mut into));
        assert!(!mapping.copy(0, &mut into), "once torn, nothing of it is trusted");
        assert!(other.copy(40_000, &mut into));
        assert_eq!(into, kept[40_000..50_000]);
    }

    #[test]
    fn slots_are_used_again() {
        let (file, content) = file_of(8_192);
        for _ in 0..SLOTS + 100 {
            assert!(Mapping::new(file.as_file(), content.len() as u64).is_some());
        }
        let words = Mapping::shared(file.as_file()).unwrap();
        let same = Mapping::shared(file.as_file()).unwrap();
        words.words()[3].store(17, Ordering::Relaxed);
        assert_eq!(same.words()[3].load(Ordering::Relaxed), 17);
        assert!(Mapping::new(file.as_file(), 4_096).unwrap().words().is_empty());
        let (small, content) = file_of(100);
        assert!(Mapping::new(small.as_file(), content.len() as u64).is_none());
    }
}
