//! What a host of a job of many was started with: `host.json` in its directory, and the key beside it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use serde::{Deserialize, Serialize};

use crate::error::{ProcessError, Result};
use crate::job::{Job, JobDirectory};
use crate::lease::grant;
use crate::tree::host_list::{FANOUT, HostEntry, HostId};
use crate::vote::state_store::StateStore;
use crate::vote::tie_breaker::StateDirectory;

/// The file, in the directory of a host.
pub const FILE: &str = "host.json";
/// The job's secret, beside it.
pub const KEY: &str = "key";

/// What must be the same on all hosts, unless somebody says that it need not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Of this program.
    #[serde(default)]
    pub agent: String,
    /// Of the Python that runs the ranks.
    #[serde(default)]
    pub python: String,
}

/// Who starts further hosts, where they do not come by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostStarter {
    /// A launcher that is logged in to hosts, as long as it is heard.
    Attached,
    /// Nobody any more: the launcher left the job to itself.
    Detached,
}

/// What a host was started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostConfig {
    /// This start of it.
    pub host: HostId,
    /// What people call it.
    pub name: String,
    /// Workers of the first role that run here.
    pub slots: u32,
    /// Hosts with the same word fail together.
    #[serde(default)]
    pub rack: String,
    /// The address that others reach it at.
    pub address: std::net::IpAddr,
    /// Where it listens; 0 for any free port.
    #[serde(default)]
    pub port: u16,
    /// Where hosts meet.
    pub endpoint: SocketAddr,
    /// The same as people wrote it, where that is a name: it may come to mean another address.
    #[serde(default)]
    pub endpoint_name: String,
    /// Whether that is here.
    #[serde(default)]
    pub founder: bool,
    /// It would be here, but another had the port.
    #[serde(skip)]
    pub is_displaced: bool,
    /// How many hosts the job has.
    pub nnodes: u32,
    /// With how many it may go on when hosts are lost, itself included; empty where the number is fixed.
    #[serde(default)]
    pub sizes: Vec<u32>,
    /// How long a lost host is waited for before the job goes on with fewer.
    #[serde(default = "usual_wait")]
    pub replace_within_ms: u64,
    /// A job that got smaller asks its ranks to save and leave when more hosts are here, instead of waiting for its next restart.
    #[serde(default)]
    pub grow_saved: bool,
    /// Who starts further hosts; nothing where they come by themselves.
    #[serde(default)]
    pub starter: Option<HostStarter>,
    /// How many hosts were started in all, where those are fewer than the job has.
    #[serde(default)]
    pub comes: Option<u32>,
    /// The host rank that was asked for.
    #[serde(default)]
    pub node_rank: Option<u32>,
    /// It comes in addition to those that the job has, and stands back for them.
    #[serde(default)]
    pub spare: bool,
    /// How long a host may run ranks unheard.
    #[serde(default = "usual_lease")]
    pub lease_ms: u64,
    /// Children of a host in the tree.
    #[serde(default = "usual_fanout")]
    pub fanout: u32,
    /// How long a freed host rank waits for a host before the job ends.
    #[serde(default = "usual_wait")]
    pub host_wait_ms: u64,
    /// A directory that all hosts may see, or the URL of a place on an object store: it breaks the tie of two, and a job that is started
    /// again continues from it.
    #[serde(default)]
    pub state: Option<PathBuf>,
    /// Somebody asked for it, so the job does not begin without.
    #[serde(default)]
    pub state_asked: bool,
    /// This start continues what is there.
    #[serde(default)]
    pub continues: bool,
    /// The interface that ranks use.
    #[serde(default)]
    pub interface: Option<String>,
    /// Versions may differ.
    #[serde(default)]
    pub mixed: bool,
    /// What should be the same on all hosts.
    #[serde(default)]
    pub versions: Versions,
    /// It was joined without a key, so hosts take no commands from each other.
    #[serde(default)]
    pub open: bool,
    /// Names of the hosts that should come, where they are known.
    #[serde(default)]
    pub expected: Vec<String>,
}

fn usual_lease() -> u64 {
    grant::USUAL_MS
}

fn usual_fanout() -> u32 {
    FANOUT
}

fn usual_wait() -> u64 {
    600_000
}

impl HostConfig {
    /// What a directory says; nothing for a job of one host.
    pub fn read(directory: &JobDirectory) -> Result<Option<Self>> {
        let path = directory.file(FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ProcessError::File { verb: "read", path, source }),
        };
        serde_json::from_slice(&text).map(Some).map_err(|source| ProcessError::Format { path, source })
    }

    /// Whether the state is on an object store.
    pub fn state_is_far(&self) -> bool {
        self.state.as_ref().is_some_and(|place| place.to_string_lossy().contains("://"))
    }

    /// The state of the job, if it has any. `mark` tells the process that speaks to a store from those of questions, and `count` has both.
    pub(in crate::host) fn state_directory(
        &self,
        job: &Job,
        mark: &'static str,
        count: &Arc<AtomicUsize>,
    ) -> Option<StateDirectory> {
        let place = self.state.as_ref()?;
        if !self.state_is_far() {
            return Some(StateDirectory::open(place));
        }
        let url = place.to_string_lossy().into_owned();
        let store = StateStore::new(url, job.python.clone(), mark, Arc::clone(count));
        Some(StateDirectory::on_store(place, store))
    }

    /// Whether the place where hosts meet is on this machine, and another has its port.
    pub fn shares_endpoint(&self) -> bool {
        !self.founder && self.endpoint.ip() == self.address
    }

    /// Its line in the host list, once it is known where it listens.
    pub fn entry(&self, port: u16) -> HostEntry {
        HostEntry {
            id: self.host,
            name: self.name.clone(),
            address: SocketAddr::new(self.address, port),
            rack: self.rack.clone(),
            slots: self.slots,
        }
    }
}
