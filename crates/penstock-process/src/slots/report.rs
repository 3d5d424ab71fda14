//! What there is to give out, who holds it and who waits, as one document for `penstock slots`.

use serde_json::{Value, json};

use super::allocation::described;
use super::inventory::Inventory;
use super::lock_directory::{LockDirectory, busy};
use super::queue::waiting;
use crate::error::Result;

/// Everything at one moment.
pub fn report() -> Result<Value> {
    let (locks, inventory) = (LockDirectory::open()?, Inventory::read()?);
    let guard = locks.enter()?.ok_or_else(|| busy(&locks))?;
    let tickets = waiting(&guard)?.into_iter().map(|ticket| {
        let words = described(&ticket.wants);
        let mut shown = json!(ticket);
        shown["for"] = words.into();
        shown
    });
    let (first, last) = (inventory.ports.first(), inventory.ports.last());
    Ok(json!({
        "directory": locks.path().display().to_string(),
        "cpus": inventory.cpus,
        "gpus": inventory.gpus,
        "memory_bytes": inventory.memory_bytes,
        "ports": {"first": first, "last": last, "count": inventory.ports.len()},
        "held": guard.entries()?,
        "waiting": tickets.collect::<Vec<Value>>(),
    }))
}
