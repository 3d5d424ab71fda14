//! What will happen, in order of time; what happens at the same moment keeps its order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that will happen unless it is out of date by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A fault of the schedule, by its place there.
    Fault(usize),
    /// A rank of this life is seen to have failed.
    RankFailed(u32),
    /// The gang of this life has saved and leaves, because that was planned.
    Left(u32),
    /// A host with a device that failed says goodbye; how long it is repaired.
    Leaves(usize, u64),
    /// A host was not heard for a while; the number of its loss says which time.
    Unheard(usize, u32),
    /// Its lease is over.
    LeaseOver(usize, u32),
    /// It is repaired.
    Back(usize, u32),
    /// Nothing of this life runs any more on hosts that are heard.
    Ended(u32),
    /// Hosts are prepared for this life.
    Prepared(u32),
    /// Processes of this life have found each other.
    Started(u32),
    /// They have loaded the checkpoint.
    Loaded(u32),
    /// The time to look again.
    Look,
}

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
}

impl EventQueue {
    /// Adds one.
    pub(super) fn add(&mut self, at_ms: u64, event: Event) {
        self.number += 1;
        self.heap.push(Reverse((at_ms, self.number, event)));
    }

    /// The next before a moment.
    pub(super) fn pop_before(&mut self, end_ms: u64) -> Option<(u64, Event)> {
        let Reverse((at_ms, _, event)) = *self.heap.peek().filter(|next| next.0.0 < end_ms)?;
        self.heap.pop();
        Some((at_ms, event))
    }
}
