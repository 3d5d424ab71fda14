//! The pieces of one object that are here or on their way, shared by all readers of the object in this process.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use arc_swap::ArcSwapOption;
use penstock_io::Digest;

use super::budget;
use super::flight::{Flight, Outcome};
use super::resident::Resident;
use crate::cache::forks::Forked;

/// By content, length, and the cache that stands behind.
type Key = (Digest, u64, usize);

static SHELVES: LazyLock<Forked<HashMap<Key, Weak<Shelf>>>> = LazyLock::new(Forked::default);

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Pieces of one object, each absent, on its way or here.
pub(crate) struct Shelf {
    /// Tells shelves apart, also those that are gone.
    pub(crate) number: u64,
    /// One place per piece.
    places: Box<[ArcSwapOption<Resident>]>,
    /// One bit per piece that is here, for those who only want to know: looking at a place itself costs more than a short row.
    here: Box<[AtomicU64]>,
    /// Fetches under way, by each of their pieces.
    flights: Forked<HashMap<u64, Arc<Flight>>>,
}

/// How a piece can be had.
pub(crate) enum Boarding {
    /// It is here.
    Here(Arc<Resident>),
    /// Somebody fetches it, or is about to.
    Theirs(Arc<Flight>),
    /// The caller has to fetch it, and neighbours with it.
    Ours(Arc<Flight>),
}

impl Shelf {
    /// The shelf of an object; `cache` tells caches apart.
    pub(crate) fn of(key: Digest, bytes: u64, pieces: u64, cache: usize) -> Arc<Self> {
        SHELVES.with(|shelves| {
            if let Some(shelf) = shelves.get(&(key, bytes, cache)).and_then(Weak::upgrade) {
                return shelf;
            }
            shelves.retain(|_, shelf| shelf.strong_count() > 0);
            let places = (0..pieces).map(|_| ArcSwapOption::const_empty()).collect();
            let here = (0..pieces.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let shelf = Arc::new(Self { number, places, here, flights: Forked::default() });
            shelves.insert((key, bytes, cache), Arc::downgrade(&shelf));
            shelf
        })
    }

    /// A piece that is here.
    pub(crate) fn get(&self, piece: u64) -> arc_swap::Guard<Option<Arc<Resident>>> {
        self.places[piece as usize].load()
    }

    pub(crate) fn has(&self, piece: u64) -> bool {
        self.places[piece as usize].load().is_some()
    }

    /// Whether a piece seems to be here; enough for a hint.
    pub(crate) fn seems_here(&self, piece: u64) -> bool {
        self.here[piece as usize / 64].load(Ordering::Relaxed) & (1 << (piece % 64)) != 0
    }

    /// Puts a piece on the shelf.
    pub(crate) fn put(self: &Arc<Self>, piece: u64, resident: Arc<Resident>) {
        self.places[piece as usize].store(Some(Arc::clone(&resident)));
        self.here[piece as usize / 64].fetch_or(1 << (piece % 64), Ordering::Relaxed);
        budget::note(self, piece, &resident);
    }

    /// Takes a piece off the shelf, if it is still this one.
    pub(crate) fn forget(&self, piece: u64, resident: &Arc<Resident>) {
        let place = &self.places[piece as usize];
        let current = place.load();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, resident)) {
            self.here[piece as usize / 64].fetch_and(!(1 << (piece % 64)), Ordering::Relaxed);
            place.compare_and_swap(&*current, None);
        }
    }

    /// Settles who fetches the first of `wanted`. Whoever does fetches as many of the others as are neither here nor under way.
    pub(crate) fn board(&self, wanted: Range<u64>, queued: bool) -> Boarding {
        self.flights.with(|flights| {
            if let Some(resident) = self.places[wanted.start as usize].load_full() {
                return Boarding::Here(resident);
            }
            if let Some(flight) = flights.get(&wanted.start) {
                return Boarding::Theirs(Arc::clone(flight));
            }
            let free = |piece: &u64| !self.has(*piece) && !flights.contains_key(piece);
            let end = wanted.start + 1 + (wanted.start + 1..wanted.end).take_while(free).count() as u64;
            let flight = Flight::new(wanted.start..end, queued);
            flights.extend((wanted.start..end).map(|piece| (piece, Arc::clone(&flight))));
            Boarding::Ours(flight)
        })
    }

    /// A flight is over: its pieces go onto the shelf, and those who wait are told.
    pub(crate) fn land(self: &Arc<Self>, flight: &Flight, outcomes: Vec<Outcome>) {
        for (piece, outcome) in flight.pieces.clone().zip(&outcomes) {
            if let Ok(Some(resident)) = outcome {
                self.put(piece, Arc::clone(resident));
            }
        }
        self.flights.with(|flights| {
            flight.pieces.clone().for_each(|piece| {
                if flights.get(&piece).is_some_and(|known| std::ptr::eq(&**known, flight)) {
                    flights.remove(&piece);
                }
            })
        });
        flight.land(outcomes);
    }
}
