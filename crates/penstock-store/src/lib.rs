//! Bytes that are somewhere else: object stores behind one client with deadlines, retries and limits, and the host's cache of them.
//!
//! Everything here is a [`penstock_io::ReadAt`] to those above: `RemoteFile` reads ranges of one object, `PieceFile` stands before any
//! origin, keeps pieces of it in memory and in the cache of the host, and starts to fetch what it is told will be needed.

mod asking;
mod body;
pub mod cache;
mod client;
pub mod counts;
pub mod flying;
mod hedge;
mod joined_file;
mod limits;
mod listing;
mod options;
pub mod pieces;
mod profiles;
mod reading;
mod remote;
mod retry;
mod runtime;
mod spreading;
mod throttle;
mod trouble;
mod upload;
mod watched;
mod whole_object;

pub use body::{Body, FileBody, Slices};
pub use cache::HostCache;
pub use client::{Client, Described};
pub use joined_file::JoinedFile;
pub use limits::Limits;
pub use listing::Listing;
pub use options::{Options, Place};
pub use pieces::PieceFile;
pub use remote::RemoteFile;
pub use runtime::{PerProcess, interruptible};
pub use whole_object::open_whole;
