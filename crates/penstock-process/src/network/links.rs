//! All links of one host, and the door through which new ones come.
//!
//! At the door at most [`Limits::half_open_max`] peers stand that have not proven the key. When all places are taken, newcomers wait
//! in the kernel's queue, so a thousand hosts that join at once are served in turn and none is thrown out in mid-handshake. But
//! strangers could hold the places for two seconds each, so under pressure a place is kept only for a while: the oldest peer whose
//! bytes made no sense yet goes after 100 ms, the oldest that began a handshake after a second. To refuse newcomers instead would let 64
//! silent connections shut the door; to drop the oldest at once would let hosts that join together throw each other out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use serde::{Deserialize, Serialize};

use super::Limits;
use super::frame;
use super::key::JobKey;
use super::link::{Link, LinkEnd, Stage};
use super::send_queue::Class;
use super::socket;
use super::strangers::{StrangerCounts, StrangerLog};
use super::tls::Credentials;
use crate::complain;
use crate::error::{ProcessError, Result};
use crate::system::epoll::Epoll;

/// So many newcomers are let in in one turn.
const ACCEPTED_MAX: usize = 64;
/// What is read at once.
const SCRATCH_BYTES: usize = 64 << 10;
/// The name of the door among those of the links.
const DOOR: u64 = 0;
/// How long a peer keeps its place while others wait: before its bytes made sense, and after.
const PLACE_KEPT_MS: [u64; 2] = [100, 1000];
/// When the system has no descriptor for a newcomer, we try again after this time.
const ACCEPT_AGAIN_MS: u64 = 100;

/// A link; its number is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u64);

/// What happened on the links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkEvent {
    /// The peer has proven the key; frames may be sent.
    Opened {
        /// Which link.
        link: LinkId,
        /// We dialled it.
        dialled: bool,
        /// The other end.
        peer: SocketAddr,
    },
    /// A frame came, whole.
    Frame {
        /// Which link.
        link: LinkId,
        /// What is in it.
        body: Vec<u8>,
    },
    /// The link is over, or could not be opened. Links that were closed by [`Network::close`] are not told about.
    Closed {
        /// Which link.
        link: LinkId,
        /// A sentence about the peer ("it closed the connection").
        why: String,
    },
}

/// What the network holds now, and what it has seen since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatistics {
    /// Links whose peer has proven the key.
    pub open: usize,
    /// Links that we dialled and that are not open yet.
    pub dialling: usize,
    /// Accepted peers that have not proven the key.
    pub half_open: usize,
    /// Links that were opened since the start.
    pub opened: u64,
    /// Peers that were refused since the start, by kind.
    pub strangers: StrangerCounts,
    /// Frames that came.
    pub received_frames: u64,
    /// Frames that were taken to be sent.
    pub sent_frames: u64,
    /// Frames that were not taken: the queue was full, the link not open, or the body too large.
    pub refused_frames: u64,
    /// Bytes that came, of strangers too.
    pub received_bytes: u64,
    /// Bytes that left.
    pub sent_bytes: u64,
    /// What waits for slow peers.
    pub queued_bytes: usize,
}

/// The links of one host.
pub struct Network {
    epoll: Epoll,
    listener: Option<TcpListener>,
    address: SocketAddr,
    credentials: Credentials,
    limits: Limits,
    links: BTreeMap<LinkId, Link>,
    /// Accepted links that are not open, oldest first.
    half_open: BTreeSet<LinkId>,
    /// When a link is ended unless it has gone on.
    deadlines: BTreeSet<(u64, LinkId)>,
    /// What is told in the next turn.
    untold: Vec<NetworkEvent>,
    /// Links that have something to do in the next turn, whatever their sockets say.
    restless: Vec<LinkId>,
    /// The last number given to a link.
    newest: u64,
    /// While newcomers have to wait: when to look again at the latest.
    door_shut_until_ms: Option<u64>,
    strangers: StrangerLog,
    /// The parts of the statistics that only grow.
    totals: NetworkStatistics,
    scratch: Vec<u8>,
}

