//! Bytes that are somewhere else: object stores behind one client with deadlines, retries and limits, and the host's cache of them.
//!
//! Everything here is a [`penstock_io::ReadAt`] to those above: `RemoteFile` reads ranges of one object, `PieceFile` stands before any
//! origin, keeps pieces of it in memory and in the cache of the host, and starts to fetch what it is told will be needed.

pub mod cache;
pub mod pieces;

pub use cache::HostCache;
pub use pieces::PieceFile;
