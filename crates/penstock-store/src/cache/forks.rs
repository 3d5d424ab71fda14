//! What a child of a fork must not share with its parent: locks of threads that it does not have, and descriptors that hold locks.
//!
//! A handler of `fork` counts generations and closes the descriptors named here, so that a child never keeps a lock of its dead
//! parent. [`Forked`] is a mutex whose content begins anew in every child.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use arc_swap::ArcSwap;

/// How many descriptors may be registered at once; more are simply inherited, which costs patience at worst.
const DESCRIPTORS: usize = 64;

static GENERATION: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();
static CLOSED: [AtomicI32; DESCRIPTORS] = [const { AtomicI32::new(-1) }; DESCRIPTORS];

/// How many forks lie between the first process and this one.
pub(crate) fn generation() -> u64 {
    // SAFETY: the handler does nothing but atomic operations and `close`.
    INSTALL.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
    GENERATION.load(Ordering::Acquire)
}

/// Children close this descriptor as their first act.
pub(crate) fn closed_by_children(descriptor: i32) {
    generation();
    for place in &CLOSED {
        if place.compare_exchange(-1, descriptor, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// The descriptor is about to be closed.
pub(crate) fn kept_by_children(descriptor: i32) {
    for place in &CLOSED {
        let _ = place.compare_exchange(descriptor, -1, Ordering::AcqRel, Ordering::Relaxed);
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    for place in &CLOSED {
        let descriptor = place.swap(-1, Ordering::AcqRel);
        if descriptor >= 0 {
            // SAFETY: ours, and its owner forgets it when it sees the new generation.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// A mutex whose content is made anew in the child of a fork; the parent's is left alone there, whoever held it.
pub(crate) struct Forked<T> {
    current: ArcSwap<(u64, Mutex<T>)>,
}

impl<T: Default> Default for Forked<T> {
    fn default() -> Self {
        Self { current: ArcSwap::from_pointee((generation(), Mutex::default())) }
    }
}

impl<T: Default> Forked<T> {
    /// Does something with the content.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let mut current = self.current.load_full();
        if current.0 != generation() {
            self.current.compare_and_swap(&current, Arc::new((generation(), Mutex::default())));
            // Never dropped: what it holds may belong to threads of the parent.
            std::mem::forget(current);
            current = self.current.load_full();
        }
        act(&mut current.1.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
