//! Links to other hosts: who is at the other end, and whom to dial when.

pub(super) mod id_map;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::host::links::id_map::IdMap;
use crate::tree::host_list::HostId;

/// Between two dials to the same place, at first: each that fails makes it half as long again, up to twice as long, and no two
/// hosts count alike, so hosts that lost the same place do not come back to it all at once, again and again.
const REDIAL_MS: u64 = 400;
const REDIAL_MAX_MS: u64 = 800;
/// A dial that is not answered is given up.
const DIAL_MS: u64 = 3000;
/// How often silent links are looked for in the time after which they are.
const SILENT_LOOKS: u64 = 12;
/// The first number of links that this host dials; those that others dial have smaller ones.
const FIRST_DIALLED: u64 = 1 << 40;

/// A connection to another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// What is known of a link.
#[derive(Debug, Default)]
struct Link {
    /// Who is at its end; known since its first message.
    host: Option<HostId>,
    /// Where it was dialled.
    dialled: Option<SocketAddr>,
    open: bool,
    /// The newest host list that the other end has, or was told over this link.
    list: u64,
    /// Since when we speak and hear nothing.
    unanswered_ms: Option<u64>,
}

/// A place that was dialled.
#[derive(Debug)]
struct Dial {
    /// When last, and over which link.
    since_ms: u64,
    link: LinkId,
    /// How often in vain since somebody was there.
    in_vain: u32,
}

/// All links of a host.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: IdMap<LinkId, Link>,
    /// The newest open link to a host.
    routes: IdMap<HostId, LinkId>,
    dials: BTreeMap<SocketAddr, Dial>,
    next: u64,
    /// Differs from host to host.
    seed: u64,
    /// When silent links are looked for again.
    look_ms: u64,
}

impl Links {
    /// None yet; the pauses of this host follow from the number.
    pub(super) fn of(host: HostId) -> Self {
        Self { seed: host.0, ..Self::default() }
    }

    /// The link to a host, if it is open and has said who it is.
    pub(super) fn to(&self, host: HostId) -> Option<LinkId> {
        self.routes.get(&host).copied()
    }

    /// Who is at the other end.
    pub(super) fn host(&self, link: LinkId) -> Option<HostId> {
        self.links.get(&link)?.host
    }

    /// The open link that was dialled to a place.
    pub(super) fn at(&self, address: SocketAddr) -> Option<LinkId> {
        let link = self.dials.get(&address)?.link;
        self.links.get(&link).filter(|known| known.open && known.host.is_some()).map(|_| link)
    }

    /// Where a link was dialled.
    pub(super) fn dialled(&self, link: LinkId) -> Option<SocketAddr> {
        self.links.get(&link)?.dialled
    }

    /// A link for a dial to a place, if it is time for one.
    pub(super) fn dial(&mut self, now_ms: u64, to: SocketAddr) -> Option<LinkId> {
        let mut in_vain = 0;
        if let Some(dial) = self.dials.get(&to) {
            let known = self.links.get(&dial.link);
            let patience_ms = if known.is_some() { DIAL_MS } else { self.pause_ms(dial) };
            if known.is_some_and(|link| link.open) || now_ms < dial.since_ms + patience_ms {
                return None;
            }
            in_vain = dial.in_vain.saturating_add(1);
        }
        self.next += 1;
        let link = LinkId(FIRST_DIALLED + self.next);
        self.links.insert(link, Link { dialled: Some(to), ..Link::default() });
        self.dials.insert(to, Dial { since_ms: now_ms, link, in_vain });
        Some(link)
    }

