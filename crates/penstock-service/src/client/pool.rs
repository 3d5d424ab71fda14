//! Memory for what arrives, used again: fresh memory costs as much as filling it.

use std::sync::{Arc, Mutex, PoisonError};

/// Buffers kept at most, and their bytes; at least two are kept however large.
const FREE_MAX: usize = 16;
const FREE_BYTES_MAX: usize = 32 << 20;
const FREE_MIN: usize = 2;

/// Buffers that nobody refers to any more.
#[derive(Default)]
pub struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// Bytes that go back to their pool when they are dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Pool {
    /// A buffer of so many bytes, its content unspecified.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = free.iter().rposition(|buffer| buffer.capacity() >= bytes);
        let mut buffer = fitting.map(|place| free.swap_remove(place)).unwrap_or_default();
        drop(free);
        buffer.resize(bytes, 0);
        Buffer { bytes: buffer, pool: Arc::clone(self) }
    }
}

impl Buffer {
    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = free.iter().map(Vec::capacity).sum();
        let room = free.len() < FREE_MIN || held + bytes.capacity() <= FREE_BYTES_MAX;
        if room && free.len() < FREE_MAX && bytes.capacity() > 0 {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_when_nobody_has_it_any_more() {
        let pool = Arc::new(Pool::default());
        let (one, other) = (pool.take(1000), pool.take(1000));
        let place = one.as_ref().as_ptr();
        assert_ne!(place, other.as_ref().as_ptr());
        drop(one);
        assert_eq!(pool.take(900).as_ref().as_ptr(), place);
        drop((0..100).map(|_| pool.take(10)).collect::<Vec<_>>());
        assert!(pool.free.lock().unwrap().len() <= FREE_MAX);
    }
}
