//! Where votes are kept so that a voter which comes back remembers them.

use super::error::Result;

/// A place for what a voter must not forget.
pub trait VoteStorage {
    /// Everything that was appended, in order. A last append that was cut short is gone, as if it had not been.
    fn load(&mut self) -> Result<Vec<Vec<u8>>>;

    /// Appends, and returns when it is durable. After an error nothing of it will be loaded.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Whether an append may work again after this error.
    fn may_retry(&self) -> bool {
        true
    }
}

/// Keeps votes in memory: for simulations, where a restart keeps the storage and drops the rest.
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    appended: Vec<Vec<u8>>,
}

impl VoteStorage for MemoryStorage {
    fn load(&mut self) -> Result<Vec<Vec<u8>>> {
        Ok(self.appended.clone())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.appended.push(bytes.to_vec());
        Ok(())
    }
}
