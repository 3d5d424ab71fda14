//! One object of a store as a file that is read by position.

use std::sync::Arc;

use penstock_io::{IoError, ReadAt};

use crate::Client;

/// See the module's description. Reads are pinned to the object that was described, where the store has entity tags.
pub struct RemoteFile {
    client: Arc<Client>,
    name: String,
    url: String,
    bytes: u64,
    etag: Option<String>,
}

impl RemoteFile {
    /// Nothing is contacted. `etag` is what the object has to be; without it, it is what the first answer of each read says.
    pub fn open(client: &Arc<Client>, name: &str, bytes: u64, etag: Option<String>) -> Self {
        Self { client: Arc::clone(client), name: name.to_owned(), url: client.url_of(name), bytes, etag }
    }
}

impl ReadAt for RemoteFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn name(&self) -> &str {
        &self.url
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let wanted = into.len() as u64;
        if offset.checked_add(wanted).is_none_or(|end| end > self.bytes) {
            let got = self.bytes.saturating_sub(offset).min(wanted);
            return Err(IoError::Short { name: self.url.clone(), offset, wanted, got });
        }
        self.client
            .read_into(&self.name, offset, into, self.etag.as_deref())
            .map_err(|problem| IoError::Store(Box::new(problem)))
    }
}
