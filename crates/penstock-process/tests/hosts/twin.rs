//! The agent of one imagined host: it does what an agent does with orders, and ends its ranks before the lease does.

use penstock_process::coordinator::hang::Pulse;
use penstock_process::coordinator::messages::{GangReport, Orders, PreparedLife, Report, WorkerReport};
use penstock_process::coordinator::verdict::{Action, UNKILLABLE_MS};
use penstock_process::job::exit::Exit;
use penstock_process::lease::grant;
use penstock_process::logs::stderr_tail::RankStderr;

/// What a rank exits with that was asked to leave.
const LEFT: i32 = 75;

/// Why ranks of a host ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Somebody ordered it.
    Ordered(String),
    /// The lease was about to end.
    Lease,
    /// A rank failed by itself.
    Failed,
}

/// An agent with ranks that do nothing but run.
#[derive(Debug, Clone)]
pub(crate) struct Twin {
    ranks: u32,
    lease_ms: u64,
    pub(crate) host_rank: Option<u32>,
    /// Its number among the hosts of the life that it prepared for or runs, and how many there are.
    pub(crate) place: (u32, u32),
    pub(crate) life: Option<u32>,
    pub(crate) running: bool,
    exit_code: Option<i32>,
    exit_ms: Option<u64>,
    asked: bool,
    prepared: Option<u32>,
    pub(crate) lease_until_ms: Option<u64>,
    pub(crate) over: bool,
    number: u64,
    pub(crate) ends: Vec<Ended>,
    ending_since_ms: Option<u64>,
    lease_ended_ms: Option<u64>,
    /// Its ranks look for notices, and leave when they are asked to.
    pub(crate) listens: bool,
    leave_since_ms: Option<u64>,
    /// Its host leaves the job; its ranks have ended, and it begins nothing any more.
    pub(crate) leaves: Option<String>,
    /// Rank 0 will sleep in the kernel when it is ended, and outlive SIGKILL.
    pub(crate) sticks: bool,
    /// It does, and when it was killed.
    stuck: bool,
    killing_since_ms: Option<u64>,
    /// Its first rank says something in every life, and in which it did.
    pub(crate) says: bool,
    said: Option<u32>,
}

impl Twin {
    pub(crate) fn new(ranks: u32, lease_ms: u64, listens: bool) -> Self {
        Self {
            ranks,
            lease_ms,
            host_rank: None,
            place: (0, 0),
            life: None,
            running: false,
            exit_code: None,
            exit_ms: None,
            asked: false,
            prepared: None,
            lease_until_ms: None,
            over: false,
            number: 0,
            ends: Vec::new(),
            ending_since_ms: None,
            lease_ended_ms: None,
            listens,
            leave_since_ms: None,
            leaves: None,
            sticks: false,
            stuck: false,
            killing_since_ms: None,
            says: false,
            said: None,
        }
    }

    /// What its first rank wrote to standard error since the last report.
    fn words_of_rank(&mut self) -> Vec<RankStderr> {
        let life = self.life.filter(|life| self.says && self.running && self.said != Some(*life));
        self.said = life.or(self.said);
        let text = |life: u32| format!("host rank {:?} in life {life}\n", self.host_rank);
        let one = |incarnation| RankStderr {
            role: "rank".to_owned(),
            rank: 0,
            incarnation,
            text: text(incarnation),
        };
        life.map(one).into_iter().collect()
    }

    /// What slept in the kernel is gone.
    pub(crate) fn wake(&mut self) {
        (self.sticks, self.stuck, self.killing_since_ms) = (false, false, None);
    }

    /// How it stands.
    pub(crate) fn words(&self) -> String {
        let Self { life, running, prepared, number, .. } = self;
        format!("life {life:?} running {running} prepared {prepared:?} report {number}")
    }

    /// Its lease ends later.
    pub(crate) fn renew(&mut self, lease_until_ms: u64) {
        self.lease_until_ms = self.lease_until_ms.max(Some(lease_until_ms));
    }

    /// Ranks that run.
    pub(crate) fn running_ranks(&self) -> u32 {
        if self.running { self.ranks } else { 0 }
    }

