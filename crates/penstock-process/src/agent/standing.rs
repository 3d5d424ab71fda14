//! Where this host stands among the hosts of its job, as its ranks see it: their variables, and what an engine said about its own task.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::coordinator::messages::Standing;

/// What an engine started is the agent; these it set for that one task, and they are another number for each rank.
const OF_TASK: [(&str, Fact); 27] = [
    ("SLURM_PROCID", Fact::Rank),
    ("SLURM_LOCALID", Fact::LocalRank),
    ("SLURM_NTASKS", Fact::World),
    ("SLURM_NPROCS", Fact::World),
    ("SLURM_STEP_NUM_TASKS", Fact::World),
    ("SLURM_NTASKS_PER_NODE", Fact::LocalWorld),
    ("SLURM_TASKS_PER_NODE", Fact::WorldByHost),
    ("SLURM_STEP_TASKS_PER_NODE", Fact::WorldByHost),
    ("SLURM_GTIDS", Fact::RanksOfHost),
    ("OMPI_COMM_WORLD_RANK", Fact::Rank),
    ("OMPI_COMM_WORLD_SIZE", Fact::World),
    ("OMPI_COMM_WORLD_LOCAL_RANK", Fact::LocalRank),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", Fact::LocalWorld),
    ("OMPI_COMM_WORLD_NODE_RANK", Fact::LocalRank),
    ("OMPI_UNIVERSE_SIZE", Fact::World),
    ("MV2_COMM_WORLD_RANK", Fact::Rank),
    ("MV2_COMM_WORLD_SIZE", Fact::World),
    ("MV2_COMM_WORLD_LOCAL_RANK", Fact::LocalRank),
    ("MV2_COMM_WORLD_LOCAL_SIZE", Fact::LocalWorld),
    ("MPI_LOCALRANKID", Fact::LocalRank),
    ("MPI_LOCALNRANKS", Fact::LocalWorld),
    ("PMI_RANK", Fact::Rank),
    ("PMI_SIZE", Fact::World),
    ("PALS_RANKID", Fact::Rank),
    ("FLUX_TASK_RANK", Fact::Rank),
    ("FLUX_TASK_LOCAL_ID", Fact::LocalRank),
    ("SLURM_TASK_PID", Fact::Nothing),
];
/// What begins so is a conversation of the engine with the one task that it knows.
const OF_CONVERSATION: [&str; 5] = ["PMI_", "PMIX_", "OMPI_MCA_ess_", "OMPI_MCA_orte_ess_", "OMPI_MCA_pmix"];

/// What a variable of an engine says.
#[derive(Clone, Copy)]
enum Fact {
    Rank,
    LocalRank,
    World,
    LocalWorld,
    /// As Slurm writes it: `8(x4)`.
    WorldByHost,
    RanksOfHost,
    /// What is not true of any rank.
    Nothing,
}

/// Where the host stands, with what was found out about it.
#[derive(Debug, Default)]
pub(super) struct HostPlace {
    /// Nothing for a job of one host.
    pub(super) standing: Option<Standing>,
    /// When others were told last what workers wrote to standard error.
    pub(super) stderr_ms: u64,
    /// The network interface that other hosts reach.
    interface: Option<String>,
    /// How many hosts the last life had that began here.
    begun_hosts: Option<u32>,
}

/// What a life on a host of many adds to the variables of a rank.
#[derive(Clone, Copy)]
pub(super) struct HostLife<'a> {
    pub(super) standing: &'a Standing,
    /// Where the ranks of the life meet.
    pub(super) meeting: Option<SocketAddr>,
    interface: Option<&'a str>,
}

/// A rank among those of its role.
pub(super) struct RankPlace {
    /// The role, by its place in the job.
    pub(super) role: usize,
    /// Among those of this host.
    pub(super) local: u32,
    /// How many of them this host has.
    pub(super) local_world: u32,
}

impl HostPlace {
    /// Takes note of what a coordinator says; nothing new is no change.
    pub(super) fn note(&mut self, standing: Option<&Standing>) {
        if let Some(standing) = standing.filter(|standing| Some(*standing) != self.standing.as_ref()) {
            self.interface = standing.interface.clone().or_else(|| interface_of(&standing.address));
            self.standing = Some(standing.clone());
        }
    }