    /// Until a place is dialled again where nobody was.
    fn pause_ms(&self, dial: &Dial) -> u64 {
        let grown_ms = (0..dial.in_vain.min(8)).fold(REDIAL_MS, |pause_ms, _| pause_ms * 3 / 2);
        let pause_ms = grown_ms.min(REDIAL_MAX_MS);
        // Any odd number with bits all over: the high half of the product depends on all bits of the other.
        let share = (self.seed ^ dial.link.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        pause_ms + share % (pause_ms / 2)
    }

    /// A link is open; of one that others dialled this is the first word.
    pub(super) fn open(&mut self, link: LinkId) {
        self.links.entry(link).or_default().open = true;
    }

    /// The other end has said who it is.
    pub(super) fn name(&mut self, link: LinkId, host: HostId) {
        let Some(known) = self.links.get_mut(&link).filter(|known| known.open) else { return };
        known.host = Some(host);
        if let Some(dial) = known.dialled.and_then(|to| self.dials.get_mut(&to)) {
            dial.in_vain = 0;
        }
        self.routes.insert(host, link);
    }

    /// Something was said over a link.
    pub(super) fn note_said(&mut self, link: LinkId, now_ms: u64) {
        if let Some(known) = self.links.get_mut(&link) {
            known.unanswered_ms.get_or_insert(now_ms);
        }
    }

    /// The other end said something, and has this host list; who is there, once it has said so.
    pub(super) fn note_heard(&mut self, link: LinkId, list: u64) -> Option<HostId> {
        let known = self.links.get_mut(&link)?;
        known.unanswered_ms = None;
        known.list = known.list.max(list);
        known.host
    }

    /// The newest host list that the other end of a link has, as far as it is known.
    pub(super) fn list_of(&self, link: LinkId) -> u64 {
        self.links.get(&link).map_or(0, |known| known.list)
    }

    /// The other end has a host list, or will when it has heard what it was told.
    pub(super) fn note_list(&mut self, link: LinkId, stamp: u64) {
        if let Some(known) = self.links.get_mut(&link) {
            known.list = known.list.max(stamp);
        }
    }

    /// Links over which nothing has come for so long although we spoke: another may get through where they do not.
    pub(super) fn silent(
        &mut self,
        now_ms: u64,
        limit_ms: u64,
        more_ms: impl Fn(HostId) -> u64,
    ) -> Vec<LinkId> {
        if now_ms < self.look_ms {
            return Vec::new();
        }
        self.look_ms = now_ms + limit_ms / SILENT_LOOKS;
        let silent = |link: &Link| {
            let late = |host: HostId| {
                link.unanswered_ms.is_some_and(|at_ms| now_ms > at_ms + limit_ms + more_ms(host))
            };
            link.host.is_some_and(late)
        };
        let mut found: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| silent(link)).map(|(id, _)| *id).collect();
        found.sort_unstable();
        found
    }

    /// A link is closed; who can no longer be reached.
    pub(super) fn close(&mut self, link: LinkId) -> Option<HostId> {
        let host = self.links.remove(&link)?.host?;
        if self.routes.get(&host) != Some(&link) {
            return None;
        }
        // Another link to the same host may be open still.
        let others = self.links.iter().filter(|(_, known)| known.open && known.host == Some(host));
        match others.map(|(link, _)| *link).min() {
            Some(other) => drop(self.routes.insert(host, other)),
            None => drop(self.routes.remove(&host)),
        }
        (!self.routes.contains_key(&host)).then_some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a host dials a place at which nobody is, as often as it may.
    fn dials(host: u64, until_ms: u64) -> Vec<u64> {
        let (mut links, place) = (Links::of(HostId(host)), "10.0.0.1:29400".parse().unwrap());
        let mut found = Vec::new();
        for now_ms in 0..until_ms {
            if let Some(link) = links.dial(now_ms, place) {
                found.push(now_ms);
                links.close(link);
            }
        }
        found
    }

    #[test]
    fn a_place_where_nobody_is_is_dialled_less_and_less_often_and_never_left_alone() {
        let found = dials(7, 60_000);
        let pauses: Vec<u64> = found.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(pauses[0] >= REDIAL_MS && pauses[0] < REDIAL_MS * 3 / 2);
        assert!(pauses.iter().all(|pause| *pause <= REDIAL_MAX_MS * 3 / 2), "{pauses:?}");
        assert!(pauses[6..].iter().all(|pause| *pause >= REDIAL_MAX_MS), "{pauses:?}");
    }

    #[test]
    fn hosts_that_lost_the_same_place_come_back_at_different_times() {
        let second: std::collections::BTreeSet<u64> =
            (0..64).map(|host| dials(host << 20, 1000)[1]).collect();
        assert!(second.len() > 32, "{second:?}");
    }

    #[test]
    fn a_place_where_somebody_was_is_dialled_as_at_first() {
        let (mut links, place) = (Links::of(HostId(1)), "10.0.0.1:29400".parse().unwrap());
        let mut now_ms = 0;
        let next = |links: &mut Links, now_ms: &mut u64| loop {
            *now_ms += 1;
            if let Some(link) = links.dial(*now_ms, place) {
                return link;
            }
        };
        for _ in 0..6 {
            let link = next(&mut links, &mut now_ms);
            links.close(link);
        }
        let link = next(&mut links, &mut now_ms);
        links.open(link);
        links.name(link, HostId(2));
        links.close(link);
        let link = next(&mut links, &mut now_ms);
        links.close(link);
        let failed_ms = now_ms;
        next(&mut links, &mut now_ms);
        assert!(now_ms - failed_ms < REDIAL_MS * 9 / 4 + 1, "{}", now_ms - failed_ms);
    }
}
