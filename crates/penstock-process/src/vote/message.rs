//! What voters say to each other, and the checks that a message passes before the protocol sees it.
//!
//! The protocol trusts its peers: an index beyond the log, a voter that does not exist or a snapshot would make it
//! panic or decide what is not there. Peers have the job's key, so these checks are for mistakes, not for enemies.

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::PaxosMsg;
use omnipaxos::storage::StopSign;
use omnipaxos::util::LogSync;
use serde::{Deserialize, Serialize};

use super::ledger::Ledger;
use super::record::Record;
use super::{BALLOT_MAX, Configuration};

/// The largest record that may be proposed.
pub const RECORD_BYTES_MAX: usize = 64 << 10;
/// A body that may be larger than this is sent in parts, because a frame of the network has a limit.
pub const PART_BYTES: usize = 1 << 20;
/// The largest body that is put together from parts.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// One message between two voters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VoteMessage {
    /// The host that sent it.
    pub from: u64,
    /// The configuration that the sender votes in.
    pub configuration: u32,
    /// How often the sender was opened.
    pub opening: u64,
    /// How often the receiver was opened, as far as the sender knows; 0 if it has not heard it.
    pub to_opening: u64,
    /// Counts all messages of this opening to this receiver, from 1.
    pub serial: u64,
    /// Counts those that must not be missed, up to and with this one.
    pub sent: u64,
    /// What it says.
    pub body: VoteBody,
}

/// What a message says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum VoteBody {
    /// Are you there, and whom do you follow?
    Beat(HeartbeatMsg),
    /// A step of the replicated log. Must not be missed unnoticed.
    Log(Box<PaxosMsg<Record>>),
    /// A piece of a large step, as JSON. Must not be missed unnoticed either.
    Part {
        /// The piece.
        text: String,
        /// Whether it is the last one.
        is_last: bool,
    },
    /// I have missed some of your steps: begin again with me.
    Lost,
    /// Which records did the voters decide before your configuration, from this index on?
    Ask {
        /// The first one that is wanted.
        from: usize,
    },
    /// Some of these records, and who votes now.
    History(History),
}

impl VoteBody {
    /// Whether the receiver has to notice when it does not arrive.
    pub fn is_counted(&self) -> bool {
        matches!(self, Self::Log(_) | Self::Part { .. })
    }

    /// Whether it answers something that this very opening of the receiver has said.
    pub fn is_answer(&self) -> bool {
        self.is_counted() || matches!(self, Self::Beat(HeartbeatMsg::Reply(_)))
    }

    /// In as many parts as it needs.
    pub fn in_parts(self) -> Vec<Self> {
        let Self::Log(step) = &self else { return vec![self] };
        let records: &[Record] = match &**step {
            PaxosMsg::Promise(promise) => promise.log_sync.as_ref().map_or(&[], |sync| &sync.suffix),
            PaxosMsg::AcceptSync(sync) => &sync.log_sync.suffix,
            PaxosMsg::AcceptDecide(accept) => &accept.entries,
            _ => &[],
        };
        let bytes: usize = records.iter().map(|record| record.0.len() + 4).sum();
        if bytes <= PART_BYTES / 2 {
            return vec![self];
        }
        let Ok(text) = serde_json::to_string(step) else { return Vec::new() };
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.floor_boundary(PART_BYTES / 2));
            rest = after;
            parts.push(Self::Part { text: part.to_owned(), is_last: rest.is_empty() });
        }
        parts
    }
}

/// Where text may be cut.
trait Boundary {
    /// The last index up to this one that is between two characters.
    fn floor_boundary(&self, index: usize) -> usize;
}

impl Boundary for str {
    fn floor_boundary(&self, index: usize) -> usize {
        if index >= self.len() {
            return self.len();
        }
        (0..=index).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// Records that earlier configurations decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct History {
    /// The configuration that follows them.
    pub configuration: Configuration,
    /// Index of the first one here.
    pub first: usize,
    /// Some of them.
    pub records: Vec<Record>,
    /// How many there are in all.
    pub total: usize,
}

/// What the receiver knows while it judges a message.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// The configuration in which both vote.
    pub configuration: &'a Configuration,
    /// The receiver, as the protocol numbers it.
    pub me: u64,
    /// The sender, as the protocol numbers it.
    pub from: u64,
    /// Length of the receiver's log.
    pub log: usize,
    /// The same with a stop sign.
    pub accepted: usize,
    /// Whether the receiver is past the phase in which it needs the logs of others.
    pub is_synced: bool,
}