    /// A life begins. In words, where it has another number of hosts than the one before.
    pub(super) fn begin(&mut self) -> Option<String> {
        let hosts = self.standing.as_ref()?.hosts;
        let before = self.begun_hosts.replace(hosts).filter(|before| *before != hosts)?;
        let noun = if hosts == 1 { "host" } else { "hosts" };
        Some(format!("the job goes on with {hosts} {noun} instead of {before}"))
    }

    /// The rank of the first worker of a role on this host.
    pub(super) fn first_rank(&self, role: usize) -> u32 {
        let standing = self.standing.as_ref();
        standing.and_then(|standing| standing.first_ranks.get(role).copied()).unwrap_or(0)
    }

    /// How many ranks each role has, on all hosts; empty for a job of one host.
    pub(super) fn worlds(&self) -> &[u32] {
        self.standing.as_ref().map_or(&[], |standing| &standing.worlds)
    }

    /// A life that meets there.
    pub(super) fn life(&self, meeting: Option<SocketAddr>) -> Option<HostLife<'_>> {
        let interface = self.interface.as_deref();
        self.standing.as_ref().map(|standing| HostLife { standing, meeting, interface })
    }
}

impl HostLife<'_> {
    /// Whether the role of a rank has no ranks on other hosts.
    fn is_of_one_host(&self, rank: &RankPlace) -> bool {
        self.standing.of_one_host.contains(&rank.role)
    }

    fn world(&self, rank: &RankPlace) -> u32 {
        self.standing.worlds.get(rank.role).copied().unwrap_or(rank.local_world)
    }

    fn first(&self, rank: &RankPlace) -> u32 {
        self.standing.first_ranks.get(rank.role).copied().unwrap_or(0)
    }

    /// Variables that win over those of a job of one host. `is_set` says what somebody else has set; that stays.
    pub(super) fn variables(&self, rank: &RankPlace, is_set: &dyn Fn(&str) -> bool) -> Vec<(String, String)> {
        let standing = self.standing;
        let number = (self.first(rank) + rank.local).to_string();
        let world = self.world(rank).to_string();
        let address = self.meeting.map_or_else(|| standing.address.clone(), |at| at.ip().to_string());
        let (group_rank, groups) =
            if self.is_of_one_host(rank) { (0, 1) } else { (standing.host_rank, standing.hosts) };
        let mut found = vec![
            ("RANK", number.clone()),
            ("ROLE_RANK", number),
            ("WORLD_SIZE", world.clone()),
            ("ROLE_WORLD_SIZE", world),
            ("GROUP_RANK", group_rank.to_string()),
            ("GROUP_WORLD_SIZE", groups.to_string()),
            ("MASTER_ADDR", address),
        ];
        if rank.role == 0 && !standing.sizes.is_empty() {
            let sizes: Vec<String> = standing.sizes.iter().map(u32::to_string).collect();
            found.push(("PENSTOCK_WORLD_SIZES", sizes.join(",")));
        }
        let mut unless_set = |name: &'static str, value: Option<String>| {
            found.extend(value.filter(|_| !is_set(name)).map(|value| (name, value)));
        };
        unless_set("JAX_COORDINATOR_ADDRESS", self.meeting.map(|at| at.to_string()));
        unless_set("GLOO_SOCKET_IFNAME", self.interface.map(str::to_owned));
        unless_set("NCCL_SOCKET_IFNAME", standing.interface.clone());
        let engine = OF_TASK.iter().filter(|(name, _)| is_set(name));
        found.extend(engine.filter_map(|(name, fact)| Some((*name, self.told(*fact, rank)?))));
        found.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What an engine's variable has to say to be true of a rank.
    fn told(&self, fact: Fact, rank: &RankPlace) -> Option<String> {
        let (first, world) = (self.first(rank), self.world(rank));
        let (local, local_world) = (rank.local, rank.local_world);
        match fact {
            Fact::Rank => Some((first + local).to_string()),
            Fact::LocalRank => Some(local.to_string()),
            Fact::World => Some(world.to_string()),
            Fact::LocalWorld => Some(local_world.to_string()),
            Fact::RanksOfHost => {
                let all: Vec<String> = (first..first + local_world).map(|rank| rank.to_string()).collect();
                Some(all.join(","))
            }
            Fact::WorldByHost => {
                let hosts = if self.is_of_one_host(rank) { 1 } else { self.standing.hosts };
                let even = world == local_world * hosts;
                even.then(|| format!("{local_world}(x{hosts})"))
            }
            Fact::Nothing => None,
        }
    }

    /// Which of these names a rank must not see, because they would be true of none.
    pub(super) fn removed(&self, rank: &RankPlace, names: impl Iterator<Item = String>) -> BTreeSet<String> {
        let untrue = |name: &String| match OF_TASK.iter().find(|(known, _)| known == name) {
            Some((_, fact)) => self.told(*fact, rank).is_none(),
            None => OF_CONVERSATION.iter().any(|start| name.starts_with(start)),
        };
        names.filter(untrue).collect()
    }
}

