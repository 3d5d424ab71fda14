//! Rows on their way to disk: a bounded queue that the loop pushes into, and a thread that writes.
//!
//! The loop never waits for a disk. What finds no room in the queue, and what the disk does not take, is counted as lost.

use crate::EventError;
use crate::steps::budget::keep_within;
use crate::steps::files::Files;
use crate::steps::frame::{self, Content};
use crate::steps::tail::{Tail, columns_payload, row_payload};
use crate::steps::{Column, Kind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rows of a block.
pub const BLOCK_ROWS: usize = 4096;
/// So many of the newest rows stay out of a block: a device may still give values for them.
pub(crate) const LATE_ROWS: usize = 64;
/// What waits in memory for the thread, in rows and values.
const QUEUE_MAX: usize = 16_384;
/// So much is missing after a kill, and as much again where the machine is busy.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);
/// A disk that refused is asked again after so long.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// More columns are refused.
pub const COLUMNS_MAX: usize = 1024;
/// A budget has room for so many files of a rank.
const SEGMENTS: u64 = 16;

/// What the loop hands over.
enum Fact {
    Begin(i64, i64),
    Row(u64, Vec<i64>),
    Patch(u64, usize, i64),
    Column(Column),
    /// A payload for the block file itself.
    Direct(Vec<u8>),
}

/// What a writer has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepStatistics {
    /// Rows on file.
    pub rows: u64,
    /// Rows that were dropped: queue full, or disk full for too long.
    pub lost: u64,
    /// Values that came after their row was in a block.
    pub late: u64,
    /// Bytes of the current files.
    pub bytes: u64,
    /// Bytes of blocks, and how many values they hold.
    pub block_bytes: u64,
    /// Values in those blocks.
    pub block_values: u64,
    /// The last failure to write, while it lasts.
    pub error: Option<String>,
}

#[derive(Default)]
struct Shared {
    flushes_wanted: u64,
    flushes_done: u64,
    stopping: bool,
    statistics: StepStatistics,
}

/// Writes the table of one rank of one life. Stops when dropped.
pub struct StepWriter {
    facts: SyncSender<Fact>,
    next_row: AtomicU64,
    columns: Mutex<Vec<Column>>,
    lost: Arc<AtomicU64>,
    shared: Arc<(Mutex<Shared>, Condvar)>,
    /// A forked child has no thread, and writes nothing.
    pid: u32,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl StepWriter {
    /// Creates the first free `STEM-N.pst` in `folder` and starts the thread.
    ///
    /// `stem` is `LIFE-RANK`. All files of the rank together are kept within `bytes_max`, by thinning the oldest.
    pub fn start(
        folder: &Path,
        stem: &str,
        header: &str,
        columns: Vec<Column>,
        bytes_max: u64,
    ) -> Result<StepWriter, EventError> {
        let files = Files::create(folder, stem, header, 0)?;
        let place = Place {
            folder: folder.to_path_buf(),
            stem: stem.to_owned(),
            header: header.to_owned(),
            bytes_max,
        };
        let path = files.block_path.clone();
        let (facts, coming) = sync_channel(QUEUE_MAX);
        let shared: Arc<(Mutex<Shared>, Condvar)> = Arc::default();
        let lost = Arc::new(AtomicU64::new(0));
        let thread_of = Thread {
            coming,
            files,
            place,
            tail: Tail::new(columns.clone()),
            tail_is_stale: true,
            retry_at: None,
            lost: Arc::clone(&lost),
            lost_told: 0,
            statistics: StepStatistics::default(),
            waiting: Vec::new(),
        };
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("penstock-steps".into())
            .spawn(move || thread_of.run(&theirs))
            .map_err(|reason| EventError::Io { verb: "create", path: path.clone(), reason })?;
        Ok(StepWriter {
            facts,
            next_row: AtomicU64::new(0),
            columns: Mutex::new(columns),
            lost,
            shared,
            pid: std::process::id(),
            path,
            thread: Some(thread),
        })
    }

    /// The block file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A step begins; a negative one says that none is under way.
    pub fn begin(&self, step: i64, at: i64) {
        self.send(Fact::Begin(step, at));
    }

    /// A step is over. The number of its row, for values that come later.
    pub fn row(&self, values: Vec<i64>) -> u64 {
        let number = self.next_row.fetch_add(1, Relaxed);
        if !self.send(Fact::Row(number, values)) {
            self.lost.fetch_add(1, Relaxed);
        }
        number
    }

    /// A value of a row that was given before.
    pub fn patch(&self, row: u64, column: usize, value: i64) {
        self.send(Fact::Patch(row, column, value));
    }

    /// The number of a column, which is added unless it is there; None when there are too many or its name is too long.
    pub fn column(&self, name: &str, kind: Kind) -> Option<usize> {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = columns.iter().position(|column| column.name == name) {
            return Some(at);
        }
        if columns.len() >= COLUMNS_MAX || name.len() > 255 || name.is_empty() {
            return None;
        }
        let column = Column { name: name.to_owned(), kind };
        if !self.send(Fact::Column(column.clone())) {
            return None;
        }
        columns.push(column);
        Some(columns.len() - 1)
    }

    /// Several clocks at one moment: boot time, monotonic time, wall time; in nanoseconds.
    pub fn anchor(&self, boot: i64, monotonic: i64, wall: i64) {
        self.send(Fact::Direct(frame::integers(Content::Anchor, &[boot, monotonic, wall])));
    }

    /// The checkpoint before a step was committed: training may resume there, so a roll-up ends there.
    pub fn commit(&self, step: i64) {
        self.send(Fact::Direct(frame::integers(Content::Commit, &[step])));
    }

    /// Waits until what was given before is on file, or the time is over.
    pub fn flush(&self, timeout: Duration) -> bool {
        if self.pid != std::process::id() {
            return false;
        }
        let (lock, changed) = &*self.shared;
        let mut shared = hold(lock);
        shared.flushes_wanted += 1;
        let wanted = shared.flushes_wanted;
        changed.notify_all();
        let (shared, _) = changed
            .wait_timeout_while(shared, timeout, |shared| shared.flushes_done < wanted)
            .unwrap_or_else(PoisonError::into_inner);
        shared.flushes_done >= wanted
    }

    /// Counts as of the last drain.
    pub fn statistics(&self) -> StepStatistics {
        hold(&self.shared.0).statistics.clone()
    }

    fn send(&self, fact: Fact) -> bool {
        self.pid == std::process::id() && self.facts.try_send(fact).is_ok()
    }
}

impl Drop for StepWriter {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // The thread is the parent's.
            std::mem::forget(thread);
            return;
        }
        hold(&self.shared.0).stopping = true;
        self.shared.1.notify_all();
        let _ = thread.join();
    }
}

