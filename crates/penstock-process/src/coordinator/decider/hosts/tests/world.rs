//! A job on some hosts in imagined time: hosts that obey as agents do, and a leader that can be replaced at any moment.

use std::ops::Range;
use std::sync::Arc;

use serde_json::json;

use crate::coordinator::decider::Decider;
use crate::coordinator::hang::Signs;
use crate::coordinator::history::{Entry, JobHistory};
use crate::coordinator::messages::{GangReport, Order, Orders, PreparedLife, Report, WorkerReport};
use crate::coordinator::verdict::{Action, Failure, Stop};
use crate::coordinator::view::{HostFacts, HostLoss, JobView};
use crate::job::exit::Exit;
use crate::job::{GangPlan, Job};
use crate::tree::summary::{HostPlace, Summary};

/// Ranks of each host, for each role.
const RANKS: u32 = 2;

pub(super) fn role(name: &str, kind: &str, restart: &str) -> serde_json::Value {
    let policy = json!({
        "restart": restart, "budget": {"crash": 3, "memory": 3, "hang": 3, "preemption": 3}, "refill_steps": 0,
        "backoff_ms": 0, "backoff_max_ms": 0, "same_failure_max": 0, "stop_grace_ms": 500, "failure_grace_ms": 300,
        "hang": null,
    });
    json!({"name": name, "kind": kind, "command": ["true"], "ranks": RANKS, "policy": policy})
}

/// What a host does with what it is told.
#[derive(Clone)]
pub(super) struct HostTwin {
    pub(super) gangs: Vec<GangReport>,
    pub(super) stop: Option<Stop>,
    /// Its messages arrive.
    pub(super) heard: bool,
    /// It can take its slots.
    pub(super) able: bool,
}

impl HostTwin {
    pub(super) fn new(gangs: usize) -> Self {
        Self { gangs: vec![GangReport::default(); gangs], stop: None, heard: true, able: true }
    }

    fn obey(&mut self, order: &Order, ranks: Range<u32>, host_rank: u32, now_ms: u64) {
        let gang = &mut self.gangs[order.gang];
        let running = gang.workers.iter().filter(|worker| worker.running).count();
        if order.outdates(gang.incarnation) {
            end(gang, now_ms);
        }
        if !order.concerns(gang.incarnation, running, self.stop.is_some()) {
            return;
        }
        match order.action {
            Action::Prepare { incarnation } if self.able => {
                let port = (host_rank == 0).then_some(29_500);
                gang.prepared = Some(PreparedLife { incarnation, port });
            }
            Action::Start { incarnation } => {
                let workers = ranks.map(running_worker).collect();
                *gang = GangReport { incarnation: Some(incarnation), workers, ..GangReport::default() };
            }
            Action::End => {
                gang.ending_since_ms.get_or_insert(now_ms);
                end(gang, now_ms);
            }
            Action::Kill => {
                gang.killing_since_ms.get_or_insert(now_ms);
                end(gang, now_ms);
            }
            _ => {}
        }
    }
}

pub(super) fn running_worker(rank: u32) -> WorkerReport {
    WorkerReport {
        rank,
        pid: 7,
        running: true,
        exit: None,
        exit_ms: None,
        asked: false,
        pulse: None,
        heard_ms: None,
        signs: Signs::default(),
    }
}

fn end(gang: &mut GangReport, now_ms: u64) {
    for worker in gang.workers.iter_mut().filter(|worker| worker.running) {
        worker.asked = true;
        leave(worker, 143, now_ms);
    }
    gang.examined = true;
}

fn leave(worker: &mut WorkerReport, code: i32, now_ms: u64) {
    worker.running = false;
    worker.exit = Some(Exit { code: Some(code), signal: None, core: false, memory_exhausted: false });
    worker.exit_ms = Some(now_ms);
}

/// A job on some hosts, with a leader that can be replaced.
pub(super) struct World {
    pub(super) job: Job,
    pub(super) hosts: Vec<HostTwin>,
    pub(super) facts: HostFacts,
    pub(super) decider: Decider,
    pub(super) journal: Vec<Entry>,
    pub(super) now_ms: u64,
}

impl World {
    pub(super) fn new(count: u32, roles: Vec<serde_json::Value>) -> Self {
        let text = json!({"id": "test", "detached": true, "colour": false, "cgroup": false, "roles": roles});
        let job: Job = serde_json::from_value(text).unwrap();
        let facts = HostFacts {
            names: Arc::new((0..count).map(|host_rank| format!("gpu{host_rank:02}")).collect()),
            ranks: Arc::new(vec![vec![RANKS]; job.roles.len()]),
            host_wait_ms: 600_000,
            ..HostFacts::default()
        };
        let gangs = job.gangs().len();
        let hosts = (0..count).map(|_| HostTwin::new(gangs)).collect();
        let plans = facts.gangs(&job);
        let decider = Decider::over(plans.clone(), job.clone(), JobHistory::of(&job, &plans));
        Self { job, hosts, facts, decider, journal: Vec::new(), now_ms: 1000 }
    }

