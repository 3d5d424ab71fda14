//! Drives a [`Host`] in the coordinator's process: one loop over the agent, the network and whoever asks on this host.
//!
//! Everything that takes part in decisions is in [`Host`]; here are sockets, files and the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::complain;
use crate::coordinator::messages::{LeaseRenewal, Orders, Over, Report};
use crate::error::{ProcessError, Result};
use crate::host::asker::Askers;
use crate::host::carrier::{self, Carrier};
use crate::host::config::{self, HostConfig};
use crate::host::endpoint_lookup::EndpointLookup;
use crate::host::messages::list_news::ListNews;
use crate::host::messages::{Body, Message};
use crate::host::stream_sockets::{Said, StreamSockets, bulk};
use crate::host::subscriptions::Toward;
use crate::host::tasks::{MARK, Tasks};
use crate::host::{Effect, Event, Given, Host, LinkId, Membership, incident_file};
use crate::job::JobDirectory;
use crate::job::journal::Journal;
use crate::job::state::Phase;
use crate::network::key::JobKey;
use crate::network::{self, Limits, Network, NetworkEvent};
use crate::system::{self, interest, now_ms};
use crate::vote::file_storage::FileStorage;
use crate::vote::state_keeper::{StateKeeper, StateThread};

const MEMBERSHIP: &str = "membership.json";
/// How long an end waits for its last words to go out.
const LEAVE_MS: u64 = 500;
const LEAVE_LOOK_MS: u64 = 20;
/// How long an end waits for the state directory.
const STATE_PATIENCE: Duration = Duration::from_secs(2);
const REPORT_BYTES_MAX: usize = 64 << 20;

/// What is kept over the death of this process.
#[derive(serde::Serialize, serde::Deserialize)]
struct Kept {
    port: u16,
    membership: Membership,
}

struct Driver {
    directory: JobDirectory,
    host: Host<FileStorage>,
    network: Network,
    port: u16,
    agent: UnixStream,
    heard: Vec<u8>,
    askers: Askers,
    tasks: Tasks,
    streams: StreamSockets,
    carrier: Carrier,
    state: Option<StateThread>,
    lookup: EndpointLookup,
    journal: Journal,
    /// The newest message with a whole host list, and its bytes: many hosts are told the same at once.
    whole_list: Option<(Message, Vec<u8>)>,
    /// Lines of the job's journal that are in the file already.
    written: u64,
    /// Our links and the network's.
    to_network: BTreeMap<LinkId, network::LinkId>,
    to_host: BTreeMap<network::LinkId, LinkId>,
    opened: BTreeSet<LinkId>,
    incoming: u64,
    agent_gone: bool,
}

/// Runs until the agent ends the conversation.
pub fn run(directory: &JobDirectory, mut config: HostConfig, agent: OwnedFd) -> Result<i32> {
    let job = directory.job()?;
    let kept = read_kept(directory);
    let key = JobKey::read(&directory.file(config::KEY))?;
    let port = match &kept {
        Some(kept) => kept.port,
        None if config.founder => config.endpoint.port(),
        None => config.port,
    };
    let network = match listen(&key, config.address, port) {
        // Of several hosts on one machine, the first has the port where they meet; the others ask there for a place.
        Err(ProcessError::Listen { source, .. })
            if config.founder && kept.is_none() && source.kind() == ErrorKind::AddrInUse =>
        {
            (config.founder, config.is_displaced) = (false, true);
            listen(&key, config.address, 0)?
        }
        // Nobody can join here, whatever is tried again.
        Err(problem) if kept.is_none() => return refuse(&agent, &problem),
        listening => listening?,
    };
    let port = network.address().port();
    let votes: PathBuf = directory.file("votes");
    let digest = config::job_digest(&job);
    let tasks = Tasks::new(directory, &job, config.open)?;
    let keeper = config.state_directory(&job, MARK, tasks.processes());
    let keeper = keeper.map(|directory| StateKeeper::new(directory, config.host.0, config.name.clone()));
    let state = keeper.map(StateThread::start).transpose()?;
    let streams = StreamSockets::new(directory, &job, config.host.0, tasks.processes());
    let carrier = Carrier::new(directory, job.ships)?;
    let lookup = EndpointLookup::new(&config.endpoint_name, config.endpoint, now_ms());
    let given = Given {
        config,
        job: Arc::new(job),
        digest,
        port,
        votes: Box::new(move || Ok(FileStorage::open(&votes)?)),
    };
    let host = Host::new(now_ms(), given, kept.map(|kept| kept.membership));
    let journal = Journal::open(directory)?;
    let written = last_line(&journal.content(directory)?);
    let mut driver = Driver {
        directory: directory.clone(),
        host,
        network,
        port,
        agent: UnixStream::from(agent),
        heard: Vec::new(),
        askers: Askers::listen(directory)?,
        tasks,
        streams,
        carrier,
        state,
        lookup,
        journal,
        whole_list: None,
        written,
        to_network: BTreeMap::new(),
        to_host: BTreeMap::new(),
        opened: BTreeSet::new(),
        incoming: 0,
        agent_gone: false,
    };
    driver.serve();
    driver.leave();
    Ok(0)
}

