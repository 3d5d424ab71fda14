//! The agent: starts the workers of one job, reports what is, and does what it is ordered. Decides nothing but its own safety.

mod assigned_job;
mod control_socket;
mod coordinator_link;
mod departure;
mod gang;
mod host_lease;
mod launcher_pipes;
mod liveness;
mod lookout;
mod outer_pids;
mod published_state;
mod resources;
mod standing;
mod stop;
mod wakeups;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::agent::assigned_job::AssignedJob;
use crate::agent::control_socket::ControlSocket;
use crate::agent::coordinator_link::CoordinatorLink;
use crate::agent::departure::Departure;
use crate::agent::gang::start::JobZygotes;
use crate::agent::gang::workers::Workers;
use crate::agent::host_lease::HostLease;
use crate::agent::launcher_pipes::LauncherPipes;
use crate::agent::liveness::Liveness;
use crate::agent::published_state::PublishedState;
use crate::agent::resources::Resources;
use crate::agent::standing::HostPlace;
use crate::agent::stop::Ending;
use crate::agent::wakeups::Wakeups;
use crate::coordinator::history::Entry;
use crate::coordinator::messages::{CoordinatorWord, GangReport, Orders, Report};
use crate::error::Result;
use crate::job::JobDirectory;
use crate::job::journal::Journal;
use crate::keeper::custody;
use crate::launcher::inherited_fds::InheritedFds;
use crate::logs::console::harmless;
use crate::logs::pump::{Person, Pump};
use crate::system::{self, Signals, now_ms, signal_name};

/// Descriptors that the agent has open at a time: its own, and for each worker while it is started.
const OWN_FDS: u32 = 64;
const FDS_OF_WORKER: u32 = 12;
/// How often the tree is looked at while it ends: the death of a grandchild wakes nobody.
const LOOK_MS: u64 = 20;

/// The agent of one job. Each part has a file of its own, and what the agent does with it stands there too.
pub struct Agent {
    /// What was asked for.
    job: AssignedJob,
    /// What is known, and what others see of it.
    view: PublishedState,
    /// What happened and what was decided, for those who come later.
    journal: Journal,
    /// What workers write.
    output: WorkerStreams,
    /// The person at the terminal.
    launcher: LauncherPipes,
    /// Signals, the keeper, and the control socket.
    wakeups: Wakeups,
    /// Who decides.
    coordinator: CoordinatorLink,
    /// What workers are forked from.
    zygotes: JobZygotes,
    /// What workers say, and what is seen of them.
    liveness: Liveness,
    /// Slots, control groups and limits.
    resources: Resources,
    /// Who runs, and who was left behind.
    workers: Workers,
    /// Where this host stands among others.
    host: HostPlace,
    /// How long it may run ranks unheard.
    lease: HostLease,
    /// How the job ends.
    ending: Ending,
}

/// Where what workers write goes.
struct WorkerStreams {
    pump: Pump,
    /// Where keeper and launcher take copies of pipes.
    holders: Vec<OwnedFd>,
}

/// Runs until the job is over. Success says to the keeper that it is, however the job itself ended.
pub fn run(directory: &JobDirectory, fds: InheritedFds) -> Result<()> {
    // Before any thread starts, so that all of them block these.
    let signals = Signals::catch(&system::OF_JOBS)?;
    if std::env::var_os("SLURM_JOB_ID").is_some() {
        system::outlive_notices();
    }
    system::become_subreaper()?;
    system::outlive_full_files();
    // First of all, because nothing begins before it has answered, and it starts while we prepare the rest.
    let coordinator = CoordinatorLink::open(directory);
    let mut agent = Agent::open(directory, fds, signals, coordinator)?;
    agent.choose_zygotes();
    while agent.ending.over.is_none() {
        let look_ms = agent.look();
        let safety_ms = agent.keep_safe();
        let lease_ms = agent.keep_lease();
        let queue_ms = agent.serve_waves()?;
        let zygotes_ms = agent.keep_zygotes();
        let lookout_ms = agent.keep_lookout();
        let link_ms = agent.talk();
        let vitals_ms = [agent.keep_collector(), lookout_ms, lease_ms];
        let next = [look_ms, safety_ms, queue_ms, zygotes_ms, link_ms, agent.coordinator.look_at_ms];
        let next = next.into_iter().chain(vitals_ms).flatten().min();
        agent.wait(next)?;
    }
    agent.finish();
    Ok(())
}

