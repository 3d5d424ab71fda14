//! What there is to lease, who holds it and who waits, as one document for `penstock slots`.

use serde_json::{Value, json};

use super::desk::{Desk, busy};
use super::inventory::Inventory;
use super::placing::described;
use super::queue::waiting;
use crate::error::Result;

/// Everything at one moment.
pub fn report() -> Result<Value> {
    let (desk, inventory) = (Desk::open()?, Inventory::read()?);
    let gate = desk.enter()?.ok_or_else(|| busy(&desk))?;
    let tickets = waiting(&gate)?.into_iter().map(|ticket| {
        let words = described(&ticket.wants);
        let mut shown = json!(ticket);
        shown["for"] = words.into();
        shown
    });
    let (first, last) = (inventory.ports.first(), inventory.ports.last());
    Ok(json!({
        "directory": desk.path().display().to_string(),
        "cpus": inventory.cpus,
        "gpus": inventory.gpus,
        "memory_bytes": inventory.memory_bytes,
        "ports": {"first": first, "last": last, "count": inventory.ports.len()},
        "leases": gate.leases()?,
        "waiting": tickets.collect::<Vec<Value>>(),
    }))
}
