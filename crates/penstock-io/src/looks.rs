//! When files that are being read are looked at again, to notice that somebody changed them in place.
//!
//! There is no thread and no timer: a read whose file was last looked at more than a second ago looks first, which is one `statx`.
//! A process makes at most [`LOOKS_MAX`] looks in any second. Where more files are due, each waits in a queue that begins with the
//! file that was unseen for longest, and any due read may look at it; what it finds concerns the marks of that file alone.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use crate::marks::Marks;
use crate::reader_step::StepSpan;
use crate::{ReadAt, Stamp, block_count};

/// A read whose file was looked at longer ago than this looks again.
pub const LOOK_AFTER_MS: u64 = 1_000;
/// Looks of a process in any [`WINDOW_MS`].
pub const LOOKS_MAX: usize = 200;
const WINDOW_MS: u64 = 1_000;
/// Files in the queue from which those that were closed are taken out.
const DUE_MAX: usize = 1 << 16;

/// How often looks were demanded.
static DEMANDS: AtomicU64 = AtomicU64::new(0);

/// Lets the next read of every file look first, however lately that was done: somebody found bytes that make no sense.
pub fn look_again() {
    DEMANDS.fetch_add(1, Ordering::Relaxed);
}

/// A file, the marks of its blocks, and when it was last looked at.
pub(crate) struct WatchedFile {
    /// Where the bytes come from; shared with whoever else reads this file.
    pub(crate) file: Arc<dyn ReadAt>,
    /// Which of its blocks are good.
    pub(crate) marks: Marks,
    /// What the file looked like; 0 where it has no stamp. See [`Stamp::word`].
    stamp: AtomicU64,
    /// When that was.
    looked_ms: AtomicU64,
    /// How often looks had been demanded then.
    demands: AtomicU64,
    /// The queue that it waits in, by its process; 0 when it waits in none.
    queued_in: AtomicU64,
    /// Steps that got bytes of good blocks since it was last looked at.
    unseen: StepSpan,
    /// Steps that got bytes of blocks which are doubtful now.
    pub(crate) doubted: StepSpan,
}

impl WatchedFile {
    /// Nothing of the file was checked yet.
    pub(crate) fn new(file: Arc<dyn ReadAt>, bytes: u64, now_ms: u64) -> Self {
        let stamp = file.stamp().map_or(0, Stamp::word);
        Self {
            marks: Marks::new(block_count(bytes)),
            file,
            stamp: AtomicU64::new(stamp),
            looked_ms: AtomicU64::new(now_ms),
            demands: AtomicU64::new(DEMANDS.load(Ordering::Relaxed)),
            queued_in: AtomicU64::new(0),
            unseen: StepSpan::new(),
            doubted: StepSpan::new(),
        }
    }

    /// Whether a read at this time should look first.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        let late = now_ms.saturating_sub(self.looked_ms.load(Ordering::Relaxed)) > LOOK_AFTER_MS;
        (late || self.demands.load(Ordering::Relaxed) != DEMANDS.load(Ordering::Relaxed))
            && self.stamp.load(Ordering::Relaxed) != 0
    }

    /// Notes that bytes of good blocks go to the step that this thread reads for.
    pub(crate) fn hand_out(&self) {
        self.unseen.add_current();
    }

    /// Looks; a change that shows forgets the marks.
    fn look(&self, now_ms: u64) {
        // Taken before looking: what is read meanwhile may be read after the look.
        let unseen = self.unseen.take();
        self.demands.store(DEMANDS.load(Ordering::Relaxed), Ordering::Relaxed);
        let current = self.file.stamp().unwrap_or(Stamp::MISSING).word();
        self.looked_ms.store(now_ms, Ordering::Relaxed);
        if Stamp::is_same(self.stamp.swap(current, Ordering::Relaxed), current) {
            return;
        }
        if !self.marks.has_doubtful() {
            self.doubted.take();
        }
        self.marks.forget();
        for steps in [unseen, self.unseen.take()].into_iter().flatten() {
            self.doubted.add(&steps);
        }
    }
}

