//! The end of a job of many hosts: it goes down the tree, hosts say goodbye from the leaves up, and the leader leaves last (H6).

use crate::coordinator::messages::Over;
use crate::host::messages::Body;
use crate::host::Host;
use crate::job::state::Phase;
use crate::vote::storage::VoteStorage;

/// How long a host waits for the goodbye of those below it.
const GOODBYE_MS: u64 = 3000;

/// What a host remembers of the end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    since_ms: Option<u64>,
    told: bool,
}

impl Ending {
    /// Whether the agent may be told.
    pub(super) fn is_told(&self) -> bool {
        self.told
    }

    pub(super) fn due_ms(&self) -> Option<u64> {
        self.since_ms.filter(|_| !self.told).map(|since_ms| since_ms + GOODBYE_MS)
    }
}

impl<S: VoteStorage> Host<S> {
    /// Lets the agent know that the job is over, once everybody below does.
    pub(super) fn end_if_over(&mut self) {
        if self.ending.told || self.orders.as_ref().is_none_or(|orders| orders.orders.over.is_none()) {
            return;
        }
        let since_ms = *self.ending.since_ms.get_or_insert(self.now_ms);
        if !self.below.heard().is_empty() && self.now_ms < since_ms + GOODBYE_MS {
            return;
        }
        self.ending.told = true;
        if let Some(parent) = self.upward.parent() {
            self.say(parent, Body::Goodbye { host: self.me.id, why: "the job is over".to_owned() });
        }
    }

    /// A host that may never join ends.
    pub(super) fn refusal(&self) -> Option<Over> {
        self.meeting.refused.as_ref().map(|_| Over { phase: Phase::Failed, code: 2 })
    }
}
