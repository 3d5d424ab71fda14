//! A whole recording as columns: begins and ends joined, kinds as small numbers. What summaries of millions of events are made from.

use crate::EventError;
use crate::read::EventFile;
use crate::record::{Fact, RecordView, Value};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;

/// In place of a duration: something that happened at a moment.
pub const POINT: i64 = -1;
/// In place of a duration: a span whose end is not in the file.
pub const OPEN: i64 = -2;

/// Events in the order in which they ended; spans that never ended come last, in the order in which they began.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EventColumns {
    /// Who recorded, as JSON.
    pub header: String,
    /// Names of kinds; `kind` counts into them.
    pub kinds: Vec<String>,
    /// Of every event.
    pub kind: Vec<u32>,
    /// When it happened or began, in nanoseconds since the recording began.
    pub time_ns: Vec<u64>,
    /// How long it took, [`POINT`] or [`OPEN`]. Clocks that a damaged file turned back give 0.
    pub duration_ns: Vec<i64>,
    /// The system's number of the thread.
    pub thread: Vec<u32>,
    /// Events that the recorder had to drop, as far as the file says.
    pub lost: i64,
    /// Whether the recorder was stopped in order.
    pub is_closed: bool,
    /// Bytes after the last whole frame.
    pub torn_bytes: u64,
}

/// A span that has begun.
struct Begun {
    /// How many had begun before it.
    order: u64,
    kind: u32,
    time_ns: u64,
    thread: u32,
}

/// Spans are numbered one after the other, so that one multiplication spreads them.
#[derive(Default)]
struct SpanHasher(u64);

impl Hasher for SpanHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

#[derive(Default)]
struct Joiner {
    columns: EventColumns,
    numbers: HashMap<String, u32>,
    /// The kind before: most events come in turns of a few kinds.
    recent: [Option<u32>; 4],
    begun: HashMap<u64, Begun, BuildHasherDefault<SpanHasher>>,
    begins: u64,
}

impl Joiner {
    fn number(&mut self, kind: &str) -> u32 {
        for number in self.recent.iter().flatten() {
            if self.columns.kinds[*number as usize] == kind {
                return *number;
            }
        }
        let kinds = &mut self.columns.kinds;
        let number = *self.numbers.entry(kind.to_owned()).or_insert_with(|| {
            kinds.push(kind.to_owned());
            (kinds.len() - 1) as u32
        });
        self.recent.rotate_right(1);
        self.recent[0] = Some(number);
        number
    }

    fn push(&mut self, kind: u32, time_ns: u64, duration_ns: i64, thread: u32) {
        self.columns.kind.push(kind);
        self.columns.time_ns.push(time_ns);
        self.columns.duration_ns.push(duration_ns);
        self.columns.thread.push(thread);
    }

    fn see(&mut self, record: &RecordView<'_>) {
        let RecordView { time_ns, thread, span, .. } = *record;
        match record.fact {
            Fact::Point => {
                let kind = self.number(record.kind);
                self.push(kind, time_ns, POINT, thread);
            }
            Fact::Begin => {
                let kind = self.number(record.kind);
                let order = self.begins;
                self.begins += 1;
                let begun = Begun { order, kind, time_ns, thread };
                if let Some(before) = self.begun.insert(span, begun) {
                    // A number twice is damage: the newer one stands in the place of the older.
                    self.begun.entry(span).and_modify(|begun| begun.order = before.order);
                }
            }
            Fact::End => {
                // The begin may have been lost while the end was not.
                if let Some(begun) = self.begun.remove(&span) {
                    let took = i64::try_from(time_ns.saturating_sub(begun.time_ns)).unwrap_or(i64::MAX);
                    self.push(begun.kind, begun.time_ns, took, begun.thread);
                }
            }
            Fact::Lost | Fact::Closed => {
                let lost = record.fields().find(|(key, _)| *key == "lost");
                if let Some((_, Value::Int(lost))) = lost {
                    self.columns.lost = lost;
                }
                self.columns.is_closed = record.fact == Fact::Closed;
            }
        }
    }

    fn finish(mut self) -> EventColumns {
        let mut open: Vec<Begun> = self.begun.drain().map(|(_, begun)| begun).collect();
        open.sort_by_key(|begun| begun.order);
        for Begun { kind, time_ns, thread, .. } in open {
            self.push(kind, time_ns, OPEN, thread);
        }
        self.columns
    }
}

/// Reads a recording, up to where a kill tore it.
pub fn read_columns(path: &Path) -> Result<EventColumns, EventError> {
    let mut file = EventFile::open(path)?;
    let mut joiner = Joiner::default();
    let mut payload = Vec::new();
    while file.with_frame(&mut payload, |record| joiner.see(&record))? {}
    joiner.columns.header = file.header().to_owned();
    joiner.columns.torn_bytes = file.torn_bytes();
    Ok(joiner.finish())
}