fn listen(key: &JobKey, address: IpAddr, port: u16) -> Result<Network> {
    Network::open(key, SocketAddr::new(address, port), Limits::default())
}

impl Driver {
    fn serve(&mut self) {
        self.give(Event::Tick);
        while !self.agent_gone {
            let due_ms = self.network.due_ms().into_iter().chain([self.host.due_ms()]).min();
            let wait_ms = due_ms.map_or(1000, |due_ms| due_ms.saturating_sub(now_ms()));
            let own_numbers = [self.askers.number(), self.tasks.number(), self.carrier.number()];
            let numbers = [self.agent.as_raw_fd(), self.network.number()].into_iter().chain(own_numbers);
            let numbers = numbers.chain(self.state.as_ref().map(StateThread::number));
            let mut interests: Vec<_> = numbers.map(|number| interest(number, libc::POLLIN)).collect();
            let own = interests.len();
            interests.extend(self.streams.interests(|stream| self.waiting_bytes(stream)));
            system::poll(&mut interests, Some(Duration::from_millis(wait_ms)));
            // Whoever has nothing to say costs no call: an idle host wakes once for each heartbeat, and there may be many on a machine.
            let speaks = |place: usize| interests.get(place).is_some_and(|interest| interest.revents != 0);
            if speaks(1) || self.network.due_ms().is_some_and(|due_ms| now_ms() >= due_ms) {
                for event in self.network.turn(now_ms()) {
                    self.take(event);
                }
            }
            if speaks(0) {
                self.hear_agent();
            }
            let asked = if speaks(2) { self.askers.take() } else { Vec::new() };
            let done = if speaks(3) { self.tasks.take() } else { Vec::new() };
            let carried = if speaks(4) { self.carrier.take() } else { Vec::new() };
            for event in asked.into_iter().chain(done).chain(carried) {
                self.give(event);
            }
            for said in self.streams.turn(&interests[own..]) {
                match said {
                    Said::Event(event) => self.give(event),
                    Said::Bulk(stream, body) => self.pass_on(stream, &body),
                }
            }
            self.askers.take_followers().into_iter().for_each(|follower| self.streams.admit(follower));
            if own > 5 && speaks(5) {
                for answer in self.state.as_mut().map(StateThread::take).unwrap_or_default() {
                    self.give(Event::State(answer));
                }
            }
            if let Some(address) = self.lookup.take() {
                self.give(Event::EndpointMoved(address));
            }
            if now_ms() >= self.host.due_ms() {
                self.give(Event::Tick);
            }
            self.carrier.turn(&mut self.network);
        }
    }

    /// What of a subscription waits for where it goes to next.
    fn waiting_bytes(&self, stream: u64) -> usize {
        match self.host.toward(stream) {
            Some(Toward::Here) => self.streams.waiting_bytes(stream),
            Some(Toward::Link(link)) => {
                self.to_network.get(&link).map_or(0, |link| self.network.bulk_bytes(*link))
            }
            None => 0,
        }
    }

    /// Brings bulk a step further; where nobody knows of it any more, it is dropped.
    fn pass_on(&mut self, stream: u64, body: &[u8]) {
        match self.host.toward(stream) {
            Some(Toward::Here) => {
                if let Some((_, body)) = bulk(body) {
                    self.streams.deliver(stream, body);
                }
            }
            Some(Toward::Link(link)) => {
                if let Some(link) = self.to_network.get(&link).copied() {
                    self.network.send_bulk(link, body);
                }
            }
            None => {}
        }
    }

    /// Lets what was said last go out, a goodbye for example.
    fn leave(&mut self) {
        self.streams.end_all();
        self.tasks.end_all();
        let until_ms = now_ms() + LEAVE_MS;
        self.to_host.keys().for_each(|link| self.network.close(*link));
        while self.network.statistics().open > 0 && now_ms() < until_ms {
            self.network.turn(now_ms());
            let mut interests = [interest(self.network.number(), libc::POLLIN)];
            system::poll(&mut interests, Some(Duration::from_millis(LEAVE_LOOK_MS)));
        }
        if self.state.as_mut().is_some_and(|state| !state.end(STATE_PATIENCE)) {
            complain!(
                "penstock-host: the state directory takes too long; the end of the journal is not copied"
            );
        }
    }

