//! The agent's twin: does with imagined processes what the agent does with real ones, by the same rules.

use penstock_process::coordinator::hang::{Patience, Signs};
use penstock_process::coordinator::messages::{GangReport, Order, Report, WorkerReport};
use penstock_process::coordinator::verdict::{Action, Stop, UNKILLABLE_MS};
use penstock_process::job::exit::Exit;

use crate::chance::Chance;
use crate::scene::{End, Fate, Heir, Scene, killed, left};

/// From SIGTERM to SIGKILL for what dead workers leave.
const ORPHAN_GRACE_MS: u64 = 500;
/// Beyond the grace of a stop; then the agent kills without being told.
pub(crate) const STOP_SLACK_MS: u64 = 3000;

/// A worker of the newest life of its gang.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) rank: u32,
    pub(crate) pid: i32,
    pub(crate) slot: u32,
    pub(crate) fate: Fate,
    pub(crate) started_ms: u64,
    pub(crate) running: bool,
    pub(crate) exit: Option<Exit>,
    pub(crate) exit_ms: Option<u64>,
    pub(crate) asked: bool,
    /// When it will end as things are, and how.
    pub(crate) ends: Option<(u64, Exit)>,
    pub(crate) killed: bool,
    /// When it was lost with its agent.
    pub(crate) lost_ms: Option<u64>,
}

impl Worker {
    /// Ends it then, unless it ends earlier.
    fn end_by(&mut self, at_ms: u64, exit: Exit) {
        if self.ends.as_ref().is_none_or(|(known_ms, _)| *known_ms > at_ms) {
            self.ends = Some((at_ms, exit));
        }
    }

    /// How long it has run, or did.
    pub(crate) fn age_ms(&self, now_ms: u64) -> u64 {
        self.exit_ms.or(self.lost_ms).unwrap_or(now_ms) - self.started_ms
    }
}

/// A descendant whose worker is gone.
#[derive(Debug, Clone)]
pub(crate) struct Orphan {
    heir: Heir,
    since_ms: u64,
    ends_ms: Option<u64>,
}

/// What the agent knows of one gang.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tended {
    pub(crate) incarnation: Option<u32>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) orphans: Vec<Orphan>,
    /// The order to begin that waits for slots, and until when.
    pub(crate) queued: Option<(Vec<u32>, u64)>,
    pub(crate) notified_ms: Option<u64>,
    pub(crate) signalled_ms: Option<u64>,
    pub(crate) ending_ms: Option<u64>,
    pub(crate) killing_ms: Option<u64>,
    /// When the stacks will have been taken.
    pub(crate) witness_ms: Option<u64>,
    pub(crate) witnessed: bool,
    /// When stacks were looked at because somebody may hang, and when they will be.
    pub(crate) looks: Vec<u64>,
    pub(crate) look_ms: Option<u64>,
    /// The newest suspicion that people were told.
    pub(crate) warned: u32,
    pub(crate) examined: bool,
    /// Incidents that were written, by life.
    pub(crate) incidents: Vec<u32>,
}

impl Tended {
    /// Whether those who are left were killed long ago and sleep in the kernel.
    pub(crate) fn is_past_hope(&self, now_ms: u64) -> bool {
        self.killing_ms.is_some_and(|since_ms| now_ms >= since_ms + UNKILLABLE_MS)
    }

    pub(crate) fn running(&self) -> usize {
        self.workers.iter().filter(|worker| worker.running).count()
    }
}

/// The agent.
pub(crate) struct Twin {
    pub(crate) gangs: Vec<Tended>,
    pub(crate) stop: Option<Stop>,
    pub(crate) stop_by_ms: Option<u64>,
    chance: Chance,
    pids: i32,
}

impl Twin {
    pub(crate) fn new(scene: &Scene) -> Self {
        let gangs = scene.job.gangs().iter().map(|_| Tended::default()).collect();
        Self { gangs, stop: None, stop_by_ms: None, chance: Chance::new(scene.seed, &[3]), pids: 0 }
    }

