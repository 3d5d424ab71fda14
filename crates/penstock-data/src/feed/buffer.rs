//! The bytes of a batch: memory of this feed, or a stretch of memory that came from elsewhere and is only looked at.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::batch::Pool;

/// Memory that others hold too: a mapping of what another process wrote, or the body of an answer.
pub type Memory = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Bytes of a batch, and who owns them.
pub(super) enum Buffer {
    /// Filled here; goes back to the pool when nobody needs it.
    Pooled {
        /// The bytes.
        bytes: Vec<u8>,
        /// Where they go back to.
        pool: Arc<Pool>,
    },
    /// A stretch of memory that came from elsewhere.
    Shared {
        /// All of it.
        memory: Memory,
        /// The stretch; checked when it was made.
        range: Range<usize>,
    },
}

impl Buffer {
    /// A buffer of `bytes` to be filled, its content unspecified.
    pub(super) fn pooled(pool: &Arc<Pool>, bytes: usize) -> Self {
        Self::Pooled { bytes: pool.take(bytes), pool: Arc::clone(pool) }
    }

    /// A stretch of memory, if it has that many bytes.
    pub(super) fn shared(memory: &Memory, range: Range<usize>) -> Option<Self> {
        (**memory).as_ref().get(range.clone())?;
        Some(Self::Shared { memory: Arc::clone(memory), range })
    }

    /// The bytes, to be filled; none where they came from elsewhere, finished.
    pub(super) fn filling(&mut self) -> &mut [u8] {
        match self {
            Self::Pooled { bytes, .. } => bytes,
            Self::Shared { .. } => &mut [],
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pooled { bytes, .. } => bytes,
            Self::Shared { memory, range } => &(**memory).as_ref()[range.clone()],
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Self::Pooled { bytes, pool } = self {
            pool.give(std::mem::take(bytes));
        }
    }
}
