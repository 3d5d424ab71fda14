//! The lease of this host: until when it may run ranks unheard. The agent ends them a little before; the kernel's timer and the keeper
//! do so if it does not. In a job of one host there is no lease.

use std::os::fd::OwnedFd;

use serde_json::json;

use crate::agent::{Agent, LOOK_MS};
use crate::complain;
use crate::job::state::wall_s;
use crate::keeper::custody::{self, LentTime};
use crate::lease::kernel_timer::KernelTimer;
use crate::system::lineage::Process;
use crate::system::now_ms;

/// Ranks are ended so long before the end; of a short lease, in its last quarter.
const MARGIN_MAX_MS: u64 = 1000;
/// The keeper gives the agent the first half of that: a busy machine takes its time to kill and to reap.
const KEEPER_SHARE: u64 = 2;
/// Who is still there so long after SIGKILL, and neither runs nor can be reaped, sleeps in the kernel.
const ASLEEP_MS: u64 = 200;
/// A start that came too late in a lease is looked at again.
const AGAIN_MS: u64 = 50;

/// What is known of the lease.
#[derive(Default)]
pub(super) struct HostLease {
    /// When it ends, on our own clock; nothing where there was never one.
    until_ms: Option<u64>,
    /// The longest time that one was granted for.
    span_ms: u64,
    /// Kills us at the end; made with the first lease.
    timer: Option<KernelTimer>,
    /// What the keeper knows.
    lent: Option<LentTime>,
    /// Ranks are being ended because of it.
    is_over: bool,
}

impl HostLease {
    /// A promise holds whatever is said later, so only a longer one is news.
    fn renew(&mut self, until_ms: u64, now_ms: u64) {
        if self.until_ms.is_none_or(|known_ms| known_ms < until_ms) {
            self.until_ms = Some(until_ms);
            self.span_ms = self.span_ms.max(until_ms.saturating_sub(now_ms));
        }
    }

    fn margin_ms(&self) -> u64 {
        MARGIN_MAX_MS.min(self.span_ms / 4)
    }

    /// When ranks are ended by us.
    fn act_ms(&self) -> Option<u64> {
        self.until_ms.map(|until_ms| until_ms.saturating_sub(self.margin_ms()))
    }

    /// Lets timer and keeper know when to end ranks that run.
    fn hold(&mut self, keeper: Option<&OwnedFd>) {
        let (Some(until_ms), Some(act_ms)) = (self.until_ms, self.act_ms()) else { return };
        if self.timer.is_none() {
            let made = KernelTimer::open();
            self.timer = made.inspect_err(|problem| complain!("penstock-agent: {problem}")).ok();
        }
        if let Some(Err(problem)) = self.timer.as_mut().map(|timer| timer.arm(until_ms)) {
            complain!("penstock-agent: {problem}");
        }
        self.lend(Some(LentTime { until_ms, act_ms: act_ms + self.margin_ms() / KEEPER_SHARE }), keeper);
    }

    /// Nobody runs who would have to be ended.
    fn rest(&mut self, keeper: Option<&OwnedFd>) {
        if let Some(Err(problem)) = self.timer.as_mut().map(KernelTimer::disarm) {
            complain!("penstock-agent: {problem}");
        }
        self.lend(None, keeper);
        self.is_over = false;
    }

    fn lend(&mut self, time: Option<LentTime>, keeper: Option<&OwnedFd>) {
        if self.lent != time {
            keeper.into_iter().for_each(|keeper| custody::lend(keeper, time));
            self.lent = time;
        }
    }
}

impl Agent {
    /// Takes note of what a coordinator grants, also with orders that answer an older report.
    pub(super) fn note_lease(&mut self, until_ms: Option<u64>) {
        if let Some(until_ms) = until_ms {
            self.lease.renew(until_ms, now_ms());
        }
    }

