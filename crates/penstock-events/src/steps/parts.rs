//! Where the time of a step goes: every nanosecond belongs to one part, the innermost that is open.
//!
//! It is here and not in Python because Python's collector runs between any two of its instructions, and tells this clock
//! about itself.

use rustix::time::{ClockId, clock_gettime};

/// Parts that a clock can tell apart.
pub const PARTS_MAX: usize = 32;
/// Parts inside of parts; deeper ones count for the one around them.
const DEPTH_MAX: usize = 256;

/// Nanoseconds since the host was booted, suspend included.
pub fn boottime_ns() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// A row that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When it began.
    pub begin: i64,
    /// When it ended, and the next one begins.
    pub end: i64,
    /// By part; they sum to the row.
    pub ns: [i64; PARTS_MAX],
    /// A bit for each part that was entered.
    pub entered: u32,
}

/// The division of one row.
#[derive(Debug)]
pub struct PartClock {
    ns: [i64; PARTS_MAX],
    open: Vec<u8>,
    /// Parts that are open beyond the depth.
    beyond: usize,
    entered: u32,
    begin: i64,
    /// Until when time is divided.
    until: i64,
    /// Has what no other part has.
    rest: u8,
}

impl PartClock {
    /// A row begins now. `rest` is the part that has what no other has.
    pub fn new(rest: u8, now: i64) -> PartClock {
        assert!(usize::from(rest) < PARTS_MAX);
        PartClock {
            ns: [0; PARTS_MAX],
            open: vec![rest],
            beyond: 0,
            entered: 0,
            begin: now,
            until: now,
            rest,
        }
    }

    /// When the row began.
    pub fn begin(&self) -> i64 {
        self.begin
    }

    /// A row begins now, after something that is in no row.
    pub fn restart(&mut self, now: i64) {
        *self = PartClock::new(self.rest, now);
    }

    /// From now on time belongs to a part.
    pub fn enter(&mut self, part: u8, now: i64) {
        if self.open.len() >= DEPTH_MAX || usize::from(part) >= PARTS_MAX {
            self.beyond += 1;
            return;
        }
        self.divide(now);
        self.open.push(part);
        self.entered |= 1 << part;
    }

    /// The innermost part is over; without one nothing happens, because the end of a row has closed all of them.
    pub fn leave(&mut self, now: i64) {
        if self.beyond > 0 {
            self.beyond -= 1;
        } else if self.open.len() > 1 {
            self.divide(now);
            self.open.pop();
        }
    }

    /// The innermost part.
    pub fn current(&self) -> u8 {
        self.open.last().copied().unwrap_or(self.rest)
    }

    /// Whether a part is around what happens now.
    pub fn is_open(&self, part: u8) -> bool {
        self.open.contains(&part)
    }

    /// The row ends, and the next one begins at the same moment.
    pub fn turn(&mut self, now: i64) -> Turn {
        self.divide(now);
        let turn = Turn { begin: self.begin, end: now, ns: self.ns, entered: self.entered };
        *self = PartClock::new(self.rest, now);
        turn
    }

    fn divide(&mut self, now: i64) {
        let part = self.open.last().copied().unwrap_or(self.rest);
        self.ns[usize::from(part)] += now - self.until;
        self.until = now;
    }
}
