//! The recorder of a process: a ring to write into, a spool behind it, and a clock.

use crate::EventError;
use crate::record::{Encoder, Fact};
use crate::ring::Ring;
use crate::spool::Spool;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Enough for the burst of one drain interval at the fastest rate that Python can record.
const RING_BYTES: usize = 8 << 20;

/// Who recorded; the JSON header of the file.
#[derive(serde::Serialize)]
struct Header<'a> {
    pid: u32,
    host: &'a str,
    argv: &'a [String],
    /// Nanoseconds since 1970 at the moment that event times count from.
    started_wall_ns: u64,
}

/// What a recorder has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Events on file.
    pub written: u64,
    /// Events that were dropped: ring full, disk full, or the file's size limit reached.
    pub lost: u64,
    /// Size of the file.
    pub bytes: u64,
    /// The last failure to write, if any.
    pub error: Option<String>,
}

/// Records events of this process into one file. Shared by all threads; stops when dropped.
pub struct Recorder {
    path: PathBuf,
    ring: Arc<Ring>,
    started: Instant,
    /// The number of the next span; 0 is kept for points.
    next_span: AtomicU64,
    /// The process that started this recorder: a forked child must not use it, it has no spool thread.
    pid: u32,
    /// Last, so that it is dropped after everything that feeds it.
    spool: Spool,
}

impl Recorder {
    /// Starts recording into a new file at `path`, which must not exist yet.
    pub fn start(path: &Path, host: &str, argv: &[String], bytes_max: u64) -> Result<Recorder, EventError> {
        let ring = Arc::new(Ring::new(RING_BYTES));
        let started = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let started_wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let pid = std::process::id();
        let header = serde_json::to_vec(&Header { pid, host, argv, started_wall_ns })
            .map_err(|reason| EventError::Io { verb: "create", path: path.into(), reason: reason.into() })?;
        let spool = Spool::start(path, &header, bytes_max, Arc::clone(&ring))?;
        Ok(Recorder { path: path.to_path_buf(), ring, started, next_span: AtomicU64::new(1), pid, spool })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process that started it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A record of something that happens now; fill in fields, then [`push`](Self::push).
    pub fn point(&self, kind: &str) -> Encoder {
        Encoder::new(Fact::Point, self.now_ns(), thread_number(), 0, kind)
    }

    /// The beginning of a span and its number.
    pub fn begin(&self, kind: &str) -> (u64, Encoder) {
        let span = self.next_span.fetch_add(1, Relaxed);
        (span, Encoder::new(Fact::Begin, self.now_ns(), thread_number(), span, kind))
    }

    /// The end of a span.
    pub fn end(&self, span: u64) -> Encoder {
        Encoder::new(Fact::End, self.now_ns(), thread_number(), span, "")
    }

    /// Hands a record over, or counts it as lost. Never waits.
    pub fn push(&self, encoder: &Encoder) {
        self.ring.push(encoder.bytes());
    }

    /// Waits until everything recorded before is on file; `false` when that took longer than `timeout`.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.spool.flush(timeout)
    }

    /// Counts as of the last drain.
    pub fn statistics(&self) -> Statistics {
        self.spool.statistics()
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

thread_local! {
    static THREAD_NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The system's number of this thread, asked for once.
fn thread_number() -> u32 {
    THREAD_NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        }
        number.get()
    })
}

/// The child of a fork has another thread number than the one remembered.
pub fn forget_thread_number() {
    THREAD_NUMBER.with(|number| number.set(0));
}
