//! Links between hosts, with real sockets: what hosts of a job may do, and what strangers may not.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use penstock_process::error::ProcessError;
use penstock_process::network::frame::BODY_BYTES_MAX;
use penstock_process::network::{JobKey, Limits, LinkId, Network, NetworkEvent, Stranger};
use penstock_process::system;

/// Long enough for a machine under load; nothing here waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(60);

fn key(number: u8) -> JobKey {
    JobKey::new([number; 32])
}

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// A network and what happened on it.
struct Side {
    network: Network,
    opened: Vec<(LinkId, bool)>,
    frames: BTreeMap<LinkId, Vec<Vec<u8>>>,
    closed: BTreeMap<LinkId, String>,
}

impl Side {
    fn listening(number: u8, limits: Limits) -> Self {
        Self::of(Network::open(&key(number), anywhere(), limits).expect("a listener"))
    }

    fn dialling(number: u8) -> Self {
        Self::of(Network::dialler(&key(number)).expect("a dialler"))
    }

    fn of(network: Network) -> Self {
        Self { network, opened: Vec::new(), frames: BTreeMap::new(), closed: BTreeMap::new() }
    }

    fn turn(&mut self) {
        for event in self.network.turn(system::now_ms()) {
            match event {
                NetworkEvent::Opened { link, dialled, .. } => self.opened.push((link, dialled)),
                NetworkEvent::Frame { link, body } => {
                    assert!(
                        self.opened.iter().any(|(opened, _)| *opened == link),
                        "a frame before its link was open"
                    );
                    assert!(!self.closed.contains_key(&link), "a frame after its link was closed");
                    self.frames.entry(link).or_default().push(body);
                }
                NetworkEvent::Closed { link, why } => {
                    assert_eq!(self.closed.insert(link, why), None, "a link was closed twice");
                }
            }
        }
    }

    fn frames(&self) -> usize {
        self.frames.values().map(Vec::len).sum()
    }

    fn strangers(&self, kind: Stranger) -> u64 {
        self.network.statistics().strangers.of(kind)
    }
}

/// Gives all their turns until something is so.
fn drive(sides: &mut [&mut Side], what: &str, mut done: impl FnMut(&mut [&mut Side]) -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done(sides) {
        assert!(Instant::now() < until, "not in time: {what}");
        let due_ms = sides.iter().filter_map(|side| side.network.due_ms()).min();
        let now_ms = system::now_ms();
        let wait_ms = due_ms.map_or(50, |due_ms| due_ms.saturating_sub(now_ms).min(50));
        let mut interests: Vec<_> =
            sides.iter().map(|side| system::interest(side.network.number(), libc::POLLIN)).collect();
        system::poll(&mut interests, Some(Duration::from_millis(wait_ms)));
        sides.iter_mut().for_each(|side| side.turn());
    }
}

/// Two sides with an open link: the listener's and the dialler's end.
fn linked(server: &mut Side, client: &mut Side) -> (LinkId, LinkId) {
    let before = server.opened.len();
    let dialled = client.network.dial(server.network.address(), system::now_ms());
    drive(&mut [server, client], "a link opens", |sides| {
        sides[0].opened.len() > before && sides[1].opened.contains(&(dialled, true))
    });
    (server.opened[before].0, dialled)
}

#[test]
fn frames_go_both_ways_in_order_and_whole() {
    let (mut server, mut client) = (Side::listening(1, Limits::default()), Side::dialling(1));
    let (at_server, at_client) = linked(&mut server, &mut client);
    let bodies: Vec<Vec<u8>> =
        [0, 1, 16_384, 70_000, BODY_BYTES_MAX, 3].map(|bytes| vec![bytes as u8; bytes]).to_vec();
    let mut sent = (0, 0);
    drive(&mut [&mut server, &mut client], "all frames arrive", |sides| {
        while sent.0 < bodies.len() && sides[0].network.send(at_server, &bodies[sent.0]) {
            sent.0 += 1;
        }
        while sent.1 < bodies.len() && sides[1].network.send(at_client, &bodies[sent.1]) {
            sent.1 += 1;
        }
        sides.iter().all(|side| side.frames() == bodies.len())
    });
    assert!(server.frames[&at_server] == bodies);
    assert!(client.frames[&at_client] == bodies);
    assert!(!client.network.send(at_client, &vec![0; BODY_BYTES_MAX + 1]));
    assert_eq!(server.network.statistics().strangers.total(), 0);
}

