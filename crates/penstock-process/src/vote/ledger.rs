//! What a voter remembers: promises, accepted records, what is decided, and the history of earlier configurations.
//!
//! It lives in memory, and every change is also a [`Step`] that waits to be stored. The protocol writes here and is
//! never told that a disk failed, because it would panic; the owner stores the steps before it lets a message out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::storage::{NoSnapshot, StopSign, Storage, StorageOp, StorageResult};
use serde::{Deserialize, Serialize};

use super::Configuration;
use super::record::Record;

/// One change, as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Step {
    /// The voter was opened, for the so-manieth time.
    Opened(u64),
    /// A configuration began: its history is the first `kept` records so far and then these.
    Begin {
        /// The voters from now on.
        configuration: Configuration,
        /// How many of the records so far are history.
        kept: usize,
        /// What was decided after them.
        records: Vec<Record>,
    },
    /// No lower ballot will be obeyed.
    Promise(Ballot),
    /// The ballot in which records were accepted last.
    Accepted(Ballot),
    /// The log of this configuration from an index on.
    Append {
        /// The first index.
        from: usize,
        /// What stands there and after.
        records: Vec<Record>,
    },
    /// So many are decided. May be lost: the others know.
    Decided(usize),
    /// The configuration ends after the log, or does not after all.
    Stop(Option<StopSign>),
}

/// The memory of one voter.
#[derive(Debug, Default)]
pub struct Ledger {
    /// How often this voter was opened.
    pub opening: u64,
    /// Who votes now.
    pub configuration: Option<Configuration>,
    /// What earlier configurations decided.
    pub history: Vec<Record>,
    /// What this configuration accepted.
    pub log: Vec<Record>,
    /// How much of it is decided; the stop sign counts as one.
    pub decided: usize,
    /// The newest ballot that was promised.
    pub promise: Option<Ballot>,
    accepted: Option<Ballot>,
    stop: Option<StopSign>,
    /// Steps that wait to be stored.
    pending: Vec<Step>,
    /// Whether one of them has to be durable before a message leaves.
    urgent: bool,
}

impl Ledger {
    /// Takes a step and keeps it for the storage.
    pub fn take(&mut self, step: Step) -> std::result::Result<(), String> {
        self.apply(step.clone())?;
        self.urgent |= !matches!(step, Step::Decided(_));
        self.pending.push(step);
        Ok(())
    }

    /// Takes a step that is stored already.
    pub fn apply(&mut self, step: Step) -> std::result::Result<(), String> {
        match step {
            Step::Opened(opening) => self.opening = opening,
            Step::Begin { configuration, kept, records } => {
                let decided = self.decided_count();
                if kept > decided {
                    return Err(format!("a history of {kept} records was kept, but {decided} are decided"));
                }
                self.history.append(&mut self.log);
                self.history.truncate(kept);
                self.history.extend(records);
                *self = Self {
                    opening: self.opening,
                    configuration: Some(configuration),
                    history: std::mem::take(&mut self.history),
                    pending: std::mem::take(&mut self.pending),
                    urgent: self.urgent,
                    ..Self::default()
                };
            }
            Step::Promise(ballot) => self.promise = Some(ballot),
            Step::Accepted(ballot) => self.accepted = Some(ballot),
            Step::Append { from, records } => {
                if from > self.log.len() {
                    return Err(format!("records begin at {from}, but the log ends at {}", self.log.len()));
                }
                self.log.truncate(from);
                self.log.extend(records);
            }
            Step::Decided(count) => self.decided = count,
            Step::Stop(stop) => self.stop = stop,
        }
        Ok(())
    }

    /// Steps that have to be durable before a message leaves, with those that only wait; none if nothing is urgent.
    pub fn urgent(&self) -> &[Step] {
        if self.urgent { &self.pending } else { &[] }
    }

    /// They are durable.
    pub fn settled(&mut self) {
        self.pending.clear();
        self.urgent = false;
    }

    /// Number of decided records, over all configurations.
    pub fn decided_count(&self) -> usize {
        self.history.len() + self.decided.min(self.log.len())
    }

    /// Decided records from an index on, over all configurations.
    pub fn decided_from(&self, index: usize) -> Vec<Vec<u8>> {
        let decided = self.log[..self.decided.min(self.log.len())].iter();
        self.history.iter().chain(decided).skip(index).map(|record| record.0.clone()).collect()
    }

    /// Whether this configuration ends after its log, decided or not.
    pub fn stops(&self) -> bool {
        self.stop.is_some()
    }

