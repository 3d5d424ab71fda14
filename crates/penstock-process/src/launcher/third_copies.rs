//! Third copies of our ends of what workers write to, in the hands of a launcher that stays: for when keeper and agent are killed together.
//!
//! They come as the keeper's come, from the agent, and nothing is read from them while one of the two lives. Sending them waits for nobody,
//! so a launcher that is stopped holds nobody back; it only has no copies of what it did not take.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::complain;
use crate::error::Result;
use crate::job::state::State;
use crate::job::{Job, JobDirectory};
use crate::keeper::custody::Custody;
use crate::keeper::sweep;
use crate::system;
use crate::zygote::packet;

/// What a launcher does for a job that nobody else is left for.
pub struct ThirdCopies<'a> {
    directory: &'a JobDirectory,
    job: &'a Job,
    /// Keeper and agent hold the other end, and nobody else; nothing once both are gone.
    hand: Option<OwnedFd>,
    custody: Custody,
}

impl<'a> ThirdCopies<'a> {
    /// Nothing is taken yet; and the end for the keeper and its agents.
    pub fn open(directory: &'a JobDirectory, job: &'a Job) -> Result<(Self, OwnedFd)> {
        let (hand, theirs) = packet::pair()?;
        Ok((Self { directory, job, hand: Some(hand), custody: Custody::default() }, theirs))
    }

    /// To be called when the keeper has its own limits: there are two descriptors for each worker.
    pub fn make_room() {
        system::raise_file_limit();
    }

    /// What to poll; -1 for nothing.
    pub fn number(&self) -> RawFd {
        self.hand.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Takes what is handed over. When keeper and agent are gone and have not said that the job is over, they were killed: ends what is
    /// left of the job, and finishes its logs.
    pub fn take(&mut self) {
        if self.hand.take_if(|hand| !self.custody.take(hand)).is_none() {
            return;
        }
        let state = State::load(self.directory).ok().flatten();
        if state.is_some_and(|state| state.phase.is_final()) {
            return;
        }
        // Writers first, so that all they wrote is in the pipes.
        sweep::sweep(self.directory.path());
        if let Err(problem) = self.custody.finish(self.directory, self.job) {
            complain!("note: what ranks wrote last is not in their logs: {problem}");
        }
    }
}
