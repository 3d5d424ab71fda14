//! One voter: a replicated log without input and output, through any number of configurations.
//!
//! The owner calls [`VoterGroup::tick`] as time passes and [`VoterGroup::receive`] for what arrives, and sends what
//! [`VoterGroup::outgoing`] gives. That call makes durable what the messages promise, once for all of them. When the
//! disk fails or the protocol panics, the voter is *silent*: it says nothing, leads nothing and tells why.

mod lost_steps;
mod succession;

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::Message;
use omnipaxos::messages::ballot_leader_election::{BLEMessage, HeartbeatMsg};
use omnipaxos::messages::sequence_paxos::{PaxosMessage, PaxosMsg};

use self::lost_steps::Undecided;
use super::engine::{Engine, Protocol};
use super::error::{NotLeader, Result, VoteError};
use super::handover::{Handover, Progress};
use super::ledger::{SharedLedger, Step};
use super::message::{History, RECORD_BYTES_MAX, VoteBody, VoteMessage, judge};
use super::record::Record;
use super::rivals::Rivals;
use super::session::Sessions;
use super::storage::VoteStorage;
use super::{Configuration, VoteStatistics};

/// Ticks of one round of heartbeats. A dead leader is replaced after three to four of them.
pub const ELECTION_TICKS: u64 = 5;
/// Ticks after which what was not answered is said again.
pub const RESEND_TICKS: u64 = 5;

/// One voter of a group.
pub struct VoterGroup<S: VoteStorage> {
    me: u64,
    storage: S,
    ledger: SharedLedger,
    engine: Engine,
    sessions: Sessions,
    /// The configuration with which it was opened.
    opened_with: u32,
    handover: Handover,
    /// Messages without numbers, with the configuration that they are of.
    queue: Vec<(u64, u32, VoteBody)>,
    /// Records that the owner has been told.
    told: usize,
    /// The term that is durable.
    term: u64,
    /// With which promise it leads, and how many records it found in its log then.
    inherited: Option<(Option<Ballot>, usize)>,
    failure: Option<VoteError>,
    ticks: u64,
    rivals: Rivals,
    undecided: Undecided,
    statistics: VoteStatistics,
}

impl<S: VoteStorage> VoterGroup<S> {
    /// Opens a voter. What the storage knows wins over an older configuration; towards a newer one it fetches the history.
    pub fn open(me: u64, configuration: Configuration, storage: S) -> Result<Self> {
        let is_first = configuration.number == 1;
        Self::start(me, configuration, storage, is_first.then(Vec::new))
    }

    /// Opens a voter of a job that continues: an empty storage begins with these records, as if they had been decided.
    pub fn found(me: u64, configuration: Configuration, storage: S, history: Vec<Vec<u8>>) -> Result<Self> {
        Self::start(me, configuration, storage, Some(history))
    }

    fn start(
        me: u64,
        configuration: Configuration,
        mut storage: S,
        history: Option<Vec<Vec<u8>>>,
    ) -> Result<Self> {
        configuration.check()?;
        let ledger = SharedLedger::load(storage.load()?).map_err(log_error)?;
        let opening = ledger.lock().opening + 1;
        ledger.lock().take(Step::Opened(opening)).map_err(log_error)?;
        let opened_with = configuration.number;
        let mut group = Self {
            me,
            storage,
            ledger,
            engine: Engine::Idle,
            sessions: Sessions::new(opening),
            opened_with,
            handover: Handover::new(me),
            queue: Vec::new(),
            told: 0,
            term: 0,
            inherited: None,
            failure: None,
            ticks: 0,
            rivals: Rivals::default(),
            undecided: Undecided::default(),
            statistics: VoteStatistics::default(),
        };
        let stored = group.ledger.lock().configuration.clone();
        match (stored, history) {
            (None, _) if !configuration.voters.contains(&me) => {
                let reason = format!("host {me:016x} is not one of its voters");
                return Err(VoteError::Configuration { number: configuration.number, reason });
            }
            (Some(stored), _) if stored.number == configuration.number && stored != configuration => {
                let reason =
                    format!("its voters were {:x?} and are now {:x?}", stored.voters, configuration.voters);
                return Err(VoteError::Configuration { number: stored.number, reason });
            }
            (None, Some(history)) => {
                group.begin(configuration, 0, history.into_iter().map(Record).collect());
            }
            (None, None) => group.handover.expect(configuration, 0),
            (Some(stored), _) => {
                if stored.number < configuration.number {
                    let decided = group.ledger.lock().decided_count();
                    group.handover.expect(configuration, decided);
                }
                group.start_engine(&stored);
            }
        }
        group.settle();
        group.failure.take().map_or(Ok(group), Err)
    }

