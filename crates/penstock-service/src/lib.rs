//! Batches over the network: a server that makes them for others, and the client that asks for them.
//!
//! Any server of a recipe can answer for any lane and step, because a batch is a pure function of both. So nothing is kept about
//! clients, and a client that turns to another server loses and repeats nothing.
//!
//! [`Server`] answers requests; what it makes ahead stands on its `shelf`. [`Client`] asks servers in turn until one answers, and
//! [`Ahead`] does so for the next steps of a lane in threads of its own. Neither knows what is inside a
//! batch: a [`Body`] is bytes, and [`body_of`] and [`BatchesOf`] are where they become tokens.

mod body;
mod client;
mod counts;
mod error;
mod hosts;
mod lane;
mod options;
mod problem;
mod secure;
mod server;
mod shelf;
mod token;
mod tokens;

pub use body::{Body, check_of};
pub use client::{Ahead, Answer, Buffer, Client, ClientOptions, Credential, Line, Pool, Turn, Waits};
pub use error::{ClientError, ServeError};
pub use hosts::Hosts;
pub use lane::Lane;
pub use options::Options;
pub use problem::Problem;
pub use secure::{client_config, server_config};
pub use server::Server;
pub use shelf::MakeBodies;
pub use token::Token;
pub use tokens::{BatchesOf, Fetched, body_of};

/// What requests and answers mean; a client and a server of different protocols refuse each other.
pub const PROTOCOL: u32 = 1;

/// The header that says what bytes hash to that do not say so themselves.
pub(crate) const CHECK: &str = "penstock-check";
