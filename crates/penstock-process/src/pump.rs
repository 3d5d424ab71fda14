//! The log pump: from the pipes of the ranks into a file each, and, for a foreground job, to the terminal.
//!
//! The files are lossless: every byte that a rank wrote stands in its file, at the place where it stood in the stream (P5).
//! When the terminal is slow, ranks wait; nothing is thrown away. One thread does it, so that a slow terminal never
//! holds up supervision.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::console::{Prefixer, Sink};
use crate::error::{ProcessError, Result};
use crate::job::{Job, Room, Stream};
use crate::system;

const READ_BYTES: usize = 256 << 10;
const PIPE_BYTES: i32 = 1 << 20;

/// One output of one rank.
struct Source {
    /// The worker's number among all of the job.
    place: u32,
    pipe: File,
    log: File,
    stream: Stream,
    prefixer: Prefixer,
}

/// What the agent and the pump's thread both see.
#[derive(Default)]
struct Shared {
    /// How many pipes of each worker are open; the condition says when that changed.
    open: Mutex<BTreeMap<u32, usize>>,
    changed: Condvar,
    /// Read on, even when the terminal is full: the writers are gone, and what is left in pipes is little.
    hurry: AtomicBool,
    /// No source will be added any more.
    closing: AtomicBool,
    /// The thread has nothing left to do.
    done: AtomicBool,
    lost_bytes: AtomicU64,
}

/// The agent's side of the pump.
pub struct Pump {
    room: Room,
    job: Job,
    sources: Sender<Source>,
    wake: File,
    shared: Arc<Shared>,
}

impl Pump {
    /// Starts the thread. `console` are the ways to the launcher's standard output and error.
    pub fn start(room: &Room, job: &Job, console: [Option<OwnedFd>; 2]) -> Result<Self> {
        let (woken, wake) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        system::set_nonblocking(&wake)?;
        for pipe in console.iter().flatten() {
            system::set_nonblocking(pipe)?;
        }
        let (sources, arriving) = channel();
        let shared = Arc::new(Shared::default());
        let work = Work {
            arriving,
            woken: woken.into(),
            shared: Arc::clone(&shared),
            sources: Vec::new(),
            sinks: console.map(Sink::new),
            buffer: vec![0; READ_BYTES],
        };
        std::thread::Builder::new()
            .name("penstock-pump".to_owned())
            .spawn(|| work.run())
            .map_err(|source| ProcessError::System { call: "thread", source })?;
        Ok(Self { room: room.clone(), job: job.clone(), sources, wake: wake.into(), shared })
    }

    /// Takes over the reading end of a worker's output. Where in its log it begins.
    pub fn add(&self, role: usize, rank: u32, stream: Stream, pipe: OwnedFd) -> Result<u64> {
        let path = self.room.log(&self.job.roles[role].name, rank, stream);
        let place = self.job.place(role, rank);
        let opened = File::options().create(true).append(true).open(&path);
        let logged = opened.and_then(|log| Ok((log.metadata()?.len(), log)));
        let (from, log) =
            logged.map_err(|source| ProcessError::File { verb: "open", path: path.clone(), source })?;
        system::widen_pipe(&pipe, PIPE_BYTES);
        system::set_nonblocking(&pipe)?;
        *self
            .shared
            .open
            .lock()
            .expect("the pump never panics while it holds this")
            .entry(place)
            .or_default() += 1;
        let prefixer = Prefixer::new(&self.job, role, rank);
        let _ = self.sources.send(Source { place, pipe: pipe.into(), log, stream, prefixer });
        self.nudge();
        Ok(from)
    }

    /// Waits until the pipes of these workers were read to their ends, at most so long. For workers that are gone.
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
        self.shared.lost_bytes.load(Ordering::Relaxed)
    }

    fn nudge(&self) {
        // A full pipe wakes the thread as well as one byte more.
        let _ = (&self.wake).write(b"!");
    }
}