    /// Another agent after this one was killed: it knows what was saved, and its workers are gone without a word.
    pub(crate) fn succeed(&mut self, now_ms: u64) {
        (self.stop, self.stop_by_ms) = (None, None);
        for gang in &mut self.gangs {
            for worker in gang.workers.iter_mut().filter(|worker| worker.running) {
                (worker.running, worker.lost_ms) = (false, Some(now_ms));
            }
            let workers = std::mem::take(&mut gang.workers);
            let examined = !workers.is_empty();
            let incidents = std::mem::take(&mut gang.incidents);
            *gang =
                Tended { incarnation: gang.incarnation, workers, incidents, examined, ..Tended::default() };
        }
    }

    /// Lets happen what is due: ends of processes, stacks that are taken, slots that are free.
    pub(crate) fn pass(&mut self, now_ms: u64, scene: &Scene) {
        let stopping = self.stop.is_some();
        for gang in 0..self.gangs.len() {
            let tended = &mut self.gangs[gang];
            for worker in tended.workers.iter_mut().filter(|worker| worker.running) {
                let Some((at_ms, exit)) = worker.ends.clone().filter(|(at_ms, _)| *at_ms <= now_ms) else {
                    continue;
                };
                (worker.running, worker.exit, worker.exit_ms) = (false, Some(exit), Some(at_ms));
                let heirs = worker.fate.heirs.drain(..);
                tended.orphans.extend(heirs.map(|heir| {
                    let ends_ms = (!heir.deaf).then_some(at_ms + 10);
                    Orphan { heir, since_ms: at_ms, ends_ms }
                }));
            }
            tended.orphans.retain(|orphan| orphan.ends_ms.is_none_or(|ends_ms| ends_ms > now_ms));
            for orphan in
                tended.orphans.iter_mut().filter(|orphan| now_ms >= orphan.since_ms + ORPHAN_GRACE_MS)
            {
                orphan.ends_ms.get_or_insert(now_ms + orphan.heir.kill_ms);
            }
            tended.orphans.retain(|orphan| orphan.ends_ms.is_none_or(|ends_ms| ends_ms > now_ms));
            tended.looks.extend(tended.look_ms.take_if(|at_ms| *at_ms <= now_ms));
            tended.witnessed |= tended.witness_ms.is_some_and(|at_ms| at_ms <= now_ms);
            tended.examined |=
                tended.orphans.is_empty() && tended.running() == 0 && !tended.workers.is_empty();
            if let Some((placement, _)) =
                tended.queued.take_if(|(_, until_ms)| *until_ms <= now_ms && !stopping)
            {
                self.begin(gang, &placement, now_ms, scene);
            }
        }
        if self.stop_by_ms.is_some_and(|due_ms| now_ms >= due_ms) {
            (0..self.gangs.len()).for_each(|gang| self.kill(gang, now_ms));
            self.stop_by_ms = Some(now_ms + STOP_SLACK_MS);
        }
    }

