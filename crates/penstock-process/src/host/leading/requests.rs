//! Hosts that the leader asks for in place of lost ones, of whoever starts hosts (P1: [`Place::wish`] decides, with a reason).
//!
//! A launcher that is logged in to the hosts asks from time to time which host ranks want a host, and says what it tried in vain. Where
//! nobody can be asked, that is said: a detached job has no launcher, and the keys of its user are not on its hosts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::host::Host;
use crate::host::config::HostStarter;
use crate::host::leading::Leading;
use crate::host::messages::Tried;
use crate::vote::storage::VoteStorage;

/// A launcher that was not heard for so long is gone, or cut off.
const SILENT_MS: u64 = 30_000;
/// Host ranks in one answer.
const ROWS_MAX: usize = 64;
/// Lines that a leader writes down about all this.
const TOLD_MAX: u32 = 200;
/// Names of which it is remembered what was tried.
const NAMES_MAX: usize = 256;

/// What is said about a host rank without a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// It is asked for, by this moment at the latest.
    Asked(u64),
    /// Nobody is asked, and why.
    Refused(&'static str),
    /// It was asked for, for so long.
    Over(u64),
}

impl Wish {
    /// In words.
    fn words(&self) -> String {
        match self {
            Self::Asked(_) => "another host is asked for, by ssh from the launcher".to_owned(),
            Self::Refused(why) => format!("no other host is asked for: {why}"),
            Self::Over(within_ms) => {
                format!("no other host came within {} s of asking (--replace-within)", within_ms / 1000)
            }
        }
    }
}

/// A host rank without a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Since when.
    since_ms: u64,
    /// How long it is asked for.
    within_ms: u64,
    /// Who starts hosts, and when that was heard last.
    starter: HostStarter,
    /// When it was.
    heard_ms: u64,
}

impl Place {
    /// Whether a host is asked for.
    pub(super) fn wish(&self, now_ms: u64) -> Wish {
        let until_ms = self.since_ms.saturating_add(self.within_ms);
        match self.starter {
            HostStarter::Detached => Wish::Refused(
                "the job is detached, so nobody logs in for it, and its user's keys are not on its hosts",
            ),
            HostStarter::Attached if self.within_ms == 0 => Wish::Refused("--replace-within is 0"),
            HostStarter::Attached if now_ms >= until_ms => Wish::Over(self.within_ms),
            HostStarter::Attached if now_ms >= self.heard_ms.saturating_add(SILENT_MS) => {
                Wish::Refused("its launcher is not heard, and the user's keys are with it")
            }
            HostStarter::Attached => Wish::Asked(until_ms),
        }
    }
}

/// What was said and heard about that.
#[derive(Debug, Default)]
pub(in crate::host) struct Requests {
    heard_ms: u64,
    said: BTreeMap<u32, Wish>,
    /// What was tried in vain, by name, and what of it is not written down yet.
    tried: BTreeMap<String, String>,
    news: Vec<Tried>,
    told: u32,
}

impl Requests {
    /// Of a leader that begins: it does not know when others heard the launcher last.
    pub(super) fn since(now_ms: u64) -> Self {
        Self { heard_ms: now_ms, ..Self::default() }
    }

    /// Whoever starts hosts asks.
    pub(in crate::host) fn note_starter(&mut self, now_ms: u64, tried: &[Tried]) {
        self.heard_ms = now_ms;
        for one in tried {
            let room = self.tried.len() < NAMES_MAX || self.tried.contains_key(&one.name);
            if room && self.tried.get(&one.name) != Some(&one.why) {
                self.tried.insert(one.name.clone(), one.why.clone());
                self.news.push(one.clone());
            }
        }
    }

    /// What people are told about a host rank without a host.
    pub(super) fn words(&self, rank: u32) -> Option<String> {
        self.said.get(&rank).map(Wish::words)
    }
}

impl<S: VoteStorage> Host<S> {
    /// Host ranks without a host, and what is said about each.
    fn wishes(&self, leading: &Leading) -> BTreeMap<u32, Wish> {
        let Some(starter) = self.config.starter else { return BTreeMap::new() };
        let (within_ms, heard_ms) = (self.config.replace_within_ms, leading.requests.heard_ms);
        let place = |rank: &u32| {
            let since_ms = leading.tracks.get(*rank as usize)?.since_ms;
            Some((*rank, Place { since_ms, within_ms, starter, heard_ms }.wish(self.now_ms)))
        };
        self.membership.list.vacant.iter().filter_map(place).collect()
    }

    /// What whoever starts hosts is told.
    pub(in crate::host) fn wanted_rows(&self, leading: &Leading) -> Vec<Value> {
        let name = |rank: u32| self.membership.list.host(rank).map(|entry| entry.name.clone());
        let row = |(rank, wish): (u32, Wish)| match wish {
            Wish::Asked(until_ms) => Some(
                json!({"rank": rank, "name": name(rank), "left_ms": until_ms.saturating_sub(self.now_ms)}),
            ),
            Wish::Refused(_) | Wish::Over(_) => None,
        };
        self.wishes(leading).into_iter().filter_map(row).take(ROWS_MAX).collect()
    }

    /// What changed, as lines for the journal.
    pub(super) fn facts_of_requests(&self, leading: &mut Leading) -> Vec<Value> {
        if self.config.starter.is_none() {
            return Vec::new();
        }
        let wishes = self.wishes(leading);
        let requests = &mut leading.requests;
        let mut facts = Vec::new();
        for (rank, wish) in &wishes {
            if requests.said.get(rank) != Some(wish) {
                let host = self.membership.list.host(*rank).map(|entry| entry.name.clone());
                facts
                    .push(json!({"event": "request", "host": host, "host_rank": rank, "what": wish.words()}));
            }
        }
        requests.said = wishes;
        for tried in requests.news.drain(..) {
            facts.push(json!({"event": "login", "host": tried.name, "what": tried.why}));
        }
        facts.truncate(TOLD_MAX.saturating_sub(requests.told) as usize);
        requests.told += u32::try_from(facts.len()).unwrap_or(u32::MAX);
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_asked_for_while_somebody_can_be_asked_and_not_for_ever() {
        let place =
            Place { since_ms: 1000, within_ms: 60_000, starter: HostStarter::Attached, heard_ms: 2000 };
        assert_eq!(place.wish(5000), Wish::Asked(61_000));
        assert!(matches!(place.wish(32_000), Wish::Refused(why) if why.contains("launcher")));
        assert_eq!(Place { heard_ms: 60_000, ..place }.wish(61_000), Wish::Over(60_000));
        let detached = Place { starter: HostStarter::Detached, ..place };
        assert!(matches!(detached.wish(1000), Wish::Refused(why) if why.contains("keys")));
    }
}