impl Agent {
    fn open(
        directory: &JobDirectory,
        fds: InheritedFds,
        signals: Signals,
        coordinator: CoordinatorLink,
    ) -> Result<Self> {
        let job = AssignedJob::open(directory)?;
        let file_limit = system::raise_file_limit();
        system::reserve_descriptors(OWN_FDS + FDS_OF_WORKER * job.spec.workers());
        let mut view = PublishedState::open(&job, fds.outside, fds.namespace.as_ref())?;
        let (wakeups, waker) = Wakeups::open(signals, fds.keeper)?;
        let liveness = Liveness::open(directory, &job.spec);
        ControlSocket {
            state: Arc::clone(&view.shared),
            outer_pids: Arc::clone(&view.outer_pids),
            waker,
            stacks: liveness.wanted(),
            saves: liveness.save_wanted(),
        }
        .listen(directory)?;
        let resources = Resources::open(&job, view.outer_pid_of_agent(), file_limit);
        view.state.cgroup = resources.cgroup.as_ref().map(|group| group.path().display().to_string());
        let person = Person { pipes: [fds.out, fds.err], terminals: [fds.out_terminal, fds.err_terminal] };
        let holders: Vec<OwnedFd> = [fds.custody, fds.third_copies].into_iter().flatten().collect();
        let (pump, in_hand) = Pump::start(directory, &job.spec, person)?;
        if let Some(in_hand) = in_hand {
            custody::show_hand(&holders, &in_hand);
        }
        Ok(Self {
            output: WorkerStreams { pump, holders },
            journal: Journal::open(directory)?,
            launcher: LauncherPipes::open(fds.launcher, fds.ready, fds.input)?,
            workers: Workers::open(job.plans.len()),
            zygotes: JobZygotes::default(),
            host: HostPlace::default(),
            lease: HostLease::default(),
            ending: Ending::default(),
            job,
            view,
            wakeups,
            coordinator,
            liveness,
            resources,
        })
    }

    /// Children of ours that are no orphans: workers, those who help us, and those whom nobody can end.
    fn owned(&self) -> BTreeSet<i32> {
        let mut owned: BTreeSet<i32> = self.workers.running.keys().copied().collect();
        owned.extend([self.coordinator.pid].into_iter().filter(|pid| *pid > 0));
        owned.extend(self.zygotes.pool.pids());
        owned.extend(self.liveness.pid());
        owned.extend(&self.workers.abandoned);
        owned
    }

    /// Reports, if there is something to report and somebody to hear it; when to try again.
    fn talk(&mut self) -> Option<u64> {
        let now_ms = now_ms();
        if let Some(stop) = self.ending.stop.clone().filter(|stop| Some(stop) != self.ending.noted.as_ref()) {
            self.journal.add(&Entry::Stop { stop: stop.clone() });
            self.ending.noted = Some(stop);
        }
        let again_ms = self.coordinator.keep_up(&self.job.directory, now_ms);
        if self.view.state.coordinator != self.coordinator.pid {
            self.view.state.coordinator = self.coordinator.pid;
            self.coordinator.told = None;
        }
        if !self.coordinator.is_free() {
            return again_ms;
        }
        let due = self.coordinator.look_at_ms.is_some_and(|due_ms| now_ms >= due_ms);
        let gangs: Vec<GangReport> = (0..self.job.plans.len()).map(|gang| self.gang_report(gang)).collect();
        let number = self.coordinator.reports;
        let unkillable = self.unkillable_processes();
        let leaves = self.ending.departure.as_ref().and_then(Departure::told);
        let (stop, stderr) = (self.ending.stop.clone(), Vec::new());
        let mut report = Report { number, machine: 0, now_ms, stop, gangs, unkillable, leaves, stderr };
        let news = self.coordinator.told.as_ref().is_none_or(|told| !told.is_like(&report));
        if news {
            self.save();
        }
        report.stderr = self.take_stderr(news, now_ms);
        if news || due || !report.stderr.is_empty() {
            self.coordinator.look_at_ms = None;
            self.coordinator.tell(&report);
            report.stderr.clear();
            self.coordinator.told = Some(report);
        }
        self.coordinator.keep_up(&self.job.directory, now_ms)
    }

