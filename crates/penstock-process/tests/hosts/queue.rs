//! What will happen, in order of time: a wheel with a place for every millisecond, so that a million hosts cost no sorting.

use std::collections::BTreeMap;

/// Milliseconds that the wheel holds; what happens later waits beside it.
const WHEEL_MS: u64 = 1 << 14;
/// Places that were larger than this give their memory back.
const KEPT: usize = 256;

/// What will happen. At the same moment, what was added first happens first.
pub(crate) struct Queue<T> {
    wheel: Vec<Vec<T>>,
    later: BTreeMap<u64, Vec<T>>,
    now_ms: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { wheel: (0..WHEEL_MS).map(|_| Vec::new()).collect(), later: BTreeMap::new(), now_ms: 0 }
    }

    pub(crate) fn push(&mut self, at_ms: u64, item: T) {
        let at_ms = at_ms.max(self.now_ms);
        if at_ms < self.now_ms + WHEEL_MS {
            self.wheel[(at_ms % WHEEL_MS) as usize].push(item);
        } else {
            self.later.entry(at_ms).or_default().push(item);
        }
    }

    /// What happens next, all of one moment; nothing until a moment. While it happens, more of the same moment may be added.
    pub(crate) fn next(&mut self, until_ms: u64) -> Option<(u64, Vec<T>)> {
        loop {
            let place = &mut self.wheel[(self.now_ms % WHEEL_MS) as usize];
            if !place.is_empty() {
                return Some((self.now_ms, std::mem::take(place)));
            }
            if self.now_ms >= until_ms {
                return None;
            }
            self.now_ms += 1;
            // What waits beside the wheel was added before anything of its moment on it.
            while let Some(first) =
                self.later.first_entry().filter(|first| *first.key() < self.now_ms + WHEEL_MS)
            {
                let (at_ms, items) = first.remove_entry();
                let place = &mut self.wheel[(at_ms % WHEEL_MS) as usize];
                let added = std::mem::replace(place, items);
                place.extend(added);
            }
        }
    }

    /// Takes back the room of a moment that is over.
    pub(crate) fn give_back(&mut self, at_ms: u64, mut room: Vec<T>) {
        room.clear();
        let place = &mut self.wheel[(at_ms % WHEEL_MS) as usize];
        if place.is_empty() && room.capacity() <= KEPT {
            *place = room;
        }
    }
}