    /// Whether ranks may begin: nobody limits the time, or there is some, and the timer runs.
    pub(super) fn may_begin(&mut self) -> bool {
        let Some(act_ms) = self.lease.act_ms() else { return true };
        if now_ms() >= act_ms {
            self.coordinator.look_at_ms = Some(now_ms() + AGAIN_MS);
            return false;
        }
        self.lease.hold(self.output.holders.first());
        true
    }

    /// Ends ranks when the lease does; when to look again.
    pub(super) fn keep_lease(&mut self) -> Option<u64> {
        let act_ms = self.lease.act_ms()?;
        if !self.has_ranks() {
            self.lease.rest(self.output.holders.first());
            return None;
        }
        self.lease.hold(self.output.holders.first());
        if now_ms() < act_ms && !self.lease.is_over {
            return Some(act_ms);
        }
        if !std::mem::replace(&mut self.lease.is_over, true) {
            self.note_end_of_lease();
        }
        (0..self.job.plans.len()).for_each(|gang| self.kill_gang(gang));
        Some(now_ms() + LOOK_MS)
    }

    fn note_end_of_lease(&mut self) {
        let now_ms = now_ms();
        let left_ms = self.lease.until_ms.unwrap_or(now_ms).saturating_sub(now_ms);
        let at = time_of_day(wall_s() + left_ms as f64 / 1000.0);
        let reason = format!("the lease of this host ends at {at}");
        self.journal.add_fact("lease-ended", json!({"until_ms": self.lease.until_ms}));
        for gang in 0..self.job.plans.len() {
            if !self.running_of(gang).is_empty() {
                self.workers.tracked[gang].lease_ended_ms = Some(now_ms);
                self.view.state.gangs[gang].reason.clone_from(&reason);
            }
        }
        self.say(&format!("{reason}; its ranks are ended"));
        self.view.state.reason = reason;
    }

    /// Whether anybody runs who would have to be ended.
    fn has_ranks(&self) -> bool {
        let asleep = usize::try_from(self.unkillable_ranks()).unwrap_or(0);
        self.workers.running.len() > asleep || self.workers.orphans_left > 0
    }

    /// How many workers were killed and are still there.
    pub(super) fn unkillable_ranks(&self) -> u32 {
        let now_ms = now_ms();
        let asleep = |(pid, (gang, _)): &(&i32, &(usize, u32))| {
            let killed_ms = self.workers.tracked[*gang].killing_since_ms;
            killed_ms.is_some_and(|since_ms| now_ms >= since_ms + ASLEEP_MS)
                && Process::read(**pid).is_some_and(|process| matches!(process.state, 'D' | 'Z'))
        };
        u32::try_from(self.workers.running.iter().filter(asleep).count()).unwrap_or(u32::MAX)
    }
}

/// A moment as a clock on the wall shows it, in universal time.
fn time_of_day(wall_s: f64) -> String {
    let second = wall_s as u64 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_ended_a_second_before_a_lease_ends_and_in_the_last_quarter_of_a_short_one() {
        for (granted_ms, before_ms) in [(30_000, 1000), (4000, 1000), (2000, 500)] {
            let mut lease = HostLease::default();
            lease.renew(50_000 + granted_ms, 50_000);
            assert_eq!(lease.act_ms(), Some(50_000 + granted_ms - before_ms));
        }
    }

    #[test]
    fn a_promise_is_never_shortened() {
        let mut lease = HostLease::default();
        lease.renew(60_000, 30_000);
        lease.renew(59_000, 31_000);
        assert_eq!((lease.until_ms, lease.act_ms()), (Some(60_000), Some(59_000)));
        lease.renew(61_000, 60_500);
        assert_eq!(lease.act_ms(), Some(60_000), "what is left of a lease does not change what it is");
    }

    #[test]
    fn a_job_of_one_host_has_no_lease_to_end() {
        assert_eq!(HostLease::default().act_ms(), None);
    }

    #[test]
    fn the_end_is_told_as_a_time_of_day() {
        assert_eq!(time_of_day(1_795_000_453.7), "11:14:13 UTC");
    }
}
