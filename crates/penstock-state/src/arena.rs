//! The memory that states are captured into: taken from the system once, touched in the background, used again and again.
//!
//! The first touch of a page costs more than copying to it, so pages are touched before the first capture needs them.

use std::ptr::NonNull;

use super::aligned::PAGE;
use super::error::StateError;
use super::parallel;

/// How much one work item touches.
const TOUCH_BYTES: usize = 64 << 20;

/// One stretch of memory that captures are copied into; given back when dropped.
pub struct Arena {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the arena is plain memory; who writes where is the captures' agreement, which never overlap.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves memory, without touching it.
    pub fn new(bytes: usize) -> Result<Self, StateError> {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping; nothing that exists is touched.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        let memory = if memory == libc::MAP_FAILED { None } else { NonNull::new(memory.cast::<u8>()) };
        let Some(memory) = memory else {
            let error = std::io::Error::last_os_error();
            return Err(StateError::system("reserve", &format!("{bytes} bytes of memory"), &error));
        };
        // SAFETY: the mapping just made. Large pages are a wish, so the answer does not matter.
        unsafe { libc::madvise(memory.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { memory, bytes })
    }

    /// Touches every page, so that copying does not have to. Safe while others use the arena: the content stays.
    pub fn touch(&self, threads: usize) {
        let items = self.bytes.div_ceil(TOUCH_BYTES);
        let work = |_: &mut (), item: usize| {
            let first = item * TOUCH_BYTES;
            let length = TOUCH_BYTES.min(self.bytes - first);
            // SAFETY: inside the mapping. Populating leaves what is there as it is.
            let done = unsafe {
                libc::madvise(self.memory.as_ptr().add(first).cast(), length, libc::MADV_POPULATE_WRITE)
            };
            // Kernels before 5.14 do not know it; then the first capture pays.
            if done == 0 { Ok(()) } else { Err(()) }
        };
        let _ = parallel::for_each(items, threads, || Ok(()), work);
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// How large it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody refers to any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_there_and_touching_leaves_it_as_it_is() {
        let arena = Arena::new(10_000).unwrap();
        assert_eq!(arena.bytes(), 12_288);
        // SAFETY: inside the arena, used by this test alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(arena.start(), arena.bytes()) };
        bytes[9_999] = 7;
        arena.touch(2);
        assert_eq!((bytes[9_999], bytes[0]), (7, 0));
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(matches!(Arena::new(1 << 60), Err(StateError::System { verb: "reserve", .. })));
    }
}
