//! A bounded queue of byte records with many producers and one consumer, without locks and without `unsafe`.
//!
//! The ring is an array of atomic words. A producer reserves a run of words by advancing `reserved`, fills it
//! with relaxed stores, and publishes it by storing the record's header word with release. The consumer reads
//! headers with acquire, copies the record out, sets its words back to zero and only then advances `consumed`;
//! a header of zero therefore always means "reserved but not yet published". A record never wraps: what does not
//! fit before the end of the array is preceded by a padding record.

use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

const WORD_BYTES: usize = 8;
/// Header bit that says "published". The length in bytes (or, for padding, in words) is above the two flag bits.
const PUBLISHED: u64 = 1;
/// Header bit that says "nothing here, go on at the start of the array".
const PADDING: u64 = 2;
/// A producer that loses the race for space this often gives its event up instead of spinning on.
const RESERVE_ATTEMPTS_MAX: usize = 256;

/// Keeps two counters out of one cache line, so that producers and consumer do not slow each other.
#[repr(align(128))]
struct Apart(AtomicU64);

/// The queue: an array of atomic words, and how far it is filled and emptied.
pub struct Ring {
    /// The array; its length is a power of two.
    words: Box<[AtomicU64]>,
    /// Words ever reserved by producers.
    reserved: Apart,
    /// Words ever given back by the consumer. Never ahead of `reserved`.
    consumed: Apart,
    /// Records that found no room.
    lost: AtomicU64,
}

impl Ring {
    /// A ring that holds at least `capacity_bytes`.
    pub fn new(capacity_bytes: usize) -> Self {
        let words = capacity_bytes.div_ceil(WORD_BYTES).max(16).next_power_of_two();
        Ring {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            reserved: Apart(AtomicU64::new(0)),
            consumed: Apart(AtomicU64::new(0)),
            lost: AtomicU64::new(0),
        }
    }

    /// How many bytes the array holds.
    pub fn capacity_bytes(&self) -> usize {
        self.words.len() * WORD_BYTES
    }

    /// Copies one record in, or counts it as lost when there is no room. Never waits.
    pub fn push(&self, record: &[u8]) -> bool {
        let Some(start) = self.reserve(1 + record.len().div_ceil(WORD_BYTES)) else {
            self.lost.fetch_add(1, Relaxed);
            return false;
        };
        let mut chunks = record.chunks_exact(WORD_BYTES);
        let mut at = start + 1;
        for chunk in &mut chunks {
            let mut word = [0; WORD_BYTES];
            word.copy_from_slice(chunk);
            self.words[at].store(u64::from_le_bytes(word), Relaxed);
            at += 1;
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut word = [0; WORD_BYTES];
            word[..rest.len()].copy_from_slice(rest);
            self.words[at].store(u64::from_le_bytes(word), Relaxed);
        }
        self.words[start].store((record.len() as u64) << 2 | PUBLISHED, Release);
        true
    }

    /// Finds `need` consecutive words and returns the place of the first.
    fn reserve(&self, need: usize) -> Option<usize> {
        let capacity = self.words.len();
        if need > capacity / 2 {
            return None;
        }
        for _ in 0..RESERVE_ATTEMPTS_MAX {
            let head = self.reserved.0.load(Relaxed);
            let tail = self.consumed.0.load(Acquire);
            let place = head as usize & (capacity - 1);
            let to_end = capacity - place;
            let padding = if need <= to_end { 0 } else { to_end };
            // `tail` may be older than `head`, never newer, so this can only be too cautious.
            if (head - tail) as usize + padding + need > capacity {
                return None;
            }
            let next = head + (padding + need) as u64;
            if self.reserved.0.compare_exchange_weak(head, next, AcqRel, Relaxed).is_err() {
                continue;
            }
            if padding == 0 {
                return Some(place);
            }
            self.words[place].store((padding as u64) << 2 | PADDING | PUBLISHED, Release);
            return Some(0);
        }
        None
    }

