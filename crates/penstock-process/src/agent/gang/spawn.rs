//! Starting a rank: its environment, its pipes, and what ties it to the agent.
//!
//! A parent-death signal fires when the *thread* that forked ends, so ranks are started from the agent's main thread only.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use crate::agent::standing::{HostLife, RankPlace};
use crate::error::{ProcessError, Result};
use crate::job::mark::{self, Mark, WORKER_MARK};
use crate::job::{Job, JobDirectory, Role};
use crate::logs::pump::Outputs;
use crate::slots::devices::{confine, mask};
use crate::system;
use crate::system::cgroup::Cgroup;
use crate::system::child::{Child, ChildProgram};
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
    /// Where the host stands, in a job of many.
    pub(in crate::agent) host: Option<HostLife<'a>>,
}

impl Life<'_> {
    /// The role by its place in the job.
    fn number(&self) -> usize {
        self.job.roles.iter().position(|role| role.name == self.role.name).unwrap_or(0)
    }

    /// The number of a worker among all of the job.
    fn place(&self, rank: u32) -> u32 {
        self.job.place(self.number(), rank)
    }

    fn rank_place(&self, local: u32) -> RankPlace {
        RankPlace { role: self.number(), local, local_world: self.role.ranks }
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
    /// Locks: descriptors that it inherits, and that nobody closes before it ends.
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
    let (place, rank_place) = (life.place(rank), life.rank_place(rank));
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
    if let Some(host) = life.host {
        variables.extend(host.variables(&rank_place, &|name| std::env::var_os(name).is_some()));
    }
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

/// Variables of ours that a worker must not have.
pub(in crate::agent) fn removed(life: &Life<'_>, rank: u32) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let own = |name: &String| life.role.environment.contains_key(name);
    let found = life.host.map(|host| host.removed(&life.rank_place(rank), names)).unwrap_or_default();
    found.into_iter().filter(|name| !own(name)).collect()
}

fn set_unless_there(variables: &mut Vec<(String, String)>, name: &str, value: &str) {
    if std::env::var_os(name).is_none() {
        variables.push((name.to_owned(), value.to_owned()));
    }
}

/// A rank with everything that it needs, but a process.
pub(in crate::agent) struct PreparedRank {
    program: ChildProgram,
    has_terminal: bool,
    file_limit: libc::rlimit,
    /// The control group that limits its memory, as the file to write a process into.
    memory: Option<File>,
    /// Locks of slots, which it inherits.
    kept: Vec<RawFd>,
    cpus: Option<libc::cpu_set_t>,
    /// What marks it and all that it starts.
    marking: Option<libc::rlimit>,
}

/// Prepares one rank, with our ends of what it will write to.
pub(in crate::agent) fn prepare(
    life: &Life<'_>,
    rank: u32,
    place: WorkerSlot,
    has_new_group: bool,
) -> Result<(PreparedRank, Outputs)> {
    let (outputs, out_writer, err_writer) = outputs(life.role.terminal)?;
    let group = life.cgroup.and_then(|group| {
        let role = &life.role.name;
        let birthplace = has_new_group.then(|| group.birthplace(role, rank)).flatten();
        Some((birthplace, group.door(role, rank)?))
    });
    let variables = place.variables.into_iter().map(|(name, value)| (name.to_owned(), value));
    let mut program = ChildProgram::new(&life.role.command, [input(life, rank)?, out_writer, err_writer])?
        .without(removed(life, rank))
        .environment(environment(life, rank).into_iter().chain(variables))?
        .group(group);
    if let Some(directory) = life.role.directory.as_ref().or(life.job.directory.as_ref()) {
        program = program.directory(directory)?;
    }
    let prepared = PreparedRank {
        program,
        has_terminal: life.role.terminal,
        file_limit: life.file_limit,
        memory: place.memory,
        kept: place.kept,
        cpus: mask(&place.cpus),
        marking: life.marking(rank),
    };
    Ok((prepared, outputs))
}

impl PreparedRank {
    /// Starts it as the leader of a session of its own. Its program may not run yet; the child says when.
    pub(in crate::agent) fn start(self) -> Result<Child> {
        let agent = std::process::id() as i32;
        let Self { program, has_terminal, file_limit, memory, kept, cpus, marking } = self;
        // SAFETY: the closure only makes calls that are allowed between fork and exec, and allocates nothing.
        unsafe {
            program.start(|| {
                system::begin_session()?;
                if has_terminal {
                    terminal::control(libc::STDOUT_FILENO)?;
                }
                for door in memory.iter() {
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
                libc::setrlimit(libc::RLIMIT_NOFILE, &file_limit);
                cpus.iter().for_each(confine);
                kept.iter().try_for_each(|fd| system::keep_over_exec(*fd))?;
                // The agent may have died before the parent-death signal was set.
                if libc::getppid() != agent {
                    libc::_exit(1);
                }
                Ok(())
            })
        }
    }
}

/// Standard input of a rank: what was handed down for the one that reads, else nothing.
fn input(life: &Life<'_>, rank: u32) -> Result<OwnedFd> {
    if let Some(given) = life.input.filter(|_| life.role.stdin == Some(rank)) {
        return given.try_clone().map_err(|source| ProcessError::System { call: "dup", source });
    }
    let path = Path::new("/dev/null");
    let nothing = File::open(path).map(OwnedFd::from);
    nothing.map_err(|source| ProcessError::File { verb: "open", path: path.to_owned(), source })
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
