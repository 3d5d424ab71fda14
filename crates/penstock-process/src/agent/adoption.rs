//! The adopted: what workers started and left. While its worker lives such a process is left alone, afterwards it is an orphan.
//!
//! They become children of the agent, not of their worker: a worker waits for whom it started and for nobody else. Whose they are is
//! told by their mark, else by their environment; below one who tells, those who do not are of the same worker.

use std::collections::BTreeSet;

use crate::agent::{Agent, LOOK_MS};
use crate::spawn::WORKER_MARK;
use crate::system::lineage::{Process, descendants, everyone, strangers, variable_of};
use crate::system::{self, now_ms};

/// A process that descends from us through nobody whom we own, and its worker by gang and rank, if it tells.
pub(super) struct Adopted {
    pub(super) process: Process,
    pub(super) owner: Option<(usize, u32)>,
}

impl Agent {
    /// Looks for orphans when there may be any; when to look again.
    pub(super) fn look(&mut self) -> Option<u64> {
        let expected: usize = self.state.gangs.iter().map(|gang| gang.workers.len()).sum();
        let ending = self.tended.iter().any(|tended| tended.ending_since_ms.is_some());
        if self.running.len() == expected && !ending && self.orphans_left == 0 {
            return None;
        }
        let owned = self.owned();
        let adopted = self.adopted(&everyone(), &owned);
        let orphans: Vec<Adopted> =
            adopted.into_iter().filter(|adopted| self.is_orphan(adopted.owner)).collect();
        // Who forks and ends all the time is missed by a look at /proc, but not among our children.
        let unseen = strangers(&owned).iter().any(|pid| self.is_orphan(self.owner_of(*pid)))
            || (owned.is_empty() && system::has_children());
        self.orphans_left = u32::try_from(orphans.len()).unwrap_or(u32::MAX).max(u32::from(unseen));
        self.count_orphans(&orphans, unseen);
        let found: Vec<Process> = orphans.into_iter().map(|orphan| orphan.process).collect();
        let mut asked = std::mem::take(&mut self.orphans);
        let again = asked.tick(now_ms(), &found, unseen, &|pid| {
            owned.contains(&pid) || !self.is_orphan(self.owner_of(pid))
        });
        self.orphans = asked;
        for gang in 0..self.plans.len() {
            if self.tended[gang].orphans == 0 && self.running_of(gang).is_empty() {
                self.examine(gang);
            }
        }
        let busy = ending && !self.running.is_empty();
        again.or_else(|| busy.then(|| now_ms() + LOOK_MS))
    }

    /// Everybody below us who is not below one of `owned`.
    pub(super) fn adopted(&self, all: &[Process], owned: &BTreeSet<i32>) -> Vec<Adopted> {
        let me = self.state.agent;
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
    pub(super) fn owner_of(&self, pid: i32) -> Option<(usize, u32)> {
        self.marked_owner(pid).or_else(|| self.named_owner(&variable_of(pid, WORKER_MARK)?))
    }

    fn marked_owner(&self, pid: i32) -> Option<(usize, u32)> {
        let place = self.mark.worker_of(pid)?;
        self.plans.iter().enumerate().find_map(|(gang, plan)| {
            let rank = place.checked_sub(self.job.place(plan.role, 0))?;
            plan.ranks.contains(&rank).then_some((gang, rank))
        })
    }

    fn named_owner(&self, mark: &str) -> Option<(usize, u32)> {
        let (role, rank) = mark.rsplit_once('-')?;
        let rank: u32 = rank.parse().ok()?;
        let own = |plan: &crate::job::GangPlan| {
            self.job.roles[plan.role].name == role && plan.ranks.contains(&rank)
        };
        self.plans.iter().position(own).map(|gang| (gang, rank))
    }

    /// Whether what a worker left is to end: the worker is gone. Who does not tell whose it is ends with the last worker.
    pub(super) fn is_orphan(&self, owner: Option<(usize, u32)>) -> bool {
        match owner {
            Some(owner) => !self.running.values().any(|running| *running == owner),
            None => self.running.is_empty(),
        }
    }

    /// Says of every gang how many orphans it has. One who does not tell is everybody's.
    fn count_orphans(&mut self, orphans: &[Adopted], unseen: bool) {
        let mut counts = vec![0; self.plans.len()];
        let mut unknown = u32::from(unseen && orphans.is_empty());
        for orphan in orphans {
            match orphan.owner {
                Some((gang, _)) => counts[gang] += 1,
                None => unknown += 1,
            }
        }
        for (gang, count) in counts.into_iter().enumerate() {
            let workers = &self.state.gangs[gang].workers;
            let bereft = workers.iter().any(|worker| !self.running.contains_key(&worker.pid));
            self.tended[gang].orphans = count + if bereft { unknown } else { 0 };
        }
    }
}
