//! The coordinator: hears reports, writes down what it decides, and answers with orders. It owns nothing.
//!
//! Everything that it knows is in the journal and in the next report, so it can be killed at any moment: the agent starts another,
//! which goes on where it was, and no worker notices (P4).

pub mod decider;
pub mod first_failure;
pub mod hang;
pub mod history;
pub mod messages;
pub mod verdict;
pub mod view;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use crate::coordinator::decider::Decider;
use crate::coordinator::history::JobHistory;
use crate::coordinator::messages::Report;
use crate::error::{ProcessError, Result};
use crate::host::config::HostConfig;
use crate::job::JobDirectory;
use crate::job::journal::Journal;
use crate::launcher::inherited_fds::InheritedFds;
use crate::system;

/// Runs until the agent ends the conversation.
pub fn run(directory: &JobDirectory, fds: InheritedFds) -> Result<i32> {
    system::die_with_parent();
    system::outlive_full_files();
    let link = fds.link.ok_or_else(|| ProcessError::Usage("a coordinator needs a link".to_owned()))?;
    if let Some(config) = HostConfig::read(directory)? {
        return crate::host::run::run(directory, config, link);
    }
    let link = UnixStream::from(link);
    let job = directory.job()?;
    let mut journal = Journal::open(directory)?;
    let history = JobHistory::new(&job).read(&journal.content(directory)?);
    let mut decider = Decider::new(job, history);
    for line in BufReader::new(&link).lines() {
        let Ok(line) = line else { break };
        let report: Report = serde_json::from_str(&line)
            .map_err(|source| ProcessError::Format { path: directory.path().to_owned(), source })?;
        let (entries, orders) = decider.consider(&report);
        // First written down, then said: what was said is remembered.
        entries.iter().for_each(|entry| journal.add(entry));
        let mut answer = serde_json::to_vec(&orders).expect("orders are plain values");
        answer.push(b'\n');
        if (&link).write_all(&answer).is_err() {
            break;
        }
    }
    Ok(0)
}
