//! Reading ahead: order, limits, ends, errors, closing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::super::batch::{BatchBuilder, Pool};
use super::*;

const SOON: Duration = Duration::from_secs(60);

/// Makes empty batches up to `end`, then says what comes there. Steps named in `gates` wait until they are let through.
struct Numbers {
    end: u64,
    at_end: fn(u64) -> Result<Option<Batch>, FeedError>,
    gates: Mutex<BTreeMap<u64, bool>>,
    opened: Condvar,
    /// The furthest step that was begun, plus one.
    begun: AtomicU64,
    pool: Arc<Pool>,
}

impl Numbers {
    fn new(end: u64, gates: &[u64]) -> Self {
        Self {
            end,
            at_end: |_| Ok(None),
            gates: Mutex::new(gates.iter().map(|&gate| (gate, false)).collect()),
            opened: Condvar::new(),
            begun: AtomicU64::new(0),
            pool: Arc::default(),
        }
    }

    fn let_through(&self, step: u64) {
        self.gates.lock().unwrap().insert(step, true);
        self.opened.notify_all();
    }
}

impl MakeBatch for Numbers {
    fn make(&self, step: u64) -> Result<Option<Batch>, FeedError> {
        self.begun.fetch_max(step + 1, Ordering::SeqCst);
        let gates = self.gates.lock().unwrap();
        drop(self.opened.wait_while(gates, |gates| gates.get(&step) == Some(&false)).unwrap());
        if step >= self.end {
            return (self.at_end)(step);
        }
        Ok(Some(BatchBuilder::new(step, step, (1, 1, 1), &self.pool).finish()))
    }
}

fn start(maker: &Arc<Numbers>, step: u64, threads: usize, depth: usize) -> Ahead {
    Ahead::start(Arc::clone(maker) as Arc<dyn MakeBatch>, step, threads, depth).unwrap()
}

fn step_of(ahead: &Ahead) -> Option<u64> {
    ahead.next(SOON).unwrap().unwrap().map(|batch| batch.step)
}

#[test]
fn batches_come_in_order_and_the_end_stays_the_end() {
    for (threads, depth) in [(0, 1), (1, 1), (3, 2), (8, 64), (2, 1)] {
        let ahead = start(&Arc::new(Numbers::new(200, &[])), 17, threads, depth);
        for step in 17..200 {
            assert_eq!(step_of(&ahead), Some(step), "{threads} threads");
        }
        assert_eq!([step_of(&ahead), step_of(&ahead)], [None, None]);
        assert_eq!((ahead.waits().batches, ahead.waits().waits_s.len()), (183, 183));
    }
}

/// Goal: a slow batch is waited for, and those after it wait for their turn. Method: hold one back until all others that
/// may be made are made.
#[test]
fn a_batch_that_is_late_keeps_its_place() {
    let maker = Arc::new(Numbers::new(100, &[0]));
    let ahead = start(&maker, 0, 4, 8);
    assert_eq!(ahead.next(Duration::from_millis(20)).map(|outcome| outcome.is_err()), Ok(true));
    while ahead.waits().ready < 7 {
        std::thread::yield_now();
    }
    maker.let_through(0);
    assert_eq!((0..100).map(|_| step_of(&ahead)).collect::<Vec<_>>(), (0..100).map(Some).collect::<Vec<_>>());
}

#[test]
fn threads_are_never_further_ahead_than_allowed() {
    let maker = Arc::new(Numbers::new(1_000, &[]));
    let ahead = start(&maker, 0, 4, 5);
    for taken in 0..50 {
        while ahead.waits().ready < 5 {
            std::thread::yield_now();
        }
        assert_eq!(maker.begun.load(Ordering::SeqCst), taken + 5);
        assert_eq!(step_of(&ahead), Some(taken));
    }
}

#[test]
fn errors_come_in_their_turn_and_come_again_while_they_last() {
    for threads in [0, 1, 3] {
        let mut maker = Numbers::new(5, &[]);
        maker.at_end = |step| Err(FeedError::Plan { reason: format!("step {step}") });
        let ahead = start(&Arc::new(maker), 0, threads, 16);
        (0..5).for_each(|step| assert_eq!(step_of(&ahead), Some(step)));
        for _ in 0..3 {
            assert_eq!(ahead.next(SOON).err(), Some(FeedError::Plan { reason: "step 5".into() }));
        }
    }
}