    /// When something happens next by itself.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let gangs = self.gangs.iter().flat_map(|tended| {
            let workers = tended.workers.iter().filter(|worker| worker.running);
            let ends = workers.filter_map(|worker| Some(worker.ends.as_ref()?.0));
            let orphans = tended
                .orphans
                .iter()
                .map(|orphan| orphan.ends_ms.unwrap_or(orphan.since_ms + ORPHAN_GRACE_MS));
            let witness = tended.witness_ms.filter(|_| !tended.witnessed);
            let look = tended.look_ms;
            let queued =
                tended.queued.as_ref().map(|(_, until_ms)| *until_ms).filter(|_| self.stop.is_none());
            ends.chain(orphans).chain(witness).chain(look).chain(queued)
        });
        gangs.chain(self.stop_by_ms).min()
    }

    /// Everything that it knows.
    pub(crate) fn report(&self, number: u64, now_ms: u64) -> Report {
        Report {
            number,
            machine: 0,
            now_ms,
            stop: self.stop.clone(),
            gangs: self.gangs.iter().map(|tended| gang_report(tended, now_ms)).collect(),
            unkillable: 0,
            leaves: None,
            stderr: Vec::new(),
        }
    }

    /// Does what an order says, if it is about the life that there is.
    pub(crate) fn obey(&mut self, order: &Order, now_ms: u64, scene: &Scene) {
        let tended = &self.gangs[order.gang];
        let running = if tended.is_past_hope(now_ms) { 0 } else { tended.running() };
        if !order.concerns(tended.incarnation, running, self.stop.is_some()) {
            return;
        }
        if order.incident {
            self.note_incident(order);
        }
        let tended = &mut self.gangs[order.gang];
        match order.action {
            Action::Start { incarnation } => {
                let incidents = std::mem::take(&mut tended.incidents);
                *tended = Tended { incarnation: Some(incarnation), incidents, ..Tended::default() };
                let role = scene.job.gangs()[order.gang].role;
                if scene.job.roles[role].slots.cpus > 0 && self.chance.percent(60) {
                    tended.queued = Some((order.placement.clone(), now_ms + self.chance.between(1, 3000)));
                } else {
                    self.begin(order.gang, &order.placement, now_ms, scene);
                }
            }
            Action::Notify { .. } => self.notify(order.gang, now_ms),
            Action::Look => {
                let takes_ms = self.chance.between(0, 2000);
                self.gangs[order.gang].look_ms.get_or_insert(now_ms + takes_ms);
            }
            Action::Warn => {
                tended.warned = order.suspicion.as_ref().map_or(0, |suspicion| suspicion.number);
            }
            Action::Witness => {
                // Some take their time, and some never come.
                let takes_ms = if self.chance.percent(20) { 100_000 } else { self.chance.between(0, 2000) };
                self.gangs[order.gang].witness_ms.get_or_insert(now_ms + takes_ms);
            }
            Action::Interrupt { .. } => self.interrupt(order.gang, now_ms),
            Action::End => self.end(order.gang, now_ms),
            Action::Kill => self.kill(order.gang, now_ms),
            Action::Stopped | Action::Fail => tended.queued = None,
            // A job of one host gets no larger.
            Action::Succeed | Action::Prepare { .. } | Action::Leave | Action::Wait { .. } => {}
        }
    }

    fn note_incident(&mut self, order: &Order) {
        let incidents = &mut self.gangs[order.gang].incidents;
        let life = match order.action {
            Action::Start { incarnation } => incarnation - 1,
            _ => order.incarnation.unwrap_or(0),
        };
        if !incidents.contains(&life) {
            incidents.push(life);
        }
    }

    fn begin(&mut self, gang: usize, placement: &[u32], now_ms: u64, scene: &Scene) {
        let plan = &scene.job.gangs()[gang];
        let tended = &mut self.gangs[gang];
        let incarnation = tended.incarnation.unwrap_or(0);
        for (rank, slot) in plan.ranks.clone().zip(placement) {
            let fate = scene.fate(plan.role, rank, incarnation);
            let ends = match &fate.end {
                End::Exits(exit) => Some((now_ms + fate.end_after_ms, exit.clone())),
                End::Hangs | End::Never => None,
            };
            self.pids += 1;
            tended.workers.push(Worker {
                rank,
                pid: self.pids,
                slot: *slot,
                fate,
                started_ms: now_ms,
                running: true,
                exit: None,
                exit_ms: None,
                asked: false,
                ends,
                killed: false,
                lost_ms: None,
            });
        }
    }

    fn notify(&mut self, gang: usize, now_ms: u64) {
        let tended = &mut self.gangs[gang];
        tended.notified_ms = Some(now_ms);
        for worker in tended.workers.iter_mut().filter(|worker| worker.running) {
            let Some(notice_ms) = worker.fate.notice_ms.filter(|_| worker.fate.end != End::Hangs) else {
                continue;
            };
            worker.end_by(
                now_ms + notice_ms,
                Exit { code: Some(0), signal: None, core: false, memory_exhausted: false },
            );
        }
    }

    /// What a simulated person sends.
    pub(crate) fn wished_signal(&mut self) -> i32 {
        if self.chance.percent(50) { 2 } else { 15 }
    }

    fn interrupt(&mut self, gang: usize, now_ms: u64) {
        self.gangs[gang].signalled_ms.get_or_insert(now_ms);
        let tended = &mut self.gangs[gang];
        for worker in tended.workers.iter_mut().filter(|worker| worker.running) {
            worker.asked = true;
            if let Some(term_ms) = worker.fate.term_ms.filter(|_| self.chance.percent(50)) {
                let exit = left(&mut self.chance);
                worker.end_by(now_ms + term_ms, exit);
            }
        }
    }

    fn end(&mut self, gang: usize, now_ms: u64) {
        let tended = &mut self.gangs[gang];
        tended.ending_ms.get_or_insert(now_ms);
        for worker in tended.workers.iter_mut().filter(|worker| worker.running) {
            worker.asked = true;
            if let Some(term_ms) = worker.fate.term_ms {
                let exit = left(&mut self.chance);
                worker.end_by(now_ms + term_ms, exit);
            }
        }
    }

    fn kill(&mut self, gang: usize, now_ms: u64) {
        let tended = &mut self.gangs[gang];
        tended.killing_ms.get_or_insert(now_ms);
        tended.ending_ms.get_or_insert(now_ms);
        for worker in tended.workers.iter_mut().filter(|worker| worker.running && !worker.killed) {
            (worker.asked, worker.killed) = (true, true);
            worker.ends = Some((now_ms + worker.fate.kill_ms, killed()));
        }
        for orphan in &mut tended.orphans {
            orphan.ends_ms = Some(orphan.ends_ms.unwrap_or(u64::MAX).min(now_ms + orphan.heir.kill_ms));
        }
    }
}