    /// Takes out published records in order until none is left or `take` says stop (by returning `false` *after*
    /// having taken one). Must be called by one thread at a time; the spool's thread is the only caller.
    pub fn drain(&self, mut take: impl FnMut(&[u8]) -> bool) {
        let capacity = self.words.len();
        let mut record = Vec::with_capacity(256);
        // One lap at most: a consumer that keeps up with fast producers still returns.
        let stop = self.consumed.0.load(Relaxed) + capacity as u64;
        loop {
            let tail = self.consumed.0.load(Relaxed);
            let place = tail as usize & (capacity - 1);
            let header = self.words[place].load(Acquire);
            if header == 0 || tail >= stop {
                return;
            }
            if header & PADDING != 0 {
                self.words[place].store(0, Relaxed);
                self.consumed.0.store(tail + (header >> 2), Release);
                continue;
            }
            let bytes = (header >> 2) as usize;
            let words = 1 + bytes.div_ceil(WORD_BYTES);
            record.clear();
            for word in &self.words[place + 1..place + words] {
                record.extend_from_slice(&word.load(Relaxed).to_le_bytes());
                word.store(0, Relaxed);
            }
            self.words[place].store(0, Relaxed);
            self.consumed.0.store(tail + words as u64, Release);
            if !take(&record[..bytes]) {
                return;
            }
        }
    }

    /// Records that were dropped because the ring was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::Arc;

    #[test]
    fn a_full_ring_loses_the_new_record_and_counts_it() {
        let ring = Ring::new(128);
        let pushed = (0..100).filter(|_| ring.push(b"twelve bytes")).count();

        assert!(pushed > 0 && pushed < 100);
        assert_eq!(ring.lost(), 100 - pushed as u64);
        let mut drained = 0;
        ring.drain(|record| {
            assert_eq!(record, b"twelve bytes");
            drained += 1;
            true
        });
        assert_eq!(drained, pushed);
        assert!(ring.push(b"again"));
    }

    #[test]
    fn what_many_threads_push_arrives_whole_and_in_each_threads_order() {
        let ring = Arc::new(Ring::new(1 << 14));
        let producers: Vec<_> = (0..4u64)
            .map(|thread| {
                let ring = Arc::clone(&ring);
                std::thread::spawn(move || {
                    (0..20_000u64)
                        .filter(|&n| {
                            let mut record = thread.to_le_bytes().to_vec();
                            record.extend(n.to_le_bytes());
                            record.resize(16 + (n % 23) as usize, thread as u8);
                            ring.push(&record)
                        })
                        .count()
                })
            })
            .collect();
        let mut last = [None; 4];
        let mut seen = 0;
        let mut check = |record: &[u8]| {
            let thread = u64::from_le_bytes(record[..8].try_into().unwrap());
            let n = u64::from_le_bytes(record[8..16].try_into().unwrap());
            assert!(last[thread as usize] < Some(n), "thread {thread} went back to {n}");
            assert!(record[16..].iter().all(|&byte| byte == thread as u8));
            last[thread as usize] = Some(n);
            seen += 1;
            true
        };
        while producers.iter().any(|producer| !producer.is_finished()) {
            ring.drain(&mut check);
        }
        ring.drain(&mut check);
        ring.drain(&mut check);

        let pushed: usize = producers.into_iter().map(|producer| producer.join().unwrap()).sum();
        assert_eq!(seen, pushed);
        assert_eq!(ring.lost(), 80_000 - pushed as u64);
    }

    proptest! {
        #[test]
        fn behaves_as_a_bounded_queue(steps in proptest::collection::vec((0usize..60, any::<bool>()), 1..400)) {
            let ring = Ring::new(256);
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            for (n, (length, drain)) in steps.into_iter().enumerate() {
                let record = vec![n as u8; length];
                if ring.push(&record) {
                    model.push_back(record);
                }
                if drain {
                    ring.drain(|record| {
                        assert_eq!(Some(record.to_vec()), model.pop_front());
                        true
                    });
                    prop_assert!(model.is_empty());
                }
            }
        }
    }
}
