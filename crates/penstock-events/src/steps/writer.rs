//! Rows on their way to disk: a bounded queue that the loop pushes into, and a thread that writes.
//!
//! The loop never waits for a disk. What finds no room in the queue, and what the disk does not take, is counted as lost.

use crate::EventError;
use crate::steps::budget::Thinner;
use crate::steps::drain::{Place, Thread};
use crate::steps::files::Files;
use crate::steps::frame::{self, Content};
use crate::steps::tail::Tail;
use crate::steps::{Column, Kind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What waits in memory for the thread, in rows and values.
pub(crate) const QUEUE_MAX: usize = 16_384;
/// More columns are refused.
pub const COLUMNS_MAX: usize = 1024;

/// What the loop hands over.
pub(crate) enum Fact {
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

/// What loop and thread tell each other.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) flushes_wanted: u64,
    pub(crate) flushes_done: u64,
    pub(crate) stopping: bool,
    pub(crate) statistics: StepStatistics,
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
        let rank = stem.rsplit('-').next().unwrap_or_default();
        let path = files.block_path.clone();
        let (facts, coming) = sync_channel(QUEUE_MAX);
        let shared: Arc<(Mutex<Shared>, Condvar)> = Arc::default();
        let lost = Arc::new(AtomicU64::new(0));
        let thinner = Thinner::new(folder, rank, bytes_max);
        let thread_of = Thread::new(coming, files, place, Tail::new(columns.clone()), thinner, &lost);
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

pub(crate) fn hold(lock: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