    fn give(&mut self, event: Event) {
        let mut effects = self.host.handle(now_ms(), event);
        // A link that could not be dialled is closed at once, and that may have effects too; each dial has its pause.
        while !effects.is_empty() {
            let closed: Vec<LinkId> = effects.drain(..).filter_map(|effect| self.carry_out(effect)).collect();
            effects =
                closed.into_iter().flat_map(|link| self.host.handle(now_ms(), Event::Closed(link))).collect();
        }
    }

    /// Does what the host wants; a link that is closed by it.
    fn carry_out(&mut self, effect: Effect) -> Option<LinkId> {
        match effect {
            Effect::Dial(link, to) => {
                self.lookup.note_dial(to, now_ms());
                let dialled = self.network.dial(to, now_ms());
                self.to_network.insert(link, dialled);
                self.to_host.insert(dialled, link);
            }
            Effect::Send(link, message) => {
                if let Some(to) = self.to_network.get(&link).copied() {
                    self.send(to, *message);
                }
            }
            Effect::Close(link) => {
                let known = self.to_network.remove(&link)?;
                self.to_host.remove(&known);
                self.opened.remove(&link);
                self.network.close(known);
                return Some(link);
            }
            Effect::Order(orders) => self.tell_agent(&*orders),
            Effect::Renew(renewed_until_ms) => self.tell_agent(&LeaseRenewal { renewed_until_ms }),
            Effect::Keep(membership) => self.keep(*membership),
            Effect::Write(lines) => self.write(lines),
            Effect::State(task) => self.state.iter().for_each(|state| state.give(task.clone())),
            Effect::Answer(ask, answer) => self.askers.answer(ask, answer),
            Effect::Task(question, task, limit_ms) => self.tasks.begin(question, task, limit_ms),
            Effect::EndTask(question) => self.tasks.end(question),
            Effect::Incident(incident) => incident_file::write(&self.directory, &incident),
            Effect::Remember(failures) => self.tasks.remember(failures),
            Effect::Source { stream, rank, what, told } => {
                if let Some(refusal) = self.streams.tell_sender(stream, rank, &what, told) {
                    self.pass_on(stream, &refusal);
                }
            }
            Effect::SendShipment(link, ranges) => {
                if let Some(to) = self.to_network.get(&link) {
                    self.carrier.send(*to, ranges);
                }
            }
            Effect::EndSource(stream) => self.streams.end_sender(stream),
            Effect::FinishSources => self.streams.finish(),
            Effect::Unfollowed(stream, why) => self.streams.refuse(stream, &why),
            Effect::BeginAgain => self.agent_gone = true,
            Effect::Note(words) => complain!("penstock-host: {words}"),
        }
        None
    }

    fn tell_agent(&mut self, word: &impl serde::Serialize) {
        let mut line = serde_json::to_vec(word).expect("orders are plain values");
        line.push(b'\n');
        self.agent_gone |= (&self.agent).write_all(&line).is_err();
    }

    fn send(&mut self, to: network::LinkId, message: Message) {
        let bytes = |message: &Message| serde_json::to_vec(message).expect("a message is plain values");
        // Who hears a goodbye may leave at once, so it stands behind what was said last.
        let is_last = matches!(message.body, Body::Goodbye { .. }) && self.network.bulk_bytes(to) > 0;
        if is_last && self.network.send_bulk(to, &bytes(&message)) {
            return;
        }
        let Body::List(ListNews::Whole(list)) = &message.body else {
            self.network.send(to, &bytes(&message));
            return;
        };
        let same = |known: &Message| match &known.body {
            Body::List(ListNews::Whole(other)) => known.header == message.header && Arc::ptr_eq(other, list),
            _ => false,
        };
        if !self.whole_list.as_ref().is_some_and(|(known, _)| same(known)) {
            let body = bytes(&message);
            self.whole_list = Some((message, body));
        }
        if let Some((_, body)) = &self.whole_list {
            self.network.send(to, body);
        }
    }

