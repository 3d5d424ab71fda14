//! The imagined network. Links are like TCP: what is said arrives in order or not at all, and a link that is cut breaks silently, so
//! that its ends notice only later. Over two links between the same hosts there is no order: what was on the way when one broke may
//! come after what was said over the next, and a second time.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use penstock_process::host::messages::list_news::ListNews;
use penstock_process::host::messages::{Body, Message};
use penstock_process::host::{Event, LinkId};
use penstock_process::vote::state_keeper::StateAnswer;
use std::sync::Arc;

use crate::world::World;

/// Between a dial and its failure, where nothing passes.
const DIAL_MS: u64 = 3000;
/// Messages of a link that may come again over the next.
const REPEATED_MAX: usize = 4;

/// What happens to one host.
pub(crate) enum Item {
    Tick(u32),
    Report(u32),
    Open(u32, u8),
    Deliver(u32, u8, Box<Message>),
    Close(u32, u8),
    Resume(u32),
    State(u32, u32, Box<StateAnswer>),
    /// A task of a start of a host for a question is done.
    Done(u32, u32, u64),
}

pub(crate) struct Wire {
    /// The hosts, their names of the link, and which start of them it belongs to.
    pub(crate) ends: [(u32, LinkId, u32); 2],
    pub(crate) broken: bool,
    /// What is on the way when it breaks still arrives, before the end notices.
    is_late: bool,
    /// When the last message to each end arrives.
    last: [u64; 2],
    /// What was said last, where it may be repeated, to which end.
    said: Vec<(u8, Message)>,
}

/// What does not pass.
#[derive(Default)]
pub(crate) struct Cuts {
    directions: BTreeSet<(u32, u32)>,
    /// Hosts that only hear each other.
    pub(crate) islands: Vec<u8>,
}

impl Cuts {
    pub(crate) fn passes(&self, from: usize, to: usize) -> bool {
        self.islands[from] == self.islands[to]
            && (self.directions.is_empty() || !self.directions.contains(&(from as u32, to as u32)))
    }

    pub(crate) fn are_none(&self) -> bool {
        self.directions.is_empty() && self.islands.iter().all(|island| *island == 0)
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.directions.insert((from as u32, to as u32));
    }

    pub(crate) fn mend(&mut self, from: usize, to: usize) {
        self.directions.remove(&(from as u32, to as u32));
    }

    pub(crate) fn heal(&mut self) {
        self.directions.clear();
        self.islands.iter_mut().for_each(|island| *island = 0);
    }
}

impl World {
    /// The end of a wire, if it is still that of a host that lives; over a broken wire only what was on the way arrives.
    pub(crate) fn live_end(&self, wire: u32, end: u8) -> Option<(usize, LinkId)> {
        let wire = self.wires.get(wire as usize).filter(|wire| !wire.broken || wire.is_late)?;
        let (node, link, start) = wire.ends[usize::from(end)];
        let known = &self.nodes[node as usize];
        let lives = known.start == start && known.host.is_some() && known.wire(link).is_some();
        lives.then_some((node as usize, link))
    }

    pub(crate) fn close_end(&mut self, wire: u32, end: u8) {
        let (node, link, start) = self.wires[wire as usize].ends[usize::from(end)];
        // A host that was started again uses the same numbers for other links.
        if self.nodes[node as usize].start == start {
            self.nodes[node as usize].unlink(link);
            self.give(node as usize, Event::Closed(link));
        }
    }

    pub(crate) fn dial(&mut self, from: usize, link: LinkId, to: SocketAddr) {
        let target = self.by_address.get(&to).copied().filter(|target| self.nodes[*target].host.is_some());
        let passes = |target: &usize| self.cuts.passes(from, *target) && self.cuts.passes(*target, from);
        let reachable = target.filter(passes);
        let here = (from as u32, link, self.nodes[from].start);
        let wire = self.wires.len() as u32;
        let Some(target) = reachable else {
            // Refused at once where nobody listens; nothing at all where nothing passes.
            let delay_ms = if target.is_none() { 2 } else { DIAL_MS };
            self.wires.push(Wire {
                ends: [here; 2],
                broken: true,
                is_late: false,
                last: [0; 2],
                said: Vec::new(),
            });
            self.push(self.now_ms + delay_ms, Item::Close(wire, 0));
            return;
        };
        self.nodes[target].incoming += 1;
        let theirs = LinkId(self.nodes[target].incoming);
        let ends = [here, (target as u32, theirs, self.nodes[target].start)];
        let at = self.now_ms + self.chance.between(1, self.plan.delay_ms.max(1));
        self.wires.push(Wire { ends, broken: false, is_late: false, last: [at; 2], said: Vec::new() });
        self.nodes[from].add_link(link, wire, 0);
        self.nodes[target].add_link(theirs, wire, 1);
        self.push(at, Item::Open(wire, 0));
        self.push(at, Item::Open(wire, 1));
        self.repeat(from, target, wire);
    }

