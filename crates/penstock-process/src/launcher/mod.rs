//! The launcher: what stands at the terminal. It starts the keeper, shows output, and passes on what the person wants.
//!
//! A foreground job belongs to it: the keeper and the agent hold the other end of a pipe that ends with it.

pub mod inherited_fds;
pub mod input;
pub mod isolation;
pub mod relay;
pub mod third_copies;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::complain;
use crate::error::{ProcessError, Result};
use crate::job::state::{Phase, State, wall_s};
use crate::job::{Job, JobDirectory};
use crate::keeper::sweep;
use crate::launcher::inherited_fds::InheritedFds;
use crate::launcher::isolation::First;
use crate::launcher::relay::relay;
use crate::launcher::third_copies::ThirdCopies;
use crate::slots::feasibility::check;
use crate::system::terminal;
use crate::system::{self, Signals, interest};

/// How long a launcher that does not stay waits for the ranks to be started.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Signals that follow each other within this time are one request.
const SAME_REQUEST: Duration = Duration::from_millis(100);
/// How long a launcher waits for a job that was to end at once.
const URGENT_PATIENCE: Duration = Duration::from_secs(8);
const PIPE_BYTES: i32 = 1 << 20;

/// Runs the launcher; what the command exits with.
pub fn run(directory: &JobDirectory) -> Result<i32> {
    let job = directory.job()?;
    let played =
        check(&job).and_then(|()| if job.detached { detach(directory, &job) } else { stay(directory, &job) });
    if let (Err(problem), None) = (&played, State::load(directory)?) {
        // Nobody else will say that this job is over.
        let mut state = State::new(&job, 0);
        (state.phase, state.reason) = (Phase::Failed, problem.to_string());
        (state.exit_code, state.ended_at) = (Some(2), Some(wall_s()));
        state.save(directory)?;
    }
    played
}

fn detach(directory: &JobDirectory, job: &Job) -> Result<i32> {
    let (ready, theirs) = system::pipe()?;
    start_keeper(directory, job, InheritedFds { ready: Some(theirs), ..InheritedFds::default() })?;
    system::poll(&mut [interest(ready.as_raw_fd(), libc::POLLIN)], Some(START_PATIENCE));
    match State::load(directory)? {
        Some(state)
            if state.phase == Phase::Failed && state.gangs.iter().all(|gang| gang.workers.is_empty()) =>
        {
            complain!("error: {}", state.reason);
            Ok(state.exit_code.unwrap_or(1))
        }
        Some(state) if state.phase == Phase::Queued => {
            complain!("{}", state.reason);
            Ok(0)
        }
        Some(_) => Ok(0),
        None => Err(ProcessError::Usage(format!(
            "the agent did not start; {} may say why",
            directory.file("agent.log").display()
        ))),
    }
}

fn stay(directory: &JobDirectory, job: &Job) -> Result<i32> {
    system::outlive_full_files();
    let signals = Signals::catch(&[
        libc::SIGCHLD,
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGPIPE,
        libc::SIGQUIT,
        libc::SIGWINCH,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ])?;
    let (launcher, ours) = system::pipe()?;
    let (out, out_writer) = system::pipe()?;
    let (err, err_writer) = system::pipe()?;
    system::widen_pipe(&out, PIPE_BYTES);
    let (mut copies, third_copies) = ThirdCopies::open(directory, job)?;
    let fds = InheritedFds {
        third_copies: Some(third_copies),
        launcher: Some(launcher),
        out: Some(out_writer),
        err: Some(err_writer),
        out_terminal: copy_of_terminal(&std::io::stdout()),
        err_terminal: copy_of_terminal(&std::io::stderr()),
        input: input::open(job)?,
        ..InheritedFds::default()
    };
    let keeper = start_keeper(directory, job, fds)?;
    ThirdCopies::make_room();
    let (shown, showing) = system::pipe()?;
    let (showing, left_out) = (Arc::new(showing), Arc::new(AtomicU64::new(0)));
    for (pipe, to) in [(out, libc::STDOUT_FILENO), (err, libc::STDERR_FILENO)] {
        let held = Arc::clone(&showing);
        let left_out = Arc::clone(&left_out);
        std::thread::spawn(move || {
            left_out.fetch_add(relay(&mut File::from(pipe), to), Ordering::SeqCst);
            drop(held);
        });
    }
    drop(showing);
    attend(directory, &signals, keeper, &mut File::from(ours), &shown, &mut copies);
    if let bytes @ 1.. = left_out.load(Ordering::SeqCst) {
        complain!(
            "note: {bytes} bytes of output were left out where there was no space for them; `penstock logs` has them"
        );
    }
    Ok(conclude(directory))
}

fn copy_of_terminal(fd: &impl AsFd) -> Option<OwnedFd> {
    fd.as_fd().try_clone_to_owned().ok().filter(terminal::is_terminal)
}

