//! Requests that are under way now: which object, which bytes, at which stage, since when. What a stall is explained with.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::runtime::PerProcess;

/// What a request is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// It waits for its turn.
    Turn,
    /// It was sent, or its connection is being made; there is no answer yet.
    Answer,
    /// Its bytes are coming, or going.
    Bytes,
    /// It failed and pauses before the next try.
    Pause,
}

impl Stage {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "waiting for its turn",
            Self::Answer => "waiting for an answer",
            Self::Bytes => "moving bytes",
            Self::Pause => "pausing before another try",
        }
    }

    fn of(number: u8) -> Self {
        match number {
            0 => Self::Turn,
            1 => Self::Answer,
            2 => Self::Bytes,
            _ => Self::Pause,
        }
    }
}

/// One request.
struct Request {
    verb: &'static str,
    url: String,
    range: Option<Range<u64>>,
    since: Instant,
    stage: AtomicU8,
}

/// What is known about a request that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flight {
    /// `read`, `write`, `list`, `describe`, `delete`.
    pub verb: &'static str,
    /// The object.
    pub url: String,
    /// The bytes, where it is a range.
    pub range: Option<Range<u64>>,
    /// What it is doing.
    pub stage: Stage,
    /// Since its first try began.
    pub age: Duration,
}

#[derive(Default)]
struct Table {
    next: AtomicU64,
    requests: Mutex<BTreeMap<u64, Arc<Request>>>,
}

static TABLE: PerProcess<Table> = PerProcess::new();

fn requests(table: &Table) -> MutexGuard<'_, BTreeMap<u64, Arc<Request>>> {
    table.requests.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request's place in the table; it leaves when this is dropped.
pub struct Entry {
    number: u64,
    request: Arc<Request>,
}

/// Enters a request.
pub fn begin(verb: &'static str, url: String, range: Option<Range<u64>>) -> Entry {
    let table = TABLE.get_or_make(Table::default);
    let request = Arc::new(Request { verb, url, range, since: Instant::now(), stage: AtomicU8::new(0) });
    let number = table.next.fetch_add(1, Ordering::Relaxed);
    requests(table).insert(number, Arc::clone(&request));
    Entry { number, request }
}

impl Entry {
    /// Says what it is doing now.
    pub fn enter(&self, stage: Stage) {
        self.request.stage.store(stage as u8, Ordering::Relaxed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        requests(TABLE.get_or_make(Table::default)).remove(&self.number);
    }
}

/// All requests under way, the oldest first.
pub fn all() -> Vec<Flight> {
    let table = TABLE.get_or_make(Table::default);
    let now: Vec<Arc<Request>> = requests(table).values().cloned().collect();
    let seen = |request: Arc<Request>| Flight {
        verb: request.verb,
        url: request.url.clone(),
        range: request.range.clone(),
        stage: Stage::of(request.stage.load(Ordering::Relaxed)),
        age: request.since.elapsed(),
    };
    now.into_iter().map(seen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_seen_until_it_ends() {
        let mine = || all().into_iter().find(|flight| flight.url == "s3://flying/a");
        assert_eq!(mine(), None);
        let entry = begin("read", "s3://flying/a".into(), Some(3..9));
        entry.enter(Stage::Bytes);
        let seen = mine().unwrap();
        assert_eq!((seen.verb, seen.range, seen.stage), ("read", Some(3..9), Stage::Bytes));
        drop(entry);
        assert_eq!(mine(), None);
    }
}
