//! A large job from its start: hosts that die, a rack that is cut off, a leader that is lost; and what that costs.

use std::sync::Arc;
use std::time::Instant;

use penstock_process::job::Job;
use serde_json::{Value, json};

use crate::node::Plan;
use crate::world::World;

/// A job that has to begin within this, in imagined time.
const BEGIN_MS: u64 = 120_000;

/// How long it may take until every host has a new lease when the leader was lost.
const RENEWED_MS: u64 = 60_000;

/// What is simulated.
#[derive(Debug, Clone, Default)]
pub(crate) struct Large {
    pub(crate) hosts: u32,
    /// After all ranks run.
    pub(crate) seconds: u64,
    pub(crate) deaths: u32,
    pub(crate) seed: u64,
    pub(crate) fanout: u32,
    pub(crate) lease_ms: u64,
    /// Hosts of the rack that is cut off for a third of a lease.
    pub(crate) rack: u32,
    pub(crate) lose_leader: bool,
}

/// What the loss of a leader cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) seed: u64,
    /// Hosts beside the lost one whose ranks run.
    pub(crate) running: u32,
    /// The shortest rest of a lease of any of them.
    pub(crate) least_ms: u64,
    /// Until all had a lease of another leader.
    pub(crate) took_ms: u64,
    /// Hosts whose ranks ended.
    pub(crate) ended: usize,
}

/// A job that begins again for as long as there are hosts.
pub(crate) fn job(ranks: u32) -> Arc<Job> {
    let policy = json!({
        "restart": "gang",
        "budget": {"crash": 1000, "memory": 0, "hang": 0, "preemption": 10, "host": 1000},
        "refill_steps": 0, "backoff_ms": 0, "backoff_max_ms": 0, "same_failure_max": 0,
        "stop_grace_ms": 1000, "save_grace_ms": 1000, "failure_grace_ms": 100, "hang": null,
    });
    let role = json!({"name": "rank", "kind": "gang", "command": ["true"], "ranks": ranks, "policy": policy});
    let about =
        json!({"id": "imagined", "detached": true, "colour": false, "cgroup": false, "roles": [role]});
    Arc::new(serde_json::from_value(about).expect("a job"))
}

impl Large {
    /// Simulates it, and says what it cost.
    pub(crate) fn run(&self) -> Value {
        let began = Instant::now();
        let mut world = self.running();
        let (joined_ms, joined_events, joined_wall) = (world.now_ms, world.events, began.elapsed());
        let dead = self.disturb(&mut world);
        let (by_lease, by_order) = (world.ended_by_lease(), world.ended_by_order());
        let died =
            |rank: u32| dead.iter().find(|(index, _)| *index == rank as usize).map(|(_, at_ms)| *at_ms);
        let false_deaths = world.seen.lost.iter().filter(|(rank, _)| died(*rank).is_none()).count();
        let mut delays: Vec<u64> =
            world.seen.lost.iter().filter_map(|(rank, at_ms)| Some(at_ms - died(*rank)?)).collect();
        delays.sort_unstable();
        let quantile = |share: usize| delays.get((delays.len().saturating_sub(1)) * share / 100).copied();
        let wall = began.elapsed();
        json!({
            "hosts": self.hosts, "seconds": self.seconds, "deaths": dead.len(), "rack": self.rack, "seed": self.seed,
            "fanout": self.fanout, "lease_ms": self.lease_ms, "lost_leader": self.lose_leader,
            "joined_ms": joined_ms, "joined_events": joined_events, "joined_wall_s": joined_wall.as_secs_f64(),
            "events": world.events, "wall_s": wall.as_secs_f64(),
            "cpu_s": cpu_s(), "events_per_s": (world.events as f64 / wall.as_secs_f64()).round(),
            "peak_mb": peak_kb() / 1024,
            "leads": world.leader().is_some(), "term": world.leader().and_then(|leader| Some(world.nodes[leader].host.as_ref()?.membership().term)),
            "detected": delays.len(), "false_deaths": false_deaths,
            "detection_ms": {"least": quantile(0), "median": quantile(50), "most": quantile(100)},
            "ended_by_lease": by_lease, "ended_by_order": by_order, "running": world.running().0,
        })
    }

    /// A world in which all ranks run.
    fn running(&self) -> World {
        let mut world = World::founded(self.seed, self.plan());
        world.quiet = true;
        while world.running().0 < self.hosts as usize {
            world.run_until(world.now_ms + 500);
            assert!(
                world.now_ms < BEGIN_MS,
                "{:?} of {} run\n{}",
                world.running(),
                self.hosts,
                world.leader_words()
            );
        }
        world
    }

