//! Starting a rank: its environment, its pipes, and what ties it to the agent.
//!
//! A parent-death signal fires when the *thread* that forked ends, so ranks are started from the agent's main thread only.

use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::cgroup::Cgroup;
use crate::error::{ProcessError, Result};
use crate::job::{Job, Room};
use crate::pump::Outputs;
use crate::system;
use crate::terminal::{self, Size};

/// What every rank of an incarnation has in common.
pub struct Life<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its directory, which marks its processes.
    pub room: &'a Room,
    /// Which life.
    pub incarnation: u32,
    /// Where rank 0 listens.
    pub master_port: u16,
    /// The control group of the job, where there is one.
    pub cgroup: Option<&'a Cgroup>,
    /// The limit of open files that ranks should see.
    pub file_limit: libc::rlimit,
}

/// A rank that was started.
pub struct Started {
    /// Its process.
    pub pid: i32,
    /// Our ends of what it writes to.
    pub outputs: Outputs,
}

/// A port that nobody listens on right now.
pub fn free_port() -> Result<u16> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|source| ProcessError::System { call: "bind", source })
}

/// The variables of a rank; the names are those of torchrun, so programs made for it run unchanged.
pub fn environment(life: &Life<'_>, rank: u32) -> Vec<(&'static str, String)> {
    let (rank, ranks) = (rank.to_string(), life.job.ranks.to_string());
    let mut variables = vec![
        ("RANK", rank.clone()),
        ("LOCAL_RANK", rank.clone()),
        ("ROLE_RANK", rank),
        ("WORLD_SIZE", ranks.clone()),
        ("LOCAL_WORLD_SIZE", ranks.clone()),
        ("ROLE_WORLD_SIZE", ranks),
        ("GROUP_RANK", "0".to_owned()),
        ("GROUP_WORLD_SIZE", "1".to_owned()),
        ("ROLE_NAME", "default".to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", life.master_port.to_string()),
        ("TORCHELASTIC_RUN_ID", life.job.id.clone()),
        ("TORCHELASTIC_RESTART_COUNT", life.incarnation.to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", life.job.policy.restarts_max.to_string()),
        ("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned()),
        ("PENSTOCK_INCARNATION", life.incarnation.to_string()),
        ("PENSTOCK_JOB", life.job.id.clone()),
        ("PENSTOCK_JOB_DIRECTORY", life.room.path().display().to_string()),
    ];
    // A pipe makes Python keep lines back, and a killed rank would take them along.
    set_unless_there(&mut variables, "PYTHONUNBUFFERED", "1");
    if life.job.ranks > 1 {
        // As torchrun: ranks that each start a thread per core get in each other's way.
        set_unless_there(&mut variables, "OMP_NUM_THREADS", "1");
    }
    variables
}

fn set_unless_there(variables: &mut Vec<(&'static str, String)>, name: &'static str, value: &str) {
    if std::env::var_os(name).is_none() {
        variables.push((name, value.to_owned()));
    }
}

/// Starts one rank as the leader of a session of its own.
pub fn start(life: &Life<'_>, rank: u32) -> Result<Started> {
    let (outputs, out_writer, err_writer) = outputs(life.job.terminal)?;
    let agent = std::process::id() as i32;
    let (limit, has_terminal) = (life.file_limit, life.job.terminal);
    let door = life.cgroup.and_then(|group| group.door(rank));
    let mut command = Command::new(&life.job.command[0]);
    command.args(&life.job.command[1..]).envs(environment(life, rank));
    command.stdin(Stdio::null()).stdout(out_writer).stderr(err_writer);
    // SAFETY: the closure only makes calls that are allowed between fork and exec, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 {
                return Err(std::io::Error::last_os_error());
            }
            if has_terminal {
                terminal::control(libc::STDOUT_FILENO)?;
            }
            // The agent blocks the signals that it collects; a rank has to see its own.
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            if let Some(door) = &door {
                // Zero is whoever writes. Without the group a rank runs as well, so a refusal is no error.
                libc::write(door.as_raw_fd(), c"0".as_ptr().cast(), 1);
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            // A rank is a subreaper too: while it lives its orphans stay below it, so they are known to be its own.
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            // The agent may have died before the parent-death signal was set.
            if libc::getppid() != agent {
                libc::_exit(1);
            }
            Ok(())
        });
    }
    let started = command
        .spawn()
        .map_err(|source| ProcessError::Start { command: life.job.command[0].clone(), source })?;
    Ok(Started { pid: started.id() as i32, outputs })
}

/// Our ends, and the rank's standard output and error.
fn outputs(is_terminal: bool) -> Result<(Outputs, OwnedFd, OwnedFd)> {
    if is_terminal {
        let (ours, theirs) = terminal::open(Size::UNSEEN)?;
        let twice = theirs.try_clone().map_err(|source| ProcessError::System { call: "dup", source })?;
        return Ok((Outputs::Terminal(ours), theirs, twice));
    }
    let (out, out_writer) = system::pipe()?;
    let (err, err_writer) = system::pipe()?;
    Ok((Outputs::Pipes([out, err]), out_writer, err_writer))
}
