//! Links between the hosts of a job: frames over TLS 1.3, and nothing for strangers.
//!
//! A [`Network`] is driven by one thread: sockets never block, one epoll descriptor says when there is something to do, and
//! time comes in as an argument. It knows nothing of what the frames mean. H7 is kept here: no byte of a peer without the key of the
//! job leaves this module. Who is alive is decided above; the kernel only notices peers that vanished.
//!
//! All hosts of a job hold one key, so a link says that its peer belongs to the job, never which host it is.

pub mod frame;
pub mod key;
mod link;
pub mod links;
mod send_queue;
mod socket;
pub mod strangers;
#[cfg(test)]
mod tests;
mod tls;

pub use key::JobKey;
pub use link::{OTHER_KEY, OTHER_PROTOCOL, SILENT};
pub use links::{LinkId, Network, NetworkEvent, NetworkStatistics};
pub use strangers::{Stranger, StrangerCounts};

/// What a network may hold, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Accepted peers that have not proven the key.
    pub half_open_max: usize,
    /// How long a peer may take to connect to us and to prove the key, and how long the kernel may take to connect us to one.
    pub handshake_ms: u64,
    /// How long a peer that we dialled may take from then on. It may wait for a place at the other end's door: when a thousand hosts
    /// join at once, whoever gives up soon is served in vain, and is back at the end of the queue.
    pub dialled_ms: u64,
    /// What may wait for one slow peer.
    pub queue_bytes_max: usize,
    /// What of bulk may wait for one slow peer, beside that.
    pub bulk_bytes_max: usize,
    /// How long what is queued may take to leave after a link was closed.
    pub close_ms: u64,
    /// Links of all kinds, half-open ones included.
    pub links_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            half_open_max: 64,
            handshake_ms: 2000,
            dialled_ms: 10_000,
            queue_bytes_max: 8 << 20,
            bulk_bytes_max: 32 << 20,
            close_ms: 1000,
            links_max: 16_384,
        }
    }
}
