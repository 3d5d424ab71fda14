//! How much of all pieces may be here at once, over the whole process: bytes of memory, and mappings.
//!
//! A clock: pieces stand in a ring; when there are too many, the first one goes, unless it was read since it was last looked at, and then
//! it goes to the end. Reading therefore takes no lock and moves nothing.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Weak};

use super::resident::Resident;
use super::shelf::Shelf;
use crate::cache::forks::Forked;

/// Bytes of pieces in memory.
pub(crate) const MEMORY_BYTES_MAX: usize = 128 << 20;
/// Mapped pieces: half of the mappings that there may be.
const MAPPINGS_MAX: usize = 16_384;

static RINGS: LazyLock<Forked<Rings>> = LazyLock::new(Forked::default);

#[derive(Default)]
struct Rings {
    memory: Ring,
    mapped: Ring,
}

#[derive(Default)]
struct Ring {
    places: VecDeque<(Weak<Shelf>, u64, Weak<Resident>)>,
    /// Sum of what was added and not removed.
    size: usize,
}

/// A piece has come; others may have to go.
pub(crate) fn note(shelf: &Arc<Shelf>, piece: u64, resident: &Arc<Resident>) {
    let place = (Arc::downgrade(shelf), piece, Arc::downgrade(resident));
    let bytes = resident.memory_bytes();
    RINGS.with(|rings| match bytes {
        0 => rings.mapped.add(place, 1, MAPPINGS_MAX, |_| 1),
        bytes => rings.memory.add(place, bytes, MEMORY_BYTES_MAX, Resident::memory_bytes),
    });
}

impl Ring {
    fn add(
        &mut self,
        place: (Weak<Shelf>, u64, Weak<Resident>),
        size: usize,
        most: usize,
        size_of: impl Fn(&Resident) -> usize,
    ) {
        self.places.push_back(place);
        self.size += size;
        if self.size <= most {
            return;
        }
        // The ring is made consistent first: what went in other ways takes no room.
        self.places.retain(|(shelf, _, resident)| shelf.strong_count() > 0 && resident.strong_count() > 0);
        self.size =
            self.places.iter().filter_map(|(_, _, resident)| resident.upgrade()).map(|r| size_of(&r)).sum();
        // Some room beyond the newest, so that this is not done for every piece. Two turns at most: after one, nothing is "read since".
        let mut left = 2 * self.places.len();
        while self.size > most - most / 16 && left > 0 && self.places.len() > 1 {
            left -= 1;
            let Some((shelf, piece, weak)) = self.places.pop_front() else { break };
            let (Some(on), Some(resident)) = (shelf.upgrade(), weak.upgrade()) else { continue };
            if resident.take_used() {
                self.places.push_back((shelf, piece, weak));
            } else {
                on.forget(piece, &resident);
                self.size -= size_of(&resident).min(self.size);
            }
        }
    }
}
