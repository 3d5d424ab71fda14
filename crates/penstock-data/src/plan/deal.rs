//! How the places of a segment are dealt to sources: by fixed weights, or by two sets of them on a ramp between the two.

use super::ramp::Ramp;
use super::shares::Shares;

/// How many of the first `n` places each source has, for any `n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deal {
    /// The same weights at every place.
    Fixed(Shares),
    /// Weights that move.
    Moving(Box<Moving>),
}

/// Weights on their way from one set to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moving {
    before: Shares,
    after: Shares,
    ramp: Ramp,
    /// Places of the ramp that lie before the first one here.
    offset: u64,
}

impl Deal {
    /// The way from `before` to `after`, from the place `offset` of the ramp on.
    pub(super) fn moving(before: Shares, after: Shares, ramp: Ramp, offset: u64) -> Self {
        Self::Moving(Box::new(Moving { before, after, ramp, offset }))
    }

    /// The same from `places` places later on.
    pub(super) fn later(self, places: u64) -> Self {
        match self {
            Self::Moving(moving) => {
                let offset = moving.offset + places;
                Self::Moving(Box::new(Moving { offset, ..*moving }))
            }
            fixed => fixed,
        }
    }

    /// The same ratios among the sources that are not `gone`; `None` when no place would be anyone's. Where one end of a
    /// ramp has no source left, the other end holds.
    pub(super) fn without(&self, gone: impl Fn(usize) -> bool) -> Option<Self> {
        match self {
            Self::Fixed(shares) => shares.without(gone).map(Self::Fixed),
            Self::Moving(moving) => match (moving.before.without(&gone), moving.after.without(&gone)) {
                (Some(before), Some(after)) => Some(Self::moving(before, after, moving.ramp, moving.offset)),
                (one, other) => one.or(other).map(Self::Fixed),
            },
        }
    }

    /// Whether a source has places at all.
    pub(super) fn has(&self, source: usize) -> bool {
        match self {
            Self::Fixed(shares) => shares.has(source),
            Self::Moving(moving) => moving.before.has(source) || moving.after.has(source),
        }
    }

    /// How many of the first `places` places each source has.
    pub(super) fn counts(&self, places: u64) -> Vec<u64> {
        match self {
            Self::Fixed(shares) => shares.counts(places),
            Self::Moving(moving) => {
                let moved = moving.moved(places);
                let mut counts = moving.before.counts(places - moved);
                let more = moving.after.counts(moved);
                counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
                counts
            }
        }
    }

    /// How many of the first `places` places one source has.
    pub(super) fn count(&self, source: usize, places: u64) -> u64 {
        match self {
            Self::Fixed(shares) => shares.count(source, places),
            Self::Moving(moving) => {
                let moved = moving.moved(places);
                moving.before.count(source, places - moved) + moving.after.count(source, moved)
            }
        }
    }
}

impl Moving {
    /// How many of the first `places` places are dealt by the weights after.
    fn moved(&self, places: u64) -> u64 {
        self.ramp.moved(self.offset.saturating_add(places)) - self.ramp.moved(self.offset)
    }
}
