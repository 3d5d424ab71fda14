//! The thread behind a writer: what waits goes to the tail every few milliseconds, and full blocks to the block file.
//!
//! Compressing a block takes longer than a kill may cost, so another thread does that, while rows still go to the tail.

use crate::steps::budget::Thinner;
use crate::steps::files::Files;
use crate::steps::frame::{self, Content};
use crate::steps::tail::{Tail, columns_payload, row_payload};
use crate::steps::writer::{Fact, QUEUE_MAX, Shared, StepStatistics, hold};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rows of a block.
const BLOCK_ROWS: usize = 4096;
/// So many of the newest rows stay out of a block: a device may still give values for them.
pub(crate) const LATE_ROWS: usize = 64;
/// So much is missing after a kill, and a few times as much where the machine is busy; 20 ms are promised.
const DRAIN_INTERVAL: Duration = Duration::from_millis(5);
/// Rows that wait for a block at most, where they come faster than blocks are compressed.
const TAIL_ROWS_MAX: usize = 4 * BLOCK_ROWS;
/// A disk that refused is asked again after so long.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A budget has room for so many files of a rank.
const SEGMENTS: u64 = 16;

/// Where files go, and how much they may take.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) stem: String,
    pub(crate) header: String,
    pub(crate) bytes_max: u64,
}

/// The thread's own state.
pub(crate) struct Thread {
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
    /// The oldest rows, which are becoming a block; they stay in the tail until they are one.
    sealing: Option<Sealing>,
    thinner: Thinner,
}

/// Rows on their way into a block.
struct Sealing {
    rows: usize,
    values: u64,
    /// Gives the frame.
    work: JoinHandle<Vec<u8>>,
}

/// Of anchors and commits that wait for room on the disk.
const WAITING_BYTES_MAX: usize = 1 << 20;

impl Thread {
    pub(crate) fn new(
        coming: Receiver<Fact>,
        files: Files,
        place: Place,
        tail: Tail,
        thinner: Thinner,
        lost: &Arc<AtomicU64>,
    ) -> Thread {
        Thread {
            coming,
            files,
            place,
            tail,
            tail_is_stale: true,
            retry_at: None,
            lost: Arc::clone(lost),
            lost_told: 0,
            statistics: StepStatistics::default(),
            waiting: Vec::new(),
            sealing: None,
            thinner,
        }
    }

    pub(crate) fn run(mut self, shared: &(Mutex<Shared>, Condvar)) {
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
            if let Some(problem) = self.thinner.turn(&self.files.block_path) {
                self.statistics.error = Some(problem.to_string());
            }
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
        if self.sealing.as_ref().is_some_and(|sealing| sealing.work.is_finished()) {
            self.end_seal();
        }
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
                        self.end_seal();
                        self.seal(self.tail.len());
                    }
                    frame::push(&mut bytes, &row_payload(number, &values));
                    self.tail.push(number, values);
                    self.statistics.rows += 1;
                    if self.tail.len() >= TAIL_ROWS_MAX {
                        self.end_seal();
                    }
                    if self.tail.len() >= BLOCK_ROWS + LATE_ROWS && self.sealing.is_none() {
                        self.begin_seal();
                    }
                }
                Fact::Patch(number, column, value) => {
                    if self.is_open(number) && self.tail.patch(number, column, value) {
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

    /// Whether a row still takes values: it is not in a block, nor on its way into one.
    fn is_open(&self, number: u64) -> bool {
        let sealed = self.sealing.as_ref().map_or(0, |sealing| sealing.rows as u64);
        number >= self.tail.first + sealed
    }

    /// Lets another thread make a block of the oldest rows.
    fn begin_seal(&mut self) {
        let block = self.tail.block(BLOCK_ROWS);
        let (rows, values) = (block.rows, (block.rows * block.columns.len()) as u64);
        let work = std::thread::Builder::new().name("penstock-seal".into()).spawn(move || {
            let mut bytes = Vec::new();
            frame::push(&mut bytes, &block.encode());
            bytes
        });
        match work {
            Ok(work) => self.sealing = Some(Sealing { rows, values, work }),
            // There is no room for a thread: rows wait until this one has done it.
            Err(_) => self.seal(BLOCK_ROWS),
        }
    }

    /// Waits for the block that is being made.
    fn end_seal(&mut self) {
        let Some(Sealing { rows, values, work }) = self.sealing.take() else { return };
        match work.join() {
            Ok(bytes) => self.keep(rows, values, &bytes),
            Err(_) => self.seal(rows),
        }
    }

    /// Makes a block of the oldest rows.
    fn seal(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let block = self.tail.block(count);
        let mut bytes = Vec::new();
        frame::push(&mut bytes, &block.encode());
        self.keep(block.rows, (block.rows * block.columns.len()) as u64, &bytes);
    }

    /// Puts a block of the oldest rows on file. What the disk does not take is lost, so that memory stays bounded.
    fn keep(&mut self, count: usize, values: u64, bytes: &[u8]) {
        let outcome = self.files.append(bytes);
        if outcome.is_ok() {
            self.statistics.block_bytes += bytes.len() as u64;
            self.statistics.block_values += values;
        } else {
            self.statistics.rows -= count as u64;
            self.lost.fetch_add(count as u64, Relaxed);
        }
        self.note(outcome);
        self.tail.forget(count);
        self.tail_is_stale = true;
        if self.files.block_bytes > self.place.bytes_max / SEGMENTS {
            self.rotate();
        }
    }

    /// The next file; room is made beside, if the rank has taken too much.
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
        let Place { folder, stem, header, .. } = &self.place;
        match Files::create(folder, stem, header, self.files.number + 1) {
            Ok(files) => {
                let _ = std::fs::remove_file(&self.files.tail_path);
                self.files = files;
            }
            Err(problem) => self.statistics.error = Some(problem.to_string()),
        }
        self.thinner.want();
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
        self.end_seal();
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
        self.thinner.close(&self.files.block_path);
    }
}
