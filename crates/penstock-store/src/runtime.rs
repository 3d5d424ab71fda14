//! What belongs to one process: its runtime, and anything else that must begin anew in the child of a fork.
//!
//! A fork copies memory but no threads, so locks may stay locked and connections be shared. Nothing made by the parent is touched in
//! the child: a value that carries another process's number is left alone (and leaked), and a new one is made.

use std::cell::RefCell;
use std::future::Future;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use penstock_io::{StoreKind, StoreProblem};
use tokio::runtime::{Builder, Runtime};

/// Threads that move bytes between sockets and memory. What they read is copied to its place by the threads that asked.
const THREADS: usize = 2;
/// How often a waiting thread is asked whether it should give up.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// A value that every process makes for itself, when it first asks for it.
pub struct PerProcess<T> {
    /// What the newest process made, with its number; null before that.
    made: AtomicPtr<(u32, T)>,
}

impl<T> PerProcess<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { made: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of this process. Of several threads that make it at once, one wins.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        match self.get_or_try(|| Ok::<T, std::convert::Infallible>(make())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// The same where making can fail.
    pub fn get_or_try<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let process = std::process::id();
        let seen = self.made.load(Ordering::Acquire);
        // SAFETY: a pointer that was stored comes from a box that lives until `self` is dropped, or for ever.
        if let Some((owner, value)) = unsafe { seen.as_ref() }
            && *owner == process
        {
            return Ok(value);
        }
        let fresh = Box::into_raw(Box::new((process, make()?)));
        // What was there belongs to a parent: it is not dropped, because its threads and locks are not ours.
        match self.made.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was just made from a box, and nobody frees it before `self` is dropped.
            Ok(_) => Ok(unsafe { &(*fresh).1 }),
            Err(others) => {
                // SAFETY: nobody else saw ours. Whoever won is a thread of this process, so theirs is not null and is ours to use.
                unsafe {
                    drop(Box::from_raw(fresh));
                    Ok(&(*others).1)
                }
            }
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let pointer = *self.made.get_mut();
        // SAFETY: nobody borrows it any more; what a parent made is left alone.
        unsafe {
            if pointer.as_ref().is_some_and(|(owner, _)| *owner == std::process::id()) {
                drop(Box::from_raw(pointer));
            }
        }
    }
}

// SAFETY: it gives out shared references and drops the value on whichever thread comes last.
unsafe impl<T: Send + Sync> Send for PerProcess<T> {}
// SAFETY: as above; the pointer itself is atomic.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

thread_local! {
    /// Asked now and then by the thread that waits: whether to give up.
    static GIVE_UP: RefCell<Option<Box<dyn Fn() -> bool>>> = const { RefCell::new(None) };
}

/// Does something during which all waiting of this thread asks `give_up` ten times a second, and ends when it says so.
pub fn interruptible<T>(give_up: impl Fn() -> bool + 'static, doing: impl FnOnce() -> T) -> T {
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            GIVE_UP.with(|place| place.borrow_mut().take());
        }
    }
    GIVE_UP.with(|place| *place.borrow_mut() = Some(Box::new(give_up)));
    let _forget = Forget;
    doing()
}

/// Runs to completion on the calling thread, with the timers and sockets of the process's runtime.
pub(crate) fn block_on<T>(call: impl Future<Output = Result<T, StoreProblem>>) -> Result<T, StoreProblem> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    RUNTIME.get_or_make(start).block_on(async {
        let mut call = std::pin::pin!(call);
        // Ends with the call, which has deadlines, or when it is given up.
        loop {
            match select(call, std::pin::pin!(tokio::time::sleep(ASKED_EVERY))).await {
                Either::Left((outcome, _)) => return outcome,
                Either::Right(((), waiting)) => call = waiting,
            }
            if is_interrupted() {
                return Err(interrupted());
            }
        }
    })
}

/// Whether this thread should give up what it waits for.
pub(crate) fn is_interrupted() -> bool {
    GIVE_UP.with(|place| place.borrow().as_ref().is_some_and(|give_up| give_up()))
}

/// What a call ends with that was given up.
pub(crate) fn interrupted() -> StoreProblem {
    StoreProblem {
        kind: StoreKind::Failed,
        verb: "wait for",
        url: "the store".into(),
        range: None,
        tries: 1,
        waited_ms: 0,
        reason: "interrupted".into(),
    }
}

fn start() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("penstock-store")
        .enable_io()
        .enable_time()
        .build()
        .expect("the system has threads and an event queue for us")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_makes_its_value_once() {
        let value = PerProcess::new();
        assert_eq!(*value.get_or_make(|| 1), 1);
        assert_eq!(*value.get_or_make(|| 2), 1);
    }

    /// Goal: a child of a fork never uses what its parent made. Method: a real fork; the child says by its exit what it found.
    #[test]
    fn a_child_makes_its_own() {
        let value = PerProcess::new();
        value.get_or_make(|| 1);
        // SAFETY: the child only reads, allocates a few bytes and leaves without running destructors.
        let exit = unsafe {
            match libc::fork() {
                0 => libc::_exit(*value.get_or_make(|| 7)),
                child => {
                    let mut status = 0;
                    libc::waitpid(child, &raw mut status, 0);
                    libc::WEXITSTATUS(status)
                }
            }
        };
        assert_eq!((exit, *value.get_or_make(|| 3)), (7, 1));
    }

    #[test]
    fn a_failure_to_make_is_told_and_tried_again() {
        let value: PerProcess<u8> = PerProcess::new();
        assert_eq!(value.get_or_try(|| Err("no")), Err("no"));
        assert_eq!(value.get_or_try(|| Ok::<u8, &str>(4)), Ok(&4));
    }
}
