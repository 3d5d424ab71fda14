//! The log pump: from the pipes and terminals of workers into their logs, and, for a foreground job, to the person.
//!
//! Logs are lossless: every byte that a worker wrote stands in its log, at the place where it stood in the stream (P5). When the person's terminal
//! is slow, workers wait, or the terminal misses something and says so, as the job chose. One thread does it, so that
//! a slow terminal never holds up supervision. Its memory has a limit: a buffer, what waits for the person, and a line per stream.

mod distress;
pub mod in_hand;
mod log;
mod segments;
mod stderr_news;
mod thread;
mod worker_log;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use self::distress::Distress;
use self::distress::{DistressScanner, Distresses};
use self::in_hand::InHand;
use self::log::{Log, Rotation};
pub use self::segments::Listing;
use self::stderr_news::StderrNews;
use self::thread::{PumpThread, Source};
use self::worker_log::WorkerLog;
use crate::error::{ProcessError, Result};
use crate::job::{Job, JobDirectory, Pressure, Stream};
use crate::logs::console::{Console, Voice};
use crate::system::epoll::Epoll;
use crate::system::{self, terminal};

const PIPE_BYTES: i32 = 1 << 20;
/// A thread that moves output for so long without a look at its sources waits for a disk.
const STUCK_MS: u64 = 1000;
/// Gaps that are told at once.
const GAPS_MAX: usize = 64;
/// Lines of ours that wait for the thread.
const ANNOUNCEMENTS_MAX: usize = 64;

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
pub struct Speaker {
    /// Its role, by its place in the job.
    pub role: usize,
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
    /// How many sources of each worker are open; the condition says when that changed.
    open: Mutex<BTreeMap<u32, usize>>,
    changed: Condvar,
    /// Read on, even when the terminal is full: the writers are gone, and what is left in pipes is little.
    hurry: AtomicBool,
    /// No source will be added any more.
    closing: AtomicBool,
    /// The thread has nothing left to do.
    done: AtomicBool,
    /// The person's terminal has another size.
    resized: AtomicBool,
    /// Workers whose output is left alone, because the person does not take what is there.
    held: Mutex<BTreeSet<u32>>,
    /// Since when the thread has been moving output; 0 while it waits for some.
    moving_since_ms: AtomicU64,
    /// What we have to say ourselves.
    announcements: Mutex<Vec<String>>,
    /// What nobody outside of this host knows yet of what workers wrote to standard error.
    stderr: StderrNews,
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

    fn take_announcements(&self) -> Vec<String> {
        std::mem::take(&mut *self.announcements.lock().expect("nobody panics while holding this"))
    }

    fn one_more(&self, place: u32) {
        *self.open.lock().expect("nobody panics while holding this").entry(place).or_default() += 1;
    }

    /// A source of a worker is closed.
    fn one_less(&self, place: u32) {
        let mut open = self.open.lock().expect("nobody panics while holding this");
        match open.get_mut(&place).filter(|count| **count > 1) {
            Some(count) => *count -= 1,
            None => drop(open.remove(&place)),
        }
        self.changed.notify_all();
    }

    fn finish(&self) {
        self.done.store(true, Ordering::SeqCst);
        // Taken so that the waiter is either before its look at `done` or already waiting.
        drop(self.open.lock());
        self.changed.notify_all();
    }
}

/// What is kept of a worker from one life to the next.
#[derive(Clone)]
struct WorkerOutput {
    log: Arc<Mutex<WorkerLog>>,
    /// When it last wrote something or began, on the clock of [`system::now_ms`]. Read without waiting for the disk.
    heard_ms: Arc<AtomicU64>,
    /// Lines of its newest life that a failure begins with.
    distresses: Arc<Mutex<Distresses>>,
}

/// The agent's side of the pump.
pub struct Pump {
    directory: JobDirectory,
    job: Job,
    sources: Sender<Source>,
    wake: File,
    shared: Arc<Shared>,
    /// The logs that an agent before us left.
    found: Listing,
    /// Of every worker that ever spoke, because its streams go on with its next life.
    kept: Mutex<BTreeMap<(usize, u32), WorkerOutput>>,
}

