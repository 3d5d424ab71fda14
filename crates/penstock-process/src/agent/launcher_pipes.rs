//! What ties the agent of a foreground job to its launcher, and so to the person at the terminal.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::error::Result;
use crate::system;

/// Our ends of what the launcher gave us.
pub(super) struct LauncherPipes {
    /// Says what the person at the terminal wants; ends when the launcher does. Nothing for a detached job.
    pub(super) pipe: Option<File>,
    /// The person has asked the launcher to end the job.
    pub(super) person_asked: bool,
    /// Told once that workers run, for a launcher that does not stay.
    pub(super) ready: Option<OwnedFd>,
    /// What the rank reads that has standard input, in every life of it.
    pub(super) input: Option<OwnedFd>,
}

impl LauncherPipes {
    /// With descriptors that the agent inherited.
    pub(super) fn open(
        pipe: Option<OwnedFd>,
        ready: Option<OwnedFd>,
        input: Option<OwnedFd>,
    ) -> Result<Self> {
        pipe.as_ref().map_or(Ok(()), system::set_nonblocking)?;
        Ok(Self { pipe: pipe.map(File::from), person_asked: false, ready, input })
    }
}
