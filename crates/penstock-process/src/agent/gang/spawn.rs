//! Starting a rank: its environment, its pipes, and what ties it to the agent.
//!
//! A parent-death signal fires when the *thread* that forked ends, so ranks are started from the agent's main thread only.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::error::{ProcessError, Result};
use crate::job::mark::{self, Mark, WORKER_MARK};
use crate::job::{Job, JobDirectory, Role};
use crate::logs::pump::Outputs;
use crate::slots::devices::{confine, mask};
use crate::system;
use crate::system::cgroup::Cgroup;
use crate::system::terminal::{self, Size};

/// Of Yama, which restricts ptrace where it is there; elsewhere the call is refused and changes nothing.
const PR_SET_PTRACER: libc::c_int = 0x5961_6d61;

/// What every worker of one life of a gang has in common.
pub(in crate::agent) struct Life<'a> {
    /// The job.
    pub(in crate::agent) job: &'a Job,
    /// The role that the workers play.
    pub(in crate::agent) role: &'a Role,
    /// The job's directory, which marks its processes.
    pub(in crate::agent) job_directory: &'a JobDirectory,
    /// Which life.
    pub(in crate::agent) incarnation: u32,
    /// Where rank 0 listens.
    pub(in crate::agent) master_port: u16,
    /// What the rank reads that has standard input.
    pub(in crate::agent) input: Option<&'a OwnedFd>,
    /// The control group of the job, where there is one.
    pub(in crate::agent) cgroup: Option<&'a Cgroup>,
    /// The limit of open files that workers should see.
    pub(in crate::agent) file_limit: libc::rlimit,
}

impl Life<'_> {
    /// The number of a worker among all of the job.
    fn place(&self, rank: u32) -> u32 {
        let number = self.job.roles.iter().position(|role| role.name == self.role.name).unwrap_or(0);
        self.job.place(number, rank)
    }

    /// The limit that marks a worker and all that it starts, where the system lets us.
    pub(in crate::agent) fn marking(&self, rank: u32) -> Option<libc::rlimit> {
        Mark::of(self.job_directory.path()).limit(Some(self.place(rank)))
    }
}

/// What a worker has of its slot.
#[derive(Default)]
pub(in crate::agent) struct WorkerSlot {
    /// Variables that name its devices; they win over all others.
    pub(in crate::agent) variables: Vec<(&'static str, String)>,
    /// Leases: descriptors that it inherits, and that nobody closes before it ends.
    pub(in crate::agent) kept: Vec<RawFd>,
    /// Processors that it may run on; nothing for all of the job's.
    pub(in crate::agent) cpus: Vec<u32>,
    /// The control group that limits its memory, as the file to write a process into.
    pub(in crate::agent) memory: Option<File>,
}

/// A rank that was started.
pub(in crate::agent) struct Started {
    /// Its process.
    pub(in crate::agent) pid: i32,
    /// Our ends of what it writes to.
    pub(in crate::agent) outputs: Outputs,
}

/// A port that nobody listens on right now.
pub(in crate::agent) fn free_port() -> Result<u16> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|source| ProcessError::System { call: "bind", source })
}

