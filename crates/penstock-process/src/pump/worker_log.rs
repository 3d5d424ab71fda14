//! All that one worker writes: its two streams, and when.
//!
//! `rank-3.times` is a sparse index: records of four numbers (milliseconds since 1970, where standard output and standard error were then, and the
//! incarnation), at most one in half a second and one when a life begins. What a record does not cover was written within half a second after it.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::log::Log;
use crate::job::Stream;

/// The least time between two records of one life.
const APART: Duration = Duration::from_millis(500);
const RECORD_BYTES: usize = 32;

/// The logs of one worker, over all of its lives.
pub(super) struct WorkerLog {
    /// Standard output and standard error.
    logs: [Log; 2],
    /// The index. Opened for each record: that is seldom, and descriptors are few.
    times: PathBuf,
    noted: Option<Instant>,
    incarnation: u32,
}

impl WorkerLog {
    /// Continues what is there.
    pub(super) fn open(logs: [Log; 2], times: PathBuf) -> Self {
        Self { logs, times, noted: None, incarnation: 0 }
    }

    /// A life begins; where in the two streams.
    pub(super) fn begin(&mut self, incarnation: u32) -> [u64; 2] {
        self.incarnation = incarnation;
        self.note(Instant::now());
        [self.log(Stream::Out).at(), self.log(Stream::Err).at()]
    }

    /// Goes on within a life.
    pub(super) fn go_on(&mut self, incarnation: u32) {
        self.incarnation = incarnation;
    }

    /// One of the two.
    pub(super) fn log(&self, stream: Stream) -> &Log {
        &self.logs[stream as usize]
    }

    /// Adds what the worker wrote.
    pub(super) fn append(&mut self, stream: Stream, bytes: &[u8], now: Instant) {
        if self.noted.is_none_or(|noted| now.duration_since(noted) >= APART) {
            self.note(now);
        }
        self.logs[stream as usize].append(bytes, now);
    }

    fn note(&mut self, now: Instant) {
        self.noted = Some(now);
        let wall_ms =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let numbers = [wall_ms, self.logs[0].at(), self.logs[1].at(), u64::from(self.incarnation)]
            .map(u64::to_le_bytes);
        let Ok(mut index) = File::options().create(true).append(true).open(&self.times) else { return };
        if index.write_all(numbers.as_flattened()).is_err() {
            // Half a record would shift all later ones.
            let whole = index.metadata().map_or(0, |about| about.len() / RECORD_BYTES as u64);
            let _ = index.set_len(whole * RECORD_BYTES as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::Rotation;
    use super::*;

    #[test]
    fn records_are_apart_and_say_where_the_streams_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (out, err, times) = (path("r.stdout"), path("r.stderr"), path("r.times"));
        let logs = [out, err].map(|path| Log::open(&path, &[], Rotation::default()));
        let mut worker = WorkerLog::open(logs, times.clone());
        assert_eq!(worker.begin(0), [0, 0]);
        let begun = Instant::now();
        worker.append(Stream::Out, b"12345", begun);
        worker.append(Stream::Err, b"12", begun + APART / 2);
        worker.append(Stream::Out, b"6", begun + 2 * APART);
        assert_eq!(worker.begin(1), [6, 2]);
        let found: Vec<[u64; 3]> = std::fs::read(times)
            .unwrap()
            .chunks_exact(RECORD_BYTES)
            .map(|record| [8, 16, 24].map(|at| u64::from_le_bytes(record[at..at + 8].try_into().unwrap())))
            .collect();
        assert_eq!(found, [[0, 0, 0], [5, 2, 0], [6, 2, 1]]);
    }
}