    /// Some time has passed: heartbeats, elections, and what has to be said again.
    pub fn tick(&mut self) {
        self.ticks += 1;
        self.handover.tick();
        if self.failure.is_some() {
            // Only a disk that was full can be tried again.
            self.settle();
            return;
        }
        self.with_protocol(Protocol::tick);
        self.mend_losses();
        self.wake_followers();
        self.outbid_rivals();
        if self.ticks % RESEND_TICKS == 0 {
            let bodies = self.handover.again(&self.ledger.lock(), &self.sessions);
            bodies.into_iter().for_each(|(host, body)| self.say(host, body));
        }
        self.advance();
    }

    /// A message has arrived. What is wrong with it is counted, and it is as if it had been lost.
    pub fn receive(&mut self, message: VoteMessage) {
        if self.failure.is_some() {
            return;
        }
        if message.from == self.me || !self.sessions.admit(&message) {
            self.statistics.stale += 1;
            return;
        }
        let number = self.ledger.lock().configuration.as_ref().map_or(0, |known| known.number);
        match message.body {
            VoteBody::Ask { from } => self.answer(message.from, Some(from)),
            VoteBody::History(history) => self.take_history(message.from, history),
            _ if message.configuration < number => self.answer(message.from, None),
            _ if message.configuration > number => self.ask(message.from),
            body => self.take_body(message.from, body),
        }
        self.advance();
    }

    /// What has to be sent, after all that it promises has been made durable; nothing while the voter is silent.
    pub fn outgoing(&mut self) -> Vec<(u64, VoteMessage)> {
        self.drain();
        let queue = std::mem::take(&mut self.queue);
        if !self.settle() {
            return Vec::new();
        }
        let mut messages = Vec::with_capacity(queue.len());
        for (to, configuration, body) in queue {
            for part in body.in_parts() {
                messages.push((to, self.sessions.seal(self.me, to, configuration, part)));
            }
        }
        messages
    }

    /// Wants a record to be decided. It is when [`Self::decided`] gives it; a leader that is replaced may lose it.
    pub fn propose(&mut self, record: Vec<u8>) -> std::result::Result<(), NotLeader> {
        self.check_leads()?;
        if record.len() > RECORD_BYTES_MAX {
            return Err(NotLeader::TooLarge { bytes: record.len(), bytes_max: RECORD_BYTES_MAX });
        }
        let record = Record(record);
        if matches!(self.engine, Engine::Alone) {
            let from = self.ledger.lock().log.len();
            self.take(Step::Append { from, records: vec![record] });
            return Ok(());
        }
        let taken = self.with_protocol(|protocol| protocol.append(record).is_ok());
        if taken == Some(true) { Ok(()) } else { Err(NotLeader::Reconfiguring) }
    }

    /// Records that are newly decided, in order, each once; after opening, all from the first one on.
    pub fn decided(&mut self) -> Vec<Vec<u8>> {
        if !self.settle() {
            return Vec::new();
        }
        self.advance();
        let records = self.ledger.lock().decided_from(self.told);
        self.told += records.len();
        records
    }

    /// Number of the newest leader that this voter has promised to obey. It only grows, also over restarts.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The leader of this term, which may be dead or cut off by now.
    pub fn leader(&self) -> Option<u64> {
        let (place, _) = self.engine.leader()?;
        self.ledger.lock().configuration.as_ref()?.host_at(place)
    }

    /// Whether this voter leads and knows all that was decided before. One that is cut off believes so until it hears
    /// of a higher term: what it proposes is not decided.
    pub fn is_leader(&self) -> bool {
        let knows_all = || {
            let decided = self.ledger.lock().decided;
            self.inherited.is_some_and(|(_, records)| decided >= records)
        };
        let leads = matches!(self.engine, Engine::Alone) || (self.engine.leads() && knows_all());
        self.failure.is_none() && leads
    }

    /// The configuration that this voter is in, or on its way to.
    pub fn configuration(&self) -> Option<Configuration> {
        let known = self.ledger.lock().configuration.clone();
        known.or_else(|| self.handover.target().cloned())
    }

