//! The shelf with a maker that counts: what is made, how often, and what it holds.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

const BYTES: usize = 1000;

/// Steps 3 and 4 are left out, the stream ends before step 50, and step 13 cannot be made.
#[derive(Default)]
struct Counting {
    made: AtomicU64,
}

impl MakeBodies for Counting {
    fn first_from(&self, step: u64) -> u64 {
        if step == 3 || step == 4 { 5 } else { step }
    }

    fn check(&self, _: Lane, _: u64) -> Result<(), Problem> {
        Ok(())
    }

    fn wait(&self, _: u64, _: Duration) -> Result<bool, Problem> {
        Ok(true)
    }

    fn make(&self, lane: Lane, step: u64) -> Result<Option<Body>, Problem> {
        self.made.fetch_add(1, Ordering::SeqCst);
        match step {
            13 => Err(Problem::told(b"unlucky".to_vec())),
            50.. => Ok(None),
            17 => panic!("a bug at {step}"),
            _ => Ok(Some(Body::of(Bytes::from(vec![(lane.number * 100 + step) as u8; BYTES])))),
        }
    }

    fn answer(&self, _: &str, _: &[(String, u64)]) -> Result<Vec<u8>, Problem> {
        Ok(Vec::new())
    }

    fn stop(&self) {}
}

fn shelf(memory_bytes: usize, forget_after: Duration) -> (Arc<Shelf>, Arc<Counting>, Arc<Counts>) {
    let (maker, counts) = (Arc::new(Counting::default()), Arc::new(Counts::default()));
    let options = Options { memory_bytes, forget_after, threads: 2, ahead_max: 8, ..Options::default() };
    let making = Arc::clone(&maker) as Arc<dyn MakeBodies>;
    (Shelf::start(making, &options, Arc::clone(&counts)).unwrap(), maker, counts)
}

fn asked(shelf: &Shelf, lane: u64, step: u64) -> Outcome {
    match shelf.ask(Lane { number: lane, of: 4 }, step) {
        Asked::Ready(outcome) => outcome,
        Asked::Later(receiver) => receiver.blocking_recv().unwrap(),
    }
}

fn first_byte(outcome: Outcome) -> Option<u8> {
    outcome.unwrap().map(|body| body.sections()[0][0])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Goal: whatever was asked for before, a step is what it is, and memory keeps its limit. Method: any walk over lanes and steps.
    #[test]
    fn what_was_asked_before_changes_nothing(walk in prop::collection::vec((0..4_u64, 0..60_u64), 1..60), room in 1..20_usize) {
        let (shelf, _, _) = shelf(room * BYTES, Duration::from_secs(60));
        for (lane, step) in walk {
            let outcome = asked(&shelf, lane, step);
            match step {
                13 => prop_assert_eq!(outcome.unwrap_err().status, 422),
                17 => prop_assert_eq!(outcome.unwrap_err().status, 500),
                50.. => prop_assert!(outcome.unwrap().is_none()),
                _ => prop_assert_eq!(first_byte(outcome), Some((lane * 100 + step) as u8)),
            }
            // What two threads make at the moment was begun when there was room for it.
            prop_assert!(shelf.held().bytes <= (room + 2) * BYTES);
        }
        shelf.close();
    }
}

#[test]
fn clients_of_one_lane_find_what_was_made_for_the_first() {
    let (shelf, maker, counts) = shelf(1 << 20, Duration::from_secs(60));
    for step in [0, 1, 2, 5, 6, 7, 8] {
        assert_eq!(first_byte(asked(&shelf, 0, step)), Some(step as u8));
    }
    let before = counts.ready.load(Ordering::SeqCst);
    for step in [0, 1, 2, 5, 6, 7, 8] {
        assert_eq!(first_byte(asked(&shelf, 0, step)), Some(step as u8));
    }
    assert_eq!(counts.ready.load(Ordering::SeqCst), before + 7);
    shelf.close();
    // What was made ahead of 8 ends at 16, and nothing was made twice; whether 3 and 4 were made depends on how soon 5 was asked for.
    assert!(maker.made.load(Ordering::SeqCst) <= 17);
}

#[test]
fn lanes_that_nobody_asks_for_are_forgotten_and_waiters_told_when_it_closes() {
    let (shelf, _, _) = shelf(1 << 20, Duration::from_millis(100));
    asked(&shelf, 0, 0).unwrap();
    let begun = Instant::now();
    while shelf.held() != Held::default() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    assert_eq!(shelf.held(), Held::default());
    shelf.close();
    assert!(
        matches!(shelf.ask(Lane { number: 0, of: 1 }, 0), Asked::Ready(Err(problem)) if problem.status == 503)
    );
}
