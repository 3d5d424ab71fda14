//! The reader's side: a thread that accepts, and one per connection, which answer from the table and need nobody else.
//!
//! None of them ever needs the interpreter, so a reader whose training stands still goes on serving. A reader that was stopped and
//! goes on later resigns: others have taken over by then.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::packet::{Line, Packet, Word};
use super::table::{Answer, Shared, Table};
use super::{BEAT, MUTE};

/// How often the accepting thread looks up when nobody comes.
const LOOK: Duration = Duration::from_millis(250);
/// A thread that did not look up for so long was stopped, with the whole process.
const STOPPED: Duration = Duration::from_millis(1500);
/// Connections at a time: more than a host has threads that read.
const LINES_MAX: usize = 1024;

/// The reader's threads and the table that they answer from.
pub(super) struct Server {
    /// What is made and who makes what.
    pub(super) table: Table,
    /// Numbers of those who make: one per connection, and one per question of this process itself.
    owners: AtomicU64,
    over: AtomicBool,
    /// The name that others call, and their connections; ended when the server is.
    listener: Line,
    lines: Mutex<Vec<Line>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: u32,
}

impl Server {
    /// Serves whoever calls; `member` is this process.
    pub(super) fn start(listener: Line, member: u64, budget_bytes: u64) -> io::Result<Arc<Self>> {
        listener.limit(Some(LOOK), MUTE)?;
        let server = Arc::new(Self {
            table: Table::new(budget_bytes),
            owners: AtomicU64::new(1),
            over: AtomicBool::new(false),
            listener,
            lines: Mutex::default(),
            threads: Mutex::default(),
            process: std::process::id(),
        });
        server.table.join(member);
        let accepting = Arc::clone(&server);
        server.spawn("penstock-share", move || accepting.accept(member))?;
        Ok(server)
    }

    /// A number for whoever makes a step.
    pub(super) fn new_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether it serves nobody any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends all connections and threads. In the child of a fork there is none.
    pub(super) fn close(&self) {
        if std::process::id() != self.process {
            return;
        }
        self.resign();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // One of them may be the one that closes.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    fn resign(&self) {
        self.over.store(true, Ordering::Release);
        self.table.close();
        self.listener.end();
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|line| line.end());
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(work)?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    fn accept(self: &Arc<Self>, member: u64) {
        let mut looked = Instant::now();
        while !self.is_over() {
            let accepted = self.listener.accept();
            if looked.elapsed() > STOPPED {
                break;
            }
            looked = Instant::now();
            match accepted {
                Ok(line) => self.welcome(line, member),
                Err(problem) if is_passing(&problem) => {}
                // Out of descriptors or memory, for a while: whoever calls finds that nobody answers, and reads alone.
                Err(_) if !self.is_over() => std::thread::sleep(LOOK),
                Err(_) => break,
            }
        }
        self.resign();
    }

    fn welcome(self: &Arc<Self>, line: Line, member: u64) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_over() || lines.len() >= LINES_MAX || !line.is_own() {
            return line.end();
        }
        lines.push(line.clone());
        drop(lines);
        let server = Arc::clone(self);
        let theirs = line.clone();
        let started = self.spawn("penstock-share-line", move || {
            // Whatever ends the conversation ends it for good; the other side makes its steps itself then.
            let _ = server.converse(&theirs, member);
            server.forget(&theirs);
        });
        if started.is_err() {
            self.forget(&line);
        }
    }

    fn forget(&self, line: &Line) {
        line.end();
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !other.is(line));
    }

    fn converse(&self, line: &Line, member: u64) -> io::Result<()> {
        line.limit(Some(MUTE), MUTE)?;
        line.send(&Packet::new(Word::Hello, member))?;
        let hello = line.receive()?;
        if hello.word != Word::Hello {
            return Err(io::ErrorKind::InvalidData.into());
        }
        line.limit(None, MUTE)?;
        let mut guest = Guest { server: self, member: hello.step, owner: self.new_owner(), claim: None };
        self.table.join(guest.member);
        loop {
            let packet = line.receive()?;
            match packet.word {
                Word::Ask => guest.answer(line, packet.step)?,
                Word::Batch => guest.put(packet)?,
                Word::Release => guest.release(),
                Word::Hello | Word::Make | Word::Wait => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

/// The other side of a connection. What it has claimed is free again when it is gone.
struct Guest<'a> {
    server: &'a Server,
    member: u64,
    owner: u64,
    claim: Option<u64>,
}

impl Guest<'_> {
    /// Answers at once or, where somebody makes the step, says again and again that it is being made.
    fn answer(&mut self, line: &Line, step: u64) -> io::Result<()> {
        self.release();
        loop {
            match self.server.table.ask(step, self.owner, BEAT) {
                Answer::Ready(Shared { file, bytes }) => {
                    return line.send(&Packet { word: Word::Batch, step, bytes, file: Some(file) });
                }
                Answer::Make => {
                    self.claim = Some(step);
                    return line.send(&Packet::new(Word::Make, step));
                }
                Answer::Wait => line.send(&Packet::new(Word::Wait, step))?,
                Answer::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    fn put(&mut self, packet: Packet) -> io::Result<()> {
        let (Some(step), Some(file)) = (self.claim.take(), packet.file) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if step != packet.step {
            self.server.table.release(step, self.owner);
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.server.table.put(step, Shared { file, bytes: packet.bytes });
        Ok(())
    }

    fn release(&mut self) {
        if let Some(step) = self.claim.take() {
            self.server.table.release(step, self.owner);
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.release();
        self.server.table.leave(self.member);
    }
}

fn is_passing(problem: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, TimedOut, WouldBlock};
    matches!(problem.kind(), ConnectionAborted | Interrupted | TimedOut | WouldBlock)
}
