//! The two ends of subscriptions on this host: whoever follows here, over a unix socket, and the Python that sends what this host writes.
//!
//! Both speak frames: `u32` length (big-endian), body. Nothing here waits, and everything is bounded. What a sender has is not read while
//! the link that it goes over has enough to do, so the sender waits. What somebody who follows does not read is dropped beyond a limit;
//! both ends count, so it is sent again when it is read on.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Result;
use crate::host::Event;
use crate::host::subscriptions::Subscription;
use crate::host::tasks::{MARK, note_clock};
use crate::job::{Job, JobDirectory};
use crate::system::lineage::Process;
use crate::system::{self, interest};

/// What begins a bulk frame of a link; JSON begins otherwise.
const BULK: u8 = 0;
const HEAD_BYTES: usize = 9;
/// What a sender is told when nothing more will be written (`log_frames.FINISH`).
const FINISH: &[u8] = b"{\"finish\":true}";
/// One frame of either end.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// So much waits for somebody who reads slowly: more than a subscription may have on its way.
const WAITING_BYTES_MAX: usize = 24 << 20;
/// A sender is read while less than this waits for the link.
const ROOM_BYTES: usize = 2 << 20;
/// Read of one end in a turn, so that none starves the links.
const TURN_BYTES_MAX: usize = 512 << 10;
/// Senders on this host, and people who follow here.
const SENDERS_MAX: usize = 8;
const READERS_MAX: usize = 16;

/// A bulk frame of a link: for which subscription, and what the other end of it is to get.
pub(super) fn bulk(body: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = body.split_at_checked(HEAD_BYTES)?;
    let stream = head.get(1..)?.try_into().ok()?;
    (head[0] == BULK).then(|| (u64::from_be_bytes(stream), rest))
}

/// What an end said.
pub(super) enum Said {
    /// For the host.
    Event(Event),
    /// A sender sends this; it is a body for a link.
    Bulk(u64, Vec<u8>),
}

/// What whoever follows says.
#[derive(Deserialize)]
struct Told {
    number: u64,
    what: Value,
    told: Vec<(u32, Value)>,
}

/// A socket with what waits on both sides of it.
struct End {
    socket: UnixStream,
    inbox: Vec<u8>,
    outbox: VecDeque<Vec<u8>>,
    /// Of the first of these, what has left; and what waits in all.
    left_bytes: usize,
    waiting_bytes: usize,
    is_over: bool,
}

impl End {
    fn new(socket: UnixStream) -> Result<Self> {
        system::set_nonblocking(&socket)?;
        let (inbox, outbox) = (Vec::new(), VecDeque::new());
        Ok(Self { socket, inbox, outbox, left_bytes: 0, waiting_bytes: 0, is_over: false })
    }

    fn say(&mut self, body: &[u8]) {
        if self.waiting_bytes + body.len() > WAITING_BYTES_MAX {
            return;
        }
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let frame = [&length.to_be_bytes()[..], body].concat();
        self.waiting_bytes += frame.len();
        self.outbox.push_back(frame);
        self.write();
    }

