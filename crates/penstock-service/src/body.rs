//! A batch on its way: bytes in a few sections, and what they hash to.
//!
//! Sections are borrowed from whoever made them, so that a large one is never copied before the kernel takes it. Where bytes do
//! not carry a hash of their own, one goes along in a header; the client makes it again from what arrived.

use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// Sections of bytes and, where they carry no hash of their own, their hash. Cloning it copies no bytes.
#[derive(Debug, Clone)]
pub struct Body {
    sections: Arc<[Bytes]>,
    bytes: usize,
    check: Option<u64>,
}

impl Body {
    /// Sections, one after the other, that carry a hash of their own.
    pub fn hashed(sections: Vec<Bytes>) -> Self {
        let bytes = sections.iter().map(Bytes::len).sum();
        Self { sections: sections.into(), bytes, check: None }
    }

    /// Bytes of any kind.
    pub fn of(bytes: Bytes) -> Self {
        let check = Some(check_of(&bytes));
        Self { bytes: bytes.len(), sections: [bytes].into(), check }
    }

    /// Its sections, in order.
    pub fn sections(&self) -> &[Bytes] {
        &self.sections
    }

    /// Bytes of all sections.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What all bytes hash to, unless they say so themselves.
    pub fn check(&self) -> Option<u64> {
        self.check
    }
}

/// What bytes hash to.
pub fn check_of(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