    /// The newest configuration that was agreed since this voter was opened. It is in force here already.
    pub fn next(&self) -> Option<Configuration> {
        self.ledger.lock().configuration.clone().filter(|known| known.number > self.opened_with)
    }

    /// Whether this host takes part in votes now: it is a voter, has the history and is not silent.
    pub fn is_voting(&self) -> bool {
        self.failure.is_none() && !matches!(self.engine, Engine::Idle)
    }

    /// Why the voter is silent.
    pub fn failure(&self) -> Option<&VoteError> {
        self.failure.as_ref()
    }

    /// What it has met.
    pub fn statistics(&self) -> VoteStatistics {
        self.statistics
    }

    /// Ends it; what was not made durable is lost, as if the process had been killed.
    pub fn into_storage(self) -> S {
        self.storage
    }
}

/// The parts that nobody outside sees.
impl<S: VoteStorage> VoterGroup<S> {
    /// What earlier leaders have left undecided is decided before a new one may propose anything: it has not heard of that yet.
    fn note_inheritance(&mut self) {
        let ledger = self.ledger.lock();
        match self.inherited {
            _ if !self.engine.leads() => self.inherited = None,
            Some((known, _)) if known == ledger.promise => {}
            _ => self.inherited = Some((ledger.promise, ledger.log.len())),
        }
    }

    fn check_leads(&self) -> std::result::Result<(), NotLeader> {
        if self.failure.is_some() {
            return Err(NotLeader::Silent);
        }
        if !self.is_leader() {
            return Err(NotLeader::Follower { leader: self.leader() });
        }
        if self.ledger.lock().stops() { Err(NotLeader::Reconfiguring) } else { Ok(()) }
    }

    /// A heartbeat or a step of a host that is in our configuration.
    fn take_body(&mut self, from: u64, body: VoteBody) {
        let body = match body {
            VoteBody::Part { text, is_last } => {
                let Some(whole) = self.sessions.join(from, &text, is_last) else { return };
                match serde_json::from_str(&whole) {
                    Ok(step) => VoteBody::Log(step),
                    Err(_) => return self.refuse(),
                }
            }
            body => body,
        };
        let is_synced = self.engine.leader().is_some_and(|(_, is_synced)| is_synced);
        let judged = judge(&self.ledger.lock(), self.me, from, is_synced, &body);
        let Some((place, me)) = judged else { return self.refuse() };
        match body {
            VoteBody::Beat(msg) => {
                if let HeartbeatMsg::Reply(reply) = &msg {
                    self.rivals.hear(from, self.ticks, reply.leader);
                }
                let message = Message::BLE(BLEMessage { from: place, to: me, msg });
                self.with_protocol(|protocol| protocol.handle_incoming(message));
            }
            VoteBody::Log(step) => {
                if matches!(*step, PaxosMsg::PrepareReq(_)) {
                    self.sessions.mend(from);
                }
                let message = Message::SequencePaxos(PaxosMessage { from: place, to: me, msg: *step });
                self.with_protocol(|protocol| protocol.handle_incoming(message));
            }
            _ => {
                // It lost steps of ours, which matters if it leads: then we compare our logs again.
                if self.leader() == Some(from) {
                    self.resync(place);
                }
            }
        }
    }

    fn refuse(&mut self) {
        self.statistics.refused += 1;
    }

    fn resync(&mut self, place: u64) {
        self.statistics.resyncs += 1;
        self.with_protocol(|protocol| protocol.reconnected(place));
    }

    /// Voters that promised a ballot which leads nowhere come back to the leader that a majority follows.
    fn outbid_rivals(&mut self) {
        if self.ticks % ELECTION_TICKS != 0 || !self.is_leader() {
            return;
        }
        let (mine, voters) = {
            let ledger = self.ledger.lock();
            (ledger.promise, ledger.configuration.as_ref().map_or(0, |known| known.voters.len()))
        };
        if mine.is_some_and(|mine| self.rivals.is_time(self.ticks, mine, voters)) {
            self.with_protocol(Protocol::try_become_leader);
        }
    }

    fn answer(&mut self, host: u64, from: Option<usize>) {
        let body = self.handover.answer(&self.ledger.lock(), host, from);
        body.into_iter().for_each(|body| self.say(host, body));
    }

    fn ask(&mut self, host: u64) {
        let body = self.handover.ask(&self.ledger.lock(), host);
        body.into_iter().for_each(|body| self.say(host, body));
    }

