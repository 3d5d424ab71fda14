//! Memory that begins at a page, which is what direct reads and writes want.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// What direct reads and writes are aligned to.
pub(crate) const PAGE: usize = 4096;

/// Some pages.
pub(crate) struct Pages {
    memory: std::ptr::NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Pages {}

impl Pages {
    /// At least `bytes`, at least one page.
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size above 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = std::ptr::NonNull::new(memory) else { handle_alloc_error(layout) };
        Self { memory, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        // A page is a power of two and sizes are far below the limit of a layout.
        Layout::from_size_align(bytes, PAGE).unwrap_or(Layout::new::<u8>())
    }

    /// All of it.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated and zeroed in `new`, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.bytes)) }
    }
}
