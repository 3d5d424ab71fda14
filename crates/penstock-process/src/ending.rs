//! Orphans: descendants of ranks that are gone. They are asked to end, and killed half a second later.

use std::collections::BTreeMap;

use crate::lineage::Process;

/// From SIGTERM to SIGKILL. What a rank leaves behind has to be gone a second after it.
const GRACE_MS: u64 = 500;

/// Orphans that were asked to end, and when.
#[derive(Default)]
pub struct Orphans(BTreeMap<(i32, u64), u64>);

impl Orphans {
    /// Asks new ones to end and kills those that did not; when to look again.
    pub fn tick(&mut self, now_ms: u64, found: &[Process]) -> Option<u64> {
        let identity = |process: &Process| (process.pid, process.start_ticks);
        self.0.retain(|known, _| found.iter().any(|process| identity(process) == *known));
        for process in found {
            match self.0.get(&identity(process)) {
                None => {
                    process.signal(libc::SIGTERM);
                    // A stopped process does not see SIGTERM before it continues.
                    process.signal(libc::SIGCONT);
                    self.0.insert(identity(process), now_ms);
                }
                Some(since_ms) if now_ms >= since_ms + GRACE_MS => {
                    process.signal(libc::SIGKILL);
                }
                Some(_) => {}
            }
        }
        (!self.0.is_empty()).then_some(now_ms + 20)
    }
}
