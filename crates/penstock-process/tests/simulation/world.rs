//! A job from its first report to its end, in imagined time: an agent's twin, a real decider, and whatever befalls them.

use penstock_process::coordinator::decider::Decider;
use penstock_process::coordinator::history::{Entry, JobHistory};
use penstock_process::coordinator::messages::{Orders, Over, Report};
use penstock_process::coordinator::verdict::Stop;

use crate::chance::Chance;
use crate::checks::Checks;
use crate::scene::{Faults, Scene};
use crate::twin::{STOP_SLACK_MS, Twin};

/// A coordinator that says nothing for so long is replaced.
pub(crate) const PATIENCE_MS: u64 = 5000;
/// From a report to its answer, at most.
pub(crate) const LATENCY_MS: u64 = 4;
const BETWEEN_STARTS_MS: u64 = 200;
/// No job of a few lives needs so many; one that does goes round in circles.
const ROUNDS_MAX: u32 = 30_000;

/// What happens to a coordinator while it considers a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    None,
    /// It is killed after so many lines, of which the last is cut after so many bytes.
    Killed {
        lines: u64,
        bytes: usize,
    },
    /// It is killed when all is written and nothing said.
    Silenced,
}

/// A coordinator that runs.
struct Coordinator {
    decider: Decider,
    /// The report that it considers, and when its answer is there; never, if it stands still.
    asked: Option<(Report, Option<u64>)>,
    asked_ms: u64,
}

/// A job and its surroundings.
pub(crate) struct World<'a> {
    scene: &'a Scene,
    faults: Faults,
    chance: Chance,
    pub(crate) now_ms: u64,
    pub(crate) twin: Twin,
    /// What the agent had saved, as the next agent will find it.
    journal: Vec<u8>,
    /// The fold of the journal as it stands.
    folded: JobHistory,
    coordinator: Option<Coordinator>,
    started_ms: Option<u64>,
    told: Option<Report>,
    look_at_ms: Option<u64>,
    /// Answers of earlier times, that may come again.
    stale: Vec<Orders>,
    pub(crate) checks: Checks<'a>,
    over: Option<Over>,
    /// Moments of what befalls the agent.
    agent_deaths: Vec<u64>,
    stops: Vec<(u64, u64, bool)>,
    trace: bool,
}

impl<'a> World<'a> {
    pub(crate) fn new(scene: &'a Scene, faults: Faults, trace: bool) -> Self {
        let mut chance = Chance::new(scene.seed, &[4]);
        let all = faults == Faults::All;
        let mut times = |share: u64, most: u64| -> Vec<u64> {
            let count = if all && chance.percent(share) { chance.between(1, most) } else { 0 };
            let mut found: Vec<u64> = (0..count).map(|_| chance.between(0, 9000)).collect();
            found.sort_unstable();
            found
        };
        let agent_deaths = times(25, 2);
        let stops = times(30, 2);
        let stops =
            stops.into_iter().map(|at| (at, chance.pick(&[0, 500, 3000]), chance.percent(20))).collect();
        Self {
            scene,
            faults,
            now_ms: 0,
            twin: Twin::new(scene),
            journal: Vec::new(),
            folded: JobHistory::new(&scene.job),
            coordinator: None,
            started_ms: None,
            told: None,
            look_at_ms: None,
            stale: Vec::new(),
            checks: Checks::new(scene),
            over: None,
            agent_deaths,
            stops,
            chance,
            trace,
        }
    }