impl Pump {
    /// Starts the thread; and what it has in hand, for those who finish logs when we are killed.
    pub fn start(directory: &JobDirectory, job: &Job, person: Person) -> Result<(Self, Option<OwnedFd>)> {
        let (hand, in_hand) = InHand::open()?;
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
        let work = PumpThread {
            arriving,
            woken: woken.into(),
            shared: Arc::clone(&shared),
            consoles: [Console::new(out, out_terminal, drops), Console::new(err, err_terminal, drops)],
            routes: if one { [0, 0] } else { [0, 1] },
            sets: [Epoll::new()?, Epoll::new()?],
            sources: BTreeMap::new(),
            next: 0,
            is_holding: false,
            hand,
        };
        std::thread::Builder::new()
            .name("penstock-pump".to_owned())
            .spawn(|| work.run())
            .map_err(|source| ProcessError::System { call: "thread", source })?;
        let (found, kept) = (Listing::read(&directory.file("logs")), Mutex::new(BTreeMap::new()));
        let pump = Self {
            directory: directory.clone(),
            job: job.clone(),
            sources,
            wake: wake.into(),
            shared,
            found,
            kept,
        };
        Ok((pump, in_hand))
    }

    /// Takes over what a worker writes to, and shows it under a name. Where in its two logs this life begins.
    pub fn add(&self, speaker: Speaker, name: &str, outputs: Outputs) -> Result<[u64; 2]> {
        let kept = self.kept_of(speaker);
        let from = kept.log.lock().map_or([0, 0], |mut log| log.begin(speaker.incarnation));
        // Silence counts from the beginning of a life.
        kept.heard_ms.store(system::now_ms(), Ordering::Relaxed);
        kept.distresses.lock().expect("nobody panics while holding this").clear();
        let (pipes, is_terminal) = match outputs {
            Outputs::Pipes([out, err]) => (vec![(Stream::Out, out), (Stream::Err, err)], false),
            Outputs::Terminal(terminal) => (vec![(Stream::Out, terminal)], true),
        };
        for (stream, pipe) in pipes {
            system::widen_pipe(&pipe, PIPE_BYTES);
            system::set_nonblocking(&pipe)?;
            let place = self.job.place(speaker.role, speaker.rank);
            self.shared.one_more(place);
            let colour = self.job.colour.then_some(place);
            let source = Source {
                speaker,
                place,
                pipe: pipe.into(),
                is_terminal,
                kept: kept.clone(),
                stream,
                scanner: DistressScanner::new(stream, is_terminal),
                is_hidden: self.job.roles[speaker.role].hides(speaker.rank, stream),
                voice: Voice::new(name, colour, from[stream as usize]),
            };
            let _ = self.sources.send(source);
        }
        self.nudge();
        Ok(from)
    }

    fn kept_of(&self, speaker: Speaker) -> WorkerOutput {
        let mut kept = self.kept.lock().expect("nobody panics while holding this");
        let entry = kept.entry((speaker.role, speaker.rank)).or_insert_with(|| {
            let log = worker_log(&self.directory, &self.job, &self.found, speaker);
            WorkerOutput {
                log: Arc::new(Mutex::new(log)),
                heard_ms: Arc::default(),
                distresses: Arc::default(),
            }
        });
        entry.clone()
    }

    /// When a worker last wrote something, or began.
    pub fn heard_ms(&self, role: usize, rank: u32) -> Option<u64> {
        let kept = self.kept.lock().expect("nobody panics while holding this");
        Some(kept.get(&(role, rank))?.heard_ms.load(Ordering::Relaxed))
    }

    /// Workers that may have to wait with their output: nobody takes it, or it cannot be written down.
    pub fn held(&self) -> BTreeSet<u32> {
        let since_ms = self.shared.moving_since_ms.load(Ordering::Relaxed);
        if since_ms > 0 && system::now_ms() > since_ms + STUCK_MS {
            return self
                .shared
                .open
                .lock()
                .expect("nobody panics while holding this")
                .keys()
                .copied()
                .collect();
        }
        self.shared.held.lock().expect("nobody panics while holding this").clone()
    }

