//! The log pump: from the pipes and terminals of workers into their logs, and, for a foreground job, to the person.
//!
//! Logs are lossless: every byte that a worker wrote stands in its log, at the place where it stood in the stream (P5). When the person's terminal
//! is slow, workers wait, or the terminal misses something and says so, as the job chose. One thread does it, so that
//! a slow terminal never holds up supervision. Its memory has a limit: a buffer, what waits for the person, and a line per stream.

mod log;
mod segments;
mod work;
mod worker_log;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use self::log::Rotation;
pub use self::segments::{segment_path, segments, tail};
use self::work::{Source, Work};
use self::worker_log::WorkerLog;
use crate::console::{Console, Voice};
use crate::epoll::Epoll;
use crate::error::{ProcessError, Result};
use crate::job::{Job, Pressure, Room, Stream};
use crate::{system, terminal};

const READ_BYTES: usize = 256 << 10;
const PIPE_BYTES: i32 = 1 << 20;
/// Gaps that are told at once.
const GAPS_MAX: usize = 64;

/// Where the person is: for standard output and for standard error.
#[derive(Default)]
pub struct Person {
    /// The ways to the launcher.
    pub pipes: [Option<OwnedFd>; 2],
    /// The terminals that the launcher writes to, where it writes to one.
    pub terminals: [Option<OwnedFd>; 2],
}

/// Who speaks: a worker in one of its lives.
#[derive(Debug, Clone, Copy)]
pub struct Speaker<'a> {
    /// Its role.
    pub role: &'a str,
    /// Its place in the role.
    pub rank: u32,
    /// Which life.
    pub incarnation: u32,
}

/// Our ends of what a worker writes to.
pub enum Outputs {
    /// Standard output and standard error.
    Pipes([OwnedFd; 2]),
    /// Both are one terminal.
    Terminal(OwnedFd),
}

/// Bytes of a log that are not there, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// `ROLE-RANK.stdout` or `ROLE-RANK.stderr`.
    pub log: String,
    /// Where in the stream they stood.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// `full disk` or `removed`.
    pub why: String,
}

/// What the agent and the pump's thread both see.
#[derive(Default)]
struct Shared {
    /// How many sources are open; the condition says when that changed.
    open: Mutex<usize>,
    changed: Condvar,
    /// Read on, even when the terminal is full: the writers are gone, and what is left in pipes is little.
    hurry: AtomicBool,
    /// No source will be added any more.
    closing: AtomicBool,
    /// The thread has nothing left to do.
    done: AtomicBool,
    /// The person's terminal has another size.
    resized: AtomicBool,
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn is_hurrying(&self) -> bool {
        self.hurry.load(Ordering::SeqCst)
    }

    fn take_resized(&self) -> bool {
        self.resized.swap(false, Ordering::SeqCst)
    }

    fn one_less(&self) {
        *self.open.lock().expect("nobody panics while holding this") -= 1;
        self.changed.notify_all();
    }

    fn finish(&self) {
        self.done.store(true, Ordering::SeqCst);
        // Taken so that the waiter is either before its look at `done` or already waiting.
        drop(self.open.lock());
        self.changed.notify_all();
    }
}

/// By role and rank.
type Logs = BTreeMap<(String, u32), Arc<Mutex<WorkerLog>>>;

/// The agent's side of the pump.
pub struct Pump {
    room: Room,
    job: Job,
    sources: Sender<Source>,
    wake: File,
    shared: Arc<Shared>,
    /// Of every worker that ever spoke, because its streams go on with its next life.
    logs: Mutex<Logs>,
}

impl Pump {
    /// Starts the thread.
    pub fn start(room: &Room, job: &Job, person: Person) -> Result<Self> {
        let (woken, wake) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        system::set_nonblocking(&wake)?;
        for pipe in person.pipes.iter().flatten() {
            system::set_nonblocking(pipe)?;
        }
        let (sources, arriving) = channel();
        let shared = Arc::new(Shared::default());
        let one = matches!(&person.terminals, [Some(out), Some(err)] if terminal::is_same(out, err));
        let drops = job.pressure == Pressure::Drop;
        let [out, err] = person.pipes;
        let [out_terminal, err_terminal] = person.terminals;
        let work = Work {
            arriving,
            woken: woken.into(),
            shared: Arc::clone(&shared),
            consoles: [Console::new(out, out_terminal, drops), Console::new(err, err_terminal, drops)],
            routes: if one { [0, 0] } else { [0, 1] },
            sets: [Epoll::new()?, Epoll::new()?],
            sources: BTreeMap::new(),
            next: 0,
            buffer: vec![0; READ_BYTES],
        };
        std::thread::Builder::new()
            .name("penstock-pump".to_owned())
            .spawn(|| work.run())
            .map_err(|source| ProcessError::System { call: "thread", source })?;
        let logs = Mutex::new(BTreeMap::new());
        Ok(Self { room: room.clone(), job: job.clone(), sources, wake: wake.into(), shared, logs })
    }

