//! Looks the name of the place where hosts meet up again. A pod that is made anew has the name of the one before it, and another address.
//!
//! Looking a name up may take seconds, so it is done on a thread that lives as long as one look. Whoever dials the endpoint asks for a look;
//! while the host there is heard nobody dials, and nobody looks.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Between looks.
const PAUSE_MS: u64 = 5_000;

/// What is known of a name.
#[derive(Debug)]
pub struct EndpointLookup {
    /// As people wrote it, with the port; empty where it is an address.
    name: String,
    /// What it meant last.
    address: SocketAddr,
    next_ms: u64,
    /// The look under way.
    under_way: Option<Receiver<Option<SocketAddr>>>,
}

impl EndpointLookup {
    /// Of a name that was looked up when the host was started.
    pub fn new(name: &str, address: SocketAddr, now_ms: u64) -> Self {
        Self { name: name.to_owned(), address, next_ms: now_ms + PAUSE_MS, under_way: None }
    }

    /// Somebody dials an address: if the name stands for it, it is time to look again.
    pub fn note_dial(&mut self, to: SocketAddr, now_ms: u64) {
        let is_due = !self.name.is_empty() && to == self.address && now_ms >= self.next_ms;
        if !is_due || self.under_way.is_some() {
            return;
        }
        self.next_ms = now_ms + PAUSE_MS;
        let (found, under_way) = channel();
        let (name, family) = (self.name.clone(), self.address.is_ipv4());
        let look = move || {
            let _ = found.send(resolve(&name, family));
        };
        // Without a thread there is another look later.
        if std::thread::Builder::new().name("penstock-lookup".to_owned()).spawn(look).is_ok() {
            self.under_way = Some(under_way);
        }
    }

    /// The new address, once.
    pub fn take(&mut self) -> Option<SocketAddr> {
        let found = match self.under_way.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => return None,
            found => found.ok().flatten(),
        };
        self.under_way = None;
        let moved = found.filter(|address| *address != self.address)?;
        self.address = moved;
        Some(moved)
    }
}

/// The first address of the family that the job speaks.
fn resolve(name: &str, is_v4: bool) -> Option<SocketAddr> {
    name.to_socket_addrs().ok()?.find(|address| address.is_ipv4() == is_v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lookup: &mut EndpointLookup) -> Option<SocketAddr> {
        let under_way = lookup.under_way.take()?;
        let (found, again) = channel();
        found.send(under_way.recv().ok().flatten()).ok()?;
        lookup.under_way = Some(again);
        lookup.take()
    }

    #[test]
    fn a_name_that_means_another_address_now_is_told_once() {
        let old: SocketAddr = "192.0.2.1:29400".parse().unwrap();
        let mut lookup = EndpointLookup::new("localhost:29400", old, 0);
        lookup.note_dial(old, PAUSE_MS);
        let moved = taken(&mut lookup).unwrap();
        assert!(moved.ip().is_loopback() && moved.is_ipv4());
        assert_eq!(lookup.take(), None);
        lookup.note_dial(moved, 2 * PAUSE_MS);
        assert_eq!(taken(&mut lookup), None);
    }

    #[test]
    fn only_dials_of_the_endpoint_and_only_after_a_pause_are_reasons_to_look() {
        let address: SocketAddr = "127.0.0.1:29400".parse().unwrap();
        let mut lookup = EndpointLookup::new("localhost:29400", address, 0);
        lookup.note_dial(address, PAUSE_MS - 1);
        lookup.note_dial("127.0.0.1:29401".parse().unwrap(), PAUSE_MS);
        assert!(lookup.under_way.is_none());
        let mut plain = EndpointLookup::new("", address, 0);
        plain.note_dial(address, PAUSE_MS);
        assert!(plain.under_way.is_none());
    }
}