    /// Lets the job run to its end, and says how it ended.
    pub(crate) fn run(mut self) -> (Over, Checks<'a>) {
        for _ in 0..ROUNDS_MAX {
            if let Some(over) = self.over.take() {
                self.checks.at_the_end(&self.twin, &self.folded, &over, self.now_ms);
                return (over, self.checks);
            }
            self.befall();
            self.twin.pass(self.now_ms, self.scene);
            self.checks.after_a_moment(&self.twin, self.now_ms);
            self.keep_up();
            self.tell();
            // What was done is told at once.
            if !self.answer() && self.over.is_none() {
                self.advance();
            }
        }
        panic!("the job goes round in circles at {} ms: {:#?}", self.now_ms, self.folded);
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>7} ms  {}", self.now_ms, what());
        }
    }

    /// Goes to the next moment at which something happens.
    fn advance(&mut self) {
        let answer = self.coordinator.as_ref().map(|running| match &running.asked {
            Some((_, Some(at_ms))) => *at_ms,
            Some((_, None)) => running.asked_ms + PATIENCE_MS,
            None => u64::MAX,
        });
        let again =
            self.started_ms.filter(|_| self.coordinator.is_none()).map(|at_ms| at_ms + BETWEEN_STARTS_MS);
        let free = self.coordinator.as_ref().is_some_and(|running| running.asked.is_none());
        let look = self.look_at_ms.filter(|_| free);
        let befalls =
            self.agent_deaths.first().copied().into_iter().chain(self.stops.first().map(|stop| stop.0));
        let next = befalls.chain(answer).chain(again).chain(look).chain(self.twin.next_ms()).min();
        let next = next.filter(|next_ms| *next_ms < u64::MAX);
        let next = next.unwrap_or_else(|| {
            panic!("nothing will ever happen again: {:#?}\n{:#?}", self.folded, self.twin.gangs)
        });
        self.now_ms = next.max(self.now_ms + 1);
    }

    /// What befalls the agent: requests to stop, and its own death.
    fn befall(&mut self) {
        while self.stops.first().is_some_and(|stop| stop.0 <= self.now_ms) {
            let (_, grace_ms, forced) = self.stops.remove(0);
            self.ask_to_stop(grace_ms, forced);
        }
        while self.agent_deaths.first().is_some_and(|at_ms| *at_ms <= self.now_ms) {
            self.agent_deaths.remove(0);
            self.say(|| "the agent is killed".to_owned());
            self.now_ms += self.chance.between(5, 60);
            (self.coordinator, self.told, self.look_at_ms) = (None, None, None);
            self.twin.succeed(self.now_ms);
            self.checks.agent_died();
        }
    }

    fn ask_to_stop(&mut self, grace_ms: u64, forced: bool) {
        let due_ms = self.now_ms + grace_ms + STOP_SLACK_MS;
        let by = "a simulated person".to_owned();
        self.say(|| format!("somebody asks to stop within {grace_ms} ms, forced {forced}"));
        match &mut self.twin.stop {
            Some(stop) => {
                stop.grace_ms = stop.grace_ms.min(grace_ms);
                stop.forced = true;
            }
            None => {
                self.twin.stop = Some(Stop {
                    by,
                    grace_ms,
                    forced,
                    code: 143,
                    signal: self.twin.wished_signal(),
                    ..Stop::default()
                })
            }
        }
        let stop = self.twin.stop.clone().expect("somebody asked");
        self.twin.stop_by_ms = Some(self.twin.stop_by_ms.map_or(due_ms, |known| known.min(due_ms)));
        // The agent writes it down before it says so, because it may be killed before anybody hears it.
        self.write(&Entry::Stop { stop: stop.clone() }, None);
        self.checks.asked_to_stop(self.now_ms, &stop);
    }

    /// Another coordinator when there is none, from what the journal says.
    fn keep_up(&mut self) {
        let stuck = self.coordinator.as_ref().is_some_and(|running| {
            running.asked.as_ref().is_some_and(|(_, at_ms)| at_ms.is_none())
                && self.now_ms >= running.asked_ms + PATIENCE_MS
        });
        if stuck {
            self.lose("coordinator replaced");
        }
        let early = self.started_ms.is_some_and(|at_ms| self.now_ms < at_ms + BETWEEN_STARTS_MS);
        if self.coordinator.is_some() || early {
            return;
        }
        // As the coordinator does: a line without an end gets one, and what cannot be read is passed over.
        if self.journal.last().is_some_and(|last| *last != b'\n') {
            self.journal.push(b'\n');
        }
        let history = JobHistory::new(&self.scene.job).read(&self.journal);
        assert_eq!(history, self.folded, "the fold of the journal is what was remembered");
        self.coordinator = Some(Coordinator {
            decider: Decider::new(self.scene.job.clone(), history),
            asked: None,
            asked_ms: 0,
        });
        (self.started_ms, self.told) = (Some(self.now_ms), None);
    }

    fn lose(&mut self, how: &'static str) {
        self.say(|| how.to_owned());
        self.coordinator = None;
        self.checks.coordinator_died(how);
    }

    /// Reports, if there is something to report and somebody to hear it.
    fn tell(&mut self) {
        let Some(running) = self.coordinator.as_mut().filter(|running| running.asked.is_none()) else {
            return;
        };
        let number = self.told.as_ref().map_or(0, |told| told.number + 1);
        let report = self.twin.report(number, self.now_ms);
        let due = self.look_at_ms.is_some_and(|due_ms| self.now_ms >= due_ms);
        let news = self.told.as_ref().is_none_or(|told| !told.is_like(&report));
        if !news && !due {
            return;
        }
        self.look_at_ms = None;
        let stuck = self.faults != Faults::None && self.chance.percent(1);
        let latency_ms = self.chance.between(0, LATENCY_MS);
        let text = serde_json::to_vec(&report).expect("a report is plain values");
        let heard = serde_json::from_slice(&text).expect("what was written can be read");
        assert_eq!(report, heard, "a report survives its way");
        running.asked = Some((heard, (!stuck).then_some(self.now_ms + latency_ms)));
        running.asked_ms = self.now_ms;
        self.told = Some(report);
    }

    /// The coordinator considers, writes down and answers, unless something happens to it; whether it did.
    fn answer(&mut self) -> bool {
        let Some(running) = self.coordinator.as_mut() else { return false };
        let Some((report, _)) =
            running.asked.take_if(|(_, at_ms)| at_ms.is_some_and(|at_ms| at_ms <= self.now_ms))
        else {
            return false;
        };
        let before = running.decider.history().clone();
        let (entries, orders) = running.decider.consider(&report);
        let mut after = running.decider.history().clone();
        self.checks.consider(&before, &report, &entries, &orders);
        let blow = self.blow(entries.len() as u64);
        for (place, entry) in entries.iter().enumerate() {
            match blow {
                Blow::Killed { lines, .. } if place as u64 > lines => break,
                Blow::Killed { lines, bytes } if place as u64 == lines => self.write(entry, Some(bytes)),
                _ => self.write(entry, None),
            }
        }
        match blow {
            Blow::Killed { .. } => {
                self.lose("coordinator killed while it writes");
                return false;
            }
            Blow::Silenced => {
                self.lose("coordinator killed before it answers");
                return false;
            }
            Blow::None => {
                // A stop that was asked for meanwhile is in the journal already, and in the next report.
                after.stop.clone_from(&self.folded.stop);
                assert_eq!(after, self.folded, "what is remembered is the fold of the journal");
            }
        }
        let text = serde_json::to_vec(&orders).expect("orders are plain values");
        let orders: Orders = serde_json::from_slice(&text).expect("what was written can be read");
        self.follow(&orders);
        true
    }

    fn blow(&mut self, lines: u64) -> Blow {
        if self.faults == Faults::None || !self.chance.percent(12) {
            return Blow::None;
        }
        match lines {
            0 => Blow::Silenced,
            _ if self.chance.percent(40) => Blow::Silenced,
            _ => Blow::Killed {
                lines: self.chance.between(0, lines - 1),
                bytes: self.chance.between(0, 60) as usize,
            },
        }
    }

    /// Puts an entry into the journal, or the beginning of one.
    fn write(&mut self, entry: &Entry, cut: Option<usize>) {
        let text = serde_json::to_vec(entry).expect("an entry is plain values");
        self.say(|| {
            format!(
                "journal: {}{}",
                String::from_utf8_lossy(&text),
                if cut.is_some() { " (cut)" } else { "" }
            )
        });
        if self.journal.last().is_some_and(|last| *last != b'\n') {
            self.journal.push(b'\n');
        }
        let whole = cut.is_none_or(|bytes| bytes >= text.len());
        self.journal.extend_from_slice(&text[..cut.unwrap_or(text.len()).min(text.len())]);
        if whole {
            self.folded.fold(entry);
            self.checks.noted(entry, &self.twin, self.now_ms);
        }
        if cut.is_none() {
            self.journal.push(b'\n');
        }
    }

    fn follow(&mut self, orders: &Orders) {
        self.look_at_ms = orders.look_at_ms;
        for order in &orders.gangs {
            self.obey(order);
        }
        // Something that was said about an earlier life comes again: nobody listens (P3).
        if self.faults == Faults::All && self.chance.percent(10) && !self.stale.is_empty() {
            let old = self.chance.pick(&self.stale);
            for order in &old.gangs {
                let current = self.twin.gangs[order.gang].incarnation;
                let begins =
                    matches!(order.action, penstock_process::coordinator::verdict::Action::Start { .. });
                if begins || order.incarnation != current {
                    let before = format!("{:?}", self.twin.gangs[order.gang]);
                    let next = current.map_or(0, |life| life + 1);
                    if !(begins && order.incarnation == Some(next)) {
                        self.twin.obey(order, self.now_ms, self.scene);
                        assert_eq!(
                            before,
                            format!("{:?}", self.twin.gangs[order.gang]),
                            "an order about another life is not obeyed"
                        );
                    }
                }
            }
        }
        self.stale.push(orders.clone());
        self.over.clone_from(&orders.over);
    }

    fn obey(&mut self, order: &penstock_process::coordinator::messages::Order) {
        let before = self.twin.gangs[order.gang].clone();
        self.twin.obey(order, self.now_ms, self.scene);
        self.say(|| {
            format!(
                "gang {} life {:?}: {:?}, because {}",
                order.gang, order.incarnation, order.action, order.reason
            )
        });
        self.checks.obeyed(order, &before, &self.twin, self.now_ms);
    }
}
