//! All that one worker writes: its two streams, and when.
//!
//! `rank-3.times` is a sparse index: records of four numbers (milliseconds since 1970, where standard output and standard error were then, and the
//! incarnation), one when a life begins, and one at least in half a second with output. What a record does not cover was written within half a
//! second after it. Further records make moments exact, most of all after a pause: they are spent from a purse that output fills, so that the
//! index stays small beside the log.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::log::Log;
use crate::job::Stream;

/// The most time that one record covers.
const APART: Duration = Duration::from_millis(500);
/// Two records of one millisecond say the same.
const APART_MIN: Duration = Duration::from_millis(1);
const RECORD_BYTES: usize = 32;
/// A further record is paid for by so many bytes of output...
const PRICE_BYTES: u64 = 8 * RECORD_BYTES as u64;
/// ...or by half a second. So many can be saved up.
const PURSE_RECORDS: u64 = 64;

/// The logs of one worker, over all of its lives.
pub(super) struct WorkerLog {
    /// Standard output and standard error.
    logs: [Log; 2],
    /// The index. Opened for each record: that is seldom, and descriptors are few.
    times: PathBuf,
    noted: Option<Instant>,
    /// What may be spent on further records, in bytes of output.
    purse_bytes: u64,
    incarnation: u32,
}

impl WorkerLog {
    /// Continues what is there.
    pub(super) fn open(logs: [Log; 2], times: PathBuf) -> Self {
        Self { logs, times, noted: None, purse_bytes: PURSE_RECORDS * PRICE_BYTES, incarnation: 0 }
    }

    /// A life begins, on lines of its own; where in the two streams.
    pub(super) fn begin(&mut self, incarnation: u32) -> [u64; 2] {
        self.incarnation = incarnation;
        let now = Instant::now();
        self.logs.iter_mut().for_each(|log| log.end_line(now));
        self.note(now);
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
        if self.is_worth_a_record(now) {
            self.note(now);
        }
        self.purse_bytes = (self.purse_bytes + bytes.len() as u64).min(PURSE_RECORDS * PRICE_BYTES);
        self.logs[stream as usize].append(bytes, now);
    }

    /// Takes what a record costs out of the purse, unless it is due anyway.
    fn is_worth_a_record(&mut self, now: Instant) -> bool {
        let Some(past) = self.noted.map(|noted| now.duration_since(noted)) else { return true };
        let periods = (past.as_millis() / APART.as_millis()).min(u128::from(PURSE_RECORDS)) as u64;
        if periods > 0 {
            // The first pays for the record itself.
            self.purse_bytes += (periods - 1) * PRICE_BYTES;
            return true;
        }
        let worth = past >= APART_MIN && self.purse_bytes >= PRICE_BYTES;
        self.purse_bytes -= if worth { PRICE_BYTES } else { 0 };
        worth
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
        worker.append(Stream::Err, b"12", begun);
        worker.append(Stream::Out, b"6", begun + 2 * APART);
        assert_eq!(worker.begin(1), [7, 3]);
        let mut found: Vec<[u64; 3]> = std::fs::read(times)
            .unwrap()
            .chunks_exact(RECORD_BYTES)
            .map(|record| [8, 16, 24].map(|at| u64::from_le_bytes(record[at..at + 8].try_into().unwrap())))
            .collect();
        // Where a millisecond passed between two lines of this test, a record stands twice.
        found.dedup();
        assert_eq!(found, [[0, 0, 0], [5, 2, 0], [7, 3, 1]]);
    }

    #[test]
    fn after_a_pause_every_line_has_its_moment_and_the_index_stays_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let logs =
            [path("r.stdout"), path("r.stderr")].map(|path| Log::open(&path, &[], Rotation::default()));
        let mut worker = WorkerLog::open(logs, path("r.times"));
        worker.begin(0);
        let begun = Instant::now() + APART;
        let records = || std::fs::metadata(path("r.times")).unwrap().len() / RECORD_BYTES as u64;
        for line in 0..10 {
            worker.append(Stream::Out, b"a line\n", begun + line * 2 * APART_MIN);
        }
        assert_eq!(records(), 1 + 10);
        for line in 10..20_000 {
            worker.append(Stream::Out, b"a line\n", begun + line * 2 * APART_MIN);
        }
        let bytes = 20_000 * 7;
        assert!(records() <= 1 + PURSE_RECORDS + bytes / PRICE_BYTES + 2 * 40, "{}", records());
    }
}
