//! A process that takes part: it finds the reader of its lane or becomes it, asks for steps, and makes those that it is told to.
//!
//! Names have a number at their end. A reader that is dead has no name, so the next to call takes it. One that is alive and mute
//! (stopped, or a fork of a dead one that still holds the name) keeps its name; then the next number counts. Whatever goes wrong, the
//! answer is to make the step oneself.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::buffer::Memory;
use super::packet::{Line, Packet, Word, call, take_name, user};
use super::server::Server;
use super::table::{Answer, Shared};
use super::{BEAT, MUTE, memory};

/// Numbers that a name may have.
const GENERATIONS: u32 = 8;
/// How long a name that did not answer is left alone, and how long one reads alone after nobody could be found.
const AVOIDED: Duration = Duration::from_secs(5);
/// How often another reader is looked for before a step is made alone.
const TRIES: u32 = 4;
/// How long others may take for one step before it is made here, however alive the reader is.
const WAIT_MAX: Duration = Duration::from_secs(12);
/// Connections that wait to be used again.
const IDLE_MAX: usize = 16;

/// What comes of asking for a step.
pub enum Asked {
    /// Another made it.
    Batch(Memory),
    /// Make it, and put what comes of it into the claim.
    Make(Claim),
    /// Make it for yourself.
    Alone,
}

/// What a process is for the others of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has not asked for anything yet, or looks for another reader.
    Looking,
    /// Others come to it.
    Reader,
    /// It goes to another.
    Follower,
    /// It reads alone, because there is trouble.
    Alone,
}

/// Counts since opening.
#[derive(Debug, Clone)]
pub struct Told {
    /// What it is.
    pub standing: Standing,
    /// Steps made here, by others, and here because others could not be asked.
    pub made: u64,
    /// Steps that others made.
    pub taken: u64,
    /// Steps made without asking, because nobody answered.
    pub alone: u64,
    /// How often another reader had to be found.
    pub moves: u64,
    /// For a reader: how many take part, and bytes that wait for them.
    pub members: usize,
    /// For a reader: bytes that wait for others.
    pub kept_bytes: u64,
    /// Why it reads alone, the last time that it did.
    pub trouble: Option<String>,
}

enum Role {
    Looking,
    Reader(Arc<Server>),
    Follower(u32),
    Alone(Instant),
}

#[derive(Default)]
struct Counts {
    made: AtomicU64,
    taken: AtomicU64,
    alone: AtomicU64,
    moves: AtomicU64,
}

/// One process that takes part in the reading of a lane.
pub struct Member {
    /// What the lane is called on this host, without its number.
    name: String,
    id: u64,
    budget_bytes: u64,
    role: Mutex<Role>,
    /// Connections to the reader that nobody uses now, each with the number of the reader's name.
    idle: Mutex<Vec<(u32, Line)>>,
    /// Numbers of names whose owners said nothing, and when.
    mute: Mutex<HashMap<u32, Instant>>,
    trouble: Mutex<Option<String>>,
    counts: Counts,
    closed: AtomicBool,
    /// The process that takes part. Children of a fork have the descriptors and none of the threads, so they read alone.
    process: u32,
}

impl Member {
    /// Takes part in reading what `key` names; as a reader it keeps at most `budget_bytes` for others.
    pub fn new(key: &str, budget_bytes: u64) -> Arc<Self> {
        let process = std::process::id();
        Arc::new(Self {
            name: format!("penstock-lane-{}-{key}", user()),
            id: RandomState::new().hash_one(process),
            budget_bytes,
            role: Mutex::new(Role::Looking),
            idle: Mutex::default(),
            mute: Mutex::default(),
            trouble: Mutex::default(),
            counts: Counts::default(),
            closed: AtomicBool::new(false),
            process,
        })
    }

    /// Finds the reader, or becomes it, before anything is asked for.
    pub fn meet(&self) {
        if std::process::id() == self.process {
            drop(self.settled());
        }
    }

    /// What others have of a step, or who makes it.
    pub fn ask(self: &Arc<Self>, step: u64) -> Asked {
        for _ in 0..TRIES {
            if self.closed.load(Ordering::Acquire) || std::process::id() != self.process {
                break;
            }
            let found = match &*self.settled() {
                Role::Reader(server) => Ok(Arc::clone(server)),
                Role::Follower(generation) => Err(*generation),
                Role::Looking | Role::Alone(_) => break,
            };
            let asked = match found {
                Ok(server) => self.ask_here(&server, step),
                Err(generation) => self.ask_there(generation, step),
            };
            if let Some(asked) = asked {
                return asked;
            }
        }
        self.counts.alone.fetch_add(1, Ordering::Relaxed);
        Asked::Alone
    }

