//! Processes of a job: started together, watched, restarted, and gone with their owner. Knows nothing of Python.
//!
//! One executable plays four roles. The *launcher* stands at the terminal. The *keeper* starts the agent and
//! watches it. The *agent* starts the workers, pumps their logs and reports what is to the *coordinator*, which decides
//! with a pure function ([`verdict::decide`]) and answers with orders. Agent and keeper are each other's watch: whichever dies, the
//! other ends the tree. Every process has one owner: descendants belong to their worker, workers to the agent, a foreground
//! job to its launcher. The coordinator owns nothing.

// It panics when standard error cannot be written; see `complain!`.
#![warn(clippy::print_stderr)]

pub mod agent;
pub mod coordinator;
pub mod error;
pub mod host;
pub mod job;
pub mod keeper;
pub mod launcher;
pub mod lease;
pub mod logs;
pub mod network;
pub mod simulate;
pub mod slots;
pub mod system;
pub mod tree;
pub mod vote;
pub mod zygote;
