//! The names under which a server answers.
//!
//! A page in a browser can make its own name resolve to this machine, and then ask for batches as if they were its own. Such a
//! request carries the page's name in `Host`, so a server answers only to names that it knows.

use std::net::IpAddr;

/// The names that a `Host` header may carry.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// Names and addresses in lower case, without ports: a tunnel changes the port.
    pub names: Vec<String>,
    /// Whether every literal address is one of ours: the server listens on all addresses of its machine.
    pub any_address: bool,
    /// Whether every name will do: a token is wanted, which no page of another site has.
    pub any_name: bool,
}

impl Hosts {
    /// Whether a `Host` header names this server. A request without one was not made by a client of ours.
    pub fn knows(&self, header: Option<&[u8]>) -> bool {
        let Some(name) = header.and_then(|header| std::str::from_utf8(header).ok()).map(name_of) else {
            return false;
        };
        self.any_name || self.names.contains(&name) || (self.any_address && name.parse::<IpAddr>().is_ok())
    }
}

/// The name in a `Host` header, without port and brackets, in lower case.
fn name_of(header: &str) -> String {
    let name = match header.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => header.split(':').next(),
    };
    name.unwrap_or_default().trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        Hosts { names: vec!["localhost".into(), "::1".into()], ..Hosts::default() }
    }

    #[test]
    fn a_name_is_known_whatever_its_port_and_case() {
        for known in ["localhost", "LOCALHOST:80", "localhost.:7070", "[::1]:7070", "[::1]"] {
            assert!(hosts().knows(Some(known.as_bytes())), "{known}");
        }
        for foreign in
            ["", "evil.example", "localhost.evil.example:7070", "127.0.0.1", "[::2]:7070", "\u{e9}"]
        {
            assert!(!hosts().knows(Some(foreign.as_bytes())), "{foreign}");
        }
        assert!(!hosts().knows(None));
        assert!(!hosts().knows(Some(b"\xff")));
    }

    #[test]
    fn a_server_on_all_addresses_answers_to_addresses_but_not_to_names() {
        let every = Hosts { any_address: true, ..hosts() };
        assert!(every.knows(Some(b"10.1.2.3:7070")) && every.knows(Some(b"[fe80::1]:7070")));
        assert!(!every.knows(Some(b"evil.example:7070")));
        let with_token = Hosts { any_name: true, ..hosts() };
        assert!(with_token.knows(Some(b"data-0.training:7070")) && !with_token.knows(None));
    }
}
