//! TLS 1.3 with raw public keys (RFC 7250).
//!
//! As the server name (SNI) the client sends the key that it expects, so that a server that has changed its key can present
//! the old one to devices that do not know the new one yet. A completed handshake proves that the peer holds the private key;
//! the caller decides which keys it admits.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring::sign::any_eddsa_type, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::key::{PublicKey, SecretKey};

/// The suffix of server names that contain a key.
const SUFFIX: &str = ".federation";

/// The crypto provider with the fastest cipher suites for this processor first: AES if it has instructions for it, else
/// `ChaCha20` (as on a Raspberry Pi 4).
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

/// The server name that a client sends: that of the expected key, or the name for any key.
#[must_use]
pub fn server_name(expected: Option<&PublicKey>) -> String {
    match expected {
        // A label of a name has at most 63 characters.
        Some(key) => {
            let digits = key.to_string();
            let (first, second) = digits.split_at(32);
            format!("{first}.{second}{SUFFIX}")
        }
        None => format!("any{SUFFIX}"),
    }
}

/// A key pair as a certificate for rustls.
#[must_use]
pub fn shown(secret: &SecretKey) -> Arc<CertifiedKey> {
    let pair = any_eddsa_type(&PrivatePkcs8KeyDer::from(secret.pkcs8()));
    let pair = pair.expect("any 32 bytes are a private key of Ed25519");
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(secret.public().spki())], pair))
}

/// The public key in a peer's certificate.
pub fn peer_key(shown: &CertificateDer<'_>) -> Result<PublicKey, Error> {
    PublicKey::from_spki(shown).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// The supported signature schemes.
#[must_use]
pub fn signature_schemes() -> Vec<SignatureScheme> {
    vec![SignatureScheme::ED25519]
}

/// Verifies a signature in the handshake: the proof that the peer holds the private key of the `shown` public key.
pub fn verify_signature(
    provider: &CryptoProvider,
    message: &[u8],
    shown: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signed, &provider.signature_verification_algorithms)
}

/// The error for a handshake of TLS 1.2, which is never offered.
pub fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("this protocol takes TLS 1.3".to_owned()))
}

/// A server's current key and its former keys. The server presents the key that a client asks for, or else the current one.
#[derive(Debug)]
pub struct ServerKeys(RwLock<Vec<Shown>>);

#[derive(Debug)]
struct Shown {
    /// The server name of the key.
    name: String,
    key: PublicKey,
    pair: Arc<CertifiedKey>,
}

impl ServerKeys {
    /// Presents these keys, the newest first.
    #[must_use]
    pub fn new(keys: &[SecretKey]) -> Self {
        let held = Self(RwLock::default());
        held.replace(keys);
        held
    }

    /// Presents other keys from now on. Existing connections are not affected.
    pub fn replace(&self, keys: &[SecretKey]) {
        let named = keys.iter().map(|secret| {
            let key = secret.public();
            Shown { name: server_name(Some(&key)), key, pair: shown(secret) }
        });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = named.collect();
    }

    /// Whether this is the current key.
    #[must_use]
    pub fn is_current(&self, key: PublicKey) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.first().is_some_and(|shown| shown.key == key)
    }

    /// The current key, if a client asked for the `name` of a former one; else `None`.
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

/// The server's verifier of clients: it accepts every key and checks only that the client holds its private key. Admission is
/// decided later.
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