/// Waits for the end of the job, passing on signals. The end is: no keeper any more, and everything shown.
fn attend(
    directory: &JobDirectory,
    signals: &Signals,
    keeper: i32,
    launcher: &mut File,
    shown: &OwnedFd,
    copies: &mut ThirdCopies<'_>,
) {
    let (mut gone, mut done, mut forced) = (false, false, false);
    let mut stop_signals = StopSignals::default();
    while !gone || !(done || forced) {
        let mut interests = [
            interest(signals.as_raw_fd(), libc::POLLIN),
            interest(if done { -1 } else { shown.as_raw_fd() }, libc::POLLIN),
            interest(copies.number(), libc::POLLIN),
        ];
        system::poll(&mut interests, stop_signals.patience());
        if stop_signals.are_ignored() {
            // The agent is stopped, or stuck: nobody else can end the job.
            sweep::sweep(directory.path());
        }
        done |= interests[1].revents != 0;
        copies.take();
        for signal in signals.take() {
            if signal == libc::SIGCHLD {
                while let Some(reaped) = system::reap() {
                    gone |= reaped.pid == keeper;
                }
            } else if ends_nothing(signal) || stop_signals.note() {
                forced |= gone && !ends_nothing(signal);
                let byte = u8::try_from(signal).unwrap_or(15);
                let _ = launcher.write_all(&[byte]);
            }
        }
    }
}

/// A terminal of another size, and what a scheduler sends before it ends a job: a wish for checkpoints.
fn ends_nothing(signal: i32) -> bool {
    matches!(signal, libc::SIGWINCH | libc::SIGUSR1 | libc::SIGUSR2)
}

/// What the person wanted so far: an end, and then at once.
#[derive(Default)]
struct StopSignals {
    first: Option<Instant>,
    /// When it was to be at once, until somebody else had to see to it.
    urgent: Option<Instant>,
}

impl StopSignals {
    /// Takes note of a signal; whether it is another request. Who stands between the person and us passes on what we have from the
    /// terminal already (`timeout`, `uv run`), and that is one request.
    fn note(&mut self) -> bool {
        match self.first {
            None => self.first = Some(Instant::now()),
            Some(first) if first.elapsed() < SAME_REQUEST => return false,
            Some(_) => drop(self.urgent.get_or_insert_with(Instant::now)),
        }
        true
    }

    /// How long to wait for the agent to obey.
    fn patience(&self) -> Option<Duration> {
        self.urgent.map(|since| URGENT_PATIENCE.saturating_sub(since.elapsed()) + Duration::from_millis(1))
    }

    /// Whether the agent has had its time; true once.
    fn are_ignored(&mut self) -> bool {
        self.urgent.take_if(|since| since.elapsed() >= URGENT_PATIENCE).is_some()
    }
}

/// The last words of a foreground job.
fn conclude(directory: &JobDirectory) -> i32 {
    let Ok(Some(state)) = State::load(directory) else {
        complain!(
            "error: the job ended before it began; {} may say why",
            directory.file("agent.log").display()
        );
        return 1;
    };
    if state.log_lost_bytes > 0 {
        complain!("note: {} bytes of output did not fit into log files", state.log_lost_bytes);
    }
    match state.phase {
        Phase::Succeeded => {}
        Phase::Stopped => complain!("{}", state.reason),
        Phase::Failed | Phase::Queued | Phase::Running | Phase::Ending | Phase::Waiting => {
            let reason =
                if state.phase == Phase::Failed { &state.reason } else { "keeper and agent were killed" };
            complain!("error: {reason}");
            if let Some(hint) = input::hint(directory, &state) {
                complain!("\nhint: {hint}");
            }
            if !state.incidents.is_empty() {
                complain!("\nhint: `penstock incident {}` tells how every rank ended, and why", state.job);
            }
        }
    }
    state.exit_code.unwrap_or(1)
}

/// The keeper's process. It gets a session of its own: what the terminal sends to its processes reaches the launcher only.
fn start_keeper(directory: &JobDirectory, job: &Job, mut fds: InheritedFds) -> Result<i32> {
    let path = directory.file("agent.log");
    let log = File::options().create(true).append(true).open(&path);
    let log = log.map_err(|source| ProcessError::File { verb: "open", path, source })?;
    if job.isolate {
        let open = |path: &str| {
            let file = File::open(path).map(OwnedFd::from);
            file.map_err(|source| ProcessError::File { verb: "open", path: path.into(), source })
        };
        (fds.outside, fds.namespace) = (Some(open("/proc")?), Some(open("/proc/self/ns/pid")?));
        let mut words =
            vec!["penstock-agent".to_owned(), "keeper".to_owned(), directory.path().display().to_string()];
        words.extend(fds.words());
        let program = std::path::Path::new("/proc/self/exe");
        return isolation::start(&First { program, words: &words, log: &log, passed: &fds.numbers() });
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0("penstock-agent").arg("keeper").arg(directory.path()).args(fds.words());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let passed = fds.numbers();
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            passed.iter().try_for_each(|fd| system::keep_over_exec(*fd))
        });
    }
    let child = command.spawn();
    let child =
        child.map_err(|source| ProcessError::Start { command: "penstock-agent".to_owned(), source })?;
    Ok(child.id() as i32)
}
