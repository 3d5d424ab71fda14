//! Makes any network look like the one that the protocol assumes: in order, nothing twice, and losses noticed.
//!
//! `omnipaxos` takes an accepted log back to an older state when a delayed copy of an old message reaches it at the
//! wrong moment, and counts a heartbeat that arrives twice as two voters. So each message says which opening of its
//! sender it is from, which opening of its receiver it is for, and has a serial number: what is older is dropped. Steps
//! of the log are counted besides, and heartbeats carry the count; so a lost step is noticed with the next heartbeat.

use std::collections::BTreeMap;

use super::message::{BODY_BYTES_MAX, VoteBody, VoteMessage};

/// The most hosts that are remembered. Voters of some configurations fit easily.
const PEERS_MAX: usize = 64;

/// One other host.
#[derive(Debug, Default)]
struct Peer {
    /// Its newest opening that we have heard.
    opening: u64,
    /// Its newest message.
    serial: u64,
    /// How many of its counted messages came before.
    counted: u64,
    /// Whether some of them never came, and nothing has been done about it.
    has_lost: bool,
    /// The newest configuration that it votes in.
    configuration: u32,
    /// What came of a large body so far.
    parts: String,
    /// Our last serial number and count to it.
    told: (u64, u64),
}

/// All other hosts.
#[derive(Debug)]
pub struct Sessions {
    /// How often we were opened.
    opening: u64,
    peers: BTreeMap<u64, Peer>,
}

impl Sessions {
    /// Of a voter that was opened so often.
    pub fn new(opening: u64) -> Self {
        Self { opening, peers: BTreeMap::new() }
    }

    /// Puts numbers on a message.
    pub fn seal(&mut self, from: u64, to: u64, configuration: u32, body: VoteBody) -> VoteMessage {
        let peer = self.peers.entry(to).or_default();
        peer.told.0 += 1;
        peer.told.1 += u64::from(body.is_counted());
        let (serial, sent) = peer.told;
        let (opening, to_opening) = (self.opening, peer.opening);
        VoteMessage { from, configuration, opening, to_opening, serial, sent, body }
    }

    /// Messages were dropped before they got a number; the receivers shall notice.
    pub fn skip(&mut self) {
        self.peers.values_mut().for_each(|peer| peer.told.1 += 1);
    }

    /// Whether a message is new and for us; if not, it is as if it had been lost.
    pub fn admit(&mut self, message: &VoteMessage) -> bool {
        if !self.peers.contains_key(&message.from) && self.peers.len() >= PEERS_MAX {
            return false;
        }
        let peer = self.peers.entry(message.from).or_default();
        if message.opening < peer.opening {
            return false;
        }
        if message.opening > peer.opening {
            // Its numbers begin again; what it said before counts no more.
            (peer.opening, peer.serial, peer.counted, peer.has_lost) = (message.opening, 0, 0, false);
            peer.parts.clear();
        }
        if message.serial <= peer.serial {
            return false;
        }
        peer.serial = message.serial;
        peer.configuration = peer.configuration.max(message.configuration);
        let before = message.sent.saturating_sub(u64::from(message.body.is_counted()));
        let for_us = message.to_opening == self.opening || !message.body.is_answer();
        if before != peer.counted || (message.body.is_counted() && !for_us) {
            peer.has_lost = true;
            peer.parts.clear();
        }
        peer.counted = message.sent;
        for_us
    }

    /// Adds a part, and gives the whole when it was the last one.
    pub fn join(&mut self, from: u64, text: &str, is_last: bool) -> Option<String> {
        let peer = self.peers.get_mut(&from)?;
        if peer.parts.len() + text.len() > BODY_BYTES_MAX {
            peer.parts.clear();
            return None;
        }
        peer.parts.push_str(text);
        is_last.then(|| std::mem::take(&mut peer.parts))
    }

    /// Hosts of which steps were lost.
    pub fn lossy(&self) -> Vec<u64> {
        self.peers.iter().filter(|(_, peer)| peer.has_lost).map(|(host, _)| *host).collect()
    }

    /// The loss is made good.
    pub fn mend(&mut self, host: u64) {
        if let Some(peer) = self.peers.get_mut(&host) {
            peer.has_lost = false;
        }
    }

    /// The newest configuration that a host votes in; 0 if it was never heard.
    pub fn configuration_of(&self, host: u64) -> u32 {
        self.peers.get(&host).map_or(0, |peer| peer.configuration)
    }
}