/// Judges what a host says, and gives the numbers of both in the protocol if it passes.
pub fn judge(ledger: &Ledger, me: u64, from: u64, is_synced: bool, body: &VoteBody) -> Option<(u64, u64)> {
    let configuration = ledger.configuration.as_ref()?;
    let (me, from) = (configuration.place_of(me)?, configuration.place_of(from)?);
    let (log, accepted) = (ledger.log.len(), ledger.accepted_count());
    let judge = Judge { configuration, me, from, log, accepted, is_synced };
    let judgement = match body {
        VoteBody::Beat(beat) => judge.beat(beat),
        VoteBody::Log(step) => judge.step(step),
        _ => Ok(()),
    };
    judgement.is_ok().then_some((from, me))
}

/// A message passes, or this is what is wrong with it.
pub type Judgement = Result<(), &'static str>;

impl Judge<'_> {
    /// Judges a heartbeat.
    pub fn beat(&self, beat: &HeartbeatMsg) -> Judgement {
        match beat {
            HeartbeatMsg::Request(_) => Ok(()),
            HeartbeatMsg::Reply(reply) => {
                self.ballot_of(reply.ballot, self.from)?;
                self.ballot(reply.leader)
            }
        }
    }

    /// Judges a step of the log.
    pub fn step(&self, step: &PaxosMsg<Record>) -> Judgement {
        match step {
            PaxosMsg::PrepareReq(request) => self.ballot_or_none(request.n),
            PaxosMsg::Prepare(prepare) => {
                self.ballot_of(prepare.n, self.from)?;
                self.ballot_or_none(prepare.n_accepted)?;
                hold(prepare.decided_idx <= prepare.accepted_idx, "more is decided than accepted")
            }
            PaxosMsg::Promise(promise) => {
                self.ballot_of(promise.n, self.me)?;
                self.ballot_or_none(promise.n_accepted)?;
                hold(promise.decided_idx <= promise.accepted_idx, "more is decided than accepted")?;
                match &promise.log_sync {
                    Some(sync) if !self.is_synced => {
                        self.sync(sync)?;
                        hold(length(sync) == Some(promise.accepted_idx), "the log is not as long as it says")
                    }
                    _ => Ok(()),
                }
            }
            PaxosMsg::AcceptSync(accept) => {
                self.ballot_of(accept.n, self.from)?;
                self.sync(&accept.log_sync)?;
                let length = length(&accept.log_sync);
                hold(length.is_some_and(|length| accept.decided_idx <= length), "more is decided than sent")
            }
            PaxosMsg::AcceptDecide(accept) => self.ballot_of(accept.n, self.from),
            PaxosMsg::Accepted(accepted) => {
                self.ballot_of(accepted.n, self.me)?;
                hold(accepted.accepted_idx <= self.accepted, "more is accepted than was sent")
            }
            PaxosMsg::NotAccepted(refusal) => self.ballot(refusal.n),
            PaxosMsg::Decide(decide) => self.ballot_of(decide.n, self.from),
            PaxosMsg::AcceptStopSign(accept) => {
                self.ballot_of(accept.n, self.from)?;
                self.stop(&accept.ss)
            }
            PaxosMsg::ProposalForward(_) | PaxosMsg::ForwardStopSign(_) => Err("only the leader proposes"),
            PaxosMsg::Compaction(_) => Err("the log is never cut at its beginning"),
        }
    }

    fn ballot(&self, ballot: Ballot) -> Judgement {
        let voters = self.configuration.voters.len() as u64;
        hold(ballot.config_id == self.configuration.number, "a ballot of another configuration")?;
        hold((1..=voters).contains(&ballot.pid), "a ballot of a host that does not vote")?;
        hold(ballot.n <= BALLOT_MAX && ballot.priority == 0, "a ballot that is too high")
    }

    fn ballot_of(&self, ballot: Ballot, voter: u64) -> Judgement {
        self.ballot(ballot)?;
        hold(ballot.pid == voter, "a ballot of another voter")
    }

    fn ballot_or_none(&self, ballot: Ballot) -> Judgement {
        if ballot == Ballot::default() { Ok(()) } else { self.ballot(ballot) }
    }

    fn sync(&self, sync: &LogSync<Record>) -> Judgement {
        hold(sync.decided_snapshot.is_none(), "a snapshot, which we do not use")?;
        hold(sync.sync_idx <= self.log, "records that begin beyond the end of the log")?;
        sync.stopsign.as_ref().map_or(Ok(()), |stop| self.stop(stop))
    }

    fn stop(&self, stop: &StopSign) -> Judgement {
        let next =
            stop.metadata.as_deref().and_then(|text| serde_json::from_slice::<Configuration>(text).ok());
        let follows = next.is_some_and(|next| {
            next.check().is_ok() && Some(next.number) == self.configuration.number.checked_add(1)
        });
        hold(follows, "voters that cannot follow these")
    }
}

fn hold(holds: bool, otherwise: &'static str) -> Judgement {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// Length of the log after this update.
fn length(sync: &LogSync<Record>) -> Option<usize> {
    sync.sync_idx.checked_add(sync.suffix.len() + usize::from(sync.stopsign.is_some()))
}