    /// Says again, over a new wire, what was said last over the one before.
    fn repeat(&mut self, from: usize, target: usize, wire: u32) {
        if self.plan.late == 0 || !self.chance.percent(self.plan.late) {
            return;
        }
        let hosts = [from as u32, target as u32];
        let same = |known: &&mut Wire| known.broken && known.ends.iter().all(|end| hosts.contains(&end.0));
        let before = self.wires.iter_mut().rev().skip(1).take(64).find(same);
        let Some(before) = before.filter(|before| !before.said.is_empty()) else { return };
        let (said, ends) = (std::mem::take(&mut before.said), before.ends);
        for (end, message) in said {
            let to = ends[usize::from(end)].0;
            let end = if hosts[0] == to { 0 } else { 1 };
            let at =
                self.wires[wire as usize].last[end] + self.chance.between(1, 2 * self.plan.delay_ms.max(1));
            self.wires[wire as usize].last[end] = at;
            self.push(at, Item::Deliver(wire, end as u8, Box::new(message)));
        }
    }

    pub(crate) fn send(&mut self, from: usize, link: LinkId, mut message: Box<Message>) {
        let Some((number, end)) = self.nodes[from].wire(link) else { return };
        let to = 1 - end;
        let target = match &self.wires[number as usize] {
            wire if !wire.broken => wire.ends[usize::from(to)].0 as usize,
            _ => return,
        };
        if !self.cuts.passes(from, target) {
            // What is lost here is never repeated: the link is broken, and its ends will notice some day.
            let delay_ms = self.chance.between(500, 20_000);
            self.break_wire(number, delay_ms);
            return;
        }
        if !self.plan.checked {
            self.share_list(from, &mut message);
        }
        let delay_ms = self.chance.between(0, self.plan.delay_ms);
        let wire = &mut self.wires[number as usize];
        let at = (self.now_ms + delay_ms).max(wire.last[usize::from(to)]);
        wire.last[usize::from(to)] = at;
        // A vote is sealed for one opening and a link's first word is its own.
        if self.plan.late > 0 && !matches!(message.body, Body::Hello { .. }) {
            if wire.said.len() == REPEATED_MAX {
                wire.said.remove(0);
            }
            wire.said.push((to, Message::clone(&message)));
        }
        self.push(at, Item::Deliver(number, to, message));
    }

    /// In a large world hosts share one list instead of making the same one of the steps a hundred thousand times.
    fn share_list(&self, from: usize, message: &mut Message) {
        let news = match &mut message.body {
            Body::List(news) | Body::Grant { list: Some(news), .. } => news,
            _ => return,
        };
        if let (ListNews::Steps(steps), Some(host)) = (&*news, &self.nodes[from].host) {
            if !steps.is_empty() {
                *news = ListNews::Whole(Arc::clone(&host.membership().list));
            }
        }
    }

    /// Breaks a wire; each end notices in its own time.
    pub(crate) fn break_wire(&mut self, wire: u32, delay_ms: u64) {
        let late = self.plan.late > 0 && self.chance.percent(self.plan.late);
        let known = &mut self.wires[wire as usize];
        if std::mem::replace(&mut known.broken, true) {
            return;
        }
        known.is_late = late;
        let last = known.last;
        for (end, heard_ms) in (0..).zip(last) {
            let mut at = self.now_ms + delay_ms;
            if late {
                // This end hears the rest, and may have another link to the same host before that.
                at = (self.now_ms + self.chance.between(1, delay_ms.max(2))).max(heard_ms);
            }
            self.push(at, Item::Close(wire, end));
        }
    }

    pub(crate) fn break_links(&mut self, index: usize) {
        for (_, wire, _) in std::mem::take(&mut self.nodes[index].links) {
            self.break_wire(wire, 1);
        }
    }
}
