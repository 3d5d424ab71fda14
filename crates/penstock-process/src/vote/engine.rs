//! What decides in one configuration: the library among several voters, the disk of the only one, or nothing.
//!
//! No panic of the library leaves this file: it becomes words, and the owner makes the voter silent.

use std::panic::{AssertUnwindSafe, catch_unwind};

use omnipaxos::messages::Message;
use omnipaxos::messages::sequence_paxos::PaxosMsg;
use omnipaxos::{ClusterConfig, OmniPaxos, OmniPaxosConfig, ServerConfig};

use super::Configuration;
use super::group::{ELECTION_TICKS, RESEND_TICKS};
use super::ledger::SharedLedger;
use super::message::VoteBody;
use super::record::Record;

/// The library, with our ledger as its memory.
pub(super) type Protocol = OmniPaxos<Record, SharedLedger>;

/// What decides in the present configuration.
pub(super) enum Engine {
    /// The host does not vote, or waits for the history.
    Idle,
    /// The only voter: what is durable is decided.
    Alone,
    /// One of several.
    Protocol(Box<Protocol>),
}

impl Engine {
    /// For a host in a configuration, with what its ledger remembers.
    pub(super) fn start(
        me: u64,
        configuration: &Configuration,
        ledger: &SharedLedger,
    ) -> Result<Self, String> {
        let Some(pid) = configuration.place_of(me) else { return Ok(Self::Idle) };
        if configuration.voters.len() == 1 {
            return Ok(Self::Alone);
        }
        let cluster_config = cluster_of(configuration);
        let server_config = ServerConfig {
            pid,
            election_tick_timeout: ELECTION_TICKS,
            resend_message_tick_timeout: RESEND_TICKS,
            buffer_size: 16,
            ..ServerConfig::default()
        };
        let config = OmniPaxosConfig { cluster_config, server_config };
        let ledger = ledger.clone();
        let built =
            catch_unwind(AssertUnwindSafe(|| config.build(ledger))).map_err(|panic| words_of(&*panic))?;
        built.map(|protocol| Self::Protocol(Box::new(protocol))).map_err(|error| error.to_string())
    }

    /// Lets the library act, if it is what decides.
    pub(super) fn act<R>(&mut self, act: impl FnOnce(&mut Protocol) -> R) -> Result<Option<R>, String> {
        let Self::Protocol(protocol) = self else { return Ok(None) };
        catch_unwind(AssertUnwindSafe(|| act(protocol))).map(Some).map_err(|panic| words_of(&*panic))
    }

    /// What the library wants to say, and to whom, as it numbers voters.
    pub(super) fn drain(&mut self, ledger: &SharedLedger) -> Result<Vec<(u64, VoteBody)>, String> {
        let mut messages = Vec::new();
        self.act(|protocol| protocol.take_outgoing_messages(&mut messages))?;
        let log = ledger.lock().log.len();
        let bodies = messages.into_iter().map(|message| {
            let to = message.get_receiver();
            let body = match message {
                Message::BLE(beat) => VoteBody::Beat(beat.msg),
                Message::SequencePaxos(step) => VoteBody::Log(Box::new(with_true_index(step.msg, log))),
            };
            (to, body)
        });
        Ok(bodies.collect())
    }

    /// The leader, as the library numbers it, and whether this voter has agreed with it on the log.
    pub(super) fn leader(&self) -> Option<(u64, bool)> {
        match self {
            Self::Idle => None,
            Self::Alone => Some((1, true)),
            Self::Protocol(protocol) => protocol.get_current_leader(),
        }
    }

    /// Whether this voter leads and has heard what a majority knows.
    pub(super) fn leads(&self) -> bool {
        match self {
            Self::Idle => false,
            Self::Alone => true,
            Self::Protocol(protocol) => self.leader() == Some((protocol.get_pid(), true)),
        }
    }
}

/// A configuration in the library's words. It wants at least two voters, and numbers from 1 on.
pub(super) fn cluster_of(configuration: &Configuration) -> ClusterConfig {
    let nodes = (1..=configuration.voters.len().max(2) as u64).collect();
    ClusterConfig { configuration_id: configuration.number, nodes, flexible_quorum: None }
}

/// The library counts a stop sign twice when it has nothing else to send: its index must be that of the log's end.
fn with_true_index(mut step: PaxosMsg<Record>, log: usize) -> PaxosMsg<Record> {
    let sync = match &mut step {
        PaxosMsg::Promise(promise) => promise.log_sync.as_mut(),
        PaxosMsg::AcceptSync(accept) => Some(&mut accept.log_sync),
        _ => None,
    };
    if let Some(sync) = sync.filter(|sync| sync.stopsign.is_some() && sync.suffix.is_empty()) {
        sync.sync_idx = sync.sync_idx.min(log);
    }
    step
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned())).unwrap_or_default()
}