fn gang_report(tended: &Tended, now_ms: u64) -> GangReport {
    let workers = tended.workers.iter().map(|worker| WorkerReport {
        rank: worker.rank,
        pid: worker.pid,
        running: worker.running,
        exit: worker.exit.clone(),
        exit_ms: worker.exit_ms,
        asked: worker.asked,
        pulse: worker.fate.pulse(worker.started_ms, worker.age_ms(now_ms)),
        heard_ms: worker.fate.heard_ms(worker.started_ms, worker.age_ms(now_ms)),
        signs: Signs::default(),
    });
    let failed = tended
        .workers
        .iter()
        .filter(|worker| !worker.asked && worker.exit.as_ref().is_some_and(|exit| !exit.is_success()));
    let likeness = failed.min_by_key(|worker| worker.exit_ms).and_then(|worker| worker.fate.likeness.clone());
    GangReport {
        incarnation: tended.incarnation,
        queued: tended.queued.as_ref().map(|_| "1 processor".to_owned()),
        workers: workers.collect(),
        orphans: tended.orphans.len() as u32,
        likeness: likeness.filter(|_| tended.examined),
        culprit: None,
        lived_ms: tended.workers.iter().map(|worker| worker.age_ms(now_ms)).min().filter(|_| tended.examined),
        examined: tended.examined,
        witnessed: tended.witnessed,
        looks: tended.looks.clone(),
        patience: Patience::default(),
        warned: tended.warned,
        notified_since_ms: tended.notified_ms,
        signalled_since_ms: tended.signalled_ms,
        ending_since_ms: tended.ending_ms,
        killing_since_ms: tended.killing_ms,
        ..GangReport::default()
    }
}