#[test]
fn two_hundred_hosts_join_at_once_and_each_is_heard() {
    let mut server = Side::listening(1, Limits::default());
    let mut client = Side::dialling(1);
    let links: Vec<LinkId> =
        (0..200).map(|_| client.network.dial(server.network.address(), system::now_ms())).collect();
    let mut told = std::collections::BTreeSet::new();
    drive(&mut [&mut server, &mut client], "200 links are heard", |sides| {
        assert!(sides[0].network.statistics().half_open <= Limits::default().half_open_max);
        for (place, link) in links.iter().enumerate() {
            if !told.contains(link) && sides[1].network.send(*link, format!("host {place}").as_bytes()) {
                told.insert(*link);
            }
        }
        sides[0].frames() == links.len()
    });
    let heard: std::collections::BTreeSet<_> = server.frames.values().flatten().cloned().collect();
    assert_eq!(heard.len(), 200);
    assert_eq!(server.network.statistics().strangers.total(), 0);
    assert!(client.closed.is_empty(), "{:?}", client.closed);
}

#[test]
fn a_peer_that_does_not_read_is_felt_by_the_sender_and_by_no_other_link() {
    let limits = Limits { queue_bytes_max: 1 << 20, ..Limits::default() };
    let mut server = Side::listening(1, limits);
    let (mut reader, mut sleeper) = (Side::dialling(1), Side::dialling(1));
    let (to_sleeper, _) = linked(&mut server, &mut sleeper);
    let (to_reader, at_reader) = linked(&mut server, &mut reader);

    let body = vec![7; 100_000];
    let mut taken = 0;
    drive(&mut [&mut server, &mut reader], "the queue fills", |sides| {
        let full = !sides[0].network.send(to_sleeper, &body);
        taken += usize::from(!full);
        full && sides[0].network.statistics().queued_bytes > limits.queue_bytes_max - 2 * body.len()
    });
    assert!(server.network.statistics().queued_bytes <= limits.queue_bytes_max);
    for round in 0..100u8 {
        assert!(server.network.send(to_reader, &[round]));
    }
    drive(&mut [&mut server, &mut reader], "the other hears all", |sides| sides[1].frames() == 100);
    assert_eq!(reader.frames[&at_reader].len(), 100);

    drive(&mut [&mut server, &mut sleeper], "the sleeper gets what was taken", |sides| {
        sides[1].frames() >= taken
    });
    assert!(sleeper.frames.values().flatten().all(|frame| *frame == body));
    assert!(server.network.send(to_sleeper, b"again"));
}

#[test]
fn what_was_sent_before_a_link_is_closed_arrives_though_the_peer_is_talking() {
    let (mut server, mut client) = (Side::listening(1, Limits::default()), Side::dialling(1));
    let (at_server, at_client) = linked(&mut server, &mut client);
    for _ in 0..40 {
        client.network.send(at_client, &[1; 50_000]);
    }
    assert!(server.network.send(at_server, &vec![2; 1_000_000]));
    assert!(server.network.send(at_server, b"refused"));
    server.network.close(at_server);
    assert!(!server.network.send(at_server, b"more"));
    drive(&mut [&mut server, &mut client], "the last words arrive", |sides| {
        sides[1].closed.contains_key(&at_client)
    });
    assert_eq!(client.frames[&at_client].last().unwrap(), b"refused");
    drive(&mut [&mut server, &mut client], "nothing is left", |sides| {
        sides[0].network.statistics().open == 0
    });
    assert!(server.closed.is_empty(), "a side hears nothing of links that it closed: {:?}", server.closed);
    assert_eq!(client.closed[&at_client], "it closed the connection");
}

#[test]
fn a_host_that_comes_back_gets_a_link_of_a_new_number() {
    let mut server = Side::listening(1, Limits::default());
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..5 {
        let mut client = Side::dialling(1);
        let (at_server, at_client) = linked(&mut server, &mut client);
        assert!(seen.insert(at_server), "round {round}");
        assert!(client.network.send(at_client, b"here"));
        drive(&mut [&mut server, &mut client], "it is heard", |sides| {
            sides[0].frames.contains_key(&at_server)
        });
        drop(client);
        drive(&mut [&mut server], "its loss is noticed", |sides| sides[0].closed.contains_key(&at_server));
        assert!(!server.network.send(at_server, b"too late"));
    }
    let address = server.network.address();
    drop(server);
    let again = Network::open(&key(1), address, Limits::default());
    assert_eq!(again.unwrap().address(), address, "a restarted coordinator listens where it did");
}

#[test]
fn a_dialler_is_told_why_no_link_came_about() {
    let mut client = Side::dialling(1);
    let mut stranger = Side::listening(2, Limits::default());
    let closed_port = TcpListener::bind(anywhere()).unwrap().local_addr().unwrap();
    let mute = TcpListener::bind(anywhere()).unwrap();
    let now_ms = system::now_ms();
    let refused = client.network.dial(closed_port, now_ms);
    let other_key = client.network.dial(stranger.network.address(), now_ms);
    let silent = client.network.dial(mute.local_addr().unwrap(), now_ms);
    drive(&mut [&mut client, &mut stranger], "all three fail", |sides| sides[0].closed.len() == 3);
    assert!(client.closed[&refused].contains("refused"), "{:?}", client.closed);
    assert_eq!(client.closed[&other_key], "it holds the key of another job");
    assert_eq!(client.closed[&silent], "it did not prove the key in time");
    assert!(client.opened.is_empty());
    drive(&mut [&mut stranger], "it is counted", |sides| sides[0].strangers(Stranger::OtherKey) == 1);
    assert!(stranger.opened.is_empty() && stranger.closed.is_empty());
}

