//! Processes of a job: started together, watched, restarted, and gone with their owner. Knows nothing of Python.
//!
//! One executable plays three roles. The *launcher* stands at the terminal. The *keeper* starts the agent and
//! watches it. The *agent* starts the ranks, pumps their logs and asks [`verdict::decide`] what to do. Agent and keeper
//! are each other's watch: whichever dies, the other ends the tree. Every process has one owner:
//! descendants belong to their rank, ranks to the agent, a foreground job to its launcher.

pub mod agent;
pub mod cgroup;
pub mod console;
pub mod control;
pub mod ending;
pub mod error;
pub mod exit;
pub mod incident;
pub mod isolate;
pub mod job;
pub mod keeper;
pub mod kmsg;
pub mod launch;
pub mod lineage;
pub mod memory_limit;
pub mod outside;
pub mod pump;
pub mod slots;
pub mod spawn;
pub mod state;
pub mod system;
pub mod verdict;
