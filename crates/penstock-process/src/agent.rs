//! The agent: starts the ranks of one job, collects what happens, and does what the verdict says. Decides nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::cgroup::Cgroup;
use crate::control::{Ear, StopRequest, listen};
use crate::ending::Orphans;
use crate::error::{ProcessError, Result};
use crate::exit::{Exit, memory_kills};
use crate::job::{Job, Room};
use crate::lineage::{CHILDREN_ROUNDS, Process, descendants, everyone, kill_children, strangers};
use crate::pump::{Person, Pump, Speaker};
use crate::spawn::{self, Life};
use crate::state::{Journal, Phase, RankState, State, wall_s};
use crate::system::{self, Reaped, Signals, now_ms, signal_name};
use crate::verdict::{Action, Failure, Gang, Stop, Verdict, decide};
use crate::{incident, launch::Wires};

/// A foreground job is gone a second after its launcher.
const LAUNCHER_GONE_GRACE_MS: u64 = 400;
/// How often the tree is looked at while it ends: the death of a grandchild wakes nobody.
const LOOK_MS: u64 = 20;
const DRAIN: Duration = Duration::from_secs(2);

/// What wakes the agent.
struct Watch {
    signals: Signals,
    /// Ends when the keeper does.
    keeper: Option<File>,
    /// Says what the person at the terminal wants; ends when the launcher does. Nothing for a detached job.
    leash: Option<File>,
    /// The control thread has put something into `stops`.
    woken: File,
    stops: Receiver<StopRequest>,
}

/// The agent of one job.
pub struct Agent {
    room: Room,
    job: Job,
    state: State,
    /// The copy that the control thread shows.
    shown: Arc<Mutex<State>>,
    journal: Journal,
    pump: Pump,
    watch: Watch,
    /// Told once that ranks run, for a launcher that does not stay.
    ready: Option<OwnedFd>,
    file_limit: libc::rlimit,
    /// The control group of the ranks, where we may have one.
    cgroup: Option<Cgroup>,
    /// Ranks that run, by process.
    running: BTreeMap<i32, u32>,
    orphans: Orphans,
    orphans_left: u32,
    stop: Option<Stop>,
    /// What the launcher exits with when the job ends because of `stop`.
    stop_code: i32,
    /// The stop is a failure: the keeper is gone, or the command cannot be started.
    doomed: Option<String>,
    ending_since_ms: Option<u64>,
    killing_since_ms: Option<u64>,
    memory_kills_before: u64,
    /// The incarnation whose failure was examined after all of it was gone.
    examined: Option<u32>,
}

