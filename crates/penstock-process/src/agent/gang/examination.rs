//! A life that is gone, looked at: who failed first, what it said last, and how long the life was.

use std::time::Duration;

use crate::agent::Agent;
use crate::agent::gang::incident;
use crate::coordinator::first_failure::{self, Account, Culprit};
use crate::job::exit::Exit;
use crate::job::state::WorkerState;
use crate::logs::last_words::{self, LastWords};
use crate::logs::pump::{Distress, Listing, log_name};
use crate::system::now_ms;

const DRAIN: Duration = Duration::from_secs(2);
/// So much of a log is read from the first line of a failure on.
const WORDS_BYTES_MAX: u64 = 64 << 10;

/// What was found.
#[derive(Default)]
pub(in crate::agent) struct Examination {
    /// What the failure has in common with the same one at another time.
    pub(in crate::agent) likeness: Option<String>,
    /// Who failed first.
    pub(in crate::agent) culprit: Option<Culprit>,
    /// From the beginning of the life to its first end.
    pub(in crate::agent) lived_ms: Option<u64>,
    /// How each worker ended and what it said.
    pub(in crate::agent) accounts: Vec<Account>,
}

impl Agent {
    /// Reads the logs of a life that is gone to their end and notes what its failure looked like.
    pub(in crate::agent) fn examine(&mut self, gang: usize) {
        if self.workers.tracked[gang].examination.is_some() || self.view.state.gangs[gang].workers.is_empty()
        {
            return;
        }
        let plan = &self.job.plans[gang];
        let places: Vec<u32> = plan.ranks.clone().map(|rank| self.job.spec.place(plan.role, rank)).collect();
        self.output.pump.drain(&places, DRAIN);
        let role = &self.job.spec.roles[plan.role];
        let there = Listing::read(&self.job.directory.file("logs"));
        let workers = &self.view.state.gangs[gang].workers;
        let accounts: Vec<Account> =
            workers.iter().map(|worker| self.account(gang, worker, &there)).collect();
        let secrets = self.job.directory.secrets();
        let first_rank = self.view.state.gangs[gang].first_rank;
        let culprit = first_failure::culprit(&accounts)
            .map(|culprit| Culprit { what: secrets.text(&culprit.what), ..culprit });
        let first = culprit.as_ref().and_then(|culprit| {
            let account = accounts.iter().find(|account| account.rank == culprit.rank)?;
            Some((account, workers.iter().find(|worker| first_rank + worker.rank == culprit.rank)?))
        });
        let likeness = first.and_then(|(account, worker)| match &account.words {
            Some((_, words)) => words.likeness(),
            None => incident::likeness(&there, role, worker),
        });
        let ended_ms = accounts.iter().filter_map(|account| account.exit_ms).min();
        let began_ms = Some(self.workers.tracked[gang].began_ms).filter(|began_ms| *began_ms > 0);
        self.workers.tracked[gang].examination = Some(Examination {
            likeness: likeness.map(|likeness| secrets.text(&likeness)),
            culprit,
            lived_ms: ended_ms.zip(began_ms).map(|(ended, began)| ended.saturating_sub(began)),
            accounts,
        });
    }

    /// How a worker ended and what it said last.
    pub(in crate::agent) fn account(&self, gang: usize, worker: &WorkerState, there: &Listing) -> Account {
        let role = self.job.plans[gang].role;
        let progress_ms = self.pulse_of(gang, worker.rank).map_or(0, |pulse| pulse.step_at_ms);
        let distresses = self.output.pump.distresses(role, worker.rank);
        let succeeded = worker.exit.as_ref().is_some_and(Exit::is_success);
        let begun =
            first_failure::last_episode(&distresses, progress_ms, worker.exit_ms.unwrap_or_else(now_ms));
        let name = &self.job.spec.roles[role].name;
        let words = begun.filter(|_| !succeeded).and_then(|distress| {
            Some((distress.at_ms, words(there, &log_name(name, worker.rank, distress.stream), distress)?))
        });
        // As programs name each other.
        let rank = self.view.state.gangs[gang].first_rank + worker.rank;
        let (exit, exit_ms, asked) = (worker.exit.clone(), worker.exit_ms, worker.asked);
        Account { rank, exit, exit_ms, asked, words }
    }
}

/// What a log says from the beginning of the line on that a failure begins with.
fn words(there: &Listing, name: &str, distress: Distress) -> Option<LastWords> {
    // What stands before the mark in its line is the rank's name, or the first half of a Rust thread's.
    const BEFORE: u64 = 96;
    let from = distress.offset.saturating_sub(BEFORE);
    let bytes = there.head(name, from, WORDS_BYTES_MAX).ok()?;
    let at = usize::try_from(distress.offset - from).ok()?.min(bytes.len());
    let line = bytes[..at].iter().rposition(|byte| *byte == b'\n' || *byte == b'\r').map_or(0, |end| end + 1);
    last_words::read(&String::from_utf8_lossy(&bytes[line..]))
}
