//! The job that an agent was started for: what was asked for, and where it is written down. Nothing of it changes.

use crate::error::Result;
use crate::job::mark::Mark;
use crate::job::{GangPlan, Job, JobDirectory};

/// The job of one agent.
pub(super) struct AssignedJob {
    /// What was asked for.
    pub(super) spec: Job,
    /// Its gangs; their places here are their numbers.
    pub(super) plans: Vec<GangPlan>,
    /// Where everything about it stands.
    pub(super) directory: JobDirectory,
    /// What all processes of the job have in common.
    pub(super) mark: Mark,
}

impl AssignedJob {
    /// The job of a directory.
    pub(super) fn open(directory: &JobDirectory) -> Result<Self> {
        let spec = directory.job()?;
        let mark = Mark::of(directory.path());
        Ok(Self { plans: spec.gangs(), spec, directory: directory.clone(), mark })
    }
}