/// The variables of a worker; the names are those of torchrun, so programs made for it run unchanged.
pub(in crate::agent) fn environment(life: &Life<'_>, rank: u32) -> Vec<(String, String)> {
    let role = life.role;
    let worker = format!("{}-{rank}", role.name);
    let number = life.job.roles.iter().position(|known| known.name == role.name).unwrap_or(0);
    let place = life.job.place(number, rank);
    let (rank, ranks) = (rank.to_string(), role.ranks.to_string());
    // What torchrun calls a role without a name.
    let called = if role.name == "rank" { "default" } else { &role.name };
    let known = [
        ("RANK", rank.clone()),
        ("LOCAL_RANK", rank.clone()),
        ("ROLE_RANK", rank),
        ("WORLD_SIZE", ranks.clone()),
        ("LOCAL_WORLD_SIZE", ranks.clone()),
        ("ROLE_WORLD_SIZE", ranks),
        ("GROUP_RANK", "0".to_owned()),
        ("GROUP_WORLD_SIZE", "1".to_owned()),
        ("ROLE_NAME", called.to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", life.master_port.to_string()),
        ("TORCHELASTIC_RUN_ID", life.job.id.clone()),
        ("TORCHELASTIC_RESTART_COUNT", life.incarnation.to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", role.policy.budget.crash.to_string()),
        ("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned()),
        ("PENSTOCK_INCARNATION", life.incarnation.to_string()),
        ("PENSTOCK_JOB", life.job.id.clone()),
        ("PENSTOCK_JOB_DIRECTORY", life.job_directory.path().display().to_string()),
        ("PENSTOCK_ROLE", role.name.clone()),
        (
            "PENSTOCK_PULSES",
            format!("{}:{place}", life.job_directory.file(crate::job::pulses::FILE).display()),
        ),
        (WORKER_MARK, worker),
    ];
    let mut variables: Vec<(String, String)> = known.map(|(name, value)| (name.to_owned(), value)).into();
    // A pipe makes Python keep lines back, and a killed rank would take them along.
    set_unless_there(&mut variables, "PYTHONUNBUFFERED", "1");
    // As torchrun: ranks that each start a thread per core get in each other's way; those that have cores of their own do not.
    match (role.slots.cpus, role.ranks) {
        (0, 0 | 1) => {}
        (0, _) => set_unless_there(&mut variables, "OMP_NUM_THREADS", "1"),
        (cpus, _) => set_unless_there(&mut variables, "OMP_NUM_THREADS", &cpus.to_string()),
    }
    // What was asked for comes last, so it wins.
    variables.extend(role.environment.iter().map(|(name, value)| (name.clone(), value.clone())));
    variables
}

fn set_unless_there(variables: &mut Vec<(String, String)>, name: &str, value: &str) {
    if std::env::var_os(name).is_none() {
        variables.push((name.to_owned(), value.to_owned()));
    }
}

/// Starts one rank as the leader of a session of its own.
pub(in crate::agent) fn start(life: &Life<'_>, rank: u32, place: WorkerSlot) -> Result<Started> {
    let (outputs, out_writer, err_writer) = outputs(life.role.terminal)?;
    let agent = std::process::id() as i32;
    let (limit, has_terminal) = (life.file_limit, life.role.terminal);
    let words = &life.role.command;
    let doors = [life.cgroup.and_then(|group| group.door(&life.role.name, rank)), place.memory];
    let (kept, mask, marking) = (place.kept, mask(&place.cpus), life.marking(rank));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(environment(life, rank)).envs(place.variables);
    if let Some(directory) = life.role.directory.as_ref().or(life.job.directory.as_ref()) {
        command.current_dir(directory);
    }
    command.stdin(input(life, rank)?).stdout(out_writer).stderr(err_writer);
    // SAFETY: the closure only makes calls that are allowed between fork and exec, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            system::begin_session()?;
            if has_terminal {
                terminal::control(libc::STDOUT_FILENO)?;
            }
            for door in doors.iter().flatten() {
                // Zero is whoever writes. Without the group a rank runs as well, so a refusal is no error.
                libc::write(door.as_raw_fd(), c"0".as_ptr().cast(), 1);
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            // Whatever comes from here is known to be this rank's.
            for limit in marking.iter() {
                mark::put(limit);
            }
            // Where only ancestors may look into a process, the agent's children may as well: they take stacks.
            libc::prctl(PR_SET_PTRACER, agent as libc::c_ulong, 0, 0, 0);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            mask.iter().for_each(confine);
            kept.iter().try_for_each(|fd| system::keep_over_exec(*fd))?;
            // The agent may have died before the parent-death signal was set.
            if libc::getppid() != agent {
                libc::_exit(1);
            }
            Ok(())
        });
    }
    let started =
        command.spawn().map_err(|source| ProcessError::Start { command: words[0].clone(), source })?;
    Ok(Started { pid: started.id() as i32, outputs })
}

/// Standard input of a rank: what was handed down for the one that reads, else nothing.
fn input(life: &Life<'_>, rank: u32) -> Result<Stdio> {
    let Some(given) = life.input.filter(|_| life.role.stdin == Some(rank)) else { return Ok(Stdio::null()) };
    let copy = given.try_clone().map_err(|source| ProcessError::System { call: "dup", source })?;
    Ok(Stdio::from(copy))
}

/// Our ends, and the rank's standard output and error.
pub(in crate::agent) fn outputs(is_terminal: bool) -> Result<(Outputs, OwnedFd, OwnedFd)> {
    if is_terminal {
        let (ours, theirs) = terminal::open(Size::UNSEEN)?;
        let twice = theirs.try_clone().map_err(|source| ProcessError::System { call: "dup", source })?;
        return Ok((Outputs::Terminal(ours), theirs, twice));
    }
    let (out, out_writer) = system::pipe()?;
    let (err, err_writer) = system::pipe()?;
    Ok((Outputs::Pipes([out, err]), out_writer, err_writer))
}
