//! Whether a job can ever run on this machine, said before anything of it is started.

use crate::error::{ProcessError, Result};
use crate::job::Job;
use crate::slots::allocation::impossible;
use crate::slots::inventory::Inventory;
use crate::slots::lock_directory::LockDirectory;

/// Why a job can never run on this machine, if so: a role alone, or those that start together.
pub fn check(job: &Job) -> Result<()> {
    let wants: Vec<_> = (0..job.roles.len()).map(|role| job.want(role)).collect();
    if wants.iter().all(|want| want.need.is_nothing()) {
        return Ok(());
    }
    let inventory = Inventory::read()?;
    let first = wants.iter().zip(&job.roles).filter(|(_, role)| role.after.is_empty());
    let first: Vec<_> = first.map(|(want, _)| want.clone()).collect();
    let alone = wants.iter().map(|want| (want.role.clone(), vec![want.clone()]));
    for (who, wants) in alone.chain([("all that start at once".to_owned(), first)]) {
        if let Some(why) = impossible(&inventory, &wants) {
            return Err(ProcessError::Slots(format!("{who}: {why}")));
        }
    }
    LockDirectory::open().map(drop)
}
