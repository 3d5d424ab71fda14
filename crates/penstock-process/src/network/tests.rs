//! Peers that an honest host would never be: those who lie about the key, and those who hold it and talk nonsense.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, SignatureScheme};

use super::tls::{Credentials, SharedPair, provider};
use super::{JobKey, Limits, Network, NetworkEvent, Stranger};
use crate::system;

/// A client that takes any server for the right one.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn liar(shown: Arc<CertifiedKey>, peer: SocketAddr) -> ClientConnection {
    let config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(shown)));
    ClientConnection::new(Arc::new(config), ServerName::IpAddress(peer.ip().into())).unwrap()
}

fn key(number: u8) -> JobKey {
    JobKey::new([number; 32])
}

/// Sends bytes over TLS from a thread of its own, and reads until the end. What it read comes back.
fn peer(mut tls: ClientConnection, to: SocketAddr, bytes: Vec<u8>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut socket = TcpStream::connect(to).unwrap();
        let mut answer = Vec::new();
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        if stream.write_all(&bytes).is_ok() {
            let _ = stream.read_to_end(&mut answer);
        }
        answer
    })
}

/// Everything that happened until the peer of the thread was done, and what the network sent it.
fn events_with(network: &mut Network, peer: JoinHandle<Vec<u8>>) -> (Vec<NetworkEvent>, Vec<u8>) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut events = Vec::new();
    while !peer.is_finished() {
        assert!(Instant::now() < until, "{events:?}");
        let mut interests = [system::interest(network.number(), libc::POLLIN)];
        system::poll(&mut interests, Some(Duration::from_millis(20)));
        events.extend(network.turn(system::now_ms()));
    }
    (events, peer.join().unwrap())
}

fn listening() -> Network {
    Network::open(&key(1), "127.0.0.1:0".parse().unwrap(), Limits::default()).unwrap()
}

#[test]
fn a_liar_is_refused_whether_it_shows_its_own_key_or_ours() {
    let ours = SharedPair::new(&key(1)).unwrap();
    let theirs = SharedPair::new(&key(2)).unwrap();
    let mut forged = theirs.clone();
    forged.public_key = ours.public_key;
    for shown in [theirs.certified(), forged.certified()] {
        let mut network = listening();
        let address = network.address();
        // The thread is done with writing before it is refused: its frame has come, and nobody may see it.
        let frame = super::frame::encoded(b"let me in").unwrap();
        let (events, answer) = events_with(&mut network, peer(liar(shown, address), address, frame));
        assert_eq!((events, answer), (vec![], vec![]));
        let told = network.statistics();
        assert_eq!((told.strangers.of(Stranger::OtherKey), told.opened), (1, 0), "{told:?}");
        assert_eq!(told.received_frames, 0);
    }
}

#[test]
fn a_peer_with_the_key_is_closed_with_the_reason_when_its_frames_make_no_sense() {
    let cases: [(&[u8], &str); 2] = [
        (&[0, 0, 0, 1, 2, 9], "it sent a frame of version 2, and this agent speaks version 1"),
        (&[0, 64, 0, 1, 1], "it announced a frame of 4194305 bytes, and at most 4194304 are allowed"),
    ];
    for (bytes, reason) in cases {
        let mut network = listening();
        let address = network.address();
        let dialled = Credentials::new(&key(1)).unwrap().dialled(address.ip());
        let Ok(Connection::Client(tls)) = dialled else { panic!("the dialling side is a client") };
        let stream = [&super::frame::encoded(b"good").unwrap(), bytes].concat();
        let (events, _) = events_with(&mut network, peer(tls, address, stream));
        let [
            NetworkEvent::Opened { dialled: false, .. },
            NetworkEvent::Frame { body, .. },
            NetworkEvent::Closed { why, .. },
        ] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((&body[..], &why[..]), (&b"good"[..], reason));
    }
}
