//! What people should mend on hosts although the job goes on: a disk without room, a clock that is wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Hosts that are named; of more, those with the lowest host ranks.
pub const TROUBLES_MAX: usize = 16;

/// In words, by host rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Troubles(BTreeMap<u32, String>);

impl Troubles {
    /// Of one host; nothing is no trouble.
    pub fn of(host_rank: u32, words: Vec<String>) -> Self {
        let told = (!words.is_empty()).then(|| (host_rank, words.join("; ")));
        Self(told.into_iter().collect())
    }

    /// With those of other hosts. The lowest of all are the lowest of each part, so the order in which parts are joined is the same.
    pub fn merge(mut self, other: &Self) -> Self {
        for (host_rank, words) in &other.0 {
            let known = self.0.entry(*host_rank).or_insert_with(|| words.clone());
            if *words < *known {
                known.clone_from(words);
            }
        }
        while self.0.len() > TROUBLES_MAX {
            self.0.pop_last();
        }
        self
    }

    /// Whether all is well.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is wrong with a host.
    pub fn of_host(&self, host_rank: u32) -> Option<&str> {
        self.0.get(&host_rank).map(String::as_str)
    }

    /// Hosts whose words differ, with what is said now; nothing of one that is well again.
    pub fn news<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (u32, Option<&'a str>)> {
        let all: std::collections::BTreeSet<u32> = self.0.keys().chain(before.0.keys()).copied().collect();
        let both = move |host_rank: u32| (self.of_host(host_rank), before.of_host(host_rank));
        all.into_iter()
            .filter(move |host_rank| both(*host_rank).0 != both(*host_rank).1)
            .map(move |host_rank| (host_rank, both(host_rank).0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> impl Strategy<Value = Troubles> {
        let told = proptest::collection::btree_map(0..40_u32, "[ab]{1,2}", 0..30);
        told.prop_map(|told| Troubles::default().merge(&Troubles(told)))
    }

    proptest! {
        #[test]
        fn the_lowest_hosts_are_named_whatever_the_tree(one in some(), two in some(), three in some()) {
            let left = one.clone().merge(&two).merge(&three);
            prop_assert_eq!(&left, &one.clone().merge(&two.clone().merge(&three)));
            prop_assert_eq!(&left, &three.merge(&two).merge(&one));
        }
    }

    #[test]
    fn news_are_what_is_new_and_who_is_well_again() {
        let before =
            Troubles::of(1, vec!["full".to_owned()]).merge(&Troubles::of(2, vec!["late".to_owned()]));
        let now = Troubles::of(2, vec!["late".to_owned()]).merge(&Troubles::of(3, vec!["full".to_owned()]));
        assert_eq!(now.news(&before).collect::<Vec<_>>(), [(1, None), (3, Some("full"))]);
    }
}
