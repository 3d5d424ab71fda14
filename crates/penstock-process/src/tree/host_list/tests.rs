//! The tree as a pure function.

use proptest::prelude::*;

use super::*;

fn entry(number: u32, rack: &str) -> HostEntry {
    let address = SocketAddr::from(([10, 0, 0, 1], 1000));
    HostEntry {
        id: HostId(u64::from(number)),
        name: format!("h{number}"),
        address,
        rack: rack.to_owned(),
        slots: 2,
    }
}

fn list(racks: &[&str]) -> HostList {
    let hosts = racks.iter().zip(0..).map(|(rack, number)| entry(number, rack)).collect();
    HostList { version: 1, hosts, ..HostList::default() }
}

proptest! {
    #[test]
    fn every_host_but_the_leader_has_one_parent_that_has_it_as_a_child(
        hosts in 1..300_u32, leader in 0..300_u32, fanout in 1..70_u32,
    ) {
        let leader = leader % hosts;
        for rank in 0..hosts {
            match parent(rank, leader, fanout) {
                None => prop_assert_eq!(rank, leader),
                Some(above) => {
                    prop_assert!(above < hosts);
                    prop_assert!(children(above, leader, hosts, fanout).any(|below| below == rank));
                }
            }
            prop_assert_eq!(ancestors(rank, leader, fanout).last().unwrap_or(rank), leader);
        }
    }

    /// However hosts and racks are mixed: every rack has a voter before any has two, and nobody votes who may not.
    #[test]
    fn no_rack_has_two_voters_while_another_has_none(
        racks in proptest::collection::vec(0..6_u32, 3..60), lost in proptest::collection::btree_set(0..60_u32, 0..3),
    ) {
        let names: Vec<String> = racks.iter().map(|rack| format!("r{rack}")).collect();
        let list = list(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let voters = list.elect_voters(&lost, &[]);
        let of = |voter: &HostId| list.entry(*voter).map(|entry| entry.rack.clone());
        let chosen: BTreeSet<_> = voters.iter().map(of).collect();
        let here = (0..list.len()).filter(|rank| !lost.contains(rank));
        let there: BTreeSet<_> = here.filter_map(|rank| list.host(rank)).map(|entry| entry.rack.clone()).collect();
        prop_assert_eq!(chosen.len(), voters.len().min(there.len()));
        prop_assert!(voters.iter().all(|voter| list.rank_of(*voter).is_some_and(|rank| !lost.contains(&rank))));
    }

    #[test]
    fn a_takeover_moves_the_edges_of_two_places_only(hosts in 2..2000_u32, leader in 1..2000_u32) {
        let leader = leader % hosts;
        let moved = (0..hosts).filter(|rank| parent(*rank, 0, FANOUT) != parent(*rank, leader, FANOUT)).count();
        prop_assert!(moved <= 2 * FANOUT as usize + 2);
    }
}

#[test]
fn the_depth_is_that_of_the_guide() {
    let depth = |hosts: u32| (0..hosts).map(|rank| ancestors(rank, 0, FANOUT).count()).max();
    assert_eq!([1, 65, 66, 4161, 4162].map(depth), [Some(0), Some(1), Some(2), Some(2), Some(3)]);
}

#[test]
fn voters_stand_in_different_racks_where_there_are_so_many() {
    let ids = |found: Vec<HostId>| found.into_iter().map(|id| id.0).collect::<Vec<_>>();
    let none = BTreeSet::new();
    assert_eq!(ids(list(&["a", "a", "b", "b", "c"]).elect_voters(&none, &[])), [0, 2, 4]);
    assert_eq!(ids(list(&["a", "a", "a", "b"]).elect_voters(&none, &[])), [0, 3, 1]);
    assert_eq!(ids(list(&["", "", "", ""]).elect_voters(&BTreeSet::from([0]), &[HostId(2)])), [2, 1, 3]);
    assert_eq!(ids(list(&["", ""]).elect_voters(&none, &[])), [0]);
    assert_eq!(list(&[""; 32]).elect_voters(&none, &[]).len(), 5);
}
