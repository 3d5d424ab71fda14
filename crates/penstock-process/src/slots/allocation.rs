//! Which devices a request gets, given what others hold. Pure: the machine and what is held come in as values.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::Inventory;
use super::{Need, Share, Want};

/// What somebody holds.
#[derive(Debug, Clone)]
pub struct Held {
    /// The job.
    pub job: String,
    /// Its devices.
    pub share: Share,
}

/// Why a request cannot be met now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// What it wants, in words: "2 GPUs".
    wanted: String,
    /// How much of that kind is held, and by whom.
    taken: String,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}; {}", self.wanted, self.taken)
    }
}

/// Everything that a request wants, added up.
pub fn total(wants: &[Want]) -> Need {
    wants.iter().fold(Need::default(), |sum, want| {
        let places = want.places;
        Need {
            cpus: sum.cpus.saturating_add(want.need.cpus.saturating_mul(places)),
            gpus: sum.gpus.saturating_add(want.need.gpus.saturating_mul(places)),
            memory_bytes: sum
                .memory_bytes
                .saturating_add(want.need.memory_bytes.saturating_mul(u64::from(places))),
            ports: sum.ports.saturating_add(want.need.ports.saturating_mul(places)),
        }
    })
}

/// Why a request can never be met on this machine, if so.
pub fn impossible(inventory: &Inventory, wants: &[Want]) -> Option<String> {
    let sum = total(wants);
    let count = |list: usize| u64::try_from(list).unwrap_or(u64::MAX);
    let kinds = [
        (u64::from(sum.gpus), count(inventory.gpus.len()), "GPU"),
        (u64::from(sum.cpus), count(inventory.cpus.len()), "CPU"),
        (u64::from(sum.ports), count(inventory.ports.len()), "port"),
    ];
    for (wanted, there, kind) in kinds {
        if wanted > there {
            return Some(format!("{} are wanted, and this machine has {there}", counted(wanted, kind)));
        }
    }
    (sum.memory_bytes > inventory.memory_bytes).then(|| {
        let (wanted, there) = (gibibytes(sum.memory_bytes), gibibytes(inventory.memory_bytes));
        format!("{wanted} of memory are wanted, and this machine has {there}")
    })
}

/// Whether two requests compete, so that the later one has to wait for the earlier one. Ports are so many that nobody waits for them.
pub fn compete(one: &[Want], other: &[Want]) -> bool {
    let (one, other) = (total(one), total(other));
    (one.gpus > 0 && other.gpus > 0)
        || (one.cpus > 0 && other.cpus > 0)
        || (one.memory_bytes > 0 && other.memory_bytes > 0)
}

/// A share for every place of every want, or what is missing. `usable` says whether a port can be bound.
pub fn place(
    inventory: &Inventory,
    held: &[Held],
    wants: &[Want],
    usable: &dyn Fn(u16) -> bool,
) -> std::result::Result<Vec<Vec<Share>>, Shortage> {
    let sum = total(wants);
    let gpus = free(&inventory.gpus, held, |share| &share.gpus);
    let cpus = free(&inventory.cpus, held, |share| &share.cpus);
    if gpus.len() < sum.gpus as usize {
        return Err(scarce("GPU", sum.gpus, inventory.gpus.len(), held, |share| share.gpus.len()));
    }
    if cpus.len() < sum.cpus as usize {
        return Err(scarce("CPU", sum.cpus, inventory.cpus.len(), held, |share| share.cpus.len()));
    }
    let leased_bytes: u64 = held.iter().map(|held| held.share.memory_bytes).sum();
    if sum.memory_bytes > inventory.memory_bytes.saturating_sub(leased_bytes) {
        return Err(scarce_memory(sum.memory_bytes, inventory.memory_bytes, leased_bytes, held));
    }
    let ports: Vec<u16> = free(&inventory.ports, held, |share| &share.ports)
        .into_iter()
        .filter(|port| usable(*port))
        .take(sum.ports as usize)
        .collect();
    if ports.len() < sum.ports as usize {
        return Err(scarce("port", sum.ports, inventory.ports.len(), held, |share| share.ports.len()));
    }
    Ok(deal(wants, gpus, cpus, ports))
}

fn deal(wants: &[Want], gpus: Vec<String>, cpus: Vec<u32>, ports: Vec<u16>) -> Vec<Vec<Share>> {
    let (mut gpus, mut cpus, mut ports) = (gpus.into_iter(), cpus.into_iter(), ports.into_iter());
    let mut share = |need: &Need| Share {
        cpus: cpus.by_ref().take(need.cpus as usize).collect(),
        gpus: gpus.by_ref().take(need.gpus as usize).collect(),
        memory_bytes: need.memory_bytes,
        ports: ports.by_ref().take(need.ports as usize).collect(),
    };
    wants.iter().map(|want| (0..want.places).map(|_| share(&want.need)).collect()).collect()
}

fn free<T: Ord + Clone>(all: &[T], held: &[Held], of: impl Fn(&Share) -> &Vec<T>) -> Vec<T> {
    let taken: BTreeSet<&T> = held.iter().flat_map(|held| of(&held.share)).collect();
    all.iter().filter(|item| !taken.contains(item)).cloned().collect()
}

fn scarce(kind: &str, wanted: u32, there: usize, held: &[Held], of: impl Fn(&Share) -> usize) -> Shortage {
    let taken: usize = held.iter().map(|held| of(&held.share)).sum();
    let holders = holders(held, |share| of(share) > 0);
    Shortage {
        wanted: counted(u64::from(wanted), kind),
        taken: format!("{} of {there} are held{holders}", taken.min(there)),
    }
}