/// A file that is due: when it was last looked at, which of equals came first, and the file.
struct Due(u64, u64, Weak<WatchedFile>);

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

/// Which files are due, and when the last looks were.
#[derive(Default)]
struct Queue {
    due: BinaryHeap<Reverse<Due>>,
    /// Times of the last looks, oldest first, at most [`LOOKS_MAX`].
    recent_ms: VecDeque<u64>,
    /// Files that were ever due.
    count: u64,
}

impl Queue {
    fn add(&mut self, file: &Arc<WatchedFile>) {
        if self.due.len() >= DUE_MAX {
            self.due.retain(|Reverse(Due(_, _, file))| file.strong_count() > 0);
        }
        self.count += 1;
        let looked_ms = file.looked_ms.load(Ordering::Relaxed);
        self.due.push(Reverse(Due(looked_ms, self.count, Arc::downgrade(file))));
    }

    /// Whether there may be a look now; else from when on.
    fn room(&self, now_ms: u64) -> Result<(), u64> {
        match self.recent_ms.front() {
            Some(&oldest) if self.recent_ms.len() >= LOOKS_MAX && oldest + WINDOW_MS > now_ms => {
                Err(oldest + WINDOW_MS)
            }
            _ => Ok(()),
        }
    }

    /// The file that was unseen for longest, if there is one and room for a look.
    fn next(&mut self, now_ms: u64) -> Result<Option<Arc<WatchedFile>>, u64> {
        // Each turn takes one out.
        while !self.due.is_empty() {
            self.room(now_ms)?;
            let Some(Reverse(Due(_, _, file))) = self.due.pop() else { break };
            let Some(file) = file.upgrade() else { continue };
            if self.recent_ms.len() >= LOOKS_MAX {
                self.recent_ms.pop_front();
            }
            self.recent_ms.push_back(now_ms);
            file.queued_in.store(0, Ordering::Relaxed);
            return Ok(Some(file));
        }
        Ok(None)
    }
}

/// The looks of one process.
pub(crate) struct Looks {
    process: u64,
    queue: Mutex<Queue>,
    /// Until when there is no room for another look.
    full_until_ms: AtomicU64,
}

impl Looks {
    fn new(process: u64) -> Self {
        Self { process, queue: Mutex::default(), full_until_ms: AtomicU64::new(0) }
    }

    /// Those of this process. The child of a fork begins anew: its parent's may be locked by a thread that it does not have.
    pub(crate) fn of_process() -> &'static Self {
        static CURRENT: AtomicPtr<Looks> = AtomicPtr::new(std::ptr::null_mut());
        let process = u64::from(std::process::id());
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: never freed once it was published.
        if let Some(looks) = unsafe { current.as_ref() }.filter(|looks| looks.process == process) {
            return looks;
        }
        let leaked: &'static Looks = Box::leak(Box::new(Self::new(process)));
        let place = std::ptr::from_ref(leaked).cast_mut();
        match CURRENT.compare_exchange(current, place, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => leaked,
            // SAFETY: another thread of this process published its own.
            Err(theirs) => unsafe { theirs.as_ref() }.unwrap_or(leaked),
        }
    }

    /// Looks at a file that is due, after those that were unseen for longer, as far as there is room.
    pub(crate) fn look(&self, file: &Arc<WatchedFile>, now_ms: u64) {
        let is_queued = file.queued_in.load(Ordering::Relaxed) == self.process;
        if is_queued && now_ms < self.full_until_ms.load(Ordering::Relaxed) {
            return;
        }
        let mut begun = false;
        loop {
            // Whoever holds it looks for everybody; a look is never done while it is held, since a file system may hang.
            let mut queue = match self.queue.try_lock() {
                Ok(queue) => queue,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            if !begun
                && file.is_due(now_ms)
                && file.queued_in.swap(self.process, Ordering::Relaxed) != self.process
            {
                queue.add(file);
            }
            begun = true;
            let next = match queue.next(now_ms) {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(until) => return self.full_until_ms.store(until, Ordering::Relaxed),
            };
            drop(queue);
            next.look(now_ms);
            if Arc::ptr_eq(&next, file) {
                return;
            }
        }
    }
}