fn hold(lock: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where files go, and how much they may take.
struct Place {
    folder: PathBuf,
    stem: String,
    header: String,
    bytes_max: u64,
}

/// The thread's own state.
struct Thread {
    coming: Receiver<Fact>,
    files: Files,
    place: Place,
    tail: Tail,
    /// The tail file lacks something that memory has, so it is written anew.
    tail_is_stale: bool,
    /// After a failure: not before this.
    retry_at: Option<Instant>,
    lost: Arc<AtomicU64>,
    lost_told: u64,
    statistics: StepStatistics,
    /// Frames for the block file that found no room yet.
    waiting: Vec<u8>,
}

/// Of anchors and commits that wait for room on the disk.
const WAITING_BYTES_MAX: usize = 1 << 20;

impl Thread {
    fn run(mut self, shared: &(Mutex<Shared>, Condvar)) {
        let (lock, changed) = shared;
        loop {
            let (stopping, wanted) = {
                let idle = |held: &mut Shared| !held.stopping && held.flushes_done >= held.flushes_wanted;
                let (held, _) = changed
                    .wait_timeout_while(hold(lock), DRAIN_INTERVAL, idle)
                    .unwrap_or_else(PoisonError::into_inner);
                (held.stopping, held.flushes_wanted)
            };
            self.drain();
            if stopping {
                self.close();
            }
            self.statistics.lost = self.lost.load(Relaxed);
            self.statistics.bytes = self.files.block_bytes + self.files.tail_bytes;
            let mut held = hold(lock);
            held.flushes_done = wanted;
            held.statistics = self.statistics.clone();
            changed.notify_all();
            if stopping {
                return;
            }
        }
    }

    /// Everything that the queue holds now.
    fn drain(&mut self) {
        let mut bytes = Vec::new();
        for _ in 0..QUEUE_MAX {
            let Ok(fact) = self.coming.try_recv() else { break };
            match fact {
                Fact::Begin(step, at) => {
                    self.tail.begun = (step >= 0).then_some((step, at));
                    frame::push(&mut bytes, &frame::integers(Content::Begin, &[step, at]));
                }
                Fact::Row(number, values) => {
                    if !self.tail.follows(number) {
                        // Rows between were lost: what is before them is a block of its own.
                        self.write_tail(&mut bytes);
                        self.seal(self.tail.len());
                    }
                    frame::push(&mut bytes, &row_payload(number, &values));
                    self.tail.push(number, values);
                    self.statistics.rows += 1;
                    if self.tail.len() >= BLOCK_ROWS + LATE_ROWS {
                        bytes.clear();
                        self.seal(BLOCK_ROWS);
                    }
                }
                Fact::Patch(number, column, value) => {
                    if self.tail.patch(number, column, value) {
                        let values = [number as i64, column as i64, value];
                        frame::push(&mut bytes, &frame::integers(Content::Patch, &values));
                    } else {
                        self.statistics.late += 1;
                    }
                }
                Fact::Column(column) => {
                    self.tail.columns.push(column);
                    frame::push(&mut bytes, &columns_payload(&self.tail.columns));
                }
                Fact::Direct(payload) if self.waiting.len() < WAITING_BYTES_MAX => {
                    frame::push(&mut self.waiting, &payload);
                }
                Fact::Direct(_) => {}
            }
        }
        self.write_tail(&mut bytes);
        self.write_waiting();
    }

    /// Appends to the tail file, or writes it anew when it lacks something.
    fn write_tail(&mut self, bytes: &mut Vec<u8>) {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            self.tail_is_stale |= !bytes.is_empty();
            bytes.clear();
            return;
        }
        let outcome = if self.tail_is_stale {
            self.files.replace_tail(&self.tail.encode())
        } else if bytes.is_empty() {
            return;
        } else {
            self.files.append_tail(bytes)
        };
        bytes.clear();
        self.tail_is_stale = outcome.is_err();
        self.note(outcome);
    }

    fn write_waiting(&mut self) {
        let lost = self.lost.load(Relaxed);
        if lost > self.lost_told && self.waiting.len() < WAITING_BYTES_MAX {
            frame::push(&mut self.waiting, &frame::integers(Content::Lost, &[lost as i64]));
            self.lost_told = lost;
        }
        if self.waiting.is_empty() || self.retry_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let outcome = self.files.append(&self.waiting);
        if outcome.is_ok() {
            self.waiting.clear();
        }
        self.note(outcome);
    }

    /// Makes a block of the oldest rows. What the disk does not take is lost, so that memory stays bounded.
    fn seal(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let block = self.tail.block(count);
        let values = (block.rows * block.columns.len()) as u64;
        let mut bytes = Vec::new();
        frame::push(&mut bytes, &block.encode());
        let outcome = self.files.append(&bytes);
        if outcome.is_ok() {
            self.statistics.block_bytes += bytes.len() as u64;
            self.statistics.block_values += values;
        } else {
            self.statistics.rows -= block.rows as u64;
            self.lost.fetch_add(block.rows as u64, Relaxed);
        }
        self.note(outcome);
        self.tail.forget(count);
        self.tail_is_stale = true;
        if self.files.block_bytes > self.place.bytes_max / SEGMENTS {
            self.rotate();
        }
    }

    /// The next file; then room is made, if the rank has taken too much.
    fn rotate(&mut self) {
        if self.tail.len() > 0 {
            // Rows are in one file only: those that wait for late values do not move along.
            let rest = self.tail.block(self.tail.len());
            let mut bytes = Vec::new();
            frame::push(&mut bytes, &rest.encode());
            if self.files.append(&bytes).is_err() {
                return;
            }
            self.tail.forget(rest.rows);
        }
        let Place { folder, stem, header, bytes_max } = &self.place;
        let rank = stem.rsplit('-').next().unwrap_or_default().to_owned();
        match Files::create(folder, stem, header, self.files.number + 1) {
            Ok(files) => {
                let _ = std::fs::remove_file(&self.files.tail_path);
                self.files = files;
            }
            Err(problem) => self.statistics.error = Some(problem.to_string()),
        }
        if let Err(problem) = keep_within(folder, &rank, *bytes_max, &self.files.block_path) {
            self.statistics.error = Some(problem.to_string());
        }
    }

    fn note(&mut self, outcome: std::io::Result<()>) {
        match outcome {
            Ok(()) => (self.statistics.error, self.retry_at) = (None, None),
            Err(reason) => {
                let path = self.files.block_path.display();
                self.statistics.error = Some(format!("cannot write {path}: {reason}"));
                self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
            }
        }
    }

    fn close(&mut self) {
        self.retry_at = None;
        let begun = self.tail.begun;
        let rows = self.tail.len();
        self.seal(rows);
        if let (Some(_), true) = (begun, self.statistics.error.is_none()) {
            // The step that was not finished stays in a tail.
            let _ = self.files.replace_tail(&self.tail.encode());
        } else if self.statistics.error.is_none() {
            let _ = std::fs::remove_file(&self.files.tail_path);
        }
        self.retry_at = None;
        frame::push(&mut self.waiting, &frame::integers(Content::Closed, &[]));
        self.write_waiting();
    }
}
