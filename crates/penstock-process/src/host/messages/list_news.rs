//! How the host list reaches all hosts: as the steps from the list that the other end has, or whole where it has none of them.
//!
//! A list of a hundred thousand hosts is ten megabytes, a lost host two words. Steps travel with the grants, which go to every child
//! in any case, so a change costs no message of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::host::messages::Body;
use crate::host::voting::HostChange;
use crate::tree::host_list::{HostId, HostList};
use crate::vote::storage::VoteStorage;

/// Steps that are remembered; who is further behind gets the whole list.
const STEPS_MAX: usize = 256;

/// What a step changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListChange {
    /// Who has which host rank.
    Hosts(HostChange),
    /// Who keeps the journal.
    Voters {
        /// Which group of voters this is.
        configuration: u32,
        /// Its hosts.
        voters: Vec<HostId>,
    },
}

/// From one list to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListStep {
    /// The stamp of the list before.
    pub before: u64,
    /// What is different after it.
    pub change: ListChange,
}

impl ListStep {
    /// The list after it; nothing for a list that it does not follow.
    pub fn apply(&self, list: &HostList) -> Option<HostList> {
        match &self.change {
            ListChange::Hosts(change) => (change.version == list.version + 1).then(|| change.apply(list)),
            ListChange::Voters { configuration, voters } => (*configuration > list.configuration)
                .then(|| HostList { configuration: *configuration, voters: voters.clone(), ..list.clone() }),
        }
    }
}

/// What another host is told about the list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListNews {
    /// All of it.
    Whole(Arc<HostList>),
    /// What changed since the list that it has.
    Steps(Vec<Arc<ListStep>>),
}

/// The newest steps to the list that a host has.
#[derive(Debug, Default)]
pub(in crate::host) struct ListSteps(VecDeque<Arc<ListStep>>);

impl ListSteps {
    /// One step more.
    pub(in crate::host) fn add(&mut self, step: Arc<ListStep>) {
        if self.0.len() == STEPS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(step);
    }

    /// The list came whole, and nothing is known of its steps.
    pub(in crate::host) fn forget(&mut self) {
        self.0.clear();
    }

    /// The steps from a list; nothing where one of them is not remembered.
    fn since(&self, stamp: u64) -> Option<Vec<Arc<ListStep>>> {
        let first = self.0.iter().position(|step| step.before == stamp)?;
        Some(self.0.iter().skip(first).cloned().collect())
    }
}

impl<S: VoteStorage> Host<S> {
    /// What a host has to be told about the list; nothing where it has it, or will.
    pub(in crate::host) fn list_news(&mut self, to: HostId) -> Option<ListNews> {
        let stamp = self.membership.list.stamp();
        let link = self.links.to(to)?;
        let known = self.links.list_of(link);
        if known >= stamp {
            return None;
        }
        self.links.note_list(link, stamp);
        let steps = self.steps.since(known).map(ListNews::Steps);
        Some(steps.unwrap_or_else(|| ListNews::Whole(Arc::clone(&self.membership.list))))
    }

    /// Tells a host what it does not know of the list.
    pub(in crate::host) fn tell_list(&mut self, to: HostId) {
        if let Some(news) = self.list_news(to) {
            self.say(to, Body::List(news));
        }
    }

    /// Tells a host who leads, and what it does not know of the list.
    pub(in crate::host) fn tell_term(&mut self, to: HostId) {
        let news = self.list_news(to).unwrap_or_else(|| ListNews::Steps(Vec::new()));
        self.say(to, Body::List(news));
    }

    /// Takes what is newer than the list that this host has.
    pub(in crate::host) fn hear_list(&mut self, from: HostId, news: ListNews) {
        match news {
            ListNews::Whole(list) => {
                if list.stamp() > self.membership.list.stamp() {
                    self.steps.forget();
                    self.take_list(list);
                }
            }
            ListNews::Steps(steps) => {
                let fits = steps.into_iter().all(|step| self.take_step(step));
                if !fits {
                    self.say(from, Body::Lacks);
                }
            }
        }
    }

    /// Another host has no list that our steps follow.
    pub(in crate::host) fn hear_lack(&mut self, from: HostId) {
        let whole = ListNews::Whole(Arc::clone(&self.membership.list));
        self.say(from, Body::List(whole));
    }

    /// Takes a step from the list that this host has; whether the step is behind it now.
    pub(in crate::host) fn take_step(&mut self, step: Arc<ListStep>) -> bool {
        let stamp = self.membership.list.stamp();
        if step.before < stamp {
            return true;
        }
        let list = Some(&self.membership.list).filter(|_| step.before == stamp);
        let Some(list) = list.and_then(|list| step.apply(list)) else { return false };
        self.steps.add(step);
        self.take_list(Arc::new(list));
        true
    }
}