/// Milliseconds since some moment of the past: coarse, because every read asks.
pub(crate) fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFile;

    fn files(count: usize, now_ms: u64) -> Vec<(Arc<MemoryFile>, Arc<WatchedFile>)> {
        (0..count)
            .map(|number| {
                let memory = Arc::new(MemoryFile::new(format!("{number}"), vec![0; 100]));
                (memory.clone(), Arc::new(WatchedFile::new(memory, 100, now_ms)))
            })
            .collect()
    }

    fn looked(files: &[(Arc<MemoryFile>, Arc<WatchedFile>)]) -> Vec<u64> {
        files.iter().map(|(_, file)| file.looked_ms.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_file_is_due_after_a_second_and_only_if_it_can_be_looked_at() {
        let file = &files(1, 500)[0].1;
        assert!(!file.is_due(500) && !file.is_due(1_500) && file.is_due(1_501));
        file.stamp.store(0, Ordering::Relaxed);
        assert!(!file.is_due(9_999));
    }

    /// Goal: at most 200 looks in any second, the longest unseen first. Method: 500 files, opened one millisecond apart, of which a
    /// reader touches one after another, newest first, as fast as it can.
    #[test]
    fn looks_are_limited_and_go_to_the_longest_unseen_first() {
        let looks = Looks::new(1);
        let all: Vec<_> = (0..500).flat_map(|at| files(1, at)).collect();
        for (_, file) in all.iter().rev() {
            looks.look(file, 10_000);
        }
        let first = looked(&all).iter().filter(|&&at| at == 10_000).count();
        assert_eq!(first, LOOKS_MAX);
        for now in [10_400, 10_999, 11_000, 12_000] {
            let before = looked(&all);
            for (_, file) in all.iter().filter(|(_, file)| file.is_due(now)) {
                looks.look(file, now);
            }
            let after = looked(&all);
            let seen: Vec<u64> = (0..500).filter(|&at| after[at] == now).map(|at| before[at]).collect();
            let unseen: Vec<u64> = (0..500).filter(|&at| after[at] != now).map(|at| before[at]).collect();
            assert_eq!(seen.len(), if now < 11_000 { 0 } else { LOOKS_MAX });
            assert!(seen.iter().max() <= unseen.iter().min() || seen.is_empty());
        }
    }

    #[test]
    fn a_closed_file_takes_no_look_of_others() {
        let looks = Looks::new(1);
        let mut all = files(LOOKS_MAX + 10, 0);
        for (_, file) in &all {
            looks.look(file, 5_000);
        }
        all.drain(..LOOKS_MAX);
        let other = files(1, 0);
        all.truncate(5);
        looks.look(&other[0].1, 6_000);
        assert_eq!((looked(&all), looked(&other)), (vec![6_000; 5], vec![6_000]));
        assert_eq!(looks.queue.lock().unwrap().recent_ms.len(), LOOKS_MAX);
    }

    #[test]
    fn a_change_that_shows_forgets_marks_and_names_the_steps_since_the_last_good_look() {
        let (memory, file) = &files(1, 0)[0];
        file.marks.set_good(0, file.marks.generation());
        file.unseen.add(&(1..=3));
        file.look(2_000);
        assert!(file.marks.is_good(0));
        file.unseen.add(&(4..=6));
        memory.flip_bit(0, 0);
        file.look(4_000);
        assert!(!file.marks.is_good(0) && file.marks.is_doubtful(0));
        assert_eq!(file.doubted.get(), Some(4..=6));
        file.marks.set_good(0, file.marks.generation());
        file.unseen.add(&(9..=9));
        memory.flip_bit(0, 0);
        file.look(6_000);
        assert_eq!(file.doubted.get(), Some(9..=9), "those of an earlier doubt were found good");
    }
}
