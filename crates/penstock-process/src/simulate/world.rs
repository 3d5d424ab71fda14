//! One life of a job on imagined hosts: what happens, what the decider says about it, and what follows.

use serde_json::json;

use crate::coordinator::decider::Decider;
use crate::coordinator::history::JobHistory;
use crate::coordinator::messages::Orders;
use crate::coordinator::verdict::Action;
use crate::coordinator::view::{FailedWorker, JobView};
use crate::job::Job;
use crate::job::exit::Exit;
use crate::job::policy::Policy;
use crate::lease::grant;
use crate::simulate::accounts::{Account, Accounts};
use crate::simulate::event_queue::{Event, EventQueue};
use crate::simulate::faults::{Fault, schedule};
use crate::simulate::gang::{Gang, Stage};
use crate::simulate::machines::Machines;
use crate::simulate::placement::{Case, Placement, place};
use crate::simulate::plan::{Loses, SimulationPlan};
use crate::simulate::trace::{Recorder, Trace};
use crate::simulate::{CauseCount, EarlyEnd, Outcome};

/// How often the decider is asked at one moment; each time something followed from the last answer.
const CONSULTATIONS_MAX: u32 = 64;
/// What ranks exit with that were told to leave.
const LEFT_CODE: i32 = 75;

/// A job, its hosts and what they will meet.
pub(super) struct World<'a> {
    plan: &'a SimulationPlan,
    seed: u64,
    faults: Vec<Fault>,
    decider: Decider,
    machines: Machines,
    gang: Gang,
    queue: EventQueue,
    accounts: Accounts,
    interruptions: Vec<CauseCount>,
    now_ms: u64,
    /// When the decider, or who gives out host ranks, wants to look again.
    look_ms: Option<u64>,
    spares_lost: u64,
    shrinks: u64,
    ended: Option<EarlyEnd>,
    recorder: Option<Recorder>,
}

impl<'a> World<'a> {
    /// All is well, and nothing has begun.
    pub(super) fn new(plan: &'a SimulationPlan, seed: u64) -> Self {
        let job = job(plan);
        let history = JobHistory::new(&job);
        let faults = schedule(plan, seed);
        let mut queue = EventQueue::default();
        faults.iter().enumerate().for_each(|(place, fault)| queue.add(fault.at_ms, Event::Fault(place)));
        queue.add(0, Event::Look);
        Self {
            plan,
            seed,
            faults,
            decider: Decider::new(job, history),
            machines: Machines::new(plan.hosts, plan.spare_hosts, plan.racks, plan.gpus_per_host),
            gang: Gang::new(),
            queue,
            accounts: Accounts::default(),
            interruptions: vec![CauseCount::default(); plan.causes.len()],
            now_ms: 0,
            look_ms: Some(0),
            spares_lost: 0,
            shrinks: 0,
            ended: None,
            recorder: None,
        }
    }

    /// Lives it through, and remembers what a person would have seen.
    pub(super) fn record(mut self) -> Trace {
        self.machines.watch();
        self.recorder = Some(Recorder::default());
        let racks = self.machines.racks();
        let hosts = self.plan.hosts;
        self.pass_all();
        let recorder = self.recorder.take().unwrap_or_default();
        recorder.into_trace(racks, hosts, self.into_outcome())
    }

    /// Until the time is over, or the job gives up.
    pub(super) fn live(mut self) -> Outcome {
        self.pass_all();
        self.into_outcome()
    }

    fn pass_all(&mut self) {
        while let Some((at_ms, event)) = self.queue.pop_before(self.plan.for_ms) {
            self.pass(at_ms);
            if self.ended.is_none() {
                self.happen(event);
            } else if let Event::Fault(place) = event {
                self.count(self.faults[place], false);
            }
            self.note();
        }
        self.pass(self.plan.for_ms);
        self.close(true);
    }

