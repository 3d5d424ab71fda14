//! Orphans: descendants of ranks that are gone. They are asked to end, and killed half a second later.

use std::collections::BTreeMap;

use crate::system::lineage::{CHILDREN_ROUNDS, Process, kill_children};

/// From SIGTERM to SIGKILL. What a rank leaves behind has to be gone a second after it.
const GRACE_MS: u64 = 500;

/// Orphans that were asked to end, and when.
#[derive(Default)]
pub(in crate::agent) struct Orphans {
    asked: BTreeMap<(i32, u64), u64>,
    /// Since when there has always been one.
    since_ms: Option<u64>,
}

impl Orphans {
    /// Asks new ones to end and kills those that did not; when to look again.
    ///
    /// `unseen` says that there are others than those found; `spared` are our children that are no orphans.
    pub(in crate::agent) fn tick(
        &mut self,
        now_ms: u64,
        found: &[Process],
        unseen: bool,
        spared: &dyn Fn(i32) -> bool,
    ) -> Option<u64> {
        let identity = |process: &Process| (process.pid, process.start_ticks);
        self.asked.retain(|known, _| found.iter().any(|process| identity(process) == *known));
        for process in found {
            match self.asked.get(&identity(process)) {
                None => {
                    process.signal(libc::SIGTERM);
                    // A stopped process does not see SIGTERM before it continues.
                    process.signal(libc::SIGCONT);
                    self.asked.insert(identity(process), now_ms);
                }
                Some(since_ms) if now_ms >= since_ms + GRACE_MS => {
                    process.signal(libc::SIGKILL);
                }
                Some(_) => {}
            }
        }
        // Some may change their number faster than they can be looked for; none is spared once the first had its time.
        let any = unseen || !found.is_empty();
        self.since_ms = any.then(|| self.since_ms.unwrap_or(now_ms));
        if self.since_ms.is_some_and(|first_ms| now_ms >= first_ms + GRACE_MS) {
            kill_children(spared, CHILDREN_ROUNDS);
        }
        any.then_some(now_ms + if found.is_empty() { 2 } else { 20 })
    }
}
