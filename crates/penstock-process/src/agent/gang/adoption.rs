//! The adopted: what workers started and left. While its worker lives such a process is left alone, afterwards it is an orphan.
//!
//! They become children of the agent, not of their worker: a worker waits for whom it started and for nobody else. Whose they are is
//! told by their mark, else by their environment; below one who tells, those who do not are of the same worker.

use std::collections::BTreeSet;

use crate::agent::{Agent, LOOK_MS};
use crate::job::mark::WORKER_MARK;
use crate::system::lineage::{Process, descendants, everyone, strangers, variable_of};
use crate::system::{self, now_ms};

/// A process that descends from us through nobody whom we own, and its worker by gang and rank, if it tells.
pub(in crate::agent) struct Adopted {
    pub(in crate::agent) process: Process,
    pub(in crate::agent) owner: Option<(usize, u32)>,
}

impl Agent {
    /// Looks for orphans when there may be any; when to look again.
    pub(in crate::agent) fn look(&mut self) -> Option<u64> {
        let expected: usize = self.view.state.gangs.iter().map(|gang| gang.workers.len()).sum();
        let ending = self.workers.tracked.iter().any(|tended| tended.ending_since_ms.is_some());
        if self.workers.running.len() == expected && !ending && self.workers.orphans_left == 0 {
            return None;
        }
        let owned = self.owned();
        let adopted = self.adopted(&everyone(), &owned);
        let orphans: Vec<Adopted> =
            adopted.into_iter().filter(|adopted| self.is_orphan(adopted.owner)).collect();
        // Who forks and ends all the time is missed by a look at /proc, but not among our children.
        let unseen = strangers(&owned).iter().any(|pid| self.is_orphan(self.owner_of(*pid)))
            || (owned.is_empty() && system::has_children());
        self.workers.orphans_left = u32::try_from(orphans.len()).unwrap_or(u32::MAX).max(u32::from(unseen));
        self.count_orphans(&orphans, unseen);
        let found: Vec<Process> = orphans.into_iter().map(|orphan| orphan.process).collect();
        let mut asked = std::mem::take(&mut self.workers.orphans);
        let again = asked.tick(now_ms(), &found, unseen, &|pid| {
            owned.contains(&pid) || !self.is_orphan(self.owner_of(pid))
        });
        self.workers.orphans = asked;
        for gang in 0..self.job.plans.len() {
            if self.workers.tracked[gang].orphans == 0 && self.running_of(gang).is_empty() {
                self.examine(gang);
            }
        }
        let busy = ending && !self.workers.running.is_empty();
        again.or_else(|| busy.then(|| now_ms() + LOOK_MS))
    }

    /// Everybody below us who is not below one of `owned`.
    pub(in crate::agent) fn adopted(&self, all: &[Process], owned: &BTreeSet<i32>) -> Vec<Adopted> {
        let me = self.view.state.agent;
        let mut found = Vec::new();
        for root in all.iter().filter(|process| process.parent == me && !owned.contains(&process.pid)) {
            let owner = self.owner_of(root.pid);
            if root.is_alive() {
                found.push(Adopted { process: root.clone(), owner });
            }
            for process in descendants(all, root.pid, owned) {
                let owner = self.marked_owner(process.pid).or(owner);
                found.push(Adopted { process, owner });
            }
        }
        found
    }

    /// The worker that a process came from, if it tells.
    pub(in crate::agent) fn owner_of(&self, pid: i32) -> Option<(usize, u32)> {
        self.marked_owner(pid).or_else(|| self.named_owner(&variable_of(pid, WORKER_MARK)?))
    }

    fn marked_owner(&self, pid: i32) -> Option<(usize, u32)> {
        let place = self.job.mark.worker_of(pid)?;
        self.job.plans.iter().enumerate().find_map(|(gang, plan)| {
            let rank = place.checked_sub(self.job.spec.place(plan.role, 0))?;
            plan.ranks.contains(&rank).then_some((gang, rank))
        })
    }

    fn named_owner(&self, mark: &str) -> Option<(usize, u32)> {
        let (role, rank) = mark.rsplit_once('-')?;
        let rank: u32 = rank.parse().ok()?;
        let own = |plan: &crate::job::GangPlan| {
            self.job.spec.roles[plan.role].name == role && plan.ranks.contains(&rank)
        };
        self.job.plans.iter().position(own).map(|gang| (gang, rank))
    }

    /// Whether what a worker left is to end: the worker is gone. Who does not tell whose it is ends with the last worker.
    pub(in crate::agent) fn is_orphan(&self, owner: Option<(usize, u32)>) -> bool {
        match owner {
            Some(owner) => !self.workers.running.values().any(|running| *running == owner),
            None => self.workers.running.is_empty(),
        }
    }

    /// Says of every gang how many orphans it has. One who does not tell is everybody's.
    fn count_orphans(&mut self, orphans: &[Adopted], unseen: bool) {
        let mut counts = vec![0; self.job.plans.len()];
        let mut unknown = u32::from(unseen && orphans.is_empty());
        for orphan in orphans {
            match orphan.owner {
                Some((gang, _)) => counts[gang] += 1,
                None => unknown += 1,
            }
        }
        for (gang, count) in counts.into_iter().enumerate() {
            let workers = &self.view.state.gangs[gang].workers;
            let has_lost_workers =
                workers.iter().any(|worker| !self.workers.running.contains_key(&worker.pid));
            self.workers.tracked[gang].orphans = count + if has_lost_workers { unknown } else { 0 };
        }
    }
}
