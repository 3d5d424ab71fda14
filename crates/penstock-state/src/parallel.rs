//! Work in numbered items, done by several threads; the first failure stops them all.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does items 0 to `count`, each once, in about that order. Every thread has its own `local`, made by `begin`.
pub(crate) fn for_each<L, E: Send>(
    count: usize,
    threads: usize,
    begin: impl Fn() -> Result<L, E> + Sync,
    work: impl Fn(&mut L, usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let problem: Mutex<Option<E>> = Mutex::new(None);
    let run = || {
        let outcome = begin().and_then(|mut local| {
            while !failed.load(Ordering::Relaxed) {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= count {
                    break;
                }
                work(&mut local, item)?;
            }
            Ok(())
        });
        if let Err(reason) = outcome {
            failed.store(true, Ordering::Relaxed);
            problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        }
    };
    let threads = threads.clamp(1, count.max(1));
    if threads == 1 {
        run();
    } else {
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(run);
            }
            run();
        });
    }
    problem.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_done_once() {
        for threads in [1, 3, 8] {
            let done: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            let work = |_: &mut (), item: usize| {
                done[item].fetch_add(1, Ordering::SeqCst);
                Ok::<_, ()>(())
            };
            for_each(done.len(), threads, || Ok(()), work).unwrap();
            assert!(done.iter().all(|count| count.load(Ordering::SeqCst) == 1));
        }
    }

    #[test]
    fn the_first_failure_stops_the_rest() {
        let done = AtomicUsize::new(0);
        let work = |_: &mut (), item: usize| {
            done.fetch_add(1, Ordering::SeqCst);
            if item == 3 { Err(item) } else { Ok(()) }
        };
        assert_eq!(for_each(1_000_000, 1, || Ok(()), work), Err(3));
        assert_eq!(done.load(Ordering::SeqCst), 4);
        assert_eq!(for_each(10, 4, || Err::<(), _>(7), |_, _| Ok(())), Err(7));
    }
}
