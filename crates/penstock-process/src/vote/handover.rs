//! How the history of a job reaches a host that begins to vote, or one that slept while the voters changed.
//!
//! The log of each configuration begins empty, so a voter takes part in it only when it has all that was decided
//! before. It asks a host that has it, piece by piece, and whoever is asked keeps no state about it.

use std::collections::BTreeSet;

use super::Configuration;
use super::ledger::Ledger;
use super::message::{History, VoteBody};
use super::record::Record;
use super::session::Sessions;

/// About how much of the history one message carries.
const HISTORY_BYTES: usize = 256 << 10;
/// How often a host that votes no more offers its history to those that do.
const OFFERS_MAX: u32 = 200;

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

impl Arrival {
    /// The next index that is wanted.
    fn next(&self) -> usize {
        self.kept + self.records.len()
    }
}

/// What a piece of history leads to.
#[derive(Debug)]
pub enum Progress {
    /// It was of no use.
    None,
    /// It contradicts what we have.
    Refused,
    /// More is wanted.
    More(VoteBody),
    /// It is complete.
    Complete(Arrival),
}

/// What one voter asks for and gives.
#[derive(Debug)]
pub struct Handover {
    me: u64,
    /// A history that is on its way to us.
    arrival: Option<Arrival>,
    /// How often ours was offered in this configuration.
    offers: u32,
    /// Hosts that were told or asked in this tick because they are in another configuration; once is enough.
    told: BTreeSet<u64>,
}

impl Handover {
    /// Of a voter that has nothing to ask.
    pub fn new(me: u64) -> Self {
        Self { me, arrival: None, offers: 0, told: BTreeSet::new() }
    }

    /// The voter has so many decided records, and is to vote in this configuration.
    pub fn expect(&mut self, configuration: Configuration, decided: usize) {
        self.arrival = Some(Arrival { configuration, kept: decided, records: Vec::new() });
    }

    /// The configuration towards which history is on its way.
    pub fn target(&self) -> Option<&Configuration> {
        self.arrival.as_ref().map(|arrival| &arrival.configuration)
    }

    /// Time passes.
    pub fn tick(&mut self) {
        self.told.clear();
    }

    /// A configuration begins here, with all its history.
    pub fn begin(&mut self, configuration: &Configuration) {
        self.offers = 0;
        if self.target().is_some_and(|target| target.number <= configuration.number) {
            self.arrival = None;
        }
    }

    /// To a host that wants our history from an index on, or that is in an older configuration and shall ask.
    pub fn answer(&mut self, ledger: &Ledger, host: u64, from: Option<usize>) -> Option<VoteBody> {
        let configuration = ledger.configuration.as_ref()?;
        let wanted = from.is_some() || self.told.insert(host);
        wanted.then(|| VoteBody::History(piece(ledger, configuration, from.unwrap_or(usize::MAX))))
    }

    /// To a host that is in a newer configuration.
    pub fn ask(&mut self, ledger: &Ledger, host: u64) -> Option<VoteBody> {
        let from = self.arrival.as_ref().map_or(ledger.decided_count(), Arrival::next);
        self.told.insert(host).then_some(VoteBody::Ask { from })
    }

    /// What has to be said from time to time: questions, and offers of a host that votes no more. It may be the only
    /// one with a history that the new voters can reach.
    pub fn again(&mut self, ledger: &Ledger, sessions: &Sessions) -> Vec<(u64, VoteBody)> {
        let mut bodies = Vec::new();
        for voter in self.target().map_or(Vec::new(), |target| target.voters.clone()) {
            if voter != self.me {
                bodies.extend(self.ask(ledger, voter).map(|body| (voter, body)));
            }
        }
        let Some(known) = ledger.configuration.as_ref() else { return bodies };
        if !known.voters.contains(&self.me) && self.offers < OFFERS_MAX {
            self.offers += 1;
            for voter in &known.voters {
                if sessions.configuration_of(*voter) < known.number {
                    bodies.extend(self.answer(ledger, *voter, None).map(|body| (*voter, body)));
                }
            }
        }
        bodies
    }

    /// Takes a piece.
    pub fn take(&mut self, ledger: &Ledger, piece: History) -> Progress {
        let number = ledger.configuration.as_ref().map_or(0, |known| known.number);
        let decided = ledger.decided_count();
        if piece.configuration.number <= number {
            return Progress::None;
        }
        if piece.configuration.check().is_err() || piece.total < decided {
            return Progress::Refused;
        }
        if self.target().is_none_or(|target| target.number < piece.configuration.number) {
            self.expect(piece.configuration.clone(), decided);
        }
        let Some(mut arrival) = self.arrival.take() else { return Progress::None };
        let next = arrival.next();
        if piece.configuration != arrival.configuration || piece.total < next {
            self.arrival = Some(arrival);
            return Progress::Refused;
        }
        if let Some(ahead) = next.checked_sub(piece.first) {
            arrival.records.extend(piece.records.into_iter().skip(ahead).take(piece.total - next));
        }
        if arrival.next() == piece.total {
            return Progress::Complete(arrival);
        }
        let ask = VoteBody::Ask { from: arrival.next() };
        self.arrival = Some(arrival);
        Progress::More(ask)
    }
}

/// A piece of our history, from an index on.
fn piece(ledger: &Ledger, configuration: &Configuration, from: usize) -> History {
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