    fn write(&mut self) {
        while let Some(front) = self.outbox.front() {
            match (&self.socket).write(&front[self.left_bytes..]) {
                Ok(count) => {
                    self.left_bytes += count;
                    self.waiting_bytes -= count;
                    if self.left_bytes == front.len() {
                        self.outbox.pop_front();
                        self.left_bytes = 0;
                    }
                }
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) => {
                    self.is_over |= problem.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    /// Whole frames that have come.
    fn read(&mut self, scratch: &mut [u8]) -> Vec<Vec<u8>> {
        let mut count = 0;
        while count < TURN_BYTES_MAX {
            match (&self.socket).read(scratch) {
                Ok(0) => {
                    self.is_over = true;
                    break;
                }
                Ok(more) => {
                    self.inbox.extend_from_slice(&scratch[..more]);
                    count += more;
                }
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) => {
                    self.is_over |= problem.kind() != ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        let (mut frames, mut place) = (Vec::new(), 0);
        while let Some(head) = self.inbox[place..].first_chunk::<4>() {
            let length = u32::from_be_bytes(*head) as usize;
            if length > FRAME_BYTES_MAX {
                self.is_over = true;
                break;
            }
            let Some(body) = self.inbox.get(place + 4..place + 4 + length) else { break };
            frames.push(body.to_vec());
            place += 4 + length;
        }
        self.inbox.drain(..place);
        frames
    }
}

struct Sender {
    end: End,
    child: Child,
    /// The same, told from another of its number.
    process: Option<Process>,
}

/// All ends on this host.
pub(super) struct StreamSockets {
    directory: JobDirectory,
    python: Option<String>,
    /// Counts processes that tasks must not take for what one of them left behind.
    processes: Arc<AtomicUsize>,
    readers: BTreeMap<u64, End>,
    senders: BTreeMap<u64, Sender>,
    newest: u64,
    /// The job ends, so no sender begins.
    is_finishing: bool,
    scratch: Vec<u8>,
}

impl StreamSockets {
    /// None yet; `seed` differs from host to host.
    pub(super) fn new(directory: &JobDirectory, job: &Job, seed: u64, processes: &Arc<AtomicUsize>) -> Self {
        Self {
            directory: directory.clone(),
            python: job.python.clone(),
            processes: Arc::clone(processes),
            readers: BTreeMap::new(),
            senders: BTreeMap::new(),
            newest: seed,
            is_finishing: false,
            scratch: Vec::new(),
        }
    }

    /// Somebody follows from now on.
    pub(super) fn admit(&mut self, socket: UnixStream) {
        let Ok(mut end) = End::new(socket) else { return };
        if self.readers.len() >= READERS_MAX {
            let why = format!("{READERS_MAX} others follow on this host already");
            return end.say(refusal(&why).as_bytes());
        }
        end.say(b"{\"ok\":true}\n");
        self.newest = self.newest.wrapping_add(1);
        self.readers.insert(self.newest, end);
    }

    /// What to poll; `has_room` says whether a sender's frames have a place to go to.
    pub(super) fn interests(&self, waiting: impl Fn(u64) -> usize) -> Vec<libc::pollfd> {
        let of = |end: &End, reads: bool| {
            let writes = if end.outbox.is_empty() { 0 } else { libc::POLLOUT };
            let events = if reads { libc::POLLIN | writes } else { writes };
            interest(if events == 0 { -1 } else { end.socket.as_raw_fd() }, events)
        };
        let senders =
            self.senders.iter().map(|(stream, sender)| of(&sender.end, waiting(*stream) < ROOM_BYTES));
        self.readers.values().map(|end| of(end, true)).chain(senders).collect()
    }

    /// Moves what can be moved; what the ends said. `interests` are those of the same moment.
    pub(super) fn turn(&mut self, interests: &[libc::pollfd]) -> Vec<Said> {
        if interests.is_empty() {
            return Vec::new();
        }
        self.scratch.resize(128 << 10, 0);
        let mut said = Vec::new();
        let mut polled = interests.iter();
        for (stream, end) in &mut self.readers {
            let Some(polled) = polled.next().filter(|polled| polled.revents != 0) else { continue };
            if polled.revents & libc::POLLOUT != 0 {
                end.write();
            }
            for body in end.read(&mut self.scratch) {
                match serde_json::from_slice::<Told>(&body) {
                    Ok(Told { number, what, told }) => {
                        let subscription = Subscription { stream: *stream, number, what, told };
                        said.push(Said::Event(Event::Follow(subscription)));
                    }
                    Err(problem) => {
                        end.say(refusal(&format!("not a subscription: {problem}")).as_bytes());
                        end.is_over = true;
                    }
                }
            }
        }
        for (stream, sender) in &mut self.senders {
            let Some(polled) = polled.next().filter(|polled| polled.revents != 0) else { continue };
            if polled.revents & libc::POLLOUT != 0 {
                sender.end.write();
            }
            for body in sender.end.read(&mut self.scratch) {
                said.push(Said::Bulk(*stream, framed(*stream, &body)));
            }
        }
        let left: Vec<u64> =
            self.readers.iter().filter(|(_, end)| end.is_over).map(|(stream, _)| *stream).collect();
        for stream in left {
            self.readers.remove(&stream);
            said.push(Said::Event(Event::Unfollow(stream)));
        }
        let ended: Vec<u64> =
            self.senders.iter().filter(|(_, sender)| sender.end.is_over).map(|(stream, _)| *stream).collect();
        for stream in ended {
            self.end_sender(stream);
            said.push(Said::Event(Event::SourceEnded(stream)));
        }
        said
    }

    /// Who follows here gets this.
    pub(super) fn deliver(&mut self, stream: u64, body: &[u8]) {
        if let Some(end) = self.readers.get_mut(&stream) {
            end.say(body);
        }
    }

    /// What waits for who follows here.
    pub(super) fn waiting_bytes(&self, stream: u64) -> usize {
        self.readers.get(&stream).map_or(0, |end| end.waiting_bytes)
    }

    /// A host does not take part.
    pub(super) fn refuse(&mut self, stream: u64, why: &str) {
        self.deliver(stream, refusal(why).as_bytes());
    }

    /// Tells the sender of a subscription something, and starts it first where there is none. What cannot be started is a body for the link.
    pub(super) fn tell_sender(
        &mut self,
        stream: u64,
        rank: u32,
        what: &Value,
        mut told: Value,
    ) -> Option<Vec<u8>> {
        if !self.senders.contains_key(&stream) {
            if self.is_finishing {
                return None;
            }
            match self.start(stream) {
                Ok(sender) => drop(self.senders.insert(stream, sender)),
                Err(why) => {
                    let words = json!({"refused": why, "rank": rank}).to_string() + "\n";
                    return Some(framed(stream, words.as_bytes()));
                }
            }
        }
        if let Some(sender) = self.senders.get_mut(&stream) {
            note_clock(&mut told);
            // What waits is older, and each word has all that counts.
            let words = json!({"rank": rank, "what": what, "told": told}).to_string();
            sender.end.outbox.truncate(1);
            sender.end.waiting_bytes = sender.end.outbox.front().map_or(0, Vec::len) - sender.end.left_bytes;
            sender.end.say(words.as_bytes());
            if self.is_finishing {
                sender.end.say(FINISH);
            }
        }
        None
    }

    fn start(&self, stream: u64) -> std::result::Result<Sender, String> {
        if self.senders.len() >= SENDERS_MAX {
            return Err(format!("{SENDERS_MAX} others follow its logs already"));
        }
        let python = self.python.as_ref().ok_or("the job knows no Python there")?;
        let (ours, theirs) = system::conversation().map_err(|problem| problem.to_string())?;
        let end = End::new(ours).map_err(|problem| problem.to_string())?;
        let theirs = OwnedFd::from(theirs);
        let mut command = Command::new(python);
        command.args(["-m", "penstock.process.questions.log_sender"]).arg(self.directory.path());
        command.env(MARK, stream.to_string());
        command.stdin(theirs.try_clone().map_err(|problem| problem.to_string())?).stdout(theirs);
        command.stderr(Stdio::null());
        // SAFETY: only calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                system::begin_session()?;
                system::die_with_parent();
                Ok(())
            });
        }
        let child = command.spawn().map_err(|problem| format!("its Python cannot be started: {problem}"))?;
        self.processes.fetch_add(1, Ordering::SeqCst);
        let process = i32::try_from(child.id()).ok().and_then(Process::read);
        Ok(Sender { end, child, process })
    }

    /// Nobody wants what it sends any more (P2).
    pub(super) fn end_sender(&mut self, stream: u64) {
        if let Some(mut sender) = self.senders.remove(&stream) {
            if let Some(process) = &sender.process {
                process.signal(libc::SIGKILL);
            }
            let _ = sender.child.wait();
            self.processes.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The job ends: senders say what was written last, and that it was the last; they end when all of it was received.
    pub(super) fn finish(&mut self) {
        self.is_finishing = true;
        self.senders.values_mut().for_each(|sender| sender.end.say(FINISH));
    }

    /// Nothing is sent any more.
    pub(super) fn end_all(&mut self) {
        let streams: Vec<u64> = self.senders.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.end_sender(stream));
        self.readers.values_mut().for_each(|end| end.write());
    }
}

fn framed(stream: u64, body: &[u8]) -> Vec<u8> {
    [&[BULK][..], &stream.to_be_bytes(), body].concat()
}

fn refusal(why: &str) -> String {
    json!({"refused": why}).to_string() + "\n"
}