    /// Counts since opening.
    pub fn told(&self) -> Told {
        let (standing, (members, kept_bytes)) = match &*hold(&self.role) {
            Role::Looking => (Standing::Looking, (0, 0)),
            Role::Reader(server) => (Standing::Reader, server.table.told()),
            Role::Follower(_) => (Standing::Follower, (0, 0)),
            Role::Alone(_) => (Standing::Alone, (0, 0)),
        };
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Told {
            standing,
            made: count(&self.counts.made),
            taken: count(&self.counts.taken),
            alone: count(&self.counts.alone),
            moves: count(&self.counts.moves),
            members,
            kept_bytes,
            trouble: hold(&self.trouble).clone(),
        }
    }

    /// Takes part no more; a reader's followers find another. Does nothing in the child of a fork.
    pub fn close(&self) {
        if std::process::id() != self.process {
            return;
        }
        self.closed.store(true, Ordering::Release);
        let role = std::mem::replace(&mut *hold(&self.role), Role::Looking);
        if let Role::Reader(server) = role {
            server.close();
        }
        hold(&self.idle).clear();
    }

    fn ask_here(self: &Arc<Self>, server: &Arc<Server>, step: u64) -> Option<Asked> {
        let (owner, begun) = (server.new_owner(), Instant::now());
        while begun.elapsed() < WAIT_MAX && !self.closed.load(Ordering::Acquire) {
            match server.table.ask(step, owner, BEAT) {
                Answer::Ready(shared) => return self.look(step, &shared),
                Answer::Make => {
                    let place = Place::Here(Arc::clone(server), owner);
                    return Some(self.claim(step, place));
                }
                Answer::Wait => {}
                Answer::Closed => return None,
            }
        }
        None
    }

