//! Peers that did not prove the key: counted by kind, and told about now and then.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use rustls::{AlertDescription, Error, PeerIncompatible};
use serde::{Deserialize, Serialize};

/// However many come, one sentence about them in this time.
const SENTENCE_EVERY_MS: u64 = 60_000;

/// How a peer failed to prove the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stranger {
    /// It sent nothing until its time was over.
    Silent,
    /// It began, and was not done when its time was over.
    Slow,
    /// It ended the connection before it was done.
    Gone,
    /// What it sent is no TLS.
    NoTls,
    /// It speaks TLS, but not version 1.3.
    OldTls,
    /// It speaks TLS 1.3, and has no raw key of the kind that we use.
    NoKey,
    /// It has the key of another job.
    OtherKey,
    /// It broke the rules of the handshake in another way.
    BadHandshake,
    /// It had to make room for a newcomer before its time was over.
    CrowdedOut,
}

impl Stranger {
    /// What a handshake that failed says about the peer.
    pub(super) fn of_error(error: &Error) -> Self {
        match error {
            Error::InvalidMessage(_) => Self::NoTls,
            Error::PeerIncompatible(
                PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => Self::OldTls,
            Error::NoCertificatesPresented | Error::PeerIncompatible(_) => Self::NoKey,
            // The dialling side sees our key first, and says so when it is not its own.
            Error::InvalidCertificate(_) | Error::AlertReceived(AlertDescription::AccessDenied) => {
                Self::OtherKey
            }
            Error::InappropriateMessage { .. } => Self::NoTls,
            _ => Self::BadHandshake,
        }
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Silent => "said nothing",
            Self::Slow => "was too slow",
            Self::Gone => "ended the connection",
            Self::NoTls => "did not speak TLS",
            Self::OldTls => "did not speak TLS 1.3",
            Self::NoKey => "showed no key",
            Self::OtherKey => "showed the key of another job",
            Self::BadHandshake => "broke the handshake",
            Self::CrowdedOut => "had to make room",
        })
    }
}

/// How many strangers of each kind came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrangerCounts(BTreeMap<Stranger, u64>);

impl StrangerCounts {
    /// Those of one kind.
    pub fn of(&self, kind: Stranger) -> u64 {
        self.0.get(&kind).copied().unwrap_or(0)
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    fn add(&mut self, kind: Stranger) {
        *self.0.entry(kind).or_default() += 1;
    }
}

/// Counts strangers and says at most one sentence a minute about them.
#[derive(Debug, Default)]
pub(super) struct StrangerLog {
    /// Since the start.
    pub(super) counts: StrangerCounts,
    /// Since the last sentence.
    untold: StrangerCounts,
    latest: Option<(SocketAddr, Stranger)>,
    told_ms: Option<u64>,
}

impl StrangerLog {
    pub(super) fn add(&mut self, peer: SocketAddr, kind: Stranger) {
        self.counts.add(kind);
        self.untold.add(kind);
        self.latest = Some((peer, kind));
    }

    /// When something is to be said.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.latest.map(|_| self.told_ms.map_or(0, |told_ms| told_ms + SENTENCE_EVERY_MS))
    }

    /// What is to be said now.
    pub(super) fn sentence(&mut self, now_ms: u64) -> Option<String> {
        let (peer, kind) = self.latest?;
        if self.told_ms.is_some_and(|told_ms| now_ms < told_ms + SENTENCE_EVERY_MS) {
            return None;
        }
        let untold = std::mem::take(&mut self.untold);
        (self.latest, self.told_ms) = (None, Some(now_ms));
        let others = match untold.total() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more since the last such line)"),
        };
        Some(format!("refused a connection from {peer}: the peer {kind}{others}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_strangers_is_counted_in_full_and_told_in_one_sentence_a_minute() {
        let peer: SocketAddr = "10.0.0.9:5".parse().unwrap();
        let mut log = StrangerLog::default();
        assert_eq!(log.sentence(0), None);
        let mut told = Vec::new();
        for at_ms in (0..180_000).step_by(10) {
            log.add(peer, if at_ms % 20 == 0 { Stranger::NoTls } else { Stranger::Silent });
            told.extend(log.sentence(at_ms));
        }
        assert_eq!(told[0], "refused a connection from 10.0.0.9:5: the peer did not speak TLS");
        assert_eq!(told.len(), 3);
        assert!(told[1].ends_with("(and 5999 more since the last such line)"), "{told:?}");
        let counted = serde_json::to_value(&log.counts).unwrap();
        assert_eq!(counted, serde_json::json!({"silent": 9000, "no_tls": 9000}));
    }
}