    /// When and where the newest life of a worker wrote what failures begin with; the newest of them, oldest first.
    pub fn distresses(&self, role: usize, rank: u32) -> Vec<Distress> {
        let kept = self.kept.lock().expect("nobody panics while holding this");
        let known = kept.get(&(role, rank));
        known.map_or_else(Vec::new, |kept| {
            kept.distresses.lock().expect("nobody panics while holding this").all()
        })
    }

    /// What workers wrote to standard error since the last call, as text; of a line without an end what comes before it, unless the writer is
    /// gone. Nothing before the first call, so who never asks pays nothing.
    pub fn take_stderr(&self) -> Vec<(Speaker, String)> {
        self.shared.stderr.take()
    }

    /// A line of ours to the person, between those of workers.
    pub fn announce(&self, line: &str) {
        let mut waiting = self.shared.announcements.lock().expect("nobody panics while holding this");
        if waiting.len() < ANNOUNCEMENTS_MAX {
            waiting.push(line.to_owned());
        }
        drop(waiting);
        self.nudge();
    }

    /// The person's terminal has another size.
    pub fn resize(&self) {
        self.shared.resized.store(true, Ordering::SeqCst);
        self.nudge();
    }

    /// Waits until all that these workers wrote was read, at most so long. For workers that are gone.
    pub fn drain(&self, places: &[u32], timeout: Duration) -> bool {
        self.shared.hurry.store(true, Ordering::SeqCst);
        self.nudge();
        let open = self.shared.open.lock().expect("the pump never panics while it holds this");
        let any = |open: &mut BTreeMap<u32, usize>| places.iter().any(|place| open.contains_key(place));
        let waited = self.shared.changed.wait_timeout_while(open, timeout, any);
        self.shared.hurry.store(false, Ordering::SeqCst);
        waited.is_ok_and(|(_, timeout)| !timeout.timed_out())
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
        let kept = self.kept.lock().expect("nobody panics while holding this");
        let both =
            |log: &WorkerLog| Stream::ALL.map(|stream| log.log(stream).lost_bytes()).iter().sum::<u64>();
        kept.values().filter_map(|kept| kept.log.lock().ok().map(|log| both(&log))).sum()
    }

    /// What is missing in logs, worker by worker, up to a limit.
    pub fn missing(&self) -> Vec<Missing> {
        let mut found = Vec::new();
        for ((role, rank), kept) in &*self.kept.lock().expect("nobody panics while holding this") {
            let Ok(log) = kept.log.lock() else { continue };
            let role = &self.job.roles[*role].name;
            for stream in Stream::ALL {
                let name = log_name(role, *rank, stream);
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

fn worker_log(directory: &JobDirectory, job: &Job, found: &Listing, speaker: Speaker) -> WorkerLog {
    let name = &job.roles[speaker.role].name;
    let rotation = Rotation { segment_bytes: job.segment_bytes, segments_kept: u64::from(job.segments_kept) };
    let logs = Stream::ALL.map(|stream| {
        let begins = found.begins(&log_name(name, speaker.rank, stream));
        Log::open(&directory.log(name, speaker.rank, stream), begins, rotation)
    });
    WorkerLog::open(logs, directory.log(name, speaker.rank, Stream::Out).with_extension("times"))
}

/// The logs of a worker whose agent was killed, for what it could not read any more.
pub struct Remainder(WorkerLog);

impl Remainder {
    /// Goes on where the agent was.
    pub fn open(directory: &JobDirectory, job: &Job, speaker: Speaker) -> Self {
        let mut log = worker_log(directory, job, &Listing::read(&directory.file("logs")), speaker);
        log.go_on(speaker.incarnation);
        Self(log)
    }

    /// Where a stream is.
    pub fn at(&self, stream: Stream) -> u64 {
        self.0.log(stream).at()
    }

    /// Adds what was left of a stream.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) {
        self.0.append(stream, bytes, Instant::now());
    }
}

/// The name of the first segment of a log.
pub fn log_name(role: &str, rank: u32, stream: Stream) -> String {
    format!("{role}-{rank}.{}", stream.name())
}