    /// Loses the leader at a random moment, its host killed or cut off from all others, and waits until every other host has a lease of the
    /// next one: no rank ends for it after that. How many ran to the end, what the shortest rest of a lease was meanwhile, and how long all
    /// that took.
    pub(crate) fn lose_leader_once(&self) -> Lost {
        let mut world = self.running();
        let wait_ms = world.chance.between(500, 4000);
        world.run_until(world.now_ms + wait_ms);
        let leader = world.leader().expect("a leader");
        let (lost_ms, is_killed) = (world.now_ms, self.seed % 2 == 0);
        if is_killed {
            world.kill(leader);
        } else {
            world.isolate(leader, 2);
        }
        let mut least_ms = self.lease_ms;
        loop {
            world.run_until(world.now_ms + 250);
            let rest_ms = (0..world.nodes.len()).filter(|index| *index != leader).map(|index| {
                let end_ms = world.nodes[index].host.as_ref().and_then(|host| host.lease_end_ms());
                end_ms.unwrap_or(0).saturating_sub(world.local_ms(index))
            });
            let rest_ms = rest_ms.min().unwrap_or(0);
            least_ms = least_ms.min(rest_ms);
            let leads = world.leader().is_some_and(|other| other != leader);
            // What the lost one gave is older than that: it ends before.
            let renewed = rest_ms + world.now_ms > lost_ms + self.lease_ms * 102 / 100;
            if leads && renewed || world.now_ms > lost_ms + RENEWED_MS {
                break;
            }
        }
        let running =
            (0..world.nodes.len()).filter(|index| *index != leader && world.nodes[*index].twin.running);
        Lost {
            seed: self.seed,
            running: running.count() as u32,
            least_ms,
            took_ms: world.now_ms - lost_ms,
            ended: world.ended_by_lease() + world.ended_by_order(),
        }
    }

    fn plan(&self) -> Plan {
        Plan {
            hosts: self.hosts,
            ranks: 1,
            lease_ms: self.lease_ms,
            fanout: self.fanout,
            delay_ms: 20,
            drift_ppm: 10_000,
            host_wait_ms: 3_600_000,
            sizes: Vec::new(),
            replace_within_ms: 0,
            grow_saved: false,
            starter: None,
            listens: false,
            rack: self.rack,
            late: 0,
            checked: false,
            state: None,
            job: job(1),
        }
    }

    /// Lets the time pass with all that goes wrong in it; who died, and when.
    fn disturb(&self, world: &mut World) -> Vec<(usize, u64)> {
        let (from_ms, for_ms) = (world.now_ms, self.seconds * 1000);
        let mut dead: Vec<(usize, u64)> = Vec::new();
        // Voters that die are another matter: a job needs most of them.
        let leader = world.leader().expect("a leader");
        let voters = world.nodes[leader].host.as_ref().expect("it leads").membership().list.voters.clone();
        let mut moments: Vec<u64> =
            (0..self.deaths).map(|_| from_ms + world.chance.between(0, for_ms / 3)).collect();
        moments.sort_unstable();
        let mut rack = Some(from_ms + for_ms / 6).filter(|_| self.rack > 0);
        let mut healed = rack.map(|at_ms| at_ms + self.lease_ms / 3);
        let mut lost = Some(from_ms + for_ms / 4).filter(|_| self.lose_leader);
        let first = u64::from(self.hosts / 2);
        for at_ms in moments.into_iter().chain([from_ms + for_ms]) {
            while let Some(due_ms) =
                [rack, healed, lost].into_iter().flatten().min().filter(|due_ms| *due_ms <= at_ms)
            {
                world.run_until(due_ms);
                if rack.take_if(|at_ms| *at_ms == due_ms).is_some() {
                    (0..self.rack as usize).for_each(|host| world.isolate(first as usize + host, 1));
                } else if healed.take_if(|at_ms| *at_ms == due_ms).is_some() {
                    world.heal();
                } else if lost.take().is_some() {
                    let leader = world.leader().expect("a leader");
                    world.isolate(leader, 2);
                }
            }
            world.run_until(at_ms);
            if at_ms < from_ms + for_ms {
                let host = world.chance.between(0, u64::from(self.hosts) - 1) as usize;
                let lives =
                    world.nodes[host].host.is_some() && !voters.contains(&world.nodes[host].config.host);
                let cut = (first..first + u64::from(self.rack)).contains(&(host as u64));
                if lives && !cut {
                    world.kill(host);
                    dead.push((host, at_ms));
                }
            }
        }
        dead
    }
}

/// Processor time of this process so far: what the wall says too, on a machine that does nothing else.
pub(crate) fn cpu_s() -> f64 {
    let mut about = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the place is large enough and valid when it is zero.
    let about = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, about.as_mut_ptr());
        about.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(about.ru_utime) + seconds(about.ru_stime)
}

/// The most memory that this process has had.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

impl World {
    /// How the host that leads stands.
    pub(crate) fn leader_words(&self) -> String {
        let status = self.leader().and_then(|leader| Some(self.nodes[leader].host.as_ref()?.status()));
        format!("{status:?}")
    }
}
