//! What a job is: what was asked for, and what is known and written down about it.

pub mod directory;
pub mod exit;
pub mod journal;
pub mod mark;
pub mod policy;
pub mod pulses;
pub mod redaction;
pub mod reserve;
pub mod state;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::job::policy::{Policy, Scope};
use crate::slots::{Need, Want};

pub use crate::job::directory::JobDirectory;

/// What a role is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Workers that live and die together.
    Gang,
    /// Runs as long as somebody may need it.
    Service,
    /// Runs once; others may wait for it.
    Task,
}

/// How workers of a role are forked from a warm interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warm {
    /// The Python to keep warm.
    pub interpreter: String,
    /// Its own options.
    #[serde(default)]
    pub flags: Vec<String>,
    /// The file that it runs while it is kept warm.
    pub entry: String,
    /// What it imports beforehand.
    pub preload: Vec<String>,
    /// Script, module or `-c` with its text, and the arguments.
    pub argv: Vec<String>,
    /// Whether `argv` begins with a module.
    pub module: bool,
}

/// Workers that run the same command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Role {
    /// Unique in its job.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// Program and arguments, the same for every rank.
    pub command: Vec<String>,
    /// How many workers.
    pub ranks: u32,
    /// The one host rank that it runs on, in a job of many hosts; by default all of them.
    #[serde(default)]
    pub host: Option<u32>,
    /// Roles that come first.
    #[serde(default)]
    pub after: Vec<String>,
    /// Variables beside those that the job was started with.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Where its workers start; by default where the job was started.
    #[serde(default)]
    pub directory: Option<String>,
    /// The port that rank 0 will listen on; without one, each life gets a free one.
    #[serde(default)]
    pub master_port: Option<u16>,
    /// What each worker gets for itself.
    #[serde(default)]
    pub slots: Need,
    /// Further slots, for ranks whose own became doubtful.
    #[serde(default)]
    pub spares: u32,
    /// Whether workers get a terminal instead of pipes.
    #[serde(default)]
    pub terminal: bool,
    /// Which rank reads what the person types or pipes into the launcher; the others read nothing.
    #[serde(default)]
    pub stdin: Option<u32>,
    /// How to fork from a warm interpreter, where that is possible.
    #[serde(default)]
    pub zygote: Option<Warm>,
    /// Why not, or what is preloaded.
    #[serde(default)]
    pub zygote_why: String,
    /// When a gang is given another life.
    pub policy: Policy,
    /// Ranks whose output is kept from the person's terminal, by stream; logs have it.
    #[serde(default)]
    pub hidden: BTreeMap<String, Vec<u32>>,
}

impl Role {
    /// The host rank that has its rank 0.
    pub fn first_host(&self) -> u32 {
        self.host.unwrap_or(0)
    }

    /// Whether it has ranks on a host.
    pub fn runs_on(&self, host_rank: u32) -> bool {
        self.host.is_none_or(|bound| bound == host_rank)
    }

    /// Whether the person is not shown what a rank writes.
    pub fn hides(&self, rank: u32, stream: Stream) -> bool {
        self.hidden.get(stream.name()).is_some_and(|ranks| ranks.contains(&rank))
    }
}

/// What was asked for; written once by the launcher's command, never changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Unique in its home.
    pub id: String,
    /// Whether the job belongs to nobody's terminal.
    pub detached: bool,
    /// Whether prefixes are coloured.
    pub colour: bool,
    /// Whether workers get control groups, where that is allowed.
    pub cgroup: bool,
    /// Whether the job gets a namespace of processes.
    #[serde(default)]
    pub isolate: bool,
    /// Where it was started.
    #[serde(default)]
    pub directory: Option<String>,
    /// It brings a directory along: no rank begins on a host before its copy is there. For jobs of many hosts.
    #[serde(default)]
    pub ships: bool,
    /// The Python that knows Penstock, for what needs one.
    #[serde(default)]
    pub python: Option<String>,
    /// When a log is continued in another file; 0 never.
    #[serde(default)]
    pub segment_bytes: u64,
    /// How many such files are kept; 0 all.
    #[serde(default)]
    pub segments_kept: u32,
    /// What happens when the person's terminal is slow.
    #[serde(default)]
    pub pressure: Pressure,
    /// What is run.
    pub roles: Vec<Role>,
}

