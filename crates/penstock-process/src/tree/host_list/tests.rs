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