fn scarce_memory(wanted: u64, there: u64, taken: u64, held: &[Held]) -> Shortage {
    let holders = holders(held, |share| share.memory_bytes > 0);
    Shortage {
        wanted: format!("{} of memory", gibibytes(wanted)),
        taken: format!("{} of {} are held{holders}", gibibytes(taken), gibibytes(there)),
    }
}

/// " by train-3f2a and eval-11b0"; many are counted.
fn holders(held: &[Held], has: impl Fn(&Share) -> bool) -> String {
    let mut jobs: BTreeMap<&str, ()> = BTreeMap::new();
    for one in held.iter().filter(|one| has(&one.share)) {
        jobs.insert(&one.job, ());
    }
    let names: Vec<&str> = jobs.into_keys().collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => format!(" by {only}"),
        [first, second] => format!(" by {first} and {second}"),
        [first, rest @ ..] => format!(" by {first} and {} more jobs", rest.len()),
    }
}

/// "1 GPU", "2 GPUs".
pub fn counted(count: u64, kind: &str) -> String {
    format!("{count} {kind}{}", if count == 1 { "" } else { "s" })
}

/// Bytes in the unit that people give memory in.
pub fn gibibytes(bytes: u64) -> String {
    let (whole, unit) = if bytes >= 1 << 30 { (1u64 << 30, "GiB") } else { (1 << 20, "MiB") };
    let tenths = bytes.saturating_mul(10) / whole;
    if tenths % 10 == 0 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// What a request wants, in words.
pub fn described(wants: &[Want]) -> String {
    let sum = total(wants);
    let mut words: Vec<String> = [(sum.gpus, "GPU"), (sum.cpus, "CPU"), (sum.ports, "port")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| counted(u64::from(count), kind))
        .collect();
    if sum.memory_bytes > 0 {
        words.push(format!("{} of memory", gibibytes(sum.memory_bytes)));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn machine(cpus: u32, gpus: u32) -> Inventory {
        Inventory {
            cpus: (0..cpus).collect(),
            gpus: (0..gpus).map(|gpu| gpu.to_string()).collect(),
            memory_bytes: 8 << 30,
            ports: (20_000..20_100).collect(),
        }
    }

    fn want(places: u32, cpus: u32, gpus: u32) -> Want {
        Want { role: "rank".to_owned(), places, need: Need { cpus, gpus, ..Need::default() } }
    }

    fn held(job: &str, cpus: &[u32], gpus: &[&str]) -> Held {
        let gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
        Held { job: job.to_owned(), share: Share { cpus: cpus.to_vec(), gpus, ..Share::default() } }
    }

    #[test]
    fn a_shortage_says_for_what_and_for_whom_one_waits() {
        let machine = machine(8, 8);
        let all: Vec<String> = (0..8).map(|gpu| gpu.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let others = [held("train-3f2a", &[], &all)];
        let missing = place(&machine, &others, &[want(2, 0, 1)], &|_| true).unwrap_err();
        assert_eq!(missing.to_string(), "2 GPUs; 8 of 8 are held by train-3f2a");

        let two = [held("a", &[0, 1], &[]), held("b", &[2, 3, 4], &[])];
        let missing = place(&machine, &two, &[want(1, 4, 0)], &|_| true).unwrap_err();
        assert_eq!(missing.to_string(), "4 CPUs; 5 of 8 are held by a and b");
    }

    #[test]
    fn what_the_machine_does_not_have_is_refused_at_once() {
        let machine = machine(2, 2);
        assert_eq!(impossible(&machine, &[want(2, 1, 1)]), None);
        let why = impossible(&machine, &[want(3, 0, 1)]).unwrap();
        assert_eq!(why, "3 GPUs are wanted, and this machine has 2");
        let memory = Need { memory_bytes: 5 << 30, ..Need::default() };
        let wants = [Want { role: "rank".to_owned(), places: 2, need: memory }];
        let why = impossible(&machine, &wants).unwrap();
        assert_eq!(why, "10 GiB of memory are wanted, and this machine has 8 GiB");
    }

    #[test]
    fn a_port_that_is_bound_by_others_is_passed_over() {
        let need = Need { ports: 2, ..Need::default() };
        let wants = [Want { role: "rank".to_owned(), places: 1, need }];
        let got = place(&machine(1, 0), &[], &wants, &|port| port % 2 == 1).unwrap();
        assert_eq!(got[0][0].ports, [20_001, 20_003]);
    }

    #[test]
    fn only_requests_for_the_same_kind_compete() {
        assert!(compete(&[want(1, 0, 1)], &[want(2, 3, 4)]));
        assert!(!compete(&[want(1, 0, 1)], &[want(2, 3, 0)]));
    }

    proptest! {
        #[test]
        fn shares_never_overlap_and_are_whole_or_nothing(
            cpus in 0u32..12, gpus in 0u32..12, requests in prop::collection::vec((1u32..4, 0u32..4, 0u32..4), 1..8)
        ) {
            let machine = machine(cpus, gpus);
            let mut others: Vec<Held> = Vec::new();
            for (places, cpus_each, gpus_each) in requests {
                let wants = [want(places, cpus_each, gpus_each)];
                let Ok(got) = place(&machine, &others, &wants, &|_| true) else { continue };
                prop_assert_eq!(got[0].len(), places as usize);
                for share in got.into_iter().flatten() {
                    prop_assert_eq!((share.cpus.len(), share.gpus.len()), (cpus_each as usize, gpus_each as usize));
                    for other in &others {
                        prop_assert!(share.cpus.iter().all(|cpu| !other.share.cpus.contains(cpu)));
                        prop_assert!(share.gpus.iter().all(|gpu| !other.share.gpus.contains(gpu)));
                    }
                    others.push(Held { job: "job".to_owned(), share });
                }
            }
        }
    }
}
