//! What hosts answer to a question, put together on the way up: equal parts once, with the hosts that gave them, and accounts of who
//! answered and who refused (H5). How many bytes pass one edge of the tree has a limit, and what was cut is counted (P5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tree::rank_set::RankSet;

/// Text of an answer that passes one edge of the tree.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// All else that does: with the text less than a frame may have.
pub const HEAD_BYTES_MAX: usize = 2 << 20;
/// Different reasons to refuse that are kept apart.
const REASONS_MAX: usize = 16;
/// What numbers, names and digests of a part take beside what it holds.
const PART_BYTES: usize = 160;

/// Hosts that did not do what was asked, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// In words.
    pub why: String,
    /// Who.
    pub hosts: RankSet,
}

/// Something that one or more hosts answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Equal where parts say the same; empty where a part is that of one host alone.
    #[serde(default)]
    pub digest: String,
    /// The host ranks that gave it.
    #[serde(default)]
    pub hosts: RankSet,
    /// The ranks that it is about, where it is about ranks.
    #[serde(default)]
    pub ranks: RankSet,
    /// What is short and never cut.
    #[serde(default)]
    pub head: Value,
    /// What is that of the lowest of its hosts, and need not be equal.
    #[serde(default)]
    pub about: Value,
    /// What may be long, and is cut where it is too long.
    #[serde(default)]
    pub body: String,
    /// How many bytes of it are cut.
    #[serde(default)]
    pub cut: u64,
}

/// The answer of a host and all below it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The host ranks that answered.
    pub answered: RankSet,
    /// Those that did not do it, and why. No host answered and refused.
    pub refused: Vec<Refusal>,
    /// What was answered.
    pub parts: Vec<Part>,
    /// Where each digest stands.
    #[serde(skip)]
    places: BTreeMap<String, usize>,
}

impl Answer {
    /// That of one host; of one without a host rank nobody asks for an account.
    pub fn of(host: impl Into<Option<u32>>, parts: Vec<Part>) -> Self {
        let hosts: RankSet = host.into().into_iter().collect();
        let mut answer = Self { answered: hosts.clone(), ..Self::default() };
        parts.into_iter().for_each(|part| answer.fold(Part { hosts: hosts.clone(), ..part }));
        answer
    }

    /// Hosts that refuse.
    pub fn refusal(hosts: RankSet, why: &str) -> Self {
        let mut answer = Self::default();
        answer.refuse(hosts, why);
        answer
    }

    /// The hosts that it speaks for.
    pub fn accounted(&self) -> RankSet {
        self.refused.iter().fold(self.answered.clone(), |all, refusal| all.union(&refusal.hosts))
    }

    /// Takes what others answered. A host that has answered before is not counted again, and what it says is not taken twice.
    pub fn take(&mut self, other: Self) {
        let known = self.accounted();
        let mixed = |part: &Part| part.hosts.overlaps(&known) && !part.hosts.is_within(&known);
        if other.parts.iter().any(|part| mixed(part) && !part.ranks.is_empty()) {
            // Which of the ranks belong to hosts that are known is not told, so all of it is left out: these hosts are unheard.
            return;
        }
        self.answered = self.answered.union(&other.answered.minus(&known));
        for refusal in other.refused {
            self.refuse(refusal.hosts.minus(&known), &refusal.why);
        }
        for part in other.parts {
            let hosts = part.hosts.minus(&known);
            if !hosts.is_empty() {
                self.fold(Part { hosts, ..part });
            }
        }
    }

    fn refuse(&mut self, hosts: RankSet, why: &str) {
        if hosts.is_empty() {
            return;
        }
        let known = self.refused.iter().position(|refusal| refusal.why == why);
        let last = (self.refused.len() >= REASONS_MAX).then_some(REASONS_MAX - 1);
        match known.or(last).and_then(|place| self.refused.get_mut(place)) {
            Some(refusal) => {
                refusal.hosts = refusal.hosts.union(&hosts);
                if known.is_none() {
                    "different reasons".clone_into(&mut refusal.why);
                }
            }
            None => self.refused.push(Refusal { why: why.to_owned(), hosts }),
        }
    }

    fn fold(&mut self, part: Part) {
        if self.places.is_empty() {
            let named = self.parts.iter().enumerate().filter(|(_, part)| !part.digest.is_empty());
            self.places = named.map(|(place, part)| (part.digest.clone(), place)).collect();
        }
        let place = self.places.get(&part.digest).copied().filter(|_| !part.digest.is_empty());
        match place.and_then(|place| self.parts.get_mut(place)) {
            Some(known) => {
                if part.hosts.first() < known.hosts.first() {
                    known.about = part.about;
                }
                if part.cut < known.cut {
                    // The same text, of which more is left.
                    (known.body, known.cut) = (part.body, part.cut);
                }
                known.hosts = known.hosts.union(&part.hosts);
                known.ranks = known.ranks.union(&part.ranks);
            }
            None => {
                if !part.digest.is_empty() {
                    self.places.insert(part.digest.clone(), self.parts.len());
                }
                self.parts.push(part);
            }
        }
    }