/// Plays the role until the job is over. Success says to the keeper that it is, however the job itself ended.
pub fn run(room: &Room, wires: Wires) -> Result<()> {
    // Before any thread starts, so that all of them block these.
    let signals = Signals::catch(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    system::become_subreaper()?;
    system::outlive_full_files();
    let mut agent = Agent::open(room, wires, signals)?;
    agent.begin()?;
    loop {
        let next_look_ms = agent.look();
        let verdict = decide(now_ms(), &agent.gang(), &agent.job.policy);
        let Some(until_ms) = agent.act(&verdict)? else { break };
        agent.wait([until_ms, next_look_ms].into_iter().flatten().min());
    }
    Ok(())
}

impl Agent {
    fn open(room: &Room, wires: Wires, signals: Signals) -> Result<Self> {
        let job = room.job()?;
        // SAFETY: asks for a number.
        let keeper = unsafe { libc::getppid() };
        let before = State::load(room)?;
        let fresh = before.is_none();
        let mut state = before.unwrap_or_else(|| State::new(job.id.clone(), keeper));
        state.agent = std::process::id() as i32;
        if !fresh && !state.failures.iter().any(|failure| failure.incarnation == state.incarnation) {
            let what = "the agent was killed".to_owned();
            let failure = Failure { incarnation: state.incarnation, what, likeness: None, at_ms: now_ms() };
            state.failures.push(failure);
        }
        let shown = Arc::new(Mutex::new(state.clone()));
        let (woken, wake) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        system::set_nonblocking(&wake)?;
        let (sender, stops) = channel();
        listen(room, Ear { state: Arc::clone(&shown), stops: sender, wake: wake.into() })?;
        let leash = wires.leash.map(File::from);
        leash.as_ref().map_or(Ok(()), system::set_nonblocking)?;
        let watch =
            Watch { signals, keeper: wires.keeper.map(File::from), leash, woken: woken.into(), stops };
        Ok(Self {
            pump: Pump::start(
                room,
                &job,
                Person { pipes: [wires.out, wires.err], terminals: [wires.out_terminal, wires.err_terminal] },
            )?,
            journal: Journal::open(room)?,
            file_limit: system::raise_file_limit(),
            cgroup: if job.cgroup { Cgroup::make(room) } else { None },
            room: room.clone(),
            job,
            state,
            shown,
            watch,
            ready: wires.ready,
            running: BTreeMap::new(),
            orphans: Orphans::default(),
            orphans_left: 0,
            stop: None,
            stop_code: 128 + libc::SIGTERM,
            doomed: None,
            ending_since_ms: None,
            killing_since_ms: None,
            memory_kills_before: 0,
            examined: None,
        })
    }

    /// Starts the first incarnation; a later agent leaves it to the verdict.
    fn begin(&mut self) -> Result<()> {
        if self.state.failures.is_empty() && self.state.ranks.is_empty() {
            self.start_gang(0)
        } else {
            Ok(())
        }
    }

    fn start_gang(&mut self, incarnation: u32) -> Result<()> {
        self.memory_kills_before = memory_kills();
        (self.ending_since_ms, self.killing_since_ms) = (None, None);
        self.state.incarnation = incarnation;
        self.state.phase = Phase::Running;
        if incarnation == 0 {
            self.state.reason = "as asked for".to_owned();
        }
        self.state.ranks.clear();
        self.state.cgroup = self.cgroup.as_ref().map(|group| group.path().display().to_string());
        self.state.master_port = self.job.master_port.map_or_else(spawn::free_port, Ok)?;
        for rank in 0..self.job.ranks {
            let life = Life {
                job: &self.job,
                room: &self.room,
                incarnation,
                master_port: self.state.master_port,
                cgroup: self.cgroup.as_ref(),
                file_limit: self.file_limit,
            };
            let started = match spawn::start(&life, rank) {
                Ok(started) => started,
                Err(problem) => {
                    self.give_up(problem);
                    break;
                }
            };
            self.running.insert(started.pid, rank);
            let speaker = Speaker { role: "rank", rank, incarnation };
            let [stdout_from, stderr_from] = self.pump.add(speaker, started.outputs)?;
            self.state.ranks.push(RankState {
                rank,
                pid: started.pid,
                started_at: wall_s(),
                exit: None,
                exit_ms: None,
                asked: false,
                cpu_s: None,
                rss_max_bytes: None,
                stdout_from,
                stderr_from,
            });
        }
        let pids: Vec<i32> = self.state.ranks.iter().map(|rank| rank.pid).collect();
        self.journal.add(
            "started",
            incarnation,
            json!({"pids": pids, "master_port": self.state.master_port}),
        );
        self.save();
        self.ready = None;
        Ok(())
    }

    /// The command cannot be started; another try would not change that.
    fn give_up(&mut self, problem: ProcessError) {
        let missing = matches!(&problem, ProcessError::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        self.doom(problem.to_string(), if missing { 127 } else { 126 });
    }

    fn doom(&mut self, why: String, code: i32) {
        self.stop = Some(Stop { by: why.clone(), grace_ms: 0, forced: true });
        self.stop_code = code;
        self.doomed.get_or_insert(why);
    }

    /// Looks for orphans when there may be any; when to look again.
    fn look(&mut self) -> Option<u64> {
        let healthy = self.running.len() == self.job.ranks as usize && self.ending_since_ms.is_none();
        if healthy && self.orphans_left == 0 {
            return None;
        }
        let ranks = self.running.keys().copied().collect();
        let found = descendants(&everyone(), self.state.agent, &ranks);
        // Who forks and ends all the time is missed by a look at /proc, but not among our children.
        let unseen = !strangers(&ranks).is_empty() || (ranks.is_empty() && system::has_children());
        self.orphans_left = u32::try_from(found.len()).unwrap_or(u32::MAX).max(u32::from(unseen));
        let again = self.orphans.tick(now_ms(), &found, &ranks, unseen);
        if self.running.is_empty() && self.orphans_left == 0 {
            self.examine();
        }
        again
    }

    /// All of an incarnation is gone: reads its logs to the end and notes what its failure looked like.
    fn examine(&mut self) {
        if self.examined == Some(self.state.incarnation) {
            return;
        }
        self.examined = Some(self.state.incarnation);
        self.pump.drain(DRAIN);
        let first = self
            .state
            .ranks
            .iter()
            .filter(|rank| !rank.asked && rank.exit.as_ref().is_some_and(|e| !e.is_success()));
        let first = first.min_by_key(|rank| rank.exit_ms);
        let likeness = first.and_then(|rank| incident::likeness(&self.room, rank));
        let incarnation = self.state.incarnation;
        if let Some(failure) =
            self.state.failures.iter_mut().find(|failure| failure.incarnation == incarnation)
        {
            failure.likeness = likeness;
        }
    }

    fn gang(&self) -> Gang {
        let succeeded =
            self.state.ranks.iter().filter(|rank| rank.exit.as_ref().is_some_and(Exit::is_success));
        Gang {
            incarnation: self.state.incarnation,
            running: u32::try_from(self.running.len()).unwrap_or(u32::MAX),
            succeeded: u32::try_from(succeeded.count()).unwrap_or(u32::MAX),
            orphans: self.orphans_left,
            failures: self.state.failures.clone(),
            stop: self.stop.clone(),
            ending_since_ms: self.ending_since_ms,
            killing_since_ms: self.killing_since_ms,
        }
    }

    /// Does what the verdict says. When to ask again, or nothing when the job is over.
    #[allow(clippy::option_option)]
    fn act(&mut self, verdict: &Verdict) -> Result<Option<Option<u64>>> {
        if verdict.reason != self.state.reason && !matches!(verdict.action, Action::Wait { .. }) {
            let about = json!({"action": format!("{:?}", verdict.action), "reason": verdict.reason});
            self.journal.add("verdict", self.state.incarnation, about);
            self.state.reason.clone_from(&verdict.reason);
        }
        let soon = Some(now_ms() + LOOK_MS);
        match verdict.action {
            Action::Wait { until_ms } => {
                let ending =
                    self.ending_since_ms.is_some() && self.running.len() + self.orphans_left as usize > 0;
                return Ok(Some(if ending { until_ms.min(soon).or(soon) } else { until_ms }));
            }
            Action::End => {
                self.ending_since_ms = Some(now_ms());
                self.state.phase = Phase::Ending;
                self.signal_ranks(libc::SIGTERM);
            }
            Action::Kill => {
                self.killing_since_ms.get_or_insert_with(now_ms);
                self.ending_since_ms.get_or_insert_with(now_ms);
                self.signal_ranks(libc::SIGKILL);
                self.cgroup.iter().for_each(Cgroup::kill);
                kill_children(&std::collections::BTreeSet::new(), CHILDREN_ROUNDS);
                let all = descendants(&everyone(), self.state.agent, &std::collections::BTreeSet::new());
                for process in &all {
                    process.signal(libc::SIGKILL);
                }
            }
            Action::Restart { incarnation } => {
                self.note_incident(verdict);
                self.start_gang(incarnation)?;
            }
            Action::Succeed => return self.finish(Phase::Succeeded, 0),
            Action::Fail => {
                self.note_incident(verdict);
                return self.finish(Phase::Failed, self.failure_code());
            }
            Action::FinishStopped => return self.finish_stopped(),
        }
        self.save();
        Ok(Some(soon))
    }

    fn finish_stopped(&mut self) -> Result<Option<Option<u64>>> {
        let Some(why) = self.doomed.clone() else { return self.finish(Phase::Stopped, self.stop_code) };
        self.state.reason.clone_from(&why);
        self.note_incident(&Verdict { action: Action::Fail, reason: why });
        self.finish(Phase::Failed, self.stop_code)
    }

    /// Of the rank that failed first.
    fn failure_code(&self) -> i32 {
        let failed = self.state.ranks.iter().filter(|rank| !rank.asked);
        let failed = failed
            .filter_map(|rank| Some((rank.exit_ms?, rank.exit.as_ref().filter(|exit| !exit.is_success())?)));
        failed.min_by_key(|(at_ms, _)| *at_ms).map_or(1, |(_, exit)| exit.shell_code())
    }

    fn signal_ranks(&mut self, signal: i32) {
        for (pid, rank) in &self.running {
            // The number is still the rank's: only we reap it, and we have not.
            if let Some(process) = Process::read(*pid) {
                process.signal(signal);
                if signal == libc::SIGTERM {
                    process.signal(libc::SIGCONT);
                }
            }
            self.state.ranks[*rank as usize].asked = true;
        }
    }

    fn note_incident(&mut self, verdict: &Verdict) {
        match incident::write(&self.room, &self.job, &self.state, verdict) {
            Ok(name) => self.state.incidents.push(name),
            // A full disk must not keep a gang from being restarted.
            Err(problem) => eprintln!("penstock-agent: {problem}"),
        }
    }

    fn finish(&mut self, phase: Phase, code: i32) -> Result<Option<Option<u64>>> {
        self.pump.drain(DRAIN);
        self.state.phase = phase;
        self.state.exit_code = Some(code);
        self.state.ended_at = Some(wall_s());
        self.journal.add(
            "over",
            self.state.incarnation,
            json!({"phase": phase, "reason": self.state.reason}),
        );
        self.save();
        self.cgroup.iter().for_each(Cgroup::remove);
        let _ = std::fs::remove_file(self.room.file("agent.sock"));
        self.ready = None;
        // The terminal may be slow, and its owner may want to read on; only they end the wait.
        while !self.pump.close(Duration::from_millis(50)) && self.watch.leash.is_some() && !self.is_forced() {
            self.wait(Some(0));
        }
        Ok(None)
    }

    fn is_forced(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.forced)
    }

    /// Lets others see the state. A full disk must not end supervision, so the file may stay behind the socket.
    fn save(&mut self) {
        self.state.log_lost_bytes = self.pump.lost_bytes();
        self.state.log_missing = self.pump.missing();
        if let Ok(mut shown) = self.shown.lock() {
            shown.clone_from(&self.state);
        }
        if let Err(problem) = self.state.save(&self.room) {
            eprintln!("penstock-agent: {problem}");
        }
    }

    /// Waits until something happens or the moment comes, and takes note of what happened.
    fn wait(&mut self, until_ms: Option<u64>) {
        let number = |file: &Option<File>| file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut interests = [
            system::interest(self.watch.signals.as_raw_fd(), libc::POLLIN),
            system::interest(number(&self.watch.keeper), libc::POLLIN),
            system::interest(number(&self.watch.leash), libc::POLLIN),
            system::interest(self.watch.woken.as_raw_fd(), libc::POLLIN),
        ];
        let timeout = until_ms.map(|until_ms| Duration::from_millis(until_ms.saturating_sub(now_ms())));
        system::poll(&mut interests, timeout);
        let signals = self.watch.signals.take();
        for signal in signals.into_iter().filter(|signal| *signal != libc::SIGCHLD) {
            self.ask_to_stop(&format!("{} to the agent", signal_name(signal)), signal, None);
        }
        while let Some(reaped) = system::reap() {
            self.note_exit(&reaped);
        }
        if interests[1].revents != 0 {
            self.watch.keeper = None;
            self.doom("the keeper was killed".to_owned(), 1);
        }
        if interests[2].revents != 0 {
            self.read_leash();
        }
        while (&self.watch.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        while let Ok(request) = self.watch.stops.try_recv() {
            self.ask_to_stop("`penstock stop`", libc::SIGTERM, request.grace_ms);
            if let Some(stop) = self.stop.as_mut().filter(|_| request.force) {
                stop.forced = true;
            }
        }
    }

    fn read_leash(&mut self) {
        let mut bytes = [0; 16];
        let count = self.watch.leash.as_ref().map_or(Ok(0), |mut leash| leash.read(&mut bytes));
        match count {
            Ok(0) => {
                self.watch.leash = None;
                self.ask_to_stop("the launcher's death", libc::SIGKILL, Some(LAUNCHER_GONE_GRACE_MS));
            }
            Ok(count) => {
                for signal in &bytes[..count] {
                    if i32::from(*signal) == libc::SIGWINCH {
                        self.pump.resize();
                        continue;
                    }
                    let again = self.stop.is_some();
                    self.ask_to_stop(
                        &format!("{} to the launcher", signal_name(i32::from(*signal))),
                        i32::from(*signal),
                        None,
                    );
                    if let Some(stop) = self.stop.as_mut().filter(|_| again) {
                        stop.forced = true;
                    }
                }
            }
            Err(_) => {}
        }
    }

    /// The first who asks is named; a later one can only shorten the time.
    fn ask_to_stop(&mut self, by: &str, signal: i32, grace_ms: Option<u64>) {
        let grace_ms = grace_ms.unwrap_or(self.job.policy.stop_grace_ms);
        match &mut self.stop {
            Some(stop) => stop.grace_ms = stop.grace_ms.min(grace_ms),
            None => {
                self.stop = Some(Stop { by: by.to_owned(), grace_ms, forced: false });
                self.stop_code = 128 + signal;
            }
        }
        // Ranks that a failure is ending already get no second SIGTERM, and no new deadline.
        self.journal.add("stop", self.state.incarnation, json!({"by": by, "grace_ms": grace_ms}));
    }

    fn note_exit(&mut self, reaped: &Reaped) {
        let Some(rank) = self.running.remove(&reaped.pid) else { return };
        // The group knows exactly; else it is only known that the kernel killed somebody meanwhile.
        let counted = self.cgroup.as_ref().and_then(|group| group.memory_kills(rank));
        let exhausted = counted.map_or_else(|| memory_kills() > self.memory_kills_before, |count| count > 0);
        let exit = Exit::from_status(reaped.status, exhausted);
        let incarnation = self.state.incarnation;
        let about = json!({"rank": rank, "pid": reaped.pid, "exit": exit});
        self.journal.add("exited", incarnation, about);
        let state = &mut self.state.ranks[rank as usize];
        state.exit_ms = Some(now_ms());
        state.cpu_s = Some(reaped.cpu_s);
        state.rss_max_bytes = Some(reaped.rss_max_bytes);
        let known = self.state.failures.iter().any(|failure| failure.incarnation == incarnation);
        if !exit.is_success() && !state.asked && !known {
            let what = format!("rank {rank} {exit}");
            self.state.failures.push(Failure { incarnation, what, likeness: None, at_ms: now_ms() });
        }
        self.state.ranks[rank as usize].exit = Some(exit);
        self.save();
    }
}