#[test]
fn a_panic_in_a_thread_is_an_error_and_nobody_waits_for_ever() {
    let mut maker = Numbers::new(2, &[]);
    maker.at_end = |step| panic!("no step {step}");
    let ahead = start(&Arc::new(maker), 0, 2, 4);
    (0..2).for_each(|step| assert_eq!(step_of(&ahead), Some(step)));
    let reason = "it panicked at step 2: no step 2".to_owned();
    assert_eq!(ahead.next(SOON).err(), Some(FeedError::Thread { reason }));
}

/// Goal: no thread outlives its feed. Method: threads hold the maker, so whoever is left of it can be counted.
#[test]
fn closing_and_dropping_end_all_threads() {
    for threads in [0, 1, 8] {
        let maker = Arc::new(Numbers::new(u64::MAX, &[]));
        let ahead = start(&maker, 0, threads, 4);
        assert_eq!(step_of(&ahead), Some(0));
        ahead.close();
        ahead.close();
        assert!(ahead.threads.lock().unwrap().is_empty());
        assert_eq!(ahead.next(SOON).err(), Some(FeedError::Closed));
        assert_eq!(ahead.waits().ready, 0);
        drop(ahead);
        assert_eq!(Arc::strong_count(&maker), 1);
        drop(start(&maker, 3, threads, 4));
        assert_eq!(Arc::strong_count(&maker), 1);
    }
}

#[test]
fn a_consumer_that_waits_is_told_when_the_feed_closes() {
    let maker = Arc::new(Numbers::new(10, &[0]));
    let ahead = Arc::new(start(&maker, 0, 1, 4));
    let waiting = std::thread::spawn({
        let ahead = Arc::clone(&ahead);
        move || ahead.next(SOON).err()
    });
    let closing = std::thread::spawn({
        let ahead = Arc::clone(&ahead);
        move || ahead.close()
    });
    assert_eq!(waiting.join().unwrap(), Some(FeedError::Closed));
    maker.let_through(0);
    closing.join().unwrap();
}

/// Goal: an error costs nothing but itself. Method: every step fails the first time it is made, and the consumer asks again.
#[test]
fn an_error_that_passes_leaves_nothing_out() {
    struct Passing(Mutex<BTreeSet<u64>>);
    impl MakeBatch for Passing {
        fn make(&self, step: u64) -> Result<Option<Batch>, FeedError> {
            if step == 20 {
                return Ok(None);
            }
            if self.0.lock().unwrap().insert(step) {
                return Err(FeedError::Plan { reason: format!("step {step}") });
            }
            Ok(Some(BatchBuilder::new(step, step, (1, 1, 1), &Arc::default()).finish()))
        }
    }
    for threads in 0..4 {
        let maker: Arc<dyn MakeBatch> = Arc::new(Passing(Mutex::default()));
        let ahead = Ahead::start(maker, 0, threads, 6).unwrap();
        let mut seen = Vec::new();
        // Every step fails once, so the end comes after twice as many calls at the latest.
        for _ in 0..41 {
            match ahead.next(SOON) {
                Ok(outcome) => match outcome.unwrap() {
                    Some(batch) => seen.push(batch.step),
                    None => break,
                },
                Err(error) => assert!(matches!(error, FeedError::Plan { .. }), "{error}"),
            }
        }
        assert_eq!(seen, (0..20).collect::<Vec<_>>(), "{threads} threads");
    }
}

#[test]
fn memory_decides_how_far_ahead_but_every_thread_has_a_batch() {
    let cases = [
        ((1 << 20, 1 << 10, 2), 64),
        ((10 << 10, 1 << 10, 2), 10),
        ((1 << 10, 1 << 20, 3), 4),
        ((0, 1, 0), 1),
        ((1 << 20, 0, 1), 64),
        ((0, 1, 1000), 64),
    ];
    for ((memory_bytes, batch_bytes, threads), depth) in cases {
        assert_eq!(depth_of(memory_bytes, batch_bytes, threads), depth, "{memory_bytes}/{batch_bytes}");
    }
}