#[test]
fn an_address_that_is_taken_is_an_error_with_the_address() {
    let taken = TcpListener::bind(anywhere()).unwrap();
    let address = taken.local_addr().unwrap();
    let told = Network::open(&key(1), address, Limits::default()).err().unwrap();
    assert!(matches!(told, ProcessError::Listen { .. }), "{told}");
    assert!(told.to_string().contains(&address.to_string()), "{told}");
}

/// What a stranger gets: all bytes until the end, and how long the end took.
fn told_to(server: &mut Side, words: &[u8], what: &str) -> (Vec<u8>, Duration) {
    let before = server.network.statistics().strangers.total();
    let mut socket = TcpStream::connect(server.network.address()).expect("a connection");
    let begin = Instant::now();
    socket.write_all(words).expect("room for a few bytes");
    drive(&mut [server], what, |sides| sides[0].network.statistics().strangers.total() > before);
    let took = begin.elapsed();
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    // A reset is an end, too.
    while let Ok(count @ 1..) = socket.read(&mut bytes) {
        answer.extend_from_slice(&bytes[..count]);
    }
    (answer, took)
}

#[test]
fn strangers_get_at_most_an_alert_and_are_counted_by_kind() {
    let (mut server, mut client) = (Side::listening(1, Limits::default()), Side::dialling(1));
    let (at_server, at_client) = linked(&mut server, &mut client);
    let random: Vec<u8> = (0..3000u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cases: [(&[u8], Stranger); 5] = [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", Stranger::NoTls),
        (&random, Stranger::NoTls),
        (&[0; 2000], Stranger::NoTls),
        (b"", Stranger::Silent),
        (&[22, 3, 1], Stranger::Slow),
    ];
    for (words, kind) in cases {
        let before = server.strangers(kind);
        let (answer, took) = told_to(&mut server, words, &format!("{kind:?}"));
        assert_eq!(server.strangers(kind), before + 1, "{:?}", server.network.statistics());
        assert!(answer.len() <= 7, "{answer:?}");
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
    let gone = TcpStream::connect(server.network.address()).unwrap();
    drop(gone);
    drive(&mut [&mut server], "one that leaves", |sides| sides[0].strangers(Stranger::Gone) == 1);

    assert!(client.network.send(at_client, b"undisturbed"));
    drive(&mut [&mut server, &mut client], "the link works", |sides| {
        sides[0].frames.contains_key(&at_server)
    });
    assert_eq!((server.opened.len(), server.closed.len()), (1, 0), "the owner hears nothing of strangers");
}

/// Goal: the limits of time, to the millisecond. Method: time is an argument, so it passes when the test says so.
#[test]
fn a_silent_stranger_has_two_seconds_and_under_pressure_a_tenth() {
    let limits = Limits { half_open_max: 2, ..Limits::default() };
    let mut network = Network::open(&key(1), anywhere(), limits).unwrap();
    let strangers: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(network.address()).unwrap()).collect();
    let until = Instant::now() + PATIENCE;
    while network.due_ms() != Some(1100) {
        assert!(network.turn(1000).is_empty() && Instant::now() < until, "two come in, one waits");
    }
    network.turn(1099);
    assert_eq!((network.statistics().half_open, network.statistics().strangers.total()), (2, 0));
    network.turn(1100);
    network.turn(1100);
    let now = network.statistics();
    assert_eq!((now.half_open, now.strangers.of(Stranger::CrowdedOut)), (2, 1), "{now:?}");
    network.turn(2999);
    assert_eq!(network.statistics().strangers.total(), 1);
    network.turn(3000);
    assert_eq!(network.statistics().strangers.of(Stranger::Silent), 1);
    network.turn(3100);
    let now = network.statistics();
    assert_eq!((now.half_open, now.strangers.of(Stranger::Silent)), (0, 2), "{now:?}");
    for mut stranger in strangers {
        assert_eq!(stranger.read(&mut [0; 9]).unwrap(), 0, "not a byte, and the end");
    }
    assert_eq!(network.due_ms(), Some(61_100), "what is left is to tell how many there were, in a minute");
}

#[test]
fn a_slow_writer_is_closed_at_its_deadline_however_often_it_writes() {
    let mut server = Side::listening(1, Limits { handshake_ms: 300, ..Limits::default() });
    let mut socket = TcpStream::connect(server.network.address()).unwrap();
    let begin = Instant::now();
    // The beginning of a hello of 512 bytes, of which the rest comes byte by byte.
    let hello = [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 400]].concat();
    let mut rest = hello.iter();
    drive(&mut [&mut server], "it is too slow", |sides| {
        if let Some(byte) = rest.next() {
            let _ = socket.write_all(&[*byte]);
        } else {
            rest = hello[..0].iter();
        }
        sides[0].strangers(Stranger::Slow) == 1
    });
    assert!(begin.elapsed() >= Duration::from_millis(290), "{:?}", begin.elapsed());
    assert_eq!(server.network.statistics().half_open, 0);
}