    fn take_history(&mut self, from: u64, history: History) {
        let progress = self.handover.take(&self.ledger.lock(), history);
        match progress {
            Progress::None => {}
            Progress::Refused => self.refuse(),
            Progress::More(body) => self.say(from, body),
            Progress::Complete(arrival) => {
                self.drain();
                self.begin(arrival.configuration, arrival.kept, arrival.records);
            }
        }
    }

    /// Goes on with the next configuration when it is decided.
    fn advance(&mut self) {
        let (successor, decided) = {
            let ledger = self.ledger.lock();
            (ledger.successor(), ledger.decided_count())
        };
        if let Some(next) = successor {
            // The last messages tell the others that it is decided.
            self.drain();
            self.begin(next, decided, Vec::new());
        }
        self.note_inheritance();
    }

    fn begin(&mut self, configuration: Configuration, kept: usize, records: Vec<Record>) {
        self.handover.begin(&configuration);
        self.rivals.clear();
        self.engine = Engine::Idle;
        self.take(Step::Begin { configuration: configuration.clone(), kept, records });
        if self.failure.is_none() {
            self.start_engine(&configuration);
        }
    }

    fn start_engine(&mut self, configuration: &Configuration) {
        match Engine::start(self.me, configuration, &self.ledger) {
            Ok(engine) => self.engine = engine,
            Err(reason) => self.fail(reason),
        }
    }

    /// Lets the protocol act, and makes a panic of it an end of this voter and not of the process.
    fn with_protocol<R>(&mut self, act: impl FnOnce(&mut Protocol) -> R) -> Option<R> {
        self.engine.act(act).unwrap_or_else(|reason| {
            self.fail(reason);
            None
        })
    }

    fn fail(&mut self, reason: String) {
        self.engine = Engine::Idle;
        self.queue.clear();
        self.failure = Some(VoteError::Log { reason });
    }

    fn take(&mut self, step: Step) {
        let taken = self.ledger.lock().take(step);
        if let Err(reason) = taken {
            self.fail(reason);
        }
    }

    fn say(&mut self, to: u64, body: VoteBody) {
        let number = self.ledger.lock().configuration.as_ref().map_or(0, |known| known.number);
        self.queue.push((to, number, body));
    }

    /// Takes what the protocol wants to say.
    fn drain(&mut self) {
        let Some(configuration) = self.ledger.lock().configuration.clone() else { return };
        match self.engine.drain(&self.ledger) {
            Ok(bodies) => {
                for (place, body) in bodies {
                    let to = configuration.host_at(place);
                    self.queue.extend(to.map(|to| (to, configuration.number, body)));
                }
            }
            Err(reason) => self.fail(reason),
        }
    }

    /// Makes durable what has to be. False: the voter is silent.
    fn settle(&mut self) -> bool {
        if matches!(self.failure, Some(VoteError::Log { .. }))
            || (self.failure.is_some() && !self.storage.may_retry())
        {
            return false;
        }
        let bytes = {
            let ledger = self.ledger.lock();
            let steps = ledger.urgent();
            if steps.is_empty() { None } else { Some(serde_json::to_vec(steps)) }
        };
        let stored = match bytes {
            None => Ok(()),
            Some(Ok(bytes)) => self.storage.append(&bytes),
            Some(Err(error)) => Err(log_error(error.to_string())),
        };
        if let Err(failure) = stored {
            // Whatever was about to be said is lost, and the others shall notice.
            self.queue.clear();
            self.sessions.skip();
            self.failure = Some(failure);
            return false;
        }
        let mut ledger = self.ledger.lock();
        if !ledger.urgent().is_empty() {
            self.statistics.syncs += 1;
            ledger.settled();
        }
        if matches!(self.engine, Engine::Alone) && ledger.decided != ledger.accepted_count() {
            let accepted = ledger.accepted_count();
            let _ = ledger.take(Step::Decided(accepted));
        }
        let (ballot, place) = match &self.engine {
            Engine::Alone => (u32::try_from(ledger.opening).unwrap_or(u32::MAX), 1),
            _ => ledger.promise.map_or((0, 0), |ballot| (ballot.n, ballot.pid)),
        };
        let term = ledger.configuration.as_ref().map_or(0, |known| known.term(ballot, place));
        self.term = self.term.max(term);
        self.failure = None;
        true
    }
}

fn log_error(reason: String) -> VoteError {
    VoteError::Log { reason }
}
