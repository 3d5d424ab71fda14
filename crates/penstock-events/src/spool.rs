//! The file side: a background thread moves records from the ring into one file per process.
//!
//! ```text
//! file   = "PENEVENT" | version u16 | zero u16 | header bytes u32 | header check u32 | header (JSON) | frame*
//! frame  = payload bytes u32 | payload check u32 | payload
//! payload= (record bytes u16 | record)*                    check = low 32 bits of xxh3_64
//! ```
//! A frame is one `write`; a process killed in the middle leaves a last frame whose check fails, and everything
//! before it is readable. When a write fails (disk full) the file is cut back to its last whole frame and the
//! events of the failed frame are counted as lost. A file that has taken half of what it may becomes `NAME.earlier.pev`,
//! in place of the one that had that name, and a new one begins: a recording never ends, and the newest events are there.

use crate::record::{Encoder, Fact};
use crate::ring::Ring;
use crate::{EventError, Statistics};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// First bytes of every event file.
pub const MAGIC: &[u8; 8] = b"PENEVENT";
/// The newest format this build writes and reads.
pub const VERSION: u16 = 1;
/// Largest payload of one frame. Readers refuse a longer one as damage.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// What the spool's thread and the recorder tell each other.
#[derive(Default)]
struct Shared {
    /// The recorder asks for everything to be on file; counted so that two askers both get their answer.
    flushes_wanted: u64,
    /// The last request that was met.
    flushes_done: u64,
    /// The recorder is going; drain once more and end.
    stopping: bool,
    statistics: Statistics,
}

/// Owns the thread; dropping it ends the thread after a last drain.
pub(crate) struct Spool {
    shared: Arc<(Mutex<Shared>, Condvar)>,
    /// Taken when the thread is joined.
    thread: Option<JoinHandle<()>>,
}

impl Spool {
    /// Creates the file, writes its header and starts draining `ring`.
    pub(crate) fn start(
        path: &Path,
        header: &[u8],
        bytes_max: u64,
        ring: Arc<Ring>,
    ) -> Result<Spool, EventError> {
        let io = |reason| EventError::Io { verb: "create", path: path.to_path_buf(), reason };
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(io)?;
        let mut head = Vec::with_capacity(20 + header.len());
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&[0, 0]);
        head.extend_from_slice(&(header.len() as u32).to_le_bytes());
        head.extend_from_slice(&check(header).to_le_bytes());
        head.extend_from_slice(header);
        file.write_all(&head).map_err(io)?;

        let shared = Arc::new((Mutex::new(Shared::default()), Condvar::new()));
        let writer = Writer {
            file,
            path: path.to_path_buf(),
            good_bytes: head.len() as u64,
            head,
            bytes_max,
            file_records: 0,
            earlier_records: 0,
            ring,
            started: Instant::now(),
            lost_told: 0,
            spool_lost: 0,
            written: 0,
            error: None,
        };
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("penstock-events".into())
            .spawn(move || writer.run(&theirs))
            .map_err(io)?;
        Ok(Spool { shared, thread: Some(thread) })
    }

    /// Waits until what was recorded before this call is on file (in the page cache), or the time is over.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
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
    pub(crate) fn statistics(&self) -> Statistics {
        hold(&self.shared.0).statistics.clone()
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        hold(&self.shared.0).stopping = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread has nothing to report that statistics do not hold; a panic there must not spread.
            let _ = thread.join();
        }
    }
}

