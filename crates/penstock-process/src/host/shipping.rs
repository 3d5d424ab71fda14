//! A working directory that a job brings along: who asks whom for it. Pure; files are the business of [`crate::host::carrier`].
//!
//! One host has it from the start. A host without it asks the one above it, or one below that has offered it, so every host sends it to
//! those directly below at most, whatever the size of the job. It is asked for piece by piece: what is under way is bounded, and when the
//! tree changes the rest comes from elsewhere. No life begins on a host before its copy is whole.

use serde::{Deserialize, Serialize};

use crate::host::messages::Body;
use crate::host::{Effect, Host};
use crate::tree::host_list::HostId;
use crate::vote::storage::VoteStorage;

/// A piece that does not come is asked for again after this time, and what is offered is offered again.
const AGAIN_MS: u64 = 1000;

/// Bytes of a shipment, from and to; none at all means its head.
pub type Ranges = Vec<(u64, u64)>;

/// What hosts say about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShipmentWord {
    /// I have it.
    Have,
    /// Send me these bytes.
    Ask(Ranges),
}

/// How far this host is.
#[derive(Debug, Default)]
pub(super) struct Shipping {
    /// The job brings a directory along.
    wanted: bool,
    /// All of it is here, and may be sent on.
    has_all: bool,
    /// The copy is there.
    is_ready: bool,
    /// What is asked for next; nothing while what came is worked on.
    wants: Option<Ranges>,
    /// Who was asked for it, and when.
    asked: Option<(HostId, u64)>,
    /// A host below that has it.
    below: Option<HostId>,
    /// The one above knows that we have it.
    told: Option<HostId>,
    /// It does not know it yet.
    offers: bool,
    offer_ms: u64,
}

impl Shipping {
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Whether ranks may begin here.
    pub(super) fn is_ready(&self) -> bool {
        !self.wanted || self.is_ready
    }

    pub(super) fn due_ms(&self, now_ms: u64) -> Option<u64> {
        (self.wanted && (!self.has_all || self.offers)).then_some(now_ms + AGAIN_MS / 4)
    }
}

impl<S: VoteStorage> Host<S> {
    /// What the files of this host say: what is wanted next, whether all is there, and whether the copy is.
    pub(super) fn note_shipment(&mut self, wants: Option<Ranges>, has_all: bool, is_ready: bool) {
        self.shipping.asked = None;
        (self.shipping.wants, self.shipping.has_all, self.shipping.is_ready) = (wants, has_all, is_ready);
    }

    /// Bytes have come, so who was asked is at it.
    pub(super) fn note_shipment_moved(&mut self) {
        if let Some((_, at_ms)) = &mut self.shipping.asked {
            *at_ms = self.now_ms;
        }
    }

    /// The copy cannot be made here, whatever is tried again.
    pub(super) fn fail_shipment(&mut self, why: String) {
        self.meeting.refused = Some(why);
    }

    pub(super) fn hear_shipment(&mut self, from: HostId, word: ShipmentWord) {
        match word {
            ShipmentWord::Have if self.upward.parent() == Some(from) => self.shipping.told = Some(from),
            ShipmentWord::Have if self.shipping.has_all => {
                self.say(from, Body::Shipment(ShipmentWord::Have));
            }
            ShipmentWord::Have => self.shipping.below = Some(from),
            ShipmentWord::Ask(ranges) if self.shipping.has_all => {
                if let Some(link) = self.links.to(from) {
                    self.out.push(Effect::SendShipment(link, ranges));
                }
            }
            // It asks again.
            ShipmentWord::Ask(_) => {}
        }
    }

    /// Asks for what is wanted, and offers what is here to the host above until that has it.
    pub(super) fn keep_shipment(&mut self) {
        if !self.shipping.wanted {
            return;
        }
        let parent = self.upward.parent().filter(|_| self.leading.is_none());
        let now_ms = self.now_ms;
        let shipping = &mut self.shipping;
        if shipping.has_all {
            let parent = parent.filter(|parent| shipping.told != Some(*parent));
            shipping.offers = parent.is_some();
            if let Some(parent) = parent.filter(|_| now_ms >= shipping.offer_ms) {
                shipping.offer_ms = now_ms + AGAIN_MS;
                self.say(parent, Body::Shipment(ShipmentWord::Have));
            }
            return;
        }
        let below = shipping.below.filter(|below| self.below.has(*below));
        let Some(source) = below.or(parent) else { return };
        let waits = shipping.asked.is_some_and(|(asked, at_ms)| asked == source && now_ms < at_ms + AGAIN_MS);
        if let Some(ranges) = shipping.wants.clone().filter(|_| !waits) {
            shipping.asked = Some((source, now_ms));
            self.say(source, Body::Shipment(ShipmentWord::Ask(ranges)));
        }
    }
}
