//! What bounds a server: every queue, wait and buffer has its limit here.

use std::sync::Arc;
use std::time::Duration;

use crate::hosts::Hosts;
use crate::token::Token;

/// The limits of one server.
#[derive(Clone)]
pub struct Options {
    /// Threads that make batches.
    pub threads: usize,
    /// For batches that stand on the shelf; twice as much at most is held while batches are being sent.
    pub memory_bytes: usize,
    /// Steps that are made ahead of what a lane asked for last, at most.
    pub ahead_max: usize,
    /// A lane that nobody asked for so long is forgotten.
    pub forget_after: Duration,
    /// What clients must show; none lets everybody in.
    pub token: Option<Token>,
    /// The names under which it answers; none answers to every name.
    pub hosts: Option<Hosts>,
    /// Where connections are to be secured.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Connections at once; more are closed at once.
    pub connections_max: usize,
    /// Requests at once, over all clients and of one; more are answered with 503.
    pub requests_max: usize,
    /// See above.
    pub requests_per_client_max: usize,
    /// How long a request's head, and a handshake, may take; idle connections are closed after it too.
    pub head_timeout: Duration,
    /// How long a client may take no byte of what it is sent.
    pub write_timeout: Duration,
    /// How long a request waits for its batch at most, whatever the client says.
    pub patience_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 2,
            memory_bytes: 256 << 20,
            ahead_max: 16,
            forget_after: Duration::from_secs(60),
            token: None,
            hosts: None,
            tls: None,
            connections_max: 1024,
            requests_max: 256,
            requests_per_client_max: 16,
            head_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            patience_max: Duration::from_secs(60),
        }
    }
}