    /// Takes over what a worker writes to. Where in its two logs this life begins.
    pub fn add(&self, speaker: Speaker<'_>, outputs: Outputs) -> Result<[u64; 2]> {
        let log = self.log_of(speaker);
        let from = log.lock().map_or([0, 0], |mut log| log.begin(speaker.incarnation));
        let (pipes, is_terminal) = match outputs {
            Outputs::Pipes([out, err]) => (vec![(Stream::Out, out), (Stream::Err, err)], false),
            Outputs::Terminal(terminal) => (vec![(Stream::Out, terminal)], true),
        };
        for (stream, pipe) in pipes {
            system::widen_pipe(&pipe, PIPE_BYTES);
            system::set_nonblocking(&pipe)?;
            *self.shared.open.lock().expect("the pump never panics while it holds this") += 1;
            let (name, place) = self.job.label(speaker.role, speaker.rank);
            let colour = self.job.colour.then_some(place);
            let source = Source {
                place: 2 * place as u64 + stream as u64,
                pipe: pipe.into(),
                is_terminal,
                log: Arc::clone(&log),
                stream,
                voice: Voice::new(&name, colour, from[stream as usize]),
            };
            let _ = self.sources.send(source);
        }
        self.nudge();
        Ok(from)
    }

    fn log_of(&self, speaker: Speaker<'_>) -> Arc<Mutex<WorkerLog>> {
        let mut logs = self.logs.lock().expect("nobody panics while holding this");
        let key = (speaker.role.to_owned(), speaker.rank);
        let log = logs.entry(key).or_insert_with(|| {
            let [out, err] = Stream::ALL.map(|stream| self.room.log(speaker.role, speaker.rank, stream));
            let rotation =
                Rotation { segment_bytes: self.job.segment_bytes, segments_kept: self.job.segments_kept };
            let times = out.with_extension("times");
            Arc::new(Mutex::new(WorkerLog::open([&out, &err], times, rotation)))
        });
        Arc::clone(log)
    }

    /// The person's terminal has another size.
    pub fn resize(&self) {
        self.shared.resized.store(true, Ordering::SeqCst);
        self.nudge();
    }

    /// Waits until every source was read to its end, at most so long. For workers that are gone.
    pub fn drain(&self, timeout: Duration) -> bool {
        self.shared.hurry.store(true, Ordering::SeqCst);
        self.nudge();
        let open = self.shared.open.lock().expect("the pump never panics while it holds this");
        let waited = self.shared.changed.wait_timeout_while(open, timeout, |open| *open > 0);
        self.shared.hurry.store(false, Ordering::SeqCst);
        waited.is_ok_and(|(open, _)| *open == 0)
    }

    /// Says that nothing more comes, and waits until the terminal has everything; false when time is over.
    pub fn close(&self, timeout: Duration) -> bool {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.nudge();
        let until = Instant::now() + timeout;
        let mut open = self.shared.open.lock().expect("the pump never panics while it holds this");
        while !self.shared.done.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let Ok((again, _)) = self.shared.changed.wait_timeout(open, left) else { return true };
            open = again;
        }
        true
    }

    /// Bytes that did not fit into log files.
    pub fn lost_bytes(&self) -> u64 {
        let logs = self.logs.lock().expect("nobody panics while holding this");
        let both =
            |log: &WorkerLog| Stream::ALL.map(|stream| log.log(stream).lost_bytes()).iter().sum::<u64>();
        logs.values().filter_map(|log| log.lock().ok().map(|log| both(&log))).sum()
    }

    /// What is missing in logs, worker by worker, up to a limit.
    pub fn missing(&self) -> Vec<Missing> {
        let mut found = Vec::new();
        for ((role, rank), log) in &*self.logs.lock().expect("nobody panics while holding this") {
            let Ok(log) = log.lock() else { continue };
            for stream in Stream::ALL {
                let name = format!("{role}-{rank}.{}", stream.name());
                let about = |offset, bytes, why: &str| Missing {
                    log: name.clone(),
                    offset,
                    bytes,
                    why: why.to_owned(),
                };
                let log = log.log(stream);
                if log.kept_from() > 0 && self.job.segments_kept > 0 {
                    found.push(about(0, log.kept_from(), "removed"));
                }
                let kept =
                    log.lost().filter(|gap| gap.offset >= log.kept_from() || self.job.segments_kept == 0);
                found.extend(kept.map(|gap| about(gap.offset, gap.bytes, "full disk")));
            }
        }
        found.truncate(GAPS_MAX);
        found
    }

    fn nudge(&self) {
        // A full pipe wakes the thread as well as one byte more.
        let _ = (&self.wake).write(b"!");
    }
}