    /// Cuts what is more than one edge may carry: each text to the same length, as far as it is longer. Of parts that are too many
    /// even so the hosts refuse.
    pub fn bound(&mut self) {
        let mut lengths: Vec<usize> = self.parts.iter().map(|part| part.body.len()).collect();
        lengths.sort_unstable();
        let limit = fair_share(&lengths, BODY_BYTES_MAX);
        for part in self.parts.iter_mut().filter(|part| part.body.len() > limit) {
            let end = (0..=limit).rev().find(|end| part.body.is_char_boundary(*end)).unwrap_or(0);
            part.cut += (part.body.len() - end) as u64;
            part.body.truncate(end);
        }
        let mut room = HEAD_BYTES_MAX;
        let mut beyond = RankSet::default();
        for part in &self.parts {
            let bytes = PART_BYTES + part.head.to_string().len() + part.about.to_string().len();
            if bytes > room {
                beyond = beyond.union(&part.hosts);
            } else {
                room -= bytes;
            }
        }
        if !beyond.is_empty() {
            self.leave_out(beyond);
        }
    }

    /// Takes out hosts, and all whose parts are theirs too: a host that answered in part did not answer.
    fn leave_out(&mut self, mut hosts: RankSet) {
        loop {
            let shared = self.parts.iter().filter(|part| part.hosts.overlaps(&hosts));
            let more = shared.fold(hosts.clone(), |all, part| all.union(&part.hosts));
            if more == hosts {
                break;
            }
            hosts = more;
        }
        self.parts.retain(|part| !part.hosts.overlaps(&hosts));
        self.places.clear();
        self.answered = self.answered.minus(&hosts);
        self.refuse(hosts, "the answers of all hosts are too many for one");
    }
}

/// The largest length to which all can be cut so that together they fit.
fn fair_share(sorted: &[usize], room: usize) -> usize {
    let mut left = room;
    for (place, length) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - place);
        if *length > share {
            return share;
        }
        left -= length;
    }
    room
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn part(digest: &str, body: &str) -> Part {
        Part { digest: digest.to_owned(), body: body.to_owned(), head: json!({"code": 0}), ..Part::default() }
    }

    #[test]
    fn equal_parts_become_one_and_no_host_counts_twice() {
        let mut all = Answer::of(3, vec![part("a", "yes")]);
        all.take(Answer::of(1, vec![part("a", "yes")]));
        all.take(Answer::of(2, vec![part("b", "no")]));
        all.take(Answer::of(2, vec![part("a", "yes")]));
        all.take(Answer::refusal(RankSet::of(2..5), "busy"));
        let hosts: Vec<String> = all.parts.iter().map(|part| part.hosts.to_string()).collect();
        assert_eq!(hosts, ["1,3", "2"]);
        assert_eq!((all.answered.to_string(), all.refused[0].hosts.to_string()), ("1-3".into(), "4".into()));
    }

    #[test]
    fn a_part_about_ranks_of_hosts_that_answered_in_part_is_left_out_whole() {
        let both = Part { ranks: RankSet::of(0..4), hosts: RankSet::of(0..2), ..part("a", "x") };
        let two = Answer { answered: RankSet::of(0..2), parts: vec![both], ..Answer::default() };
        let mut all = Answer::of(0, vec![part("b", "y")]);
        all.take(two);
        assert_eq!(all.answered, RankSet::one(0));
    }

    #[test]
    fn long_texts_are_cut_alike_and_counted() {
        let mut all = Answer::of(0, vec![part("short", "x")]);
        all.take(Answer::of(1, vec![part("one", &"é".repeat(BODY_BYTES_MAX / 2))]));
        all.take(Answer::of(2, vec![part("two", &"o".repeat(BODY_BYTES_MAX))]));
        let before: usize = all.parts.iter().map(|part| part.body.len()).sum();
        all.bound();
        let after: usize = all.parts.iter().map(|part| part.body.len()).sum();
        let cut: u64 = all.parts.iter().map(|part| part.cut).sum();
        assert!(after <= BODY_BYTES_MAX && after > BODY_BYTES_MAX - 8, "{after}");
        assert_eq!(before as u64, after as u64 + cut);
        assert_eq!(all.parts[0].cut, 0);
    }

    #[test]
    fn answers_that_are_too_many_are_refused_and_not_lost() {
        let mut all = Answer::default();
        for host in 0..40 {
            let rows = json!(vec!["row".repeat(1000); 50]);
            all.take(Answer::of(host, vec![Part { head: rows, ..Part::default() }]));
        }
        all.bound();
        assert_eq!(all.accounted(), RankSet::of(0..40));
        assert!(!all.refused.is_empty() && serde_json::to_vec(&all).unwrap().len() < HEAD_BYTES_MAX);
    }

    proptest! {
        /// Goal: H5. Method: answers of random hosts, some of them more than once, in any order.
        #[test]
        fn accounts_are_of_hosts_whatever_comes_twice(
            said in prop::collection::vec((0..20u32, prop::option::of(0..3u8)), 0..60),
        ) {
            let mut all = Answer::default();
            for (host, digest) in &said {
                all.take(match digest {
                    Some(digest) => Answer::of(*host, vec![part(&digest.to_string(), "text")]),
                    None => Answer::refusal(RankSet::one(*host), "busy"),
                });
            }
            let hosts: RankSet = said.iter().map(|(host, _)| *host).collect();
            prop_assert_eq!(all.accounted(), hosts);
            let refused: u64 = all.refused.iter().map(|refusal| refusal.hosts.count()).sum();
            prop_assert_eq!(all.answered.count() + refused, all.accounted().count());
            let given: u64 = all.parts.iter().map(|part| part.hosts.count()).sum();
            prop_assert_eq!(given, all.answered.count());
        }
    }
}