    /// Asks the reader; nothing when it is gone, mute or none of us, and has been given up for that.
    fn ask_there(self: &Arc<Self>, generation: u32, step: u64) -> Option<Asked> {
        let asked = self.line(generation).and_then(|line| {
            line.send(&Packet::new(Word::Ask, step))?;
            let begun = Instant::now();
            loop {
                let packet = line.receive()?;
                if packet.step != step {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                match (packet.word, packet.file) {
                    (Word::Batch, Some(file)) => {
                        return Ok((line, Some(Shared { file, bytes: packet.bytes })));
                    }
                    (Word::Make, None) => return Ok((line, None)),
                    (Word::Wait, None)
                        if begun.elapsed() < WAIT_MAX && !self.closed.load(Ordering::Acquire) => {}
                    (Word::Wait, None) => return Err(io::ErrorKind::TimedOut.into()),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        });
        match asked {
            Ok((line, Some(shared))) => {
                self.rest(generation, line);
                self.look(step, &shared)
            }
            Ok((line, None)) => Some(self.claim(step, Place::There(generation, line))),
            Err(problem) => {
                self.lose(generation, &problem);
                None
            }
        }
    }

    /// Looks at what another made; made here when it is not what it should be, which is no reason to trust the rest less.
    fn look(&self, step: u64, shared: &Shared) -> Option<Asked> {
        match memory::map(shared) {
            Ok(memory) => {
                self.counts.taken.fetch_add(1, Ordering::Relaxed);
                Some(Asked::Batch(memory))
            }
            Err(problem) => {
                self.note(format!("step {step} of another process cannot be looked at: {problem}"));
                self.counts.alone.fetch_add(1, Ordering::Relaxed);
                Some(Asked::Alone)
            }
        }
    }

    fn claim(self: &Arc<Self>, step: u64, place: Place) -> Asked {
        self.counts.made.fetch_add(1, Ordering::Relaxed);
        Asked::Make(Claim { member: Arc::clone(self), step, place: Some(place) })
    }

    /// A connection to the reader.
    fn line(&self, generation: u32) -> io::Result<Line> {
        let mut idle = hold(&self.idle);
        if let Some(place) = idle.iter().position(|(of, _)| *of == generation) {
            return Ok(idle.swap_remove(place).1);
        }
        drop(idle);
        self.call(generation)
    }

    fn call(&self, generation: u32) -> io::Result<Line> {
        let line = call(&self.named(generation), MUTE)?;
        if !line.is_own() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        line.send(&Packet::new(Word::Hello, self.id))?;
        if line.receive()?.word != Word::Hello {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(line)
    }

    fn rest(&self, generation: u32, line: Line) {
        let mut idle = hold(&self.idle);
        if idle.len() < IDLE_MAX && !self.closed.load(Ordering::Acquire) {
            idle.push((generation, line));
        }
    }

    /// Says that a step will not be made here; a reader that cannot be told finds out by itself.
    fn hand_back(&self, generation: u32, line: Line, step: u64) {
        if line.send(&Packet::new(Word::Release, step)).is_ok() {
            self.rest(generation, line);
        }
    }

    fn named(&self, generation: u32) -> String {
        format!("{}-{generation}", self.name)
    }

    /// Gives a reader up, unless another thread has done so already.
    fn lose(&self, generation: u32, problem: &io::Error) {
        hold(&self.idle).retain(|(of, _)| *of != generation);
        let mut role = hold(&self.role);
        if !matches!(*role, Role::Follower(of) if of == generation) {
            return;
        }
        self.counts.moves.fetch_add(1, Ordering::Relaxed);
        *role = match problem.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied => self.alone(generation, problem),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                hold(&self.mute).insert(generation, Instant::now());
                Role::Looking
            }
            _ => Role::Looking,
        };
    }

    fn alone(&self, generation: u32, problem: &io::Error) -> Role {
        let why = match problem.kind() {
            io::ErrorKind::PermissionDenied => "another user has the name of this lane".into(),
            io::ErrorKind::InvalidData => "something else than Penstock has the name of this lane".into(),
            _ => format!("others cannot be asked: {problem}"),
        };
        self.note(format!("{why} ({})", self.named(generation)));
        Role::Alone(Instant::now() + AVOIDED)
    }

    fn note(&self, trouble: String) {
        *hold(&self.trouble) = Some(trouble);
    }

    /// What this process is now; found out anew where that is not known any more.
    fn settled(&self) -> MutexGuard<'_, Role> {
        let mut role = hold(&self.role);
        let over = match &*role {
            Role::Looking => true,
            Role::Reader(server) => server.is_over(),
            Role::Follower(_) => false,
            Role::Alone(until) => Instant::now() >= *until,
        };
        if over && !self.closed.load(Ordering::Acquire) {
            *role = self.find();
        }
        role
    }

    /// Goes to whoever answers, else takes the first name that is free.
    fn find(&self) -> Role {
        let mut free = None;
        for generation in 0..GENERATIONS {
            let mute = hold(&self.mute).get(&generation).is_some_and(|since| since.elapsed() < AVOIDED);
            if mute {
                continue;
            }
            match self.call(generation) {
                Ok(line) => {
                    self.rest(generation, line);
                    return Role::Follower(generation);
                }
                Err(problem) if problem.kind() == io::ErrorKind::ConnectionRefused => {
                    free.get_or_insert(generation);
                }
                Err(problem) if is_mute(&problem) => {
                    hold(&self.mute).insert(generation, Instant::now());
                }
                Err(problem) => return self.alone(generation, &problem),
            }
        }
        match free {
            Some(first) => self.take(first),
            None => self.alone(0, &io::ErrorKind::AddrInUse.into()),
        }
    }

    /// Takes a name that was free a moment ago; whoever was quicker becomes the reader.
    fn take(&self, first: u32) -> Role {
        for generation in first..GENERATIONS {
            let taken = take_name(&self.named(generation))
                .and_then(|listener| Server::start(listener, self.id, self.budget_bytes));
            match taken {
                Ok(server) => return Role::Reader(server),
                Err(problem) if problem.kind() != io::ErrorKind::AddrInUse => {
                    return self.alone(generation, &problem);
                }
                Err(_) => {}
            }
            // A name is taken an instant before it is answered for.
            for _ in 0..10 {
                match self.call(generation) {
                    Ok(line) => {
                        self.rest(generation, line);
                        return Role::Follower(generation);
                    }
                    Err(problem) if problem.kind() == io::ErrorKind::ConnectionRefused => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Err(_) => break,
                }
            }
        }
        self.alone(first, &io::ErrorKind::AddrInUse.into())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.close();
    }
}

enum Place {
    Here(Arc<Server>, u64),
    There(u32, Line),
}

/// The right to make a step for everybody. Dropped without a result, another makes it.
pub struct Claim {
    member: Arc<Member>,
    step: u64,
    place: Option<Place>,
}

impl Claim {
    /// Hands over what was made, as slices that lie one after the other; gives it back as others see it.
    pub fn put(mut self, slices: &[&[u8]]) -> io::Result<Memory> {
        let shared = memory::seal(slices)?;
        let memory = memory::map(&shared)?;
        match self.place.take() {
            Some(Place::Here(server, _)) => server.table.put(self.step, shared),
            Some(Place::There(generation, line)) => {
                let Shared { file, bytes } = shared;
                let sent = line.send(&Packet { word: Word::Batch, step: self.step, bytes, file: Some(file) });
                match sent {
                    Ok(()) => self.member.rest(generation, line),
                    // Others make it themselves; what was made is good all the same.
                    Err(problem) => self.member.lose(generation, &problem),
                }
            }
            None => {}
        }
        Ok(memory)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        match self.place.take() {
            Some(Place::Here(server, owner)) => server.table.release(self.step, owner),
            Some(Place::There(generation, line)) => self.member.hand_back(generation, line, self.step),
            None => {}
        }
    }
}

fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether nobody answers, though somebody has the name.
fn is_mute(problem: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
    matches!(problem.kind(), BrokenPipe | ConnectionReset | TimedOut | UnexpectedEof | WouldBlock)
}
