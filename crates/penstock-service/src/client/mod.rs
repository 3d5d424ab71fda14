//! The client: asks one server after the other until one answers, and reads ahead.
//!
//! It speaks HTTP/1.1 over a few connections, one thread each, because that is the fastest of what was measured: bytes go from
//! the kernel straight to where the batch will stay. See `docs/decisions/data-service.md`.

mod ahead;
mod asking;
mod connection;
mod credential;
mod pool;
mod standing;

use std::sync::Arc;
use std::time::Duration;

pub use ahead::{Ahead, Turn, Waits};
pub use asking::{Answer, Client, Line};
pub use credential::Credential;
pub use pool::{Buffer, Pool};

/// Whom a client asks, and how long.
#[derive(Clone)]
pub struct ClientOptions {
    /// Host and port of each server.
    pub servers: Vec<(String, u16)>,
    /// What it shows each of them.
    pub credentials: Vec<Option<Credential>>,
    /// Where connections are secured.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The server that is asked first.
    pub first: usize,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long a server may say nothing; then another one is asked.
    pub silence_max: Duration,
    /// How long all of it may take before it is an error.
    pub limit: Duration,
}
