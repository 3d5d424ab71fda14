//! The agent: starts the workers of one job, reports what is, and does what it is ordered. Decides nothing but its own safety.

mod adoption;
mod births;
mod examination;
mod gangs;
mod interruption;
mod link;
mod lookout;
pub mod places;
mod stopping;
mod vitals;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::agent::gangs::Tended;
use crate::agent::link::{Link, empty};
use crate::agent::lookout::Lookout;
use crate::agent::places::Places;
use crate::agent::vitals::Vitals;
use crate::complain;
use crate::control::{Ear, StopRequest, listen};
use crate::coordinator::history::Entry;
use crate::coordinator::messages::{GangReport, Orders, Over, Report};
use crate::coordinator::verdict::Stop;
use crate::ending::Orphans;
use crate::error::Result;
use crate::job::journal::Journal;
use crate::job::mark::Mark;
use crate::job::state::State;
use crate::job::{GangPlan, Job, JobDirectory};
use crate::launcher::inherited_fds::InheritedFds;
use crate::logs::console::harmless;
use crate::logs::pump::{Person, Pump};
use crate::outside::{Outside, namespace};
use crate::system::cgroup::Cgroup;
use crate::system::memory_limit::MemoryGroups;
use crate::system::{self, Signals, now_ms, signal_name};
use crate::zygote::pool::ZygotePool;

/// How often the tree is looked at while it ends: the death of a grandchild wakes nobody.
const LOOK_MS: u64 = 20;

/// What wakes the agent.
struct Watch {
    signals: Signals,
    /// Ends when the keeper does.
    keeper: Option<File>,
    /// Says what the person at the terminal wants; ends when the launcher does. Nothing for a detached job.
    launcher: Option<File>,
    /// The person has asked the launcher to end the job.
    person_asked: bool,
    /// The control thread has put something into `stops`.
    woken: File,
    stops: Receiver<StopRequest>,
}

impl Watch {
    fn new(
        signals: Signals,
        [keeper, launcher]: [Option<OwnedFd>; 2],
        woken: File,
        stops: Receiver<StopRequest>,
    ) -> Result<Self> {
        launcher.as_ref().map_or(Ok(()), system::set_nonblocking)?;
        let (keeper, launcher) = (keeper.map(File::from), launcher.map(File::from));
        Ok(Self { signals, keeper, launcher, person_asked: false, woken, stops })
    }
}

/// The agent of one job.
pub struct Agent {
    directory: JobDirectory,
    /// What all processes of the job have in common.
    mark: Mark,
    job: Job,
    plans: Vec<GangPlan>,
    state: State,
    /// What `state.json` says.
    saved: Vec<u8>,
    /// The copy that the control thread shows.
    shown: Arc<Mutex<State>>,
    journal: Journal,
    /// Where the keeper takes second copies of pipes.
    custody: Option<OwnedFd>,
    pump: Pump,
    watch: Watch,
    link: Link,
    /// The zygotes, and which of them each role uses.
    zygotes: ZygotePool,
    by_role: Vec<Option<usize>>,
    vitals: Vitals,
    lookout: Lookout,
    /// The report that was sent last.
    told: Option<Report>,
    /// When to report again, even if nothing happened.
    look_at_ms: Option<u64>,
    /// Told once that workers run, for a launcher that does not stay.
    ready: Option<OwnedFd>,
    /// What the rank reads that has standard input, in every life of it.
    input: Option<OwnedFd>,
    file_limit: libc::rlimit,
    /// The control group of the workers, where we may have one.
    cgroup: Option<Cgroup>,
    /// Groups that limit memory, where somebody wants a limit and we may set one.
    memory: Option<MemoryGroups>,
    /// What is leased, and who waits for it.
    places: Places,
    /// Numbers of processes for those who look from outside; shared with the control thread.
    outside: Arc<Mutex<Outside>>,
    /// Workers that run, by process: their gang and rank.
    running: BTreeMap<i32, (usize, u32)>,
    /// Workers of earlier lives that sleep in the kernel and cannot be killed. Nobody waits for them.
    abandoned: BTreeSet<i32>,
    /// What is known of each gang beside its state.
    tended: Vec<Tended>,
    orphans: Orphans,
    orphans_left: u32,
    stop: Option<Stop>,
    /// As the journal has it: whoever comes after us, if we are killed, must not forget it.
    stop_noted: Option<Stop>,
    /// When a stop that nobody carries out is carried out by us.
    stop_by_ms: Option<u64>,
    /// Until when a save may put that off.
    save_by_ms: u64,
    over: Option<Over>,
}

