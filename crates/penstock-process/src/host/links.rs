//! Links to other hosts: who is at the other end, and whom to dial when.

pub(super) mod id_map;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::host::links::id_map::IdMap;
use crate::tree::host_list::HostId;

/// Between two dials to the same place.
const REDIAL_MS: u64 = 500;
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

/// All links of a host.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: IdMap<LinkId, Link>,
    /// The newest open link to a host.
    routes: IdMap<HostId, LinkId>,
    /// When a place was dialled last, and over which link.
    dials: BTreeMap<SocketAddr, (u64, LinkId)>,
    next: u64,
    /// When silent links are looked for again.
    look_ms: u64,
}

impl Links {
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
        let (_, link) = self.dials.get(&address)?;
        self.links.get(link).filter(|known| known.open && known.host.is_some()).map(|_| *link)
    }

    /// Where a link was dialled.
    pub(super) fn dialled(&self, link: LinkId) -> Option<SocketAddr> {
        self.links.get(&link)?.dialled
    }

    /// A link for a dial to a place, if it is time for one.
    pub(super) fn dial(&mut self, now_ms: u64, to: SocketAddr) -> Option<LinkId> {
        if let Some((since_ms, link)) = self.dials.get(&to) {
            let known = self.links.get(link);
            let patience_ms = if known.is_some() { DIAL_MS } else { REDIAL_MS };
            if known.is_some_and(|link| link.open) || now_ms < since_ms + patience_ms {
                return None;
            }
        }
        self.next += 1;
        let link = LinkId(FIRST_DIALLED + self.next);
        self.links.insert(link, Link { dialled: Some(to), ..Link::default() });
        self.dials.insert(to, (now_ms, link));
        Some(link)
    }

    /// A link is open; of one that others dialled this is the first word.
    pub(super) fn open(&mut self, link: LinkId) {
        self.links.entry(link).or_default().open = true;
    }

    /// The other end has said who it is.
    pub(super) fn name(&mut self, link: LinkId, host: HostId) {
        let Some(known) = self.links.get_mut(&link).filter(|known| known.open) else { return };
        known.host = Some(host);
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
    pub(super) fn silent(&mut self, now_ms: u64, limit_ms: u64) -> Vec<LinkId> {
        if now_ms < self.look_ms {
            return Vec::new();
        }
        self.look_ms = now_ms + limit_ms / SILENT_LOOKS;
        let silent = |link: &Link| {
            link.host.is_some() && link.unanswered_ms.is_some_and(|at_ms| now_ms > at_ms + limit_ms)
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