    /// How far its running ranks are: not the same on all hosts.
    pub(crate) fn steps(&self) -> impl Iterator<Item = u64> + '_ {
        let first = u64::from(self.host_rank.unwrap_or(0) * 7 + self.life.unwrap_or(0));
        (0..self.running_ranks()).map(move |rank| first + u64::from(rank))
    }

    /// Does what it is told; whether there is something to report.
    pub(crate) fn obey(&mut self, now_ms: u64, orders: &Orders) -> bool {
        if orders.number != self.number {
            return false;
        }
        self.host_rank = orders.standing.as_ref().map(|standing| standing.host_rank);
        self.lease_until_ms = self.lease_until_ms.max(orders.lease_until_ms);
        self.over |= orders.over.is_some();
        if self.leaves.is_some() {
            return false;
        }
        let mut changed = false;
        for order in &orders.gangs {
            if self.running && order.outdates(self.life) {
                // It slept, or was cut off: the job is further.
                self.end(now_ms, -9, true, Ended::Ordered("the job is further".to_owned()));
                changed = true;
            }
            let running = usize::from(self.running);
            if self.stuck && order.action == Action::End && self.ending_since_ms.is_none() {
                self.ending_since_ms = Some(now_ms);
                changed = true;
            }
            if self.stuck && order.action == Action::Kill && self.killing_since_ms.is_none() {
                self.killing_since_ms = Some(now_ms);
                changed = true;
            }
            if matches!(order.action, Action::Prepare { .. }) {
                if let Action::Prepare { incarnation } = order.action {
                    let next = self.life.map_or(0, |life| life + 1);
                    changed |= !self.running && incarnation >= next && self.prepared != Some(incarnation);
                    if !self.running && incarnation >= next {
                        self.prepared = Some(incarnation);
                        let standing = orders.standing.as_ref();
                        self.place = standing.map_or((0, 0), |standing| (standing.host_rank, standing.hosts));
                    }
                }
                continue;
            }
            if let Action::Start { incarnation } = order.action {
                if self.prepared == Some(incarnation) && !self.running && Some(incarnation) > self.life {
                    (self.life, self.running, self.prepared) = (Some(incarnation), true, None);
                    (self.exit_code, self.exit_ms, self.asked, self.ending_since_ms) =
                        (None, None, false, None);
                    (self.lease_ended_ms, self.leave_since_ms) = (None, None);
                    changed = true;
                }
                continue;
            }
            if order.action == Action::Leave && order.concerns(self.life, running, false) {
                changed |= self.leave_since_ms.is_none();
                self.leave_since_ms.get_or_insert(now_ms);
                if self.running && self.listens {
                    self.end(now_ms, LEFT, false, Ended::Ordered(order.reason.clone()));
                }
                continue;
            }
            if order.concerns(self.life, running, false)
                && matches!(order.action, Action::End | Action::Kill | Action::Notify { .. })
                && self.running
            {
                self.ending_since_ms = Some(now_ms);
                self.end(now_ms, -15, true, Ended::Ordered(order.reason.clone()));
                changed = true;
            }
        }
        changed
    }

    /// Ends its ranks if the lease demands it; whether it did.
    pub(crate) fn keep_lease(&mut self, now_ms: u64) -> bool {
        let margin_ms = grant::margin_ms(self.lease_ms);
        let due = self.lease_until_ms.is_none_or(|until_ms| now_ms + margin_ms >= until_ms);
        if due && self.running {
            self.end(now_ms, -9, true, Ended::Lease);
            self.lease_ended_ms = Some(now_ms);
            return true;
        }
        false
    }

    /// When the lease has to be looked at.
    pub(crate) fn lease_due_ms(&self) -> Option<u64> {
        let until_ms = self.lease_until_ms.filter(|_| self.running)?;
        Some(until_ms.saturating_sub(grant::margin_ms(self.lease_ms)))
    }

    /// Its ranks end by themselves; whether they ran.
    pub(crate) fn end_alone(&mut self, now_ms: u64, code: i32) -> bool {
        let ran = self.running;
        if ran {
            self.end(now_ms, code, false, Ended::Failed);
        }
        ran
    }

    /// Its keeper is gone, so it ends its ranks and leaves.
    pub(crate) fn leave(&mut self, now_ms: u64) {
        if self.running {
            self.end(now_ms, -9, true, Ended::Ordered("the keeper was killed".to_owned()));
        }
        self.prepared = None;
        self.leaves = Some("the keeper was killed".to_owned());
    }

    fn end(&mut self, now_ms: u64, code: i32, asked: bool, why: Ended) {
        (self.running, self.stuck) = (false, self.sticks);
        (self.exit_code, self.exit_ms, self.asked) = (Some(code), Some(now_ms), asked);
        if self.ends.len() < 64 {
            self.ends.push(why);
        }
    }

    /// All that it knows.
    pub(crate) fn report(&mut self, now_ms: u64) -> Report {
        self.number += 1;
        let exit = self.exit_code.map(|code| match code {
            0.. => Exit { code: Some(code), signal: None, core: false, memory_exhausted: false },
            _ => Exit { code: None, signal: Some(-code), core: false, memory_exhausted: false },
        });
        let asleep = |rank: u32| self.stuck && rank == 0;
        let steps: Vec<u64> = self.steps().collect();
        let worker = |rank: u32| WorkerReport {
            rank,
            pid: 100 + rank as i32,
            running: self.running || asleep(rank),
            exit: exit.clone().filter(|_| !asleep(rank)),
            exit_ms: self.exit_ms.filter(|_| !asleep(rank)),
            asked: self.asked,
            pulse: steps.get(rank as usize).map(|step| Pulse {
                step: *step,
                listens: self.listens,
                ..Pulse::default()
            }),
            heard_ms: None,
            signs: Default::default(),
        };
        let workers = if self.life.is_some() { (0..self.ranks).map(worker).collect() } else { Vec::new() };
        let gone = self.life.is_some() && !self.running && !self.stuck;
        let late = |since_ms: u64| now_ms >= since_ms + UNKILLABLE_MS;
        let unkillable = u32::from(self.stuck && self.killing_since_ms.is_some_and(late));
        let prepared = self
            .prepared
            .filter(|_| !self.stuck)
            .map(|incarnation| PreparedLife { incarnation, port: Some(4000) });
        let gang = GangReport {
            incarnation: self.life,
            workers,
            examined: gone,
            ending_since_ms: self.ending_since_ms,
            prepared,
            lease_ended_ms: self.lease_ended_ms,
            leave_since_ms: self.leave_since_ms,
            killing_since_ms: self.killing_since_ms,
            ..GangReport::default()
        };
        let (stderr, leaves) = (self.words_of_rank(), self.leaves.clone());
        let gangs = vec![gang];
        Report { number: self.number, machine: 0, now_ms, stop: None, gangs, unkillable, leaves, stderr }
    }
}
