//! What happens to a host, and what it wants to be done.

use std::sync::Arc;

use serde_json::Value;

use crate::coordinator::messages::Orders;
use crate::coordinator::messages::Report;
use crate::host::LinkId;
use crate::host::Membership;
use crate::host::messages::Message;
use crate::host::messages::Question;
use crate::host::questions::answer::Part;
use crate::host::shipping::Ranges;
use crate::host::subscriptions::Subscription;
use crate::vote::state_keeper::StateAnswer;
use crate::vote::state_keeper::StateTask;

/// What happens to a host.
#[derive(Debug)]
pub enum Event {
    /// A link is open, dialled by us or by the other end.
    Opened(LinkId),
    /// A link is closed, or could not be opened.
    Closed(LinkId),
    /// A link that we dialled could not be opened, and why.
    Unopened(LinkId, String),
    /// The other end said something.
    Heard(LinkId, Message),
    /// The agent of this host reports.
    Reported(Box<Report>),
    /// Somebody on this host asks, and waits for so many milliseconds.
    Asked(u64, Question, u64),
    /// Who asked has left.
    Left(u64),
    /// A task for a question is done, with what it found, or why it could not be.
    Done(u64, Result<Vec<Part>, String>),
    /// Somebody on this host follows, or still does.
    Follow(Subscription),
    /// Nobody on this host follows that any more.
    Unfollow(u64),
    /// The sender of a subscription has ended.
    SourceEnded(u64),
    /// The files of the directory that the job brings along say how far they are.
    Shipment {
        /// What is asked for next.
        wants: Option<Ranges>,
        /// All of it is here.
        has_all: bool,
        /// Ranks may begin in the copy.
        is_ready: bool,
    },
    /// Bytes of it have come.
    ShipmentMoved,
    /// The copy cannot be made.
    ShipmentFailed(String),
    /// The state directory of the job says something.
    State(StateAnswer),
    /// The name of the place where hosts meet means another address now.
    EndpointMoved(std::net::SocketAddr),
    /// It is time.
    Tick,
}

/// What a host wants to be done.
#[derive(Debug)]
pub enum Effect {
    /// Open a link.
    Dial(LinkId, std::net::SocketAddr),
    /// Say something.
    Send(LinkId, Box<Message>),
    /// End a link, once what was said is sent.
    Close(LinkId),
    /// Tell the agent of this host.
    Order(Arc<Orders>),
    /// Tell it until when it may run ranks, on this host's clock; all else is as it was told.
    Renew(u64),
    /// Keep this.
    Keep(Box<Membership>),
    /// Lines for the journal of the job, which a majority has.
    Write(Vec<Value>),
    /// Who asked gets this.
    Answer(u64, Value),
    /// Work for a question, to be done on this host within so many milliseconds.
    Task(u64, Value, u64),
    /// Nobody waits for that any more.
    EndTask(u64),
    /// What this host writes is to be sent for a subscription, or its sender is told something.
    Source {
        /// For whom.
        stream: u64,
        /// The own host rank.
        rank: u32,
        /// What is followed.
        what: Value,
        /// What this host is told about it.
        told: Value,
    },
    /// A host is to get these bytes of the directory that the job brings along.
    SendShipment(LinkId, Ranges),
    /// Nothing is sent for it any more.
    EndSource(u64),
    /// The job ends: what was written last is sent, and then the senders end.
    FinishSources,
    /// Who follows on this host hears that a host does not take part.
    Unfollowed(u64, String),
    /// Something is to be done in the state directory.
    State(StateTask),
    /// A failure as it is known over all hosts is to be written down.
    Incident(Arc<Value>),
    /// End; the agent starts another coordinator, which tries everything anew.
    BeginAgain,
    /// Failures that hosts themselves have shown, which later jobs are to know of.
    Remember(Vec<Value>),
    /// Words for whoever looks for a reason later.
    Note(String),
}