impl Network {
    /// Listens at an address of this host; port 0 takes a free one.
    pub fn open(key: &JobKey, bind: SocketAddr, limits: Limits) -> Result<Self> {
        let failed = |source| ProcessError::Listen { address: bind, source };
        let listener = socket::listen(bind).map_err(failed)?;
        let mut network = Self::dialler(key)?;
        network.limits = limits;
        network.address = listener.local_addr().map_err(failed)?;
        network.epoll.add(&listener, DOOR)?;
        network.listener = Some(listener);
        Ok(network)
    }

    /// Only dials, with the usual limits.
    pub fn dialler(key: &JobKey) -> Result<Self> {
        let failed = |error| ProcessError::System { call: "TLS setup", source: io::Error::other(error) };
        Ok(Self {
            epoll: Epoll::new()?,
            listener: None,
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            credentials: Credentials::new(key).map_err(failed)?,
            limits: Limits::default(),
            links: BTreeMap::new(),
            half_open: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            untold: Vec::new(),
            restless: Vec::new(),
            newest: DOOR,
            door_shut_until_ms: None,
            strangers: StrangerLog::default(),
            totals: NetworkStatistics::default(),
            scratch: vec![0; SCRATCH_BYTES],
        })
    }

    /// Where we listen; port 0 if we only dial.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The descriptor that can be read when [`Network::turn`] has something to do.
    pub fn number(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Begins a link. `Opened` or `Closed` follows within [`Limits::handshake_ms`] and [`Limits::dialled_ms`].
    pub fn dial(&mut self, to: SocketAddr, now_ms: u64) -> LinkId {
        let id = self.next_id();
        let begun = self.try_dial(id, to, now_ms);
        if let Err(why) = begun {
            self.links.remove(&id);
            self.untold.push(NetworkEvent::Closed { link: id, why });
        }
        id
    }

    fn try_dial(&mut self, id: LinkId, to: SocketAddr, now_ms: u64) -> std::result::Result<(), String> {
        let tls = self.credentials.dialled(to.ip()).map_err(|error| error.to_string())?;
        let socket = socket::connect(to).map_err(|error| error.to_string())?;
        self.insert(id, Link::new(socket, tls, to, now_ms)).map_err(|error| error.to_string())
    }

    /// Takes a frame for the peer and returns at once. False: the link is not open, its queue is full, or the body is larger than
    /// [`frame::BODY_BYTES_MAX`].
    pub fn send(&mut self, link: LinkId, body: &[u8]) -> bool {
        self.send_as(Class::Words, link, body)
    }

    /// The same for what may wait: it leaves when nothing else does, and its queue has a limit of its own.
    pub fn send_bulk(&mut self, link: LinkId, body: &[u8]) -> bool {
        self.send_as(Class::Bulk, link, body)
    }

    /// Bulk that waits for a peer.
    pub fn bulk_bytes(&self, link: LinkId) -> usize {
        self.links.get(&link).map_or(0, Link::bulk_bytes)
    }

    fn send_as(&mut self, class: Class, link: LinkId, body: &[u8]) -> bool {
        let bytes_max = match class {
            Class::Words => self.limits.queue_bytes_max,
            Class::Bulk => self.limits.bulk_bytes_max,
        };
        let sent_bytes = self.links.get_mut(&link).and_then(|open| {
            let frame = frame::encoded(body)?;
            open.send(class, frame, bytes_max)
        });
        let Some(sent_bytes) = sent_bytes else {
            self.totals.refused_frames += 1;
            return false;
        };
        self.totals.sent_frames += 1;
        self.totals.sent_bytes += sent_bytes;
        self.settle(link);
        true
    }

    /// Ends a link after what is queued has left, within [`Limits::close_ms`]. Nothing is told about it any more.
    pub fn close(&mut self, link: LinkId) {
        let Some(closed) = self.links.get_mut(&link) else { return };
        match closed.stage {
            Stage::Connecting | Stage::Handshake => self.remove(link),
            Stage::Open => {
                closed.stage = Stage::Closing;
                self.restless.push(link);
            }
            Stage::Closing | Stage::Lingering => {}
        }
    }

    /// Does what can be done without waiting, and tells what happened.
    pub fn turn(&mut self, now_ms: u64) -> Vec<NetworkEvent> {
        let mut events = std::mem::take(&mut self.untold);
        let mut newcomers = false;
        for id in std::mem::take(&mut self.restless) {
            self.advance(id, now_ms, &mut events);
        }
        for name in self.epoll.ready() {
            match name {
                DOOR => newcomers = true,
                name => self.advance(LinkId(name), now_ms, &mut events),
            }
        }
        self.end_late_links(now_ms, &mut events);
        if newcomers {
            self.accept(now_ms);
        }
        self.open_door_again(now_ms);
        if let Some(sentence) = self.strangers.sentence(now_ms) {
            complain!("penstock-agent: {sentence}");
        }
        events
    }

    /// When the next turn is due, whatever the descriptor says; a moment that has passed means now.
    pub fn due_ms(&self) -> Option<u64> {
        if !self.untold.is_empty() || !self.restless.is_empty() {
            return Some(0);
        }
        let deadline_ms = self.deadlines.first().map(|(at_ms, _)| *at_ms);
        deadline_ms.into_iter().chain(self.door_shut_until_ms).chain(self.strangers.due_ms()).min()
    }

    /// What the network holds now, and what it has seen since the start.
    pub fn statistics(&self) -> NetworkStatistics {
        let open = self.links.values().filter(|link| link.stage >= Stage::Open).count();
        NetworkStatistics {
            open,
            half_open: self.half_open.len(),
            dialling: self.links.len() - open - self.half_open.len(),
            strangers: self.strangers.counts.clone(),
            queued_bytes: self.links.values().map(Link::queued_bytes).sum(),
            ..self.totals.clone()
        }
    }

    fn next_id(&mut self) -> LinkId {
        self.newest += 1;
        LinkId(self.newest)
    }

    fn insert(&mut self, id: LinkId, link: Link) -> Result<()> {
        if self.links.len() >= self.limits.links_max {
            let source = io::Error::other(format!("all {} links are taken", self.limits.links_max));
            return Err(ProcessError::System { call: "connect", source });
        }
        self.epoll.add(&link.socket, id.0)?;
        let deadline_ms = link.since_ms + self.limits.handshake_ms;
        if link.is_half_open() {
            self.half_open.insert(id);
        }
        self.links.insert(id, link);
        self.set_deadline(id, Some(deadline_ms));
        self.settle(id);
        Ok(())
    }

    fn set_deadline(&mut self, id: LinkId, deadline_ms: Option<u64>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(old_ms) = std::mem::replace(&mut link.deadline_ms, deadline_ms) {
            self.deadlines.remove(&(old_ms, id));
        }
        self.deadlines.extend(deadline_ms.map(|at_ms| (at_ms, id)));
    }

    /// Waits for what the link needs next.
    fn settle(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let interest = if link.wants_write() { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
        let settled = interest == link.interest || self.epoll.change(&link.socket, id.0, interest).is_ok();
        if settled {
            link.interest = interest;
        }
        if !settled || link.is_broken() {
            self.restless.push(id);
        }
    }

    fn advance(&mut self, id: LinkId, now_ms: u64, events: &mut Vec<NetworkEvent>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let was_connecting = link.stage == Stage::Connecting;
        let progress = link.advance(&mut self.scratch);
        let is_at_door = was_connecting && link.stage == Stage::Handshake;
        self.totals.received_bytes += progress.received_bytes;
        self.totals.sent_bytes += progress.sent_bytes;
        if is_at_door {
            self.set_deadline(id, Some(now_ms + self.limits.dialled_ms));
        } else if progress.opened {
            self.totals.opened += 1;
            let (dialled, peer) = (link.dialled, link.peer);
            events.push(NetworkEvent::Opened { link: id, dialled, peer });
            self.half_open.remove(&id);
            self.set_deadline(id, None);
        }
        self.totals.received_frames += progress.bodies.len() as u64;
        events.extend(progress.bodies.into_iter().map(|body| NetworkEvent::Frame { link: id, body }));
        match progress.end {
            Some(end) => self.end(id, &end, events),
            None => {
                let closing = self.links.get(&id).is_some_and(|link| link.stage > Stage::Open);
                if closing && self.links[&id].deadline_ms.is_none() {
                    self.set_deadline(id, Some(now_ms + self.limits.close_ms));
                }
                self.settle(id);
            }
        }
    }

    /// Takes a link out, and tells whom it concerns: of a peer that never proved the key, only the count.
    fn end(&mut self, id: LinkId, end: &LinkEnd, events: &mut Vec<NetworkEvent>) {
        let Some(link) = self.links.get(&id) else { return };
        if link.is_half_open() {
            self.strangers.add(link.peer, link.stranger(end));
        } else if link.stage <= Stage::Open {
            events.push(NetworkEvent::Closed { link: id, why: link.why(end) });
        }
        self.remove(id);
    }

    fn remove(&mut self, id: LinkId) {
        self.set_deadline(id, None);
        self.half_open.remove(&id);
        // Its socket leaves the set of the kernel as it is closed.
        self.links.remove(&id);
    }

    fn end_late_links(&mut self, now_ms: u64, events: &mut Vec<NetworkEvent>) {
        while let Some((at_ms, id)) = self.deadlines.first().copied().filter(|(at_ms, _)| *at_ms <= now_ms) {
            self.deadlines.remove(&(at_ms, id));
            self.end(id, &LinkEnd::Late, events);
        }
    }

    /// Lets newcomers in while there are places.
    fn accept(&mut self, now_ms: u64) {
        for _ in 0..ACCEPTED_MAX {
            let makes_room = match self.place(now_ms) {
                Ok(makes_room) => makes_room,
                Err(until_ms) => return self.shut_door(until_ms),
            };
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((socket, peer)) => {
                    if let Some(id) = makes_room {
                        self.end(id, &LinkEnd::CrowdedOut, &mut Vec::new());
                    }
                    self.admit(socket, peer, now_ms);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => {}
                // No descriptor or no memory: asking again at once would only burn time.
                Err(_) => return self.shut_door(now_ms + ACCEPT_AGAIN_MS),
            }
        }
    }

    fn admit(&mut self, socket: TcpStream, peer: SocketAddr, now_ms: u64) {
        let Ok(tls) = self.credentials.accepted() else { return };
        if socket::tune(&socket).is_ok() {
            let id = self.next_id();
            // Where it cannot be watched it is closed here; the peer dials again.
            let _ = self.insert(id, Link::new(socket, tls, peer, now_ms));
        }
    }

    /// Whether there is a place for one more, and who has to make room for it; else when there may be one.
    fn place(&self, now_ms: u64) -> std::result::Result<Option<LinkId>, u64> {
        if self.links.len() >= self.limits.links_max {
            return Err(now_ms + ACCEPT_AGAIN_MS);
        }
        if self.half_open.len() < self.limits.half_open_max {
            return Ok(None);
        }
        let until_ms = |id: &LinkId| {
            let link = &self.links[id];
            link.since_ms + PLACE_KEPT_MS[usize::from(link.answered)]
        };
        match self.half_open.iter().map(|id| (until_ms(id), *id)).min() {
            Some((until_ms, id)) if until_ms <= now_ms => Ok(Some(id)),
            first => Err(first.map_or(now_ms + ACCEPT_AGAIN_MS, |(until_ms, _)| until_ms)),
        }
    }

    fn shut_door(&mut self, until_ms: u64) {
        self.door_shut_until_ms = Some(until_ms);
        self.watch_door(0);
    }

    fn open_door_again(&mut self, now_ms: u64) {
        let Some(until_ms) = self.door_shut_until_ms else { return };
        let has_place =
            self.links.len() < self.limits.links_max && self.half_open.len() < self.limits.half_open_max;
        if until_ms <= now_ms || has_place {
            self.door_shut_until_ms = None;
            self.watch_door(libc::EPOLLIN);
        }
    }

    fn watch_door(&self, events: i32) {
        if let Some(listener) = &self.listener {
            // The descriptor stands in the set since the start, so this cannot fail.
            let _ = self.epoll.change(listener, DOOR, events);
        }
    }
}