/// The network interface that has an address.
fn interface_of(address: &str) -> Option<String> {
    let wanted: IpAddr = address.parse().ok()?;
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the place is valid to write to; what the system puts there is a list that ends with a null, with valid names and
    // addresses of the length that their family has, until it is freed once.
    unsafe {
        if libc::getifaddrs(&mut first) != 0 {
            return None;
        }
        let mut found = None;
        let mut next = first;
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            if address_at(entry.ifa_addr) == Some(wanted) {
                found = CStr::from_ptr(entry.ifa_name).to_str().ok().map(str::to_owned);
                break;
            }
        }
        libc::freeifaddrs(first);
        found
    }
}

/// The address that the system put there, if it is one of the internet.
///
/// # Safety
/// The pointer is null, or one to an address that is as long as its family says.
unsafe fn address_at(place: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    unsafe {
        match i32::from(place.as_ref()?.sa_family) {
            libc::AF_INET => {
                let four = place.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let six = place.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(six.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn standing() -> Standing {
        Standing {
            host_rank: 2,
            hosts: 4,
            first_ranks: vec![16, 4],
            worlds: vec![32, 8],
            of_one_host: Vec::new(),
            sizes: vec![24, 32],
            address: "127.0.0.1".to_owned(),
            interface: None,
        }
    }

    fn seen(standing: &Standing, role: usize, set: &[&str]) -> (BTreeMap<String, String>, BTreeSet<String>) {
        let mut place = HostPlace::default();
        place.note(Some(standing));
        let life = place.life(Some("10.0.0.1:29400".parse().unwrap())).unwrap();
        let rank = RankPlace { role, local: 3, local_world: if role == 0 { 8 } else { 2 } };
        let variables = life.variables(&rank, &|name| set.contains(&name));
        let removed = life.removed(&rank, set.iter().map(|name| (*name).to_owned()));
        (variables.into_iter().collect(), removed)
    }

    #[test]
    fn a_rank_is_numbered_among_all_hosts_and_meets_the_others_at_an_address() {
        let (variables, _) = seen(&standing(), 0, &[]);
        for (name, value) in [
            ("RANK", "19"),
            ("ROLE_RANK", "19"),
            ("WORLD_SIZE", "32"),
            ("GROUP_RANK", "2"),
            ("GROUP_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("JAX_COORDINATOR_ADDRESS", "10.0.0.1:29400"),
            ("GLOO_SOCKET_IFNAME", "lo"),
        ] {
            assert_eq!(variables.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!variables.contains_key("NCCL_SOCKET_IFNAME") && !variables.contains_key("SLURM_PROCID"));
        let (of_second, _) = seen(&standing(), 1, &[]);
        assert_eq!([&of_second["RANK"], &of_second["WORLD_SIZE"]], ["7", "8"]);
    }

    #[test]
    fn ranks_of_a_role_that_is_bound_to_one_host_are_a_world_of_one_host() {
        let bound =
            Standing { of_one_host: vec![1], first_ranks: vec![16, 0], worlds: vec![32, 2], ..standing() };
        let (variables, _) = seen(&bound, 1, &["SLURM_TASKS_PER_NODE"]);
        for (name, value) in [
            ("GROUP_RANK", "0"),
            ("GROUP_WORLD_SIZE", "1"),
            ("WORLD_SIZE", "2"),
            ("SLURM_TASKS_PER_NODE", "2(x1)"),
        ] {
            assert_eq!(variables.get(name).map(String::as_str), Some(value), "{name}");
        }
        let (of_first, _) = seen(&bound, 0, &[]);
        assert_eq!([&of_first["GROUP_RANK"], &of_first["GROUP_WORLD_SIZE"]], ["2", "4"]);
    }

    #[test]
    fn what_somebody_has_set_about_networks_stays_and_an_interface_that_was_asked_for_counts_everywhere() {
        let (variables, _) = seen(&standing(), 0, &["GLOO_SOCKET_IFNAME", "JAX_COORDINATOR_ADDRESS"]);
        assert!(!variables.contains_key("GLOO_SOCKET_IFNAME"));
        assert!(!variables.contains_key("JAX_COORDINATOR_ADDRESS"));
        let chosen = Standing { interface: Some("eth7".to_owned()), ..standing() };
        let (variables, _) = seen(&chosen, 0, &[]);
        assert_eq!([&variables["GLOO_SOCKET_IFNAME"], &variables["NCCL_SOCKET_IFNAME"]], ["eth7", "eth7"]);
    }

    #[test]
    fn variables_that_an_engine_set_for_its_one_task_become_true_of_the_rank_or_go() {
        let set = [
            "SLURM_PROCID",
            "SLURM_LOCALID",
            "SLURM_NTASKS",
            "SLURM_TASKS_PER_NODE",
            "SLURM_GTIDS",
            "SLURM_TASK_PID",
            "SLURM_JOB_ID",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
            "PMI_RANK",
            "PMI_FD",
            "PMIX_SERVER_URI",
        ];
        let (variables, removed) = seen(&standing(), 0, &set);
        for (name, value) in [
            ("SLURM_PROCID", "19"),
            ("SLURM_LOCALID", "3"),
            ("SLURM_NTASKS", "32"),
            ("SLURM_TASKS_PER_NODE", "8(x4)"),
            ("SLURM_GTIDS", "16,17,18,19,20,21,22,23"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "8"),
            ("PMI_RANK", "19"),
        ] {
            assert_eq!(variables.get(name).map(String::as_str), Some(value), "{name}");
        }
        let gone = ["PMIX_SERVER_URI", "PMI_FD", "SLURM_TASK_PID"].map(str::to_owned);
        assert_eq!(removed, BTreeSet::from(gone));
    }

    #[test]
    fn hosts_with_different_counts_have_no_common_count_to_tell() {
        let uneven = Standing { worlds: vec![30, 8], ..standing() };
        let (variables, removed) = seen(&uneven, 0, &["SLURM_TASKS_PER_NODE"]);
        assert!(!variables.contains_key("SLURM_TASKS_PER_NODE"));
        assert!(removed.contains("SLURM_TASKS_PER_NODE"));
    }

    #[test]
    fn a_life_with_another_number_of_hosts_says_so_once() {
        let mut place = HostPlace::default();
        assert_eq!(place.begin(), None);
        let mut began = |hosts| {
            place.note(Some(&Standing { hosts, ..standing() }));
            place.begin()
        };
        assert_eq!([began(4), began(4)], [None, None]);
        assert_eq!(began(1).as_deref(), Some("the job goes on with 1 host instead of 4"));
        assert_eq!(began(1), None);
        assert_eq!(began(4).as_deref(), Some("the job goes on with 4 hosts instead of 1"));
    }

    #[test]
    fn an_address_that_is_on_no_interface_names_none() {
        assert_eq!(interface_of("192.0.2.77"), None);
        assert_eq!(interface_of("gpu01"), None);
        assert_eq!(interface_of("127.0.0.1").as_deref(), Some("lo"));
    }
}