/// A poisoned lock only means that a thread panicked between two plain assignments; the counts stay usable.
fn hold(lock: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn check(bytes: &[u8]) -> u32 {
    xxh3_64(bytes) as u32
}

/// The thread's own state.
struct Writer {
    file: File,
    path: PathBuf,
    /// Where the last whole frame ends.
    good_bytes: u64,
    /// How each file begins.
    head: Vec<u8>,
    /// Of the file and the one before it; events of older ones count as lost.
    bytes_max: u64,
    /// Events in the file, and in the one before it.
    file_records: u64,
    earlier_records: u64,
    ring: Arc<Ring>,
    started: Instant,
    /// The loss that the file already states.
    lost_told: u64,
    /// Events that left the ring but could not be written.
    spool_lost: u64,
    written: u64,
    error: Option<String>,
}

impl Writer {
    fn run(mut self, shared: &(Mutex<Shared>, Condvar)) {
        let (lock, changed) = shared;
        loop {
            let (stopping, wanted) = {
                let held = hold(lock);
                let idle = |held: &mut Shared| !held.stopping && held.flushes_done >= held.flushes_wanted;
                let (held, _) = changed
                    .wait_timeout_while(held, DRAIN_INTERVAL, idle)
                    .unwrap_or_else(PoisonError::into_inner);
                (held.stopping, held.flushes_wanted)
            };
            self.drain();
            if stopping {
                self.close();
            }
            let mut held = hold(lock);
            held.flushes_done = wanted;
            held.statistics = self.statistics();
            changed.notify_all();
            if stopping {
                return;
            }
        }
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            written: self.written,
            lost: self.ring.lost() + self.spool_lost,
            bytes: self.good_bytes,
            error: self.error.clone(),
        }
    }

    /// Moves what the ring holds into the file, frame by frame; at most one lap of the ring per call.
    fn drain(&mut self) {
        let ring = Arc::clone(&self.ring);
        let mut payload = Vec::with_capacity(1 << 16);
        let mut records = 0;
        let frame_bytes_max = FRAME_BYTES_MAX.min(usize::try_from(self.bytes_max / 16).unwrap_or(usize::MAX));
        ring.drain(|record| {
            if payload.len() + 2 + record.len() > frame_bytes_max {
                self.write_frame(&payload, records);
                payload.clear();
                records = 0;
            }
            payload.extend_from_slice(&(record.len() as u16).to_le_bytes());
            payload.extend_from_slice(record);
            records += 1;
            true
        });
        if records > 0 {
            self.write_frame(&payload, records);
        }
        let lost = self.ring.lost() + self.spool_lost;
        if lost > self.lost_told && self.write_own(Fact::Lost, lost) {
            self.lost_told = lost;
        }
    }

    fn close(&mut self) {
        let lost = self.ring.lost() + self.spool_lost;
        self.write_own(Fact::Closed, lost);
    }

    /// A record of the spool itself; it is not counted among the events.
    fn write_own(&mut self, fact: Fact, lost: u64) -> bool {
        let time_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut encoder = Encoder::new(fact, time_ns, 0, 0, "penstock.events");
        encoder.int("lost", i64::try_from(lost).unwrap_or(i64::MAX));
        let record = encoder.bytes();
        let mut payload = (record.len() as u16).to_le_bytes().to_vec();
        payload.extend_from_slice(record);
        self.append(&payload)
    }

    fn write_frame(&mut self, payload: &[u8], records: u64) {
        if self.good_bytes + 8 + payload.len() as u64 > self.bytes_max / 2 {
            self.rotate();
        }
        if self.append(payload) {
            self.written += records;
            self.file_records += records;
        } else {
            self.spool_lost += records;
        }
    }

    /// The file becomes the earlier one, and a new one begins. Where that fails, what comes next is lost.
    fn rotate(&mut self) {
        let earlier = self.path.with_extension("earlier.pev");
        let begun = std::fs::rename(&self.path, &earlier).and_then(|()| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&self.path)?;
            file.write_all(&self.head).map(|()| file)
        });
        match begun {
            Ok(file) => {
                self.file = file;
                self.good_bytes = self.head.len() as u64;
                self.written -= self.earlier_records;
                self.spool_lost += self.earlier_records;
                self.earlier_records = std::mem::take(&mut self.file_records);
            }
            Err(reason) => self.error = Some(format!("cannot write {}: {reason}", self.path.display())),
        }
    }

    fn append(&mut self, payload: &[u8]) -> bool {
        let mut frame = Vec::with_capacity(8 + payload.len());
        frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        frame.extend_from_slice(&check(payload).to_le_bytes());
        frame.extend_from_slice(payload);
        match self.file.write_all(&frame) {
            Ok(()) => {
                self.good_bytes += frame.len() as u64;
                true
            }
            Err(reason) => {
                self.error = Some(format!("cannot write {}: {reason}", self.path.display()));
                // Best effort: if this fails too, the reader stops at the torn frame, as after a kill.
                let _ = self.file.set_len(self.good_bytes);
                let _ = self.file.seek(SeekFrom::Start(self.good_bytes));
                false
            }
        }
    }
}
