//! Who takes the place of a lost host, and how many hosts the gang has: one pure function, with a reason (P1).
//!
//! In this order: a spare takes the host rank, one in the lost host's rack first; else a host that is repaired, for at most a while; else
//! the gang continues with the largest size that is allowed; else it waits.

/// A host rank without a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vacancy {
    /// Which.
    pub host_rank: u32,
    /// Where its host was.
    pub rack: u32,
}

/// A host without a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub machine: usize,
    /// Where it is.
    pub rack: u32,
}

/// What to do about host ranks without hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Nothing is to be done.
    Whole,
    /// These hosts take these ranks; others may stay free.
    Fill(Vec<(usize, u32)>),
    /// The gang continues with so many hosts.
    Resize(u32),
    /// It waits, at most until then where sizes are allowed.
    Wait(Option<u64>),
}

/// What is known when somebody has to decide.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// When.
    pub now_ms: u64,
    /// How many hosts the gang has now.
    pub size: u32,
    /// How many it may have, ascending.
    pub sizes: &'a [u32],
    /// Host ranks below the size that are free.
    pub vacant: &'a [Vacancy],
    /// Hosts that may take one.
    pub candidates: &'a [Candidate],
    /// Since when the oldest of the vacant is free.
    pub since_ms: u64,
    /// How long it is waited for a host before the gang gets smaller.
    pub replace_within_ms: u64,
    /// No process of the gang runs, so its size may change.
    pub is_down: bool,
}

/// What to do, and why.
pub fn place(case: &Case<'_>) -> (Placement, String) {
    let mut free: Vec<Candidate> = case.candidates.to_vec();
    let mut filled = Vec::new();
    // Those of the same rack first, so that nobody takes a spare from a rank that stands beside it.
    for same_rack in [true, false] {
        for vacancy in case.vacant {
            let fits = |candidate: &Candidate| !same_rack || candidate.rack == vacancy.rack;
            let is_open = filled.iter().all(|(_, host_rank)| *host_rank != vacancy.host_rank);
            if let Some(found) = free.iter().position(fits).filter(|_| is_open) {
                filled.push((free.remove(found).machine, vacancy.host_rank));
            }
        }
    }
    if !filled.is_empty() {
        let reason = format!("{} of {} free host ranks get a spare", filled.len(), case.vacant.len());
        return (Placement::Fill(filled), reason);
    }
    let here = case.size - case.vacant.len() as u32;
    let most = case.sizes.iter().copied().filter(|size| *size <= here + free.len() as u32).max();
    if case.vacant.is_empty() {
        return match most.filter(|size| *size > case.size && case.is_down) {
            Some(size) => {
                (Placement::Resize(size), format!("{size} hosts are here, and it restarts in any case"))
            }
            None => (Placement::Whole, "every host rank has a host".to_owned()),
        };
    }
    let until_ms = case.since_ms.saturating_add(case.replace_within_ms);
    match most {
        Some(size) if case.now_ms >= until_ms && case.is_down => {
            let waited_s = (case.now_ms - case.since_ms) / 1000;
            (
                Placement::Resize(size),
                format!("no host came within {waited_s} s; {size} hosts are an allowed size"),
            )
        }
        Some(_) => {
            (Placement::Wait(Some(until_ms)), "waits for a host before it continues with fewer".to_owned())
        }
        None => (Placement::Wait(None), "waits for a host".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case<'a>(vacant: &'a [Vacancy], candidates: &'a [Candidate]) -> Case<'a> {
        let sizes = &[4, 8, 16];
        Case {
            now_ms: 0,
            size: 16,
            sizes,
            vacant,
            candidates,
            since_ms: 0,
            replace_within_ms: 600_000,
            is_down: true,
        }
    }

    #[test]
    fn a_spare_in_the_rack_of_the_lost_host_comes_first() {
        let vacant = [Vacancy { host_rank: 3, rack: 0 }, Vacancy { host_rank: 5, rack: 1 }];
        let spares = [Candidate { machine: 20, rack: 1 }, Candidate { machine: 21, rack: 2 }];
        assert_eq!(place(&case(&vacant, &spares)).0, Placement::Fill(vec![(20, 5), (21, 3)]));
    }

    #[test]
    fn without_a_spare_it_waits_and_then_continues_with_the_largest_size_that_fits() {
        let vacant = [Vacancy { host_rank: 3, rack: 0 }];
        let mut case = case(&vacant, &[]);
        assert_eq!(place(&case).0, Placement::Wait(Some(600_000)));
        case.now_ms = 600_000;
        assert_eq!(place(&case).0, Placement::Resize(8));
        // Never while processes of the gang run.
        assert_eq!(place(&Case { is_down: false, ..case }).0, Placement::Wait(Some(600_000)));
        assert_eq!(place(&Case { sizes: &[16], ..case }).0, Placement::Wait(None));
    }

    #[test]
    fn a_smaller_gang_grows_when_it_restarts_and_hosts_are_there() {
        let spares: Vec<Candidate> = (8..16).map(|machine| Candidate { machine, rack: 0 }).collect();
        let small = Case { size: 8, ..case(&[], &spares) };
        assert_eq!(place(&small).0, Placement::Resize(16));
        assert_eq!(place(&Case { candidates: &spares[..7], ..small }).0, Placement::Whole);
        assert_eq!(place(&Case { is_down: false, ..small }).0, Placement::Whole);
    }
}