    /// Takes note of what has changed, if somebody wants to see it.
    fn note(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note_hosts(self.now_ms, &mut self.machines);
            recorder.note_stage(self.now_ms, self.gang.stage, self.gang.incarnation);
        }
    }

    fn into_outcome(self) -> Outcome {
        let lives = self.decider.history().lives();
        Outcome {
            seed: self.seed,
            accounts: self.accounts.sums(),
            interruptions: self.interruptions,
            spares_lost: self.spares_lost,
            restarts: lives.saturating_sub(1),
            replacements: self.machines.replacements,
            shrinks: self.shrinks,
            fewest_spares: self.machines.fewest_spares as u32,
            ended: self.ended,
            spans: self.accounts.into_spans(),
        }
    }

    /// Time passes, on the account of what is going on.
    fn pass(&mut self, until_ms: u64) {
        if !self.gang.is_training() {
            self.accounts.spend(self.account(), self.now_ms, until_ms);
        }
        self.now_ms = until_ms;
    }

    /// What time is spent on that is no training.
    fn account(&self) -> Account {
        let silent = || match self.machines.silent().map(|silent| silent.is_covered).min() {
            Some(true) => Some(Account::Detection),
            Some(false) => Some(Account::Lease),
            None => None,
        };
        let failed = || self.decider.history().gangs.iter().any(|history| history.failure().is_some());
        match self.gang.stage {
            _ if self.ended.is_some() => Account::Over,
            Stage::Starting => Account::Start,
            Stage::Loading => Account::Load,
            Stage::Stalled if self.gang.is_undetected => Account::Detection,
            Stage::Stalled => silent().unwrap_or(Account::Ending),
            Stage::Ending => Account::Ending,
            _ => match silent() {
                Some(account) => account,
                None if !self.machines.is_whole() => Account::Waiting,
                None if failed() => Account::Backoff,
                None => Account::Start,
            },
        }
    }

    fn happen(&mut self, event: Event) {
        let times = &self.plan.times;
        let is_current = |gang: &Gang, life: u32| gang.incarnation == Some(life);
        match event {
            Event::Fault(place) => {
                let fault = self.faults[place];
                self.count(fault, self.gang.is_well());
                // Nobody has noticed anything yet.
                return self.hit(fault);
            }
            Event::RankFailed(life) if is_current(&self.gang, life) && self.gang.is_undetected => {
                self.fail(1);
            }
            Event::Left(life) if is_current(&self.gang, life) && self.is_leaving() => {
                self.close(true);
                self.gang.stage = Stage::Down;
                self.fail(LEFT_CODE);
            }
            Event::Leaves(machine, repair_ms) => {
                let has_rank = self.machines.get(machine).rank.is_some();
                let Some(loss) = self.machines.leave(machine, self.now_ms) else { return };
                self.queue.add(self.now_ms + repair_ms, Event::Back(machine, loss));
                if has_rank {
                    self.stall();
                }
                self.settle_stage();
            }
            Event::Unheard(machine, loss) if self.machines.is_lost(machine, loss) => {
                self.machines.miss(machine)
            }
            Event::LeaseOver(machine, loss) if self.machines.is_lost(machine, loss) => {
                self.machines.expire(machine, self.now_ms);
                self.settle_stage();
            }
            Event::Back(machine, loss) if self.machines.is_lost(machine, loss) => {
                self.machines.come_back(machine);
                if self.machines.is_whole() {
                    return;
                }
            }
            Event::Ended(life) if is_current(&self.gang, life) && self.gang.stage == Stage::Ending => {
                (self.gang.stage, self.gang.is_undetected) = (Stage::Down, false);
            }
            Event::Prepared(life) if self.gang.preparing == Some(life) => {
                self.gang.prepared = Some((life, self.machines.answering()));
            }
            Event::Started(life) if is_current(&self.gang, life) && self.gang.stage == Stage::Starting => {
                self.gang.stage = Stage::Loading;
                let load_ms = if life == 0 { 0 } else { times.load_ms };
                return self.queue.add(self.now_ms + load_ms, Event::Loaded(life));
            }
            Event::Loaded(life) if is_current(&self.gang, life) && self.gang.stage == Stage::Loading => {
                return self.gang.stage = Stage::Training { since_ms: self.now_ms };
            }
            Event::Look if self.look_ms == Some(self.now_ms) => {}
            // It is out of date.
            _ => return,
        }
        self.consult();
    }

    fn is_leaving(&self) -> bool {
        matches!(self.gang.stage, Stage::Leaving { .. })
    }

    /// Takes note of a fault of the job; of the others it is known how many spares they cost.
    fn count(&mut self, fault: Fault, interrupts: bool) {
        if !fault.of_spare {
            let count = &mut self.interruptions[fault.cause];
            count.all += 1;
            count.while_down += u64::from(!interrupts);
        }
    }

    fn hit(&mut self, fault: Fault) {
        let cause = &self.plan.causes[fault.cause];
        let (loses, repair_ms, detect_ms) = (cause.loses, cause.repair_ms, cause.detect_ms);
        let machine = if fault.of_spare {
            self.machines.spare(fault.whom)
        } else {
            self.machines.at((fault.whom * f64::from(self.plan.hosts)) as u32)
        };
        if let Some(recorder) = &mut self.recorder {
            let hit = machine.filter(|_| loses != Loses::Job);
            recorder.note_hit(self.now_ms, fault.cause, hit);
        }
        if loses == Loses::Job {
            return self.call_off();
        }
        let Some(machine) = machine.filter(|machine| self.machines.get(*machine).is_alive) else { return };
        self.spares_lost += u64::from(fault.of_spare);
        match loses {
            Loses::Rank => {
                let life = self.gang.incarnation.filter(|_| self.gang.is_up() && self.gang.failed.is_none());
                if let Some(life) = life {
                    self.stall();
                    self.gang.is_undetected = true;
                    self.queue.add(self.now_ms + detect_ms, Event::RankFailed(life));
                }
                if repair_ms > 0 {
                    self.queue.add(self.now_ms + detect_ms, Event::Leaves(machine, repair_ms));
                }
            }
            Loses::Host => self.kill(machine, repair_ms),
            Loses::Rack => {
                for other in self.machines.rack_of(machine) {
                    self.kill(other, repair_ms);
                }
            }
            Loses::Job => {}
        }
    }

    /// Somebody wants the gang to leave in order: it saves before.
    fn call_off(&mut self) {
        let Stage::Training { since_ms } = self.gang.stage else { return };
        let Some(life) = self.gang.incarnation else { return };
        self.gang.stage = Stage::Leaving { since_ms, told_ms: self.now_ms };
        let times = &self.plan.times;
        self.queue.add(self.now_ms + times.save_ms + times.write_ms, Event::Left(life));
    }

    /// A host dies without a word.
    fn kill(&mut self, machine: usize, repair_ms: u64) {
        let has_rank = self.machines.get(machine).rank.is_some();
        let Some(loss) = self.machines.die(machine, self.gang.is_up(), self.now_ms) else { return };
        let lease_ms = self.plan.times.lease_ms;
        let unheard_ms = self.now_ms + grant::unheard_ms(lease_ms);
        let over_ms = unheard_ms + lease_ms + grant::slack_ms(lease_ms);
        self.queue.add(unheard_ms, Event::Unheard(machine, loss));
        self.queue.add(over_ms, Event::LeaseOver(machine, loss));
        self.queue.add(over_ms.max(self.now_ms + repair_ms), Event::Back(machine, loss));
        if has_rank {
            self.stall();
        }
    }

    /// Nobody makes a step from now on.
    fn stall(&mut self) {
        self.close(false);
        if self.gang.is_well() {
            self.gang.stage = Stage::Stalled;
        }
    }

    fn close(&mut self, keeps: bool) {
        let hosts = (self.machines.size(), self.plan.hosts);
        self.gang.close(&self.plan.times, &mut self.accounts, self.now_ms, keeps, hosts);
    }

    /// A rank is seen to have ended.
    fn fail(&mut self, code: i32) {
        let exit = Exit { code: Some(code), signal: None, core: false, memory_exhausted: false };
        self.gang.is_undetected = false;
        self.gang.failed = Some(FailedWorker {
            rank: 0,
            exit: Some(exit),
            at_ms: Some(self.now_ms),
            host_rank: Some(0),
            of_lease: false,
        });
    }

    /// Without a living host there are no processes.
    fn settle_stage(&mut self) {
        if self.machines.living() == 0 && self.gang.is_up() {
            (self.gang.stage, self.gang.is_undetected) = (Stage::Down, false);
        }
    }

    /// Asks the decider, and does what it says, until nothing follows at once.
    fn consult(&mut self) {
        for _ in 0..CONSULTATIONS_MAX {
            let (gpus, step_ms) = (self.plan.gpus_per_host, self.plan.times.step_ms);
            let view = JobView {
                number: 0,
                now_ms: self.now_ms,
                stop: None,
                gangs: vec![self.gang.view(&self.machines, gpus, step_ms)],
                hosts: Some(self.machines.facts()),
            };
            let (_, orders) = self.decider.consider_view(&view);
            if orders.over.is_some() {
                self.close(false);
                self.ended = Some(EarlyEnd { at_ms: self.now_ms, reason: orders.reason });
                return;
            }
            let obeyed = self.obey(&orders);
            let (placed, wait_ms) = self.place_hosts();
            let look_ms = orders.look_at_ms.into_iter().chain(wait_ms).min();
            let look_ms = look_ms.map(|at_ms| at_ms.max(self.now_ms + 1));
            if let Some(at_ms) = look_ms.filter(|_| look_ms != self.look_ms) {
                self.queue.add(at_ms, Event::Look);
            }
            self.look_ms = look_ms;
            if !obeyed && !placed {
                return;
            }
        }
    }

    /// Does what it is told; whether the decider has more to say about that at once.
    fn obey(&mut self, orders: &Orders) -> bool {
        let times = &self.plan.times;
        let Some(order) = orders.gangs.first() else { return false };
        let life = self.gang.incarnation.filter(|_| self.gang.is_up());
        match (&order.action, life) {
            (Action::Prepare { incarnation }, None) if self.gang.preparing != Some(*incarnation) => {
                self.gang.preparing = Some(*incarnation);
                self.queue.add(self.now_ms + times.prepare_ms, Event::Prepared(*incarnation));
                false
            }
            (Action::Start { incarnation }, None) if self.gang.incarnation < Some(*incarnation) => {
                let is_whole = self.machines.living() == self.machines.size();
                self.gang.begin(*incarnation, is_whole);
                self.queue.add(self.now_ms + times.start_ms, Event::Started(*incarnation));
                false
            }
            (Action::End, Some(life)) if self.gang.ending_ms.is_none() => {
                self.close(false);
                (self.gang.stage, self.gang.ending_ms) = (Stage::Ending, Some(self.now_ms));
                self.queue.add(self.now_ms + times.end_ms, Event::Ended(life));
                true
            }
            (Action::Kill, Some(life)) => {
                self.close(false);
                (self.gang.stage, self.gang.ending_ms) = (Stage::Ending, Some(self.now_ms));
                self.queue.add(self.now_ms, Event::Ended(life));
                false
            }
            _ => false,
        }
    }

    /// Gives free host ranks to hosts; whether anything changed, and when to look again.
    fn place_hosts(&mut self) -> (bool, Option<u64>) {
        let (vacant, candidates) = (self.machines.vacancies(), self.machines.candidates());
        let size = self.machines.size();
        if vacant.is_empty() && size == self.plan.hosts {
            return (false, None);
        }
        let case = Case {
            now_ms: self.now_ms,
            size,
            sizes: &self.plan.sizes,
            vacant: &vacant,
            candidates: &candidates,
            since_ms: self.machines.vacant_since_ms().unwrap_or(self.now_ms),
            replace_within_ms: self.plan.times.replace_within_ms,
            is_down: !self.gang.is_up() && self.machines.silent().next().is_none(),
        };
        match place(&case).0 {
            Placement::Whole => (false, None),
            Placement::Fill(filled) => {
                for (machine, host_rank) in filled {
                    self.machines.fill(machine, host_rank, self.now_ms);
                }
                if let Some(life) = self.gang.preparing {
                    self.queue.add(self.now_ms + self.plan.times.prepare_ms, Event::Prepared(life));
                }
                (true, None)
            }
            Placement::Resize(to) => {
                self.shrinks += u64::from(to < size);
                self.machines.resize(to, self.now_ms);
                (self.gang.preparing, self.gang.prepared) = (None, None);
                (true, None)
            }
            Placement::Wait(until_ms) => (false, until_ms.filter(|until_ms| *until_ms > self.now_ms)),
        }
    }
}

/// The job that is asked for, with its policy. Hangs are faults like others: nobody looks for steps that nobody makes.
fn job(plan: &SimulationPlan) -> Job {
    let policy = Policy { hang: None, ..plan.policy.clone() };
    let role = json!({
        "name": "rank", "kind": "gang", "command": ["train"], "ranks": plan.gpus_per_host, "policy": policy,
    });
    let job =
        json!({ "id": "simulated", "detached": true, "colour": false, "cgroup": false, "roles": [role] });
    serde_json::from_value(job).expect("a job is plain values")
}
