//! TLS 1.3 with raw public keys (RFC 7250) on both sides: no certificates, no names, no dates.
//!
//! A peer is accepted exactly if it shows our own public key and signs the handshake with it; hosts of one job hold the same pair.
//! There is one suite, one group and one signature, since both ends are the same program: nothing is negotiated that could be weakened.
//! Sessions are not resumed, so every link proves the key anew.

use std::net::IpAddr;
use std::sync::Arc;

use ring::rand::SecureRandom as _;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, ServerConnection, SignatureAlgorithm, SignatureScheme,
};

use super::key::JobKey;

/// What stands before the 32 bytes of an Ed25519 public key in its usual form (RFC 8410).
const PUBLIC_KEY_HEADER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Both sides of the handshake, made once from the key of the job.
pub(super) struct Credentials {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Credentials {
    pub(super) fn new(key: &JobKey) -> Result<Self, Error> {
        let pair = SharedPair::new(key)?;
        let verifier = Arc::new(SameKey { public_key: pair.public_key.clone() });
        let own = pair.certified();
        let provider = Arc::new(provider());

        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.clone())));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;

        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The dialling side of a link.
    pub(super) fn dialled(&self, peer: IpAddr) -> Result<rustls::Connection, Error> {
        ClientConnection::new(self.client.clone(), ServerName::IpAddress(peer.into())).map(Into::into)
    }

    /// The listening side of a link.
    pub(super) fn accepted(&self) -> Result<rustls::Connection, Error> {
        ServerConnection::new(self.server.clone()).map(Into::into)
    }
}

/// Only what we use, so that only that is linked.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![X25519],
        signature_verification_algorithms: WebPkiSupportedAlgorithms { all: &[], mapping: &[] },
        secure_random: &SystemRandomness,
        key_provider: &NoKeyFiles,
    }
}

#[derive(Debug)]
struct SystemRandomness;

impl SecureRandom for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        ring::rand::SystemRandom::new().fill(bytes).map_err(|_| GetRandomFailed)
    }
}

/// Our key comes from the secret of the job, never from a file in a format of TLS.
#[derive(Debug)]
struct NoKeyFiles;

impl KeyProvider for NoKeyFiles {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("keys are derived, not loaded".to_owned()))
    }
}

/// The pair that all hosts of the job hold.
#[derive(Debug, Clone)]
pub(super) struct SharedPair {
    pair: Arc<Ed25519KeyPair>,
    /// In its usual form, as peers see it.
    pub(super) public_key: Arc<[u8]>,
}

impl SharedPair {
    pub(super) fn new(key: &JobKey) -> Result<Self, Error> {
        let refused = |_| Error::General("the seed of a key pair was refused".to_owned());
        let pair = Ed25519KeyPair::from_seed_unchecked(&key.signature_seed()).map_err(refused)?;
        let public_key = [&PUBLIC_KEY_HEADER, pair.public_key().as_ref()].concat();
        Ok(Self { pair: Arc::new(pair), public_key: public_key.into() })
    }

    /// What is shown to a peer, and what signs for it.
    pub(super) fn certified(self) -> Arc<CertifiedKey> {
        let shown = vec![CertificateDer::from(self.public_key.to_vec())];
        Arc::new(CertifiedKey::new(shown, Arc::new(self)))
    }
}

impl SigningKey for SharedPair {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(&*self.public_key))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for SharedPair {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.pair.sign(message).as_ref().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Accepts the peer that holds the same key, and no other.
#[derive(Debug)]
struct SameKey {
    public_key: Arc<[u8]>,
}

impl SameKey {
    fn check_key(&self, shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        if more.is_empty() && shown.as_ref() == &*self.public_key {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_key(shown, &[])?;
        let refused = || Error::from(CertificateError::BadSignature);
        if signed.scheme != SignatureScheme::ED25519 {
            return Err(refused());
        }
        let public_key = UnparsedPublicKey::new(&ED25519, &self.public_key[PUBLIC_KEY_HEADER.len()..]);
        public_key.verify(message, signed.signature()).map_err(|_| refused())?;
        Ok(HandshakeSignatureValid::assertion())
    }
}

/// We never offer TLS 1.2, so nothing of it can be valid.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check_key(shown, more).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check_key(shown, more).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
