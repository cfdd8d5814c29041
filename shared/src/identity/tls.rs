//! Raw public keys in the TLS 1.3 handshake.
//!
//! The client names the server's key that it expects where other protocols name a host, so that a server which
//! changes its key can go on showing the old one to devices that know no other. Whoever completes a handshake has
//! proved that the private key is its own; who that is allowed to be is decided above.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring::sign::any_eddsa_type, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::key::{PublicKey, SecretKey};

/// Where the server's key stands in the name that the client asks for.
const SUFFIX: &str = ".federation";

/// The provider with the cipher suites in the order that this processor is fast at: AES where it has instructions for
/// it, `ChaCha20` where it has not (a Raspberry Pi 4, for one).
#[must_use]
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let aes = cipher_instructions();
    provider.cipher_suites.sort_by_key(|suite| {
        let name = format!("{:?}", suite.suite());
        (name.contains("CHACHA") == aes, name.contains("AES_256"))
    });
    provider
}

fn cipher_instructions() -> bool {
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    return false;
}

/// The name that a client asks for: that of the key that it expects, or of no key in particular.
#[must_use]
pub fn server_name(expected: Option<&PublicKey>) -> String {
    match expected {
        // A label of a name has room for 63 characters.
        Some(key) => {
            let digits = key.to_string();
            let (first, second) = digits.split_at(32);
            format!("{first}.{second}{SUFFIX}")
        }
        None => format!("any{SUFFIX}"),
    }
}

/// A key pair as either side shows it.
#[must_use]
pub fn shown(secret: &SecretKey) -> Arc<CertifiedKey> {
    let pair = any_eddsa_type(&PrivatePkcs8KeyDer::from(secret.pkcs8()));
    let pair = pair.expect("any 32 bytes are a private key of Ed25519");
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(secret.public().spki())], pair))
}

/// The key that a peer shows.
pub fn peer_key(shown: &CertificateDer<'_>) -> Result<PublicKey, Error> {
    PublicKey::from_spki(shown).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// The kind of signature that keys are proved with.
#[must_use]
pub fn signature_schemes() -> Vec<SignatureScheme> {
    vec![SignatureScheme::ED25519]
}

/// Does `signed` prove that whoever sent it has the private half of the `shown` key?
pub fn verify_signature(
    provider: &CryptoProvider,
    message: &[u8],
    shown: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signed, &provider.signature_verification_algorithms)
}

/// What a handshake of TLS 1.2, which is never offered, comes to.
pub fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("this protocol takes TLS 1.3".to_owned()))
}

/// The keys of a server: the one that it is known by, and those that it was known by before. A client is shown the one
/// that it asks for, or else the first.
#[derive(Debug)]
pub struct ServerKeys(RwLock<Vec<Shown>>);

#[derive(Debug)]
struct Shown {
    /// What is asked for it.
    name: String,
    key: PublicKey,
    pair: Arc<CertifiedKey>,
}

impl ServerKeys {
    /// Shows these, the newest first.
    #[must_use]
    pub fn new(keys: &[SecretKey]) -> Self {
        let held = Self(RwLock::default());
        held.replace(keys);
        held
    }

    /// Shows others from now on. Connections that stand are not touched.
    pub fn replace(&self, keys: &[SecretKey]) {
        let named = keys.iter().map(|secret| {
            let key = secret.public();
            Shown { name: server_name(Some(&key)), key, pair: shown(secret) }
        });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = named.collect();
    }

    /// The key that a client should know that has asked for `name`; none if it asked for that one, or for any.
    #[must_use]
    pub fn newer_than(&self, name: &str) -> Option<PublicKey> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let [present, former @ ..] = &keys[..] else { return None };
        former.iter().any(|former| former.name == name).then_some(present.key)
    }
}

impl ResolvesServerCert for ServerKeys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let asked = keys.iter().find(|shown| hello.server_name() == Some(&shown.name));
        asked.or(keys.first()).map(|shown| shown.pair.clone())
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// The server's side: every client proves that it has the key that it shows. Whose key that is matters later.
#[derive(Debug)]
pub struct AnyKey(pub Arc<CryptoProvider>);

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        peer_key(key).map(|_| ClientCertVerified::assertion())
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
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(&self.0, message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        signature_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