    pub(super) fn one(count: u32) -> Self {
        Self::new(count, vec![role("rank", "gang", "gang")])
    }

    fn summary(&self) -> Summary {
        let heard = (0..)
            .zip(&self.hosts)
            .filter(|(host_rank, host)| host.heard && !self.facts.unfilled.contains(host_rank));
        heard.fold(Summary::default(), |all, (host_rank, host)| {
            let gangs = host.gangs.clone();
            let report = Report {
                number: 0,
                machine: 0,
                now_ms: self.now_ms,
                stop: host.stop.clone(),
                gangs,
                unkillable: 0,
                leaves: None,
                stderr: Vec::new(),
            };
            let firsts = vec![host_rank * RANKS; self.job.roles.len()];
            let place = HostPlace {
                host_rank,
                first_ranks: &firsts,
                address: "10.0.0.1".parse().unwrap(),
                offset_ms: 0,
                within_ms: 0,
                told_to_stop: false,
                pasts: &[],
            };
            all.merge(&Summary::of_report(&report, &self.job, &place))
        })
    }

    /// What is decided now; whoever leads instead, from the journal, says the same.
    fn decide(&mut self) -> Orders {
        self.now_ms += 10;
        let view = JobView::of_summary(&self.summary(), &self.job, self.facts.clone(), self.now_ms);
        let text: Vec<String> =
            self.journal.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        let plans = self.facts.gangs(&self.job);
        let history = JobHistory::of(&self.job, &plans).read(text.join("\n").as_bytes());
        assert_eq!(&history, self.decider.history(), "the journal is all that is remembered");
        let mut other = Decider::over(plans, self.job.clone(), history);
        let (entries, orders) = self.decider.consider_view(&view);
        assert_eq!(
            other.consider_view(&view),
            (entries.clone(), orders.clone()),
            "another leader says the same"
        );
        assert_eq!(other.consider_view(&view).0, Vec::new(), "once");
        self.journal.extend(entries);
        orders
    }

    pub(super) fn turn(&mut self) -> Orders {
        let orders = self.decide();
        let now_ms = self.now_ms;
        let (plans, local) = (self.facts.gangs(&self.job), self.job.gangs());
        for (host_rank, host) in (0..).zip(&mut self.hosts).filter(|(_, host)| host.heard) {
            for order in &orders.gangs {
                let plan = &plans[order.gang];
                if plan.host.is_some_and(|bound| bound != host_rank) {
                    continue;
                }
                let own = |known: &GangPlan| known.role == plan.role && known.ranks == plan.ranks;
                let gang = local.iter().position(own).expect("a gang of this host");
                host.obey(&Order { gang, ..order.clone() }, plan.ranks.clone(), host_rank, now_ms);
            }
        }
        orders
    }

    pub(super) fn action(&mut self) -> Action {
        self.turn().gangs[0].action.clone()
    }

    /// Until all ranks of the first gang run in this life.
    pub(super) fn run(&mut self, life: u32) {
        for _ in 0..20 {
            self.turn();
            if self.hosts.iter().all(|host| {
                host.gangs[0].incarnation == Some(life)
                    && host.gangs[0].workers.iter().all(|worker| worker.running)
            }) {
                return;
            }
        }
        panic!("life {life} does not begin: {:#?}", self.decider.history());
    }

    pub(super) fn exit(&mut self, host_rank: usize, rank: usize, code: i32) {
        let now_ms = self.now_ms;
        leave(&mut self.hosts[host_rank].gangs[0].workers[rank], code, now_ms);
    }

    /// A rank that is a gang of its own ends.
    pub(super) fn exit_alone(&mut self, host_rank: usize, rank: usize, code: i32) {
        let now_ms = self.now_ms;
        let gang = &mut self.hosts[host_rank].gangs[rank];
        leave(&mut gang.workers[0], code, now_ms);
        gang.examined = true;
    }

    pub(super) fn lose(&mut self, host_rank: u32, heard_ms: u64) {
        let name = self.facts.names[host_rank as usize].clone();
        let what = "was lost: its lease expired".to_owned();
        self.facts.losses.push(HostLoss { host_rank, name, what, heard_ms, at_ms: self.now_ms });
        self.facts.unfilled.push(host_rank);
        self.facts.unfilled_since_ms.get_or_insert(self.now_ms);
        self.hosts[host_rank as usize].heard = false;
    }

    pub(super) fn fill(&mut self, host_rank: u32) {
        self.facts.losses.retain(|loss| loss.host_rank != host_rank);
        self.facts.unfilled.retain(|unfilled| *unfilled != host_rank);
        if self.facts.unfilled.is_empty() {
            self.facts.unfilled_since_ms = None;
        }
        self.facts.filled_ms = self.now_ms;
        self.hosts[host_rank as usize] = HostTwin::new(self.job.gangs().len());
    }

    pub(super) fn failures(&self) -> Vec<Failure> {
        self.decider.history().gangs[0].failures.clone()
    }
}
