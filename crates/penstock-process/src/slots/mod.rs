//! Slots: places for workers, held so that parallel jobs share no GPU, core, port or memory by accident.
//!
//! A slot is taken by a file with a lock on it, held by the agent and by the worker that uses it, so it ends with the last of them and
//! can never outlive both. Slots are given out under one lock, all of a request or nothing, first come first served.

pub mod allocation;
pub mod devices;
pub mod feasibility;
pub mod inventory;
pub mod lock_directory;
pub mod queue;
pub mod report;

use serde::{Deserialize, Serialize};

/// What one worker needs. Zero is: not held, and not confined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Need {
    /// Processors that no other holder of a slot uses.
    pub cpus: u32,
    /// GPUs of its own.
    pub gpus: u32,
    /// Memory that it may use at most.
    pub memory_bytes: u64,
    /// Ports of its own, beside the gang's master port.
    pub ports: u32,
}

impl Need {
    /// Nothing is held for it.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What one worker got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Numbers of processors.
    pub cpus: Vec<u32>,
    /// GPUs, as CUDA names them: ordinals, or names of parts of one.
    pub gpus: Vec<String>,
    /// Memory that it may use at most.
    pub memory_bytes: u64,
    /// Ports.
    pub ports: Vec<u16>,
}

/// What the slots of one role are: so many places, each with the same need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// The role.
    pub role: String,
    /// Ranks and spares.
    pub places: u32,
    /// Of each place.
    pub need: Need,
}