/// What happens when a terminal takes output more slowly than workers write it. Logs are complete in both cases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    /// Workers wait for it.
    #[default]
    Wait,
    /// The terminal misses something, and is told how much and from where.
    Drop,
}

/// Workers that are started, ended and counted together: all of a role, or one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GangPlan {
    /// Which role.
    pub role: usize,
    /// Which of its ranks; those of its host, where it has one.
    pub ranks: Range<u32>,
    /// The one host rank that it runs on, and its rank among all of its role: in a job of many hosts, where ranks restart alone.
    pub alone: Option<LoneRank>,
    /// The one host rank that it runs on, whatever else is there.
    pub host: Option<u32>,
}

/// A rank of many hosts that is a gang of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoneRank {
    /// Where it runs.
    pub host_rank: u32,
    /// Its number among the ranks of its role on all hosts.
    pub rank: u32,
}

impl GangPlan {
    fn of_host(role: usize, ranks: Range<u32>) -> Self {
        Self { role, ranks, alone: None, host: None }
    }
}

impl Job {
    /// The gangs of the job, in order of roles and ranks. Their places in this list are their numbers.
    pub fn gangs(&self) -> Vec<GangPlan> {
        let mut found = Vec::new();
        for (role, about) in self.roles.iter().enumerate() {
            match about.policy.restart {
                Scope::One => {
                    found.extend((0..about.ranks).map(|rank| GangPlan::of_host(role, rank..rank + 1)))
                }
                Scope::Gang | Scope::All => found.push(GangPlan::of_host(role, 0..about.ranks)),
            }
        }
        found
    }

    /// The gangs of the job over so many hosts, of which each has so many ranks of a role. A gang that restarts together is one on all
    /// hosts; a rank that restarts alone is one on its host.
    pub fn gangs_over(&self, hosts: u32, ranks: &dyn Fn(usize, u32) -> u32) -> Vec<GangPlan> {
        let mut found = Vec::new();
        for (role, about) in self.roles.iter().enumerate() {
            if about.policy.restart != Scope::One {
                found.push(GangPlan { host: about.host, ..GangPlan::of_host(role, 0..about.ranks) });
                continue;
            }
            let mut rank = 0;
            for host_rank in (0..hosts).filter(|host_rank| about.runs_on(*host_rank)) {
                for local in 0..ranks(role, host_rank) {
                    let alone = Some(LoneRank { host_rank, rank });
                    let host = Some(host_rank);
                    found.push(GangPlan { alone, host, ..GangPlan::of_host(role, local..local + 1) });
                    rank += 1;
                }
            }
        }
        found
    }

    /// What a role holds: a slot for each rank, and the spares.
    pub fn want(&self, role: usize) -> Want {
        let role = &self.roles[role];
        Want { role: role.name.clone(), places: role.ranks.saturating_add(role.spares), need: role.slots }
    }

    /// The number of a worker among all of the job.
    pub fn place(&self, role: usize, rank: u32) -> u32 {
        self.roles[..role].iter().map(|role| role.ranks).sum::<u32>() + rank
    }

    /// What stands before the lines of a worker: its rank, after its role where the job has several. All are equally wide. Of a job of
    /// many hosts, `worlds` says how many ranks each role has.
    pub fn label(&self, role: usize, rank: u32, worlds: &[u32]) -> String {
        let widest = |role: usize| {
            let ranks = worlds.get(role).copied().unwrap_or(self.roles[role].ranks);
            ranks.saturating_sub(1).to_string().len()
        };
        match &self.roles[..] {
            [_] => format!("{rank:>width$}", width = widest(0)),
            roles => {
                let named = format!("{}-{rank}", roles[role].name);
                let widths =
                    roles.iter().enumerate().map(|(number, role)| role.name.len() + 1 + widest(number));
                let width = widths.max().unwrap_or(0);
                format!("{named:>width$}")
            }
        }
    }

    /// How many workers it has.
    pub fn workers(&self) -> u32 {
        self.roles.iter().map(|role| role.ranks).sum()
    }
}

/// Which of a worker's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Out, Self::Err];

    /// As in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }
}