/// Runs until the job is over. Success says to the keeper that it is, however the job itself ended.
pub fn run(directory: &JobDirectory, fds: InheritedFds) -> Result<()> {
    // Before any thread starts, so that all of them block these.
    let signals = Signals::catch(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    system::become_subreaper()?;
    system::outlive_full_files();
    // First of all, because nothing begins before it has answered, and it starts while we prepare the rest.
    let link = Link::started(directory);
    let mut agent = Agent::open(directory, fds, signals, link)?;
    agent.choose_zygotes();
    while agent.over.is_none() {
        let look_ms = agent.look();
        let safety_ms = agent.keep_safe();
        let queue_ms = agent.serve_waves()?;
        let zygotes_ms = agent.keep_zygotes();
        let lookout_ms = agent.keep_lookout();
        let link_ms = agent.talk();
        let vitals_ms = [agent.keep_collector(), lookout_ms];
        let next = [look_ms, safety_ms, queue_ms, zygotes_ms, link_ms, agent.look_at_ms];
        let next = next.into_iter().chain(vitals_ms).flatten().min();
        agent.wait(next)?;
    }
    agent.finish();
    Ok(())
}

/// What is known about the job when we come: what an agent before us wrote, or nothing.
fn known(directory: &JobDirectory, job: &Job, fds: &InheritedFds) -> Result<State> {
    // SAFETY: asks for a number.
    let keeper = unsafe { libc::getppid() };
    let mut state = State::load(directory)?.unwrap_or_else(|| State::new(job, keeper));
    (state.agent, state.keeper) = (std::process::id() as i32, keeper);
    state.namespace = namespace(fds.namespace.as_ref());
    state.inside = fds.namespace.as_ref().map(|_| namespace(None)).unwrap_or_default();
    Ok(state)
}

impl Agent {
    fn open(directory: &JobDirectory, fds: InheritedFds, signals: Signals, link: Link) -> Result<Self> {
        let job = directory.job()?;
        let mut state = known(directory, &job, &fds)?;
        let shown = Arc::new(Mutex::new(state.clone()));
        let (woken, wake) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        system::set_nonblocking(&wake)?;
        let (sender, stops) = channel();
        let outside = Arc::new(Mutex::new(Outside::new(fds.outside)));
        let vitals = Vitals::open(directory, &job);
        let ear = Ear {
            state: Arc::clone(&shown),
            outside: Arc::clone(&outside),
            stops: sender,
            stacks: vitals.wanted(),
            saves: vitals.save_wanted(),
            wake: wake.into(),
        };
        listen(directory, ear)?;
        let watch = Watch::new(signals, [fds.keeper, fds.launcher], woken.into(), stops)?;
        let (cgroup, memory) = places::groups(&job, directory);
        state.cgroup = cgroup.as_ref().map(|group| group.path().display().to_string());
        let pid = outside.lock().map_or(state.agent, |mut outside| outside.pid(state.agent));
        let plans = job.gangs();
        let person = Person { pipes: [fds.out, fds.err], terminals: [fds.out_terminal, fds.err_terminal] };
        let agent = Self {
            places: Places::new(&job, directory.path().display().to_string(), pid),
            custody: fds.custody,
            pump: Pump::start(directory, &job, person)?,
            journal: Journal::open(directory)?,
            file_limit: system::raise_file_limit(),
            tended: plans.iter().map(|_| Tended::default()).collect(),
            cgroup,
            memory,
            outside,
            directory: directory.clone(),
            mark: Mark::of(directory.path()),
            job,
            plans,
            state,
            saved: Vec::new(),
            shown,
            watch,
            link,
            zygotes: ZygotePool::default(),
            by_role: Vec::new(),
            vitals,
            lookout: Lookout::default(),
            told: None,
            look_at_ms: None,
            ready: fds.ready,
            input: fds.input,
            running: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            orphans: Orphans::default(),
            orphans_left: 0,
            stop: None,
            stop_noted: None,
            stop_by_ms: None,
            save_by_ms: 0,
            over: None,
        };
        Ok(agent)
    }

    /// Children of ours that are no orphans: workers, those who help us, and those whom nobody can end.
    fn owned(&self) -> BTreeSet<i32> {
        let mut owned: BTreeSet<i32> = self.running.keys().copied().collect();
        owned.extend([self.link.pid].into_iter().filter(|pid| *pid > 0));
        owned.extend(self.zygotes.pids());
        owned.extend(self.vitals.pid());
        owned.extend(&self.abandoned);
        owned
    }

    /// Reports, if there is something to report and somebody to hear it; when to try again.
    fn talk(&mut self) -> Option<u64> {
        let now_ms = now_ms();
        if let Some(stop) = self.stop.clone().filter(|stop| Some(stop) != self.stop_noted.as_ref()) {
            self.journal.add(&Entry::Stop { stop: stop.clone() });
            self.stop_noted = Some(stop);
        }
        let again_ms = self.link.keep_up(&self.directory, now_ms);
        if self.state.coordinator != self.link.pid {
            self.state.coordinator = self.link.pid;
            self.told = None;
        }
        if !self.link.is_free() {
            return again_ms;
        }
        let due = self.look_at_ms.is_some_and(|due_ms| now_ms >= due_ms);
        let gangs: Vec<GangReport> = (0..self.plans.len()).map(|gang| self.gang_report(gang)).collect();
        let number = self.told.as_ref().map_or(0, |told| told.number + 1);
        let report = Report { number, machine: 0, now_ms, stop: self.stop.clone(), gangs };
        let news = self.told.as_ref().is_none_or(|told| !told.is_like(&report));
        if news {
            self.save();
        }
        if news || due {
            self.look_at_ms = None;
            self.link.tell(&report);
            self.told = Some(report);
        }
        self.link.keep_up(&self.directory, now_ms)
    }

    /// Does what the coordinator says.
    fn follow(&mut self, orders: &Orders) -> Result<()> {
        self.state.phase = orders.phase;
        self.state.reason.clone_from(&orders.reason);
        self.look_at_ms = orders.look_at_ms;
        for order in &orders.gangs {
            self.obey(order)?;
        }
        self.ask_for_places()?;
        self.over.clone_from(&orders.over);
        // The end is shown when it is whole, with its exit code.
        if self.over.is_none() {
            self.save();
            self.ready = None;
        }
        Ok(())
    }

    /// Lets others see the state. A full disk must not end supervision, so the file may stay behind the socket.
    fn save(&mut self) {
        self.state.log_lost_bytes = self.pump.lost_bytes();
        self.state.log_missing = self.pump.missing();
        if let Ok(mut shown) = self.shown.lock() {
            shown.clone_from(&self.state);
        }
        let seen = self.outside.lock().map(|mut outside| outside.shown(&self.state));
        if let Err(problem) =
            seen.as_ref().unwrap_or(&self.state).save_changes(&self.directory, &mut self.saved)
        {
            complain!("penstock-agent: {problem}");
        }
    }

    /// A line for the person at the terminal, if there is one.
    fn say(&self, words: &str) {
        self.pump.announce(&harmless(words));
    }

    /// Waits until something happens or the moment comes, and takes note of what happened.
    fn wait(&mut self, until_ms: Option<u64>) -> Result<()> {
        let number = |file: &Option<File>| file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut interests = vec![
            system::interest(self.watch.signals.as_raw_fd(), libc::POLLIN),
            system::interest(number(&self.watch.keeper), libc::POLLIN),
            system::interest(number(&self.watch.launcher), libc::POLLIN),
            system::interest(self.watch.woken.as_raw_fd(), libc::POLLIN),
            system::interest(self.link.number(), libc::POLLIN),
        ];
        interests.extend(self.places.news().into_iter().map(|fd| system::interest(fd, libc::POLLIN)));
        interests.extend(self.zygotes.numbers().map(|number| system::interest(number, libc::POLLIN)));
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
            // Nobody may outlive the keeper by more than a second, whoever has to decide what.
            (0..self.plans.len()).for_each(|gang| self.kill_gang(gang));
        }
        if interests[2].revents != 0 {
            self.read_launcher();
        }
        empty(&self.watch.woken);
        self.collect_if_wanted();
        self.ask_for_saves();
        while let Ok(request) = self.watch.stops.try_recv() {
            self.ask_to_stop("`penstock stop`", libc::SIGTERM, request.grace_ms);
            if let Some(stop) = self.stop.as_mut().filter(|_| request.force) {
                stop.forced = true;
            }
        }
        self.hear_zygotes();
        if interests[4].revents != 0 {
            if let Some(orders) = self.link.hear() {
                self.follow(&orders)?;
            }
        }
        Ok(())
    }
}