#[test]
fn a_flood_of_silent_strangers_keeps_no_host_out_and_disturbs_no_link() {
    let limits = Limits::default();
    let (mut server, mut client) = (Side::listening(1, limits), Side::dialling(1));
    let (at_server, at_client) = linked(&mut server, &mut client);
    let flood: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(server.network.address()).unwrap()).collect();
    let late = client.network.dial(server.network.address(), system::now_ms());
    let mut round = 0u32;
    let mut dialled = late;
    drive(&mut [&mut server, &mut client], "a host gets through", |sides| {
        assert!(sides[0].network.statistics().half_open <= limits.half_open_max);
        if sides[1].network.send(at_client, &round.to_be_bytes()) {
            round += 1;
        }
        if sides[1].closed.contains_key(&dialled) {
            dialled = sides[1].network.dial(sides[0].network.address(), system::now_ms());
        }
        sides[1].opened.len() == 2 && sides[0].opened.len() == 2
    });
    drive(&mut [&mut server, &mut client], "all are gone", |sides| {
        sides[0].network.statistics().strangers.total() == flood.len() as u64
    });
    drive(&mut [&mut server, &mut client], "all frames came", |sides| {
        sides[0].frames.get(&at_server).map_or(0, Vec::len) == round as usize
    });
    assert!(server.strangers(Stranger::CrowdedOut) > 0);
    assert!(server.closed.is_empty(), "{:?}", server.closed);
}

#[test]
fn bytes_that_are_changed_on_the_wire_end_the_link_and_reach_nobody() {
    let (mut server, mut client) = (Side::listening(1, Limits::default()), Side::dialling(1));
    let proxy = TcpListener::bind(anywhere()).unwrap();
    let dialled = client.network.dial(proxy.local_addr().unwrap(), system::now_ms());
    drive(&mut [&mut client], "it connects", |sides| sides[0].network.statistics().sent_bytes > 0);
    let (mut inner, _) = proxy.accept().unwrap();
    let mut outer = TcpStream::connect(server.network.address()).unwrap();
    inner.set_nonblocking(true).unwrap();
    outer.set_nonblocking(true).unwrap();
    let pass = |from: &mut TcpStream, to: &mut TcpStream| {
        let mut bytes = [0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            to.write_all(&bytes[..count]).unwrap();
        }
    };
    drive(&mut [&mut server, &mut client], "a link over a wire", |sides| {
        pass(&mut inner, &mut outer);
        pass(&mut outer, &mut inner);
        sides.iter().all(|side| side.opened.len() == 1)
    });
    // Somebody on the wire changes what is sent.
    outer.write_all(&[23, 3, 3, 0, 32]).unwrap();
    outer.write_all(&[9; 32]).unwrap();
    drive(&mut [&mut server], "it is noticed", |sides| sides[0].closed.len() == 1);
    let why = server.closed.values().next().unwrap();
    assert!(why.starts_with("its bytes are damaged"), "{why}");
    assert_eq!(server.frames(), 0);
    drive(&mut [&mut client], "and the other end loses the link", |sides| {
        pass(&mut outer, &mut inner);
        let _ = inner.shutdown(std::net::Shutdown::Both);
        sides[0].closed.contains_key(&dialled)
    });
}

/// Goal: common TLS clients are strangers. Method: the openssl command, where it is installed.
#[test]
fn other_tls_clients_are_refused_with_an_alert() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: the openssl command is not installed");
        return;
    }
    let mut server = Side::listening(1, Limits::default());
    for (version, kind) in [("-tls1_2", Stranger::OldTls), ("-tls1_3", Stranger::NoKey)] {
        let mut openssl = Command::new("openssl")
            .args([
                "s_client",
                version,
                "-groups",
                "X25519",
                "-connect",
                &server.network.address().to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drive(&mut [&mut server], version, |sides| sides[0].network.statistics().strangers.total() > 0);
        let told = server.network.statistics();
        assert!(!openssl.wait().unwrap().success());
        assert_eq!(told.strangers.of(kind), 1, "{version}: {told:?}");
        server = Side::listening(1, Limits::default());
    }
}