/// The thread's side.
struct Work {
    arriving: Receiver<Source>,
    woken: File,
    shared: Arc<Shared>,
    sources: Vec<Source>,
    sinks: [Sink; 2],
    buffer: Vec<u8>,
}

impl Work {
    fn run(mut self) {
        loop {
            self.sources.extend(self.arriving.try_iter());
            let closing = self.shared.closing.load(Ordering::SeqCst);
            if closing {
                self.let_go();
            }
            if closing && self.sources.is_empty() && self.sinks.iter().all(Sink::is_empty) {
                self.shared.done.store(true, Ordering::SeqCst);
                // Taken so that the waiter is either before its look at `done` or already waiting.
                drop(self.shared.open.lock());
                self.shared.changed.notify_all();
                return;
            }
            let ready = self.wait();
            while (&self.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
            self.sinks.iter_mut().for_each(Sink::flush);
            let ended: Vec<usize> = ready.into_iter().filter(|at| self.move_some(*at)).collect();
            for at in ended.into_iter().rev() {
                let source = self.sources.swap_remove(at);
                self.forget(source.place);
            }
        }
    }

    /// Takes what is in the pipes and closes them: the job is over, and whoever still holds their other ends cannot be killed.
    fn let_go(&mut self) {
        while let Some(at) = self.sources.len().checked_sub(1) {
            // A pipe holds little; a writer that fills it again and again is not listened to for ever.
            for _ in 0..64 {
                if self.move_some(at) {
                    break;
                }
            }
            self.sources.pop().into_iter().for_each(|source| self.forget(source.place));
        }
    }

    /// One pipe of a worker is closed.
    fn forget(&self, place: u32) {
        let mut open = self.shared.open.lock().expect("nobody panics while holding this");
        let left = open.get(&place).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            open.remove(&place);
        } else {
            open.insert(place, left);
        }
        self.shared.changed.notify_all();
    }

    /// Waits until something can be moved; which sources have something, in order.
    fn wait(&self) -> Vec<usize> {
        let hurry = self.shared.hurry.load(Ordering::SeqCst) || self.shared.closing.load(Ordering::SeqCst);
        let mut interests = vec![
            system::interest(self.woken.as_raw_fd(), libc::POLLIN),
            system::interest(self.sinks[0].interest(), libc::POLLOUT),
            system::interest(self.sinks[1].interest(), libc::POLLOUT),
        ];
        let first = interests.len();
        interests.extend(self.sources.iter().map(|source| {
            let waits = self.sinks[source.stream as usize].is_full() && !hurry;
            system::interest(if waits { -1 } else { source.pipe.as_raw_fd() }, libc::POLLIN)
        }));
        system::poll(&mut interests, None);
        (0..self.sources.len()).filter(|at| interests[first + at].revents != 0).collect()
    }

    /// Moves what one read gives; true when the pipe ended.
    fn move_some(&mut self, at: usize) -> bool {
        let source = &mut self.sources[at];
        let sink = &mut self.sinks[source.stream as usize];
        match source.pipe.read(&mut self.buffer) {
            Ok(0) => {}
            Ok(count) => {
                let bytes = &self.buffer[..count];
                let lost = append(&mut source.log, bytes);
                self.shared.lost_bytes.fetch_add(lost, Ordering::Relaxed);
                if sink.is_open() {
                    source.prefixer.feed(bytes, sink.room());
                    sink.flush();
                }
                return false;
            }
            Err(problem) if matches!(problem.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return false;
            }
            Err(_) => {}
        }
        if sink.is_open() {
            source.prefixer.finish(sink.room());
            sink.flush();
        }
        true
    }
}

/// Writes all; how many bytes did not fit.
fn append(log: &mut File, mut bytes: &[u8]) -> u64 {
    while !bytes.is_empty() {
        match log.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
            Err(_) => return bytes.len() as u64,
        }
    }
    0
}
