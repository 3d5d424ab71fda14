//! Batches over the network: a server that makes them for others, and the client that asks for them.
//!
//! Any server of a recipe can answer for any lane and step, because a batch is a pure function of both. So nothing is kept about
//! clients, and a client that turns to another server loses and repeats nothing.