    /// Does what the coordinator says.
    fn follow(&mut self, orders: &Orders) -> Result<()> {
        let is_waiting = orders.gangs.is_empty() && orders.over.is_none() && !orders.reason.is_empty();
        if is_waiting && self.view.state.reason != orders.reason {
            self.say(&orders.reason);
        }
        self.view.state.phase = orders.phase;
        self.view.state.reason.clone_from(&orders.reason);
        self.coordinator.look_at_ms = orders.look_at_ms;
        self.host.note(orders.standing.as_ref());
        for order in &orders.gangs {
            self.carry_out(order)?;
        }
        self.ask_for_places()?;
        self.ending.over.clone_from(&orders.over);
        // The end is shown when it is whole, with its exit code.
        if self.ending.over.is_none() {
            self.save();
            self.launcher.ready = None;
        }
        Ok(())
    }

    /// Lets others see how things are.
    fn save(&mut self) {
        self.view.state.log_lost_bytes = self.output.pump.lost_bytes();
        self.view.state.log_missing = self.output.pump.missing();
        self.view.publish(&self.job.directory);
    }

    /// A line for the person at the terminal, if there is one.
    fn say(&self, words: &str) {
        self.output.pump.announce(&harmless(words));
    }

    /// Waits until something happens or the moment comes, and takes note of what happened.
    fn wait(&mut self, until_ms: Option<u64>) -> Result<()> {
        let number = |file: &Option<File>| file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut interests = vec![
            system::interest(self.wakeups.signals.as_raw_fd(), libc::POLLIN),
            system::interest(number(&self.wakeups.keeper), libc::POLLIN),
            system::interest(number(&self.launcher.pipe), libc::POLLIN),
            system::interest(self.wakeups.woken.as_raw_fd(), libc::POLLIN),
            system::interest(self.coordinator.number(), libc::POLLIN),
        ];
        interests
            .extend(self.resources.slots.news().into_iter().map(|fd| system::interest(fd, libc::POLLIN)));
        interests.extend(self.zygotes.pool.numbers().map(|number| system::interest(number, libc::POLLIN)));
        let timeout = until_ms.map(|until_ms| Duration::from_millis(until_ms.saturating_sub(now_ms())));
        system::poll(&mut interests, timeout);
        let signals = self.wakeups.signals.take();
        for signal in signals.into_iter().filter(|signal| *signal != libc::SIGCHLD) {
            if stop::asks_for_saves(signal) {
                self.give_save_notices(&format!("{} to the agent", signal_name(signal)));
                continue;
            }
            self.ask_to_stop(&format!("{} to the agent", signal_name(signal)), signal, None);
        }
        while let Some(reaped) = system::reap() {
            self.note_exit(&reaped);
        }
        if interests[1].revents != 0 {
            self.wakeups.keeper = None;
            self.note_lost_keeper();
            // Nobody may outlive the keeper by more than a second, whoever has to decide what.
            (0..self.job.plans.len()).for_each(|gang| self.kill_gang(gang));
        }
        if interests[2].revents != 0 {
            self.read_launcher();
        }
        self.wakeups.clear();
        self.collect_if_wanted();
        self.ask_for_saves();
        while let Ok(request) = self.wakeups.stops.try_recv() {
            self.ask_to_stop("`penstock stop`", libc::SIGTERM, request.grace_ms);
            if let Some(stop) = self.ending.stop.as_mut().filter(|_| request.force) {
                stop.forced = true;
            }
        }
        self.hear_zygotes();
        if interests[4].revents != 0 {
            self.coordinator.listen();
            while let Some(word) = self.coordinator.hear() {
                match word {
                    CoordinatorWord::Renewal(renewal) => self.note_lease(Some(renewal.renewed_until_ms)),
                    CoordinatorWord::Orders(orders) => {
                        self.note_lease(orders.lease_until_ms);
                        if self.coordinator.is_newest(orders.number) {
                            self.follow(&orders)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
