//! Work on several threads that end together: with the last, or soon after the first that fails.
//!
//! What arrives for a large read is copied to its place by the thread that asked. One thread cannot do that as fast as a machine with
//! several cores receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use penstock_io::StoreProblem;

use crate::runtime::{interrupted, interruptible, is_interrupted};

/// Threads of one large read, the caller's included.
const THREADS: usize = 4;

/// Deals items to threads, the caller's among them, and does each share; the first real problem, if there is one.
pub(crate) fn spread<T: Send>(
    items: Vec<T>,
    doing: impl Fn(Vec<T>) -> Result<(), StoreProblem> + Sync,
) -> Result<(), StoreProblem> {
    let threads = THREADS.min(items.len());
    if threads < 2 {
        return doing(items);
    }
    let mut shares: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
    // Dealt one by one, so that all threads work along the same stretch and end at about the same time.
    items.into_iter().enumerate().for_each(|(number, item)| shares[number % threads].push(item));
    let own = shares.pop().unwrap_or_default();
    let (over, caller, doing) = (Arc::new(AtomicBool::new(false)), thread::current(), &doing);
    let tell = |outcome: Result<(), StoreProblem>| {
        if outcome.is_err() {
            over.store(true, Ordering::Relaxed);
        }
        caller.unpark();
        outcome
    };
    let tell = &tell;
    let outcomes: Vec<Result<(), StoreProblem>> = thread::scope(|scope| {
        let begin = |share: Vec<T>| {
            let ended = Arc::clone(&over);
            scope.spawn(move || tell(interruptible(move || ended.load(Ordering::Relaxed), || doing(share))))
        };
        let others: Vec<_> = shares.into_iter().map(begin).collect();
        let first = tell(doing(own));
        // The others have deadlines of their own; until then a signal may still tell them to give up.
        while !others.iter().all(thread::ScopedJoinHandle::is_finished) {
            if is_interrupted() {
                over.store(true, Ordering::Relaxed);
            }
            thread::park_timeout(std::time::Duration::from_millis(50));
        }
        let joined = others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(interrupted())));
        std::iter::once(first).chain(joined).collect()
    });
    let failed: Vec<StoreProblem> = outcomes.into_iter().filter_map(Result::err).collect();
    // Those that gave up because of another say nothing about why.
    let real = failed.iter().position(|problem| *problem != interrupted()).unwrap_or(0);
    failed.into_iter().nth(real).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_item_is_done_once_whatever_the_number() {
        for count in 0..20 {
            let done = Mutex::new(Vec::new());
            spread((0..count).collect(), |share| {
                done.lock().unwrap().extend(share);
                Ok(())
            })
            .unwrap();
            let mut done = done.into_inner().unwrap();
            done.sort_unstable();
            assert_eq!(done, (0..count).collect::<Vec<_>>());
        }
    }

    /// Goal: a failure is told as it was, and ends the rest. Method: one share fails, the others wait until they are told to give up.
    #[test]
    fn the_first_real_problem_is_told_and_the_others_give_up() {
        let broken = StoreProblem { reason: "broken".into(), ..interrupted() };
        let outcome = spread((0..4).collect(), |share: Vec<i32>| match share[0] {
            1 => Err(broken.clone()),
            3 => Ok(()),
            _ => {
                while !is_interrupted() {
                    thread::yield_now();
                }
                Err(interrupted())
            }
        });
        assert_eq!(outcome.unwrap_err().reason, "broken");
    }
}
