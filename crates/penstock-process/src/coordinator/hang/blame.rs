//! Who is to blame when a gang makes no steps: judged by where everybody stands, else nobody is named.
//!
//! Ranks of a gang wait for each other, so the quiet ones are many and the culprit is one. It is the one that is outside the
//! collective in which the others wait; or the one whose step is behind theirs; or the one that stands elsewhere than most.

use std::collections::BTreeMap;

use crate::coordinator::hang::Suspect;

/// Ranks to blame, and the evidence in words; no ranks where nothing tells them apart.
pub(super) fn blamed(quiet: &[&Suspect<'_>]) -> (Vec<u32>, &'static str) {
    if let [only] = quiet {
        return (vec![only.rank], "");
    }
    let ranks = |wanted: &dyn Fn(&Suspect<'_>) -> bool| -> Vec<u32> {
        quiet.iter().filter(|suspect| wanted(suspect)).map(|suspect| suspect.rank).collect()
    };
    // One whose stacks cannot be read is not known to wait, and sleeps in the kernel perhaps.
    let outside = ranks(&|suspect| suspect.signs.place.is_none_or(|place| !place.collective));
    let inside = ranks(&|suspect| suspect.signs.place.is_some_and(|place| place.collective));
    if !outside.is_empty() && !inside.is_empty() {
        return (outside, "; its peers wait in a collective");
    }
    let step = |suspect: &Suspect<'_>| suspect.pulse.map_or(0, |pulse| pulse.step);
    let furthest = quiet.iter().map(|suspect| step(suspect)).max().unwrap_or(0);
    let least = quiet.iter().map(|suspect| step(suspect)).min().unwrap_or(0);
    if least < furthest {
        return (ranks(&|suspect| step(suspect) == least), "; its peers are further");
    }
    let mut standing: BTreeMap<u64, u32> = BTreeMap::new();
    for place in quiet.iter().filter_map(|suspect| suspect.signs.place) {
        *standing.entry(place.digest).or_default() += 1;
    }
    let most =
        standing.iter().find(|(_, count)| **count as usize * 2 > quiet.len()).map(|(digest, _)| *digest);
    let elsewhere = ranks(&|suspect| {
        most.is_some_and(|digest| suspect.signs.place.is_some_and(|place| place.digest != digest))
    });
    (elsewhere, "; most of its peers wait at one other place")
}

/// Ranks as people say them, and the verb that follows.
pub(super) fn named(ranks: &[u32]) -> (String, &'static str) {
    match ranks {
        [] => ("the gang".to_owned(), "hangs"),
        [rank] => (format!("rank {rank}"), "hangs"),
        many => {
            let shown: Vec<String> = many.iter().take(8).map(ToString::to_string).collect();
            let more = if many.len() > 8 { ",…" } else { "" };
            (format!("ranks {}{more}", shown.join(",")), "hang")
        }
    }
}
