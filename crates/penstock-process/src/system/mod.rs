//! The few calls to the kernel that the standard library does not have, each as a safe function.

pub mod cgroup;
pub mod child;
pub mod epoll;
mod kernel_file;
pub mod kmsg;
pub mod lineage;
pub mod memory_limit;
pub mod standstill;
pub mod terminal;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{ProcessError, Result};

/// Names of the signals that a person may meet.
const NAMES: [(i32, &str); 15] = [
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
];

/// The name of a signal, or its number.
pub fn signal_name(signal: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

fn checked(call: &'static str, answer: i32) -> Result<i32> {
    if answer < 0 {
        Err(ProcessError::System { call, source: io::Error::last_os_error() })
    } else {
        Ok(answer)
    }
}

/// Milliseconds since the machine started: the same clock for every process, so a moment can be written down.
pub fn now_ms() -> u64 {
    boottime_ns() / 1_000_000
}

/// The same in nanoseconds.
pub fn boottime_ns() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(at.tv_nsec).unwrap_or(0)
}

/// Which boot of the machine this is; empty where the system does not say.
pub fn boot_id() -> &'static str {
    static BOOT_ID: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    BOOT_ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim().to_owned()
    })
}

/// What `ps`, `top` and `pgrep` call us: started through `/proc/self/exe`, we would be `exe`. At most 15 letters.
pub fn set_name(name: &str) {
    let Ok(name) = std::ffi::CString::new(name) else { return };
    // SAFETY: the name ends with a zero and lives until the call returns.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// The same without the time in which the machine slept.
pub fn awake_ms() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0) * 1000 + u64::try_from(at.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Orphans among our descendants become our children, so none can slip away.
pub fn become_subreaper() -> Result<()> {
    // SAFETY: plain integers.
    checked("prctl", unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// SIGKILL for us when whoever started us ends; to be called early, and it may be too late.
pub fn die_with_parent() {
    // SAFETY: plain integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// The leader of a session of its own, with the signals that a fresh process has: the agent blocks those that it collects. Safe to
/// call between fork and exec.
pub fn begin_session() -> io::Result<()> {
    // SAFETY: the set is initialised before it is used; everything else is plain integers.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        if SPARES_SESSIONS.load(Ordering::Relaxed) {
            spare_this();
        }
    }
    Ok(())
}

/// Sessions begin with the signals ignored that a scheduler sends some time before the end.
static SPARES_SESSIONS: AtomicBool = AtomicBool::new(false);

/// What a scheduler sends some time before it ends a job ends nobody here, nor in sessions that begin from now on: a scheduler may
/// send it to all processes of a job, and the agent has words of its own for its workers. Programs may still catch it.
pub fn outlive_notices() {
    SPARES_SESSIONS.store(true, Ordering::Relaxed);
}

/// The same for this process and what it starts.
pub fn spare_this() {
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: a plain call; a signal that is ignored runs nothing. Safe between fork and exec.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Two ends of a conversation. Both are closed by `exec`.
pub fn conversation() -> Result<(UnixStream, UnixStream)> {
    UnixStream::pair().map_err(|source| ProcessError::System { call: "socketpair", source })
}

/// A pipe, reading end first. Both ends are closed by `exec`.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two numbers.
    checked("pipe2", unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel just gave us both.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Reading and writing answer at once. Only for descriptors that nobody else shares.
pub fn set_nonblocking(fd: &impl AsRawFd) -> Result<()> {
    // SAFETY: the descriptor is open while it is borrowed.
    unsafe {
        let flags = checked("fcntl", libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        checked("fcntl", libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)).map(drop)
    }
}

/// Asks for a pipe that holds this many bytes; a smaller one works too, so a refusal is no error.
pub fn widen_pipe(fd: &impl AsRawFd, bytes: i32) {
    // SAFETY: the descriptor is open while it is borrowed.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
}

/// Lets a descriptor survive `exec`. Safe to call between fork and exec.
pub fn keep_over_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: plain integers; a closed descriptor is answered with an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the table of descriptors large enough for so many; fewer work too, so a refusal is no error. To be called before the first
/// thread is started: when a process with threads needs a larger table, the kernel waits some 15 ms for all processors.
pub fn reserve_descriptors(count: u32) {
    let last = libc::c_int::try_from(count.saturating_sub(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: plain integers; the copy is ours, and closed at once.
    unsafe {
        let copy = libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, last);
        if copy >= 0 {
            libc::close(copy);
        }
    }
}

/// Another descriptor of the same open file, which has to be open.
pub fn duplicate(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: plain integers; a closed descriptor is answered with an error.
    let copy = checked("fcntl", unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: the kernel just gave it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Takes over a descriptor that we inherited under a number, and keeps it from our own children.
pub fn inherited(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: plain integers; a number that is not open is answered with an error.
    checked("fcntl", unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and whoever started us passed it to nobody else in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A file that may not grow any more is an error to us, not our death.
pub fn outlive_full_files() {
    // SAFETY: sets no function, only that the signal is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// As many open files as the system allows; what it was before, to give to the ranks.
pub fn raise_file_limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place, first to write to, then to read from.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        libc::setrlimit(libc::RLIMIT_NOFILE, &raised);
    }
    limit
}

/// Signals as something to poll. They are blocked from then on, also in threads that start later.
pub struct Signals(File);

/// What those who supervise a job collect: children that ended, wishes for an end, and for checkpoints.
pub const OF_JOBS: [i32; 6] =
    [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Whether a signal of a person is ignored since before we began. A blocked signal would be collected all the same.
fn stays_ignored(signal: i32) -> bool {
    const OF_PERSONS: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
    // SAFETY: nothing is set, and the place is valid to write to.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        OF_PERSONS.contains(&signal)
            && libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

impl Signals {
    /// Blocks the signals and collects them instead. Those that whoever started us wants ignored stay ignored: SIGHUP below `nohup`,
    /// SIGINT and SIGQUIT in the background of a shell. Also in all that we start.
    pub fn catch(signals: &[i32]) -> Result<Self> {
        // SAFETY: the set is initialised before it is used, and outlives the calls.
        unsafe {
            // Where this is ignored nobody can wait for children, which no parent means.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in signals.iter().filter(|signal| !stays_ignored(**signal)) {
                libc::sigaddset(&mut set, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            let fd = checked("signalfd", libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
            Ok(Self(File::from(OwnedFd::from_raw_fd(fd))))
        }
    }

    /// The signals that came since the last call.
    pub fn take(&self) -> Vec<i32> {
        use std::io::Read;
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut bytes = [0u8; SIZE * 16];
        let mut found = Vec::new();
        while let Ok(count) = (&self.0).read(&mut bytes) {
            if count == 0 {
                break;
            }
            // The number of the signal is the first field of the record.
            let records = bytes[..count].chunks_exact(SIZE);
            found.extend(
                records.map(|record| i32::from_ne_bytes([record[0], record[1], record[2], record[3]])),
            );
        }
        found
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// What to wait for on a descriptor. A negative number is skipped.
pub fn interest(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Waits until something happens on one of them, or the time is over. A signal ends the wait early.
pub fn poll(interests: &mut [libc::pollfd], timeout: Option<Duration>) {
    let timeout_ms = timeout.map_or(-1, |t| i32::try_from(t.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: the slice is valid for its length.
    unsafe { libc::poll(interests.as_mut_ptr(), interests.len() as libc::nfds_t, timeout_ms) };
}

/// A child that ended: its number, its raw status, and what it used (itself and the children it waited for).
pub struct Reaped {
    /// The process that is gone.
    pub pid: i32,
    /// As `wait` gives it.
    pub status: i32,
    /// Processor time in seconds, user and system.
    pub cpu_s: f64,
    /// The most memory that it held at once.
    pub rss_max_bytes: u64,
}

/// Whether we have any child, alive or not. Orphans below us become our children, so without one nothing is left below us:
/// the kernel knows that exactly, where a look at /proc can miss a process that forks and ends all the time.
pub fn has_children() -> bool {
    // SAFETY: zero is a valid siginfo, and the place is valid to write to; nothing is reaped.
    unsafe {
        let mut about: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &mut about, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) == 0
    }
}

/// One child that ended, if there is any.
pub fn reap() -> Option<Reaped> {
    let mut status = 0;
    // SAFETY: zero is a valid rusage, and both places are valid to write to.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage), usage)
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (pid > 0).then(|| Reaped {
        pid,
        status,
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        rss_max_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    })
}
