//! The keeper: starts the agent and watches it. When the agent dies it ends what is left and starts another.
//!
//! It does so little that nothing of it can fail. The agent watches it in turn, by a pipe that ends with it.

pub mod custody;
pub mod first_process;
pub mod sweep;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::complain;
use crate::error::{ProcessError, Result};
use crate::job::JobDirectory;
use crate::job::mark::Mark;
use crate::job::policy::LIVES_MAX;
use crate::job::state::{Phase, State, wall_s};
use crate::keeper::custody::{Custody, LentTime};
use crate::launcher::inherited_fds::InheritedFds;
use crate::lease::kernel_timer::KernelTimer;
use crate::system::cgroup::{self, Cgroup};
use crate::system::memory_limit::MemoryGroups;
use crate::system::{self, Signals, now_ms};
use crate::system::{interest, lineage};
use crate::zygote::packet;

/// Rounds of killing; the later ones are 20 ms apart, so this is about five seconds.
const KILL_ROUNDS_MAX: u32 = 250;
/// After so many, about a tenth of a second, who is still there has had its signal and runs no more.
const FIRST_ROUNDS: u32 = 12;

/// Runs until the job is over.
pub fn run(directory: &JobDirectory, fds: InheritedFds) -> Result<i32> {
    match first_process::step_aside(directory, fds)? {
        Ok(fds) => keep(directory, fds),
        Err(code) => Ok(code),
    }
}

fn keep(directory: &JobDirectory, mut fds: InheritedFds) -> Result<i32> {
    let signals = Signals::catch(&system::OF_JOBS)?;
    system::become_subreaper()?;
    system::outlive_full_files();
    if !Mark::of(directory.path()).put() {
        complain!("penstock-keeper: processes of this job are known by their environment only");
    }
    let job = directory.job()?;
    // Second copies are two descriptors for each worker; agents begin with what we began with.
    let file_limit = system::raise_file_limit();
    let most = job.roles.iter().map(|role| role.policy.budget.crash).max().unwrap_or(0);
    let lives_max = most.min(LIVES_MAX).saturating_add(2);
    let mut trigger = Trigger::default();
    for _ in 0..lives_max {
        let (pid, ours, hand) = start_agent(directory, &fds, file_limit)?;
        let mut custody = Custody::default();
        // The launcher waits for its other end to close; the agent has its own copy.
        fds.ready = None;
        let over = wait_for(pid, &signals, (&hand, &mut custody), &mut trigger) == 0;
        drop(ours);
        let state = State::load(directory)?;
        let group = state.as_ref().and_then(|state| Cgroup::at(state.cgroup.as_deref()?));
        group.iter().for_each(Cgroup::kill);
        let left = match lineage::kill_all(FIRST_ROUNDS) {
            0 => 0,
            _ => {
                trigger.follow(None);
                lineage::kill_all(KILL_ROUNDS_MAX)
            }
        };
        trigger.follow(None);
        if !over {
            custody.finish(directory, &job)?;
        }
        group.iter().for_each(Cgroup::remove);
        MemoryGroups::left(&cgroup::name(directory)).iter().for_each(MemoryGroups::remove);
        if left > 0 {
            complain!("penstock-keeper: {left} processes sleep in the kernel and cannot be killed");
        }
        if over || state.as_ref().is_some_and(|state| state.phase.is_final()) {
            return Ok(state.and_then(|state| state.exit_code).unwrap_or(1));
        }
    }
    let mut state = State::load(directory)?.unwrap_or_else(|| State::new(&job, 0));
    state.phase = Phase::Failed;
    state.reason = format!("the agent died {lives_max} times");
    (state.exit_code, state.ended_at) = (Some(1), Some(wall_s()));
    state.save(directory)?;
    Ok(1)
}

/// The agent's process, the end of the pipe whose closing tells it that we are gone, and where it hands over second copies of pipes.
fn start_agent(
    directory: &JobDirectory,
    fds: &InheritedFds,
    file_limit: libc::rlimit,
) -> Result<(i32, OwnedFd, OwnedFd)> {
    let (theirs, ours) = system::pipe()?;
    let (hand, given) = packet::pair()?;
    let path = directory.file("agent.log");
    let log = File::options().create(true).append(true).open(&path);
    let log = log.map_err(|source| ProcessError::File { verb: "open", path, source })?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("penstock-agent")
        .arg("agent")
        .arg(directory.path())
        .arg(format!("keeper={}", theirs.as_raw_fd()))
        .arg(format!("custody={}", given.as_raw_fd()));
    command.args(fds.words()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut passed = fds.numbers();
    passed.extend([theirs.as_raw_fd(), given.as_raw_fd()]);
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setrlimit(libc::RLIMIT_NOFILE, &file_limit);
            passed.iter().try_for_each(|fd| system::keep_over_exec(*fd))
        });
    }
    let child = command
        .spawn()
        .map_err(|source| ProcessError::Start { command: "penstock-agent".to_owned(), source })?;
    Ok((child.id() as i32, ours, hand))
}

/// What ends ranks with the lease of their host, if the agent does not: we do, and if we do not either, the kernel ends us.
#[derive(Default)]
struct Trigger(Option<KernelTimer>);

impl Trigger {
    /// Does what the agent said last; how long until somebody has to act.
    fn follow(&mut self, lease: Option<LentTime>) -> Option<Duration> {
        if lease.is_some() && self.0.is_none() {
            let made = KernelTimer::open();
            self.0 = made.inspect_err(|problem| complain!("penstock-keeper: {problem}")).ok();
        }
        let followed = self.0.as_mut().map(|timer| match lease {
            Some(lease) => timer.arm(lease.until_ms),
            None => timer.disarm(),
        });
        if let Some(Err(problem)) = followed {
            complain!("penstock-keeper: {problem}");
        }
        lease.map(|lease| Duration::from_millis(lease.act_ms.saturating_sub(now_ms())))
    }
}

/// Waits until the agent is gone, and gives its status; passes on what we are asked, because the agent is who can do it orderly.
fn wait_for(
    agent: i32,
    signals: &Signals,
    (hand, custody): (&OwnedFd, &mut Custody),
    trigger: &mut Trigger,
) -> i32 {
    let mut listening = true;
    loop {
        while let Some(reaped) = system::reap() {
            if reaped.pid == agent {
                custody.take(hand);
                return reaped.status;
            }
        }
        let left = trigger.follow(custody.lease);
        let is_due = left.is_some_and(|left| left.is_zero());
        if is_due {
            // SAFETY: the number is the agent's, because only we reap it and we have not.
            unsafe { libc::kill(agent, libc::SIGKILL) };
        }
        let number = if listening { hand.as_raw_fd() } else { -1 };
        system::poll(
            &mut [interest(signals.as_raw_fd(), libc::POLLIN), interest(number, libc::POLLIN)],
            left.filter(|_| !is_due),
        );
        listening = listening && custody.take(hand);
        for signal in signals.take().into_iter().filter(|signal| *signal != libc::SIGCHLD) {
            // SAFETY: the number is the agent's, because only we reap it and we have not.
            unsafe { libc::kill(agent, signal) };
        }
    }
}
