//! What hosts of a job say to each other. Every message names the term, the leader and the version of the host list that its sender
//! knows (P3, H1): whoever knows less learns from it, and whoever knows more answers with what it knows.

pub mod list_news;

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::coordinator::messages::Orders;
use crate::host::clock::HostClock;
use crate::host::config::Versions;
use crate::host::messages::list_news::ListNews;
use crate::host::questions::answer::Answer;
use crate::host::shipping::ShipmentWord;
use crate::logs::stderr_tail::RankStderr;
use crate::tree::host_list::{HostEntry, HostId};
use crate::tree::rank_set::RankSet;
use crate::tree::summary::Summary;
use crate::vote::message::VoteMessage;

/// What stands at the head of every message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The newest term that the sender knows; 0 before there is a leader.
    pub term: u64,
    /// Who leads in it.
    pub leader: Option<HostId>,
    /// The host list that the sender has; 0 before there is one.
    pub list: u64,
    /// The coordinator's time, from who knows it, until somebody leads and tells it with grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator_ms: Option<u64>,
}

/// One message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Message {
    /// What the sender knows.
    #[serde(flatten)]
    pub header: Header,
    /// What it says.
    pub body: Body,
}

/// A host that wants to take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// How it would stand in the list.
    pub entry: HostEntry,
    /// The host rank that was asked for.
    pub node_rank: Option<u32>,
    /// How many hosts it was told there are.
    pub nnodes: u32,
    /// What should be the same on all hosts.
    pub versions: Versions,
    /// The digest of what it was told to run.
    pub job: String,
    /// The lease that it was told.
    pub lease_ms: u64,
    /// It has processes that cannot be killed, so it gets no rank yet.
    #[serde(default)]
    pub stuck: bool,
    /// It stands back for hosts that have not come yet.
    #[serde(default)]
    pub spare: bool,
    /// It has a state directory.
    #[serde(default)]
    pub state: bool,
}

/// Orders for all hosts, numbered within a term.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobOrders {
    /// Whose.
    pub term: u64,
    /// Which of the term's, from 1.
    pub number: u64,
    /// Records of the journal that they follow from: a majority of voters has so many (H1).
    #[serde(default)]
    pub records: u64,
    /// The version of the host list that they are for: a host with an older one begins nothing.
    #[serde(default)]
    pub list: u64,
    /// In the coordinator's time.
    pub orders: Orders,
    /// What makes the coordinator's time the leader's time of day, in ms since 1970.
    #[serde(default)]
    pub wall_ms: i64,
}

/// What a message says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// The first on every link, in both directions.
    Hello {
        /// Who speaks.
        host: HostId,
        /// The job that it was started for.
        job: String,
        /// What people call it.
        name: String,
    },
    /// I want to take part.
    Join(Box<JoinRequest>),
    /// Not now, or never; and where to ask instead.
    Refused {
        /// In words.
        why: String,
        /// There is no use in asking again.
        for_good: bool,
        /// Who may know better.
        ask: Option<HostEntry>,
    },
    /// Hosts that know who leads, to one that waits for a place: the host that it came to may be the next that is lost.
    Known {
        /// Voters first.
        hosts: Vec<SocketAddr>,
    },
    /// The host list, to whoever has an older one.
    List(ListNews),
    /// What I was told of the list does not follow the one that I have.
    Lacks,
    /// I am your child from now on.
    Attach {
        /// Grows with every attachment of the sender.
        attachment: u64,
    },
    /// I am no longer.
    Detach,
    /// I am there, and so is what I say of my subtree.
    Heartbeat {
        /// Counts heartbeats of the sender.
        number: u64,
        /// The newest orders that the sender has.
        orders: [u64; 2],
        /// What is with its subtree; absent while it is what it was.
        summary: Option<Arc<Summary>>,
    },
    /// The answer to a heartbeat: you may run ranks for so long from when you sent it.
    Grant {
        /// Of the heartbeat.
        number: u64,
        /// From when it was sent.
        lease_ms: u64,
        /// How long the heartbeat had been there, on the sender's clock.
        #[serde(default)]
        waited_ms: u64,
        /// The coordinator's time when this was sent; nothing where the sender does not know it.
        coordinator_ms: Option<u64>,
        /// How wrong that may be, measured on all edges above.
        #[serde(default)]
        within_ms: u64,
        /// Orders that the child does not have.
        orders: Option<Arc<JobOrders>>,
        /// What the child does not know of the host list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        list: Option<ListNews>,
    },
    /// I leave, and nothing of mine runs.
    Goodbye {
        /// Who left: the sender, or a host below it.
        host: HostId,
        /// In words.
        why: String,
    },
    /// The newest of what ranks of a host wrote to standard error: of the sender, or of a host below it that is lost or failed first.
    Stderr {
        /// Whose.
        host: HostId,
        /// All that is kept of it.
        told: Vec<RankStderr>,
        /// What makes its moments those of the coordinator.
        clock: HostClock,
    },
    /// A failure as it is known over all hosts, from the leader to all.
    Incident(Arc<Value>),
    /// From voter to voter.
    Vote(Box<VoteMessage>),
    /// From the leader to voters: is this still my term?
    Pledge {
        /// Counts them.
        number: u64,
    },
    /// From a voter: it is.
    Pledged {
        /// Of the question.
        number: u64,
    },
    /// A question on its way: to the leader first, then to all.
    Ask {
        /// Made up by who asks.
        question: u64,
        /// It is on its way down, to all.
        down: bool,
        /// What is asked.
        what: Question,
        /// How long the sender will wait.
        patience_ms: u64,
    },
    /// What a subtree answers.
    Answer {
        /// Of the question.
        question: u64,
        /// Of the way down, from one subtree; else of all, from the leader.
        down: bool,
        /// What was found, and by whom.
        answer: Box<Answer>,
    },
    /// Nobody waits for the answer any more.
    Withdraw {
        /// Of the question.
        question: u64,
    },
    /// Somebody follows what hosts write, or still does: see [`crate::host::subscriptions`].
    Follow {
        /// Made up by who follows.
        stream: u64,
        /// Counts repetitions.
        number: u64,
        /// It is on its way down.
        down: bool,
        /// What is followed.
        what: Value,
        /// What each host is told, by host rank.
        told: Vec<(u32, Value)>,
    },
    /// About the directory that the job brings along.
    Shipment(ShipmentWord),
    /// Nobody follows any more; with a reason, the sender does not take part.
    Unfollow {
        /// What was followed.
        stream: u64,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
}

/// What may be asked of a whole job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// Hosts, their states, leader, voters.
    Hosts,
    /// The same, of hosts alone that are not both here and heard on time: for whoever looks again and again.
    Unsettled,
    /// Workers of all hosts.
    Ps,
    /// What was decided.
    Journal,
    /// No question but news for the leader, from what started the hosts: it saw the processes of one end.
    Ended {
        /// Which start of which host.
        host: HostId,
        /// Who saw it, and how.
        by: String,
    },
    /// Work on hosts, done by a process there that ends with the question.
    Task {
        /// The host ranks that do it.
        hosts: RankSet,
        /// What: see [`crate::host::tasks`].
        task: Value,
    },
    /// Asked by a host of another version. Passed on as it came, because others may know it.
    #[serde(untagged)]
    Unknown(Value),
}
