//! How the history of a job reaches a host that begins to vote, or one that slept while the voters changed.
//!
//! The log of each configuration begins empty, so a voter takes part in it only when it has all that was decided
//! before. It asks a host that has it, piece by piece, and whoever is asked keeps no state about it.

use super::Configuration;
use super::ledger::Ledger;
use super::message::History;
use super::record::Record;

/// About how much of the history one message carries.
const HISTORY_BYTES: usize = 256 << 10;

/// A history that is on its way to us.
#[derive(Debug)]
pub struct Arrival {
    /// What follows it.
    pub configuration: Configuration,
    /// How many records of it we had.
    pub kept: usize,
    /// What came after them.
    pub records: Vec<Record>,
}

/// What a piece of history leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// It was of no use.
    None,
    /// More is wanted, from this index on.
    More(usize),
    /// It is complete.
    Complete,
}

impl Arrival {
    /// Towards a configuration, for a voter that has so many decided records.
    pub fn new(configuration: Configuration, decided: usize) -> Self {
        Self { configuration, kept: decided, records: Vec::new() }
    }

    /// The next index that is wanted.
    pub fn next(&self) -> usize {
        self.kept + self.records.len()
    }

    /// Takes a piece.
    pub fn take(&mut self, piece: History) -> Progress {
        let next = self.next();
        if piece.configuration != self.configuration || piece.total < next {
            return Progress::None;
        }
        let ahead = next.saturating_sub(piece.first);
        if piece.first <= next {
            let room = piece.total - next;
            self.records.extend(piece.records.into_iter().skip(ahead).take(room));
        }
        if self.next() == piece.total { Progress::Complete } else { Progress::More(self.next()) }
    }
}

/// A piece of our history, from an index on.
pub fn piece(ledger: &Ledger, configuration: &Configuration, from: usize) -> History {
    let total = ledger.history.len();
    let first = from.min(total);
    let mut bytes = 0;
    let records = ledger.history[first..]
        .iter()
        .take_while(|record| {
            let is_first = bytes == 0;
            bytes += record.0.len() + 4;
            is_first || bytes <= HISTORY_BYTES
        })
        .cloned()
        .collect();
    History { configuration: configuration.clone(), first, records, total }
}