    /// What follows this configuration, once that is decided.
    pub fn successor(&self) -> Option<Configuration> {
        let stop = self.stop.as_ref().filter(|_| self.decided > self.log.len())?;
        serde_json::from_slice(stop.metadata.as_deref()?).ok()
    }

    /// Length of the log with the stop sign.
    pub fn accepted_count(&self) -> usize {
        self.log.len() + usize::from(self.stop.is_some())
    }
}

/// The ledger as the protocol has it: the owner of the protocol has the other half.
#[derive(Debug, Clone, Default)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    /// What the storage has kept.
    pub fn load(stored: Vec<Vec<u8>>) -> std::result::Result<Self, String> {
        let mut ledger = Ledger::default();
        for bytes in stored {
            let steps: Vec<Step> = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            steps.into_iter().try_for_each(|step| ledger.apply(step))?;
        }
        Ok(Self(Arc::new(Mutex::new(ledger))))
    }

    /// For the owner and the protocol in turn; never both at once, so nobody waits.
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, step: Step) -> StorageResult<()> {
        Ok(self.lock().take(step)?)
    }
}

impl Storage<Record> for SharedLedger {
    fn write_atomically(&mut self, steps: Vec<StorageOp<Record>>) -> StorageResult<()> {
        // All steps until the owner stores them become durable together, so order is all that matters here.
        for step in steps {
            match step {
                StorageOp::AppendEntry(record) => self.append_entry(record)?,
                StorageOp::AppendEntries(records) => self.append_entries(records)?,
                StorageOp::AppendOnPrefix(from, records) => self.append_on_prefix(from, records)?,
                StorageOp::SetPromise(ballot) => self.set_promise(ballot)?,
                StorageOp::SetDecidedIndex(count) => self.set_decided_idx(count)?,
                StorageOp::SetAcceptedRound(ballot) => self.set_accepted_round(ballot)?,
                StorageOp::SetStopsign(stop) => self.set_stopsign(stop)?,
                StorageOp::Trim(_) | StorageOp::SetCompactedIdx(_) | StorageOp::SetSnapshot(_) => {
                    return Err("the log is never cut at its beginning".into());
                }
            }
        }
        Ok(())
    }

    fn append_entry(&mut self, record: Record) -> StorageResult<()> {
        self.append_entries(vec![record])
    }

    fn append_entries(&mut self, records: Vec<Record>) -> StorageResult<()> {
        if records.is_empty() {
            return Ok(());
        }
        let from = self.lock().log.len();
        self.take(Step::Append { from, records })
    }

    fn append_on_prefix(&mut self, from: usize, records: Vec<Record>) -> StorageResult<()> {
        self.take(Step::Append { from, records })
    }

    fn set_promise(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.take(Step::Promise(ballot))
    }

    fn set_decided_idx(&mut self, count: usize) -> StorageResult<()> {
        self.take(Step::Decided(count))
    }

    fn get_decided_idx(&self) -> StorageResult<usize> {
        Ok(self.lock().decided)
    }

    fn set_accepted_round(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.take(Step::Accepted(ballot))
    }

    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.lock().accepted)
    }

    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<Record>> {
        Ok(self.lock().log.get(from..to).map(<[Record]>::to_vec).unwrap_or_default())
    }

    fn get_log_len(&self) -> StorageResult<usize> {
        Ok(self.lock().log.len())
    }

    fn get_suffix(&self, from: usize) -> StorageResult<Vec<Record>> {
        Ok(self.lock().log.get(from..).map(<[Record]>::to_vec).unwrap_or_default())
    }

    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.lock().promise)
    }

    fn set_stopsign(&mut self, stop: Option<StopSign>) -> StorageResult<()> {
        self.take(Step::Stop(stop))
    }

    fn get_stopsign(&self) -> StorageResult<Option<StopSign>> {
        Ok(self.lock().stop.clone())
    }

    fn trim(&mut self, _index: usize) -> StorageResult<()> {
        Err("the log is never cut at its beginning".into())
    }

    fn set_compacted_idx(&mut self, _index: usize) -> StorageResult<()> {
        Err("the log is never cut at its beginning".into())
    }

    fn get_compacted_idx(&self) -> StorageResult<usize> {
        Ok(0)
    }

    fn set_snapshot(&mut self, _snapshot: Option<NoSnapshot>) -> StorageResult<()> {
        Err("the log is never cut at its beginning".into())
    }

    fn get_snapshot(&self) -> StorageResult<Option<NoSnapshot>> {
        Ok(None)
    }
}