    fn take(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Opened { link, dialled, .. } => {
                if !dialled {
                    self.incoming += 1;
                    self.to_host.insert(link, LinkId(self.incoming));
                    self.to_network.insert(LinkId(self.incoming), link);
                }
                if let Some(link) = self.to_host.get(&link).copied() {
                    self.opened.insert(link);
                    self.give(Event::Opened(link));
                }
            }
            NetworkEvent::Frame { link, body } => {
                let Some(known) = self.to_host.get(&link).copied() else { return };
                if let Some((stream, _)) = bulk(&body) {
                    return self.pass_on(stream, &body);
                }
                if let Some((at, bytes)) = carrier::piece(&body) {
                    self.carrier.receive(at, bytes);
                    return self.give(Event::ShipmentMoved);
                }
                match serde_json::from_slice::<Message>(&body) {
                    Ok(message) => self.give(Event::Heard(known, message)),
                    Err(problem) => {
                        complain!("penstock-host: a message makes no sense: {problem}");
                        self.network.close(link);
                    }
                }
            }
            NetworkEvent::Closed { link, why } => {
                if let Some(known) = self.to_host.remove(&link) {
                    self.to_network.remove(&known);
                    let opened = self.opened.remove(&known);
                    self.give(if opened { Event::Closed(known) } else { Event::Unopened(known, why) });
                }
            }
        }
    }

    fn hear_agent(&mut self) {
        let mut piece = [0; 64 << 10];
        // SAFETY: the descriptor is open, and the place has so much room. Only this call does not block; writing may.
        let count = unsafe {
            libc::recv(self.agent.as_raw_fd(), piece.as_mut_ptr().cast(), piece.len(), libc::MSG_DONTWAIT)
        };
        match usize::try_from(count) {
            Ok(0) => self.agent_gone = true,
            Ok(count) => self.heard.extend_from_slice(&piece[..count]),
            Err(_) => {
                let again = std::io::Error::last_os_error().kind() == ErrorKind::WouldBlock;
                self.agent_gone |= !again;
            }
        }
        self.agent_gone |= self.heard.len() > REPORT_BYTES_MAX;
        while let Some(end) = memchr::memchr(b'\n', &self.heard) {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            match serde_json::from_slice::<Report>(&line) {
                Ok(report) => self.give(Event::Reported(Box::new(report))),
                Err(problem) => complain!("penstock-host: a report makes no sense: {problem}"),
            }
        }
    }

    /// Keeps what another process in our place has to know. Whole or not at all.
    fn keep(&self, membership: Membership) {
        let kept = Kept { port: self.port, membership };
        let text = serde_json::to_vec(&kept).expect("a membership is plain values");
        let (path, beside) = (self.directory.file(MEMBERSHIP), self.directory.file("membership.new"));
        let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &path));
        if let Err(problem) = written {
            complain!("penstock-host: cannot keep the host list: {problem}");
        }
    }

    /// Adds lines to the journal that are not there yet: a voter that is opened again is told everything again.
    fn write(&mut self, lines: Vec<Value>) {
        for line in lines {
            let number = line["line"].as_u64().unwrap_or(0);
            if number > self.written {
                self.written = number;
                self.journal.add_line(line);
            }
        }
    }
}

/// Ends the job on this host, with the reason, as the answer to the agent's first report; then stays until the agent has left.
fn refuse(agent: &OwnedFd, problem: &ProcessError) -> Result<i32> {
    let mut stream = UnixStream::from(agent.try_clone().map_err(link_lost)?);
    let mut line = String::new();
    let mut reports = BufReader::new(stream.try_clone().map_err(link_lost)?.take(REPORT_BYTES_MAX as u64));
    while reports.read_line(&mut line).map_err(link_lost)? > 0 {
        if let Ok(report) = serde_json::from_str::<Report>(&line) {
            let mut orders = serde_json::to_vec(&ending(report.number, problem)).unwrap_or_default();
            orders.push(b'\n');
            stream.write_all(&orders).map_err(link_lost)?;
        }
        line.clear();
    }
    Ok(0)
}

fn ending(number: u64, problem: &ProcessError) -> Orders {
    Orders {
        number,
        phase: Phase::Failed,
        reason: problem.to_string(),
        gangs: Vec::new(),
        look_at_ms: None,
        over: Some(Over { phase: Phase::Failed, code: 2 }),
        standing: None,
        lease_until_ms: None,
    }
}

fn link_lost(source: std::io::Error) -> ProcessError {
    ProcessError::System { call: "link to the agent", source }
}

fn read_kept(directory: &JobDirectory) -> Option<Kept> {
    let text = std::fs::read(directory.file(MEMBERSHIP)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The number of the newest line of the job's journal in a file.
fn last_line(text: &[u8]) -> u64 {
    let lines = text.split(|byte| *byte == b'\n').rev();
    let numbers = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()?["line"].as_u64());
    numbers.max().unwrap_or(0)
}

impl From<crate::vote::error::VoteError> for ProcessError {
    fn from(problem: crate::vote::error::VoteError) -> Self {
        Self::Usage(problem.to_string())
    }
}
