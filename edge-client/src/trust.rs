//! Which server a client believes: the one whose certificate has the pinned fingerprint.
//!
//! There are no host names, no certificate authority and no clock in this: a certificate is the server's key, and its
//! SHA-256 fingerprint is compared with the one that the user gave or that the first connection saw.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use sha2::{Digest, Sha256};

/// SHA-256 of a server's certificate.
pub type Fingerprint = [u8; 32];

/// Checks servers against a pin, which the first complete handshake sets if there is none.
#[derive(Clone, Debug)]
pub struct Trust {
    pinned: Arc<Mutex<Pin>>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, Default)]
struct Pin {
    trusted: Option<Fingerprint>,
    /// Shown by a peer that has not yet proved that the certificate is its own.
    shown: Option<Fingerprint>,
    refused: Option<Fingerprint>,
}

impl Trust {
    /// Trusts the server with this fingerprint, or without one the first server that answers.
    #[must_use]
    pub fn new(pinned: Option<Fingerprint>) -> Self {
        let pin = Pin { trusted: pinned, ..Pin::default() };
        Self { pinned: Arc::new(Mutex::new(pin)), provider: Arc::new(provider()) }
    }

    /// The fingerprint that is trusted, once there is one.
    #[must_use]
    pub fn trusted(&self) -> Option<Fingerprint> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).trusted
    }

    /// The fingerprint that the last handshake was refused for.
    #[must_use]
    pub fn refused(&self) -> Option<Fingerprint> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).refused
    }

    /// The handshake is complete: whoever showed the certificate holds its key. The first one is trusted from now on.
    pub(crate) fn confirm(&self) {
        let mut pin = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        pin.trusted = pin.trusted.or(pin.shown);
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }
}

/// The provider with the cipher suites in the order that this processor is fast at: AES where it has instructions for
/// it, `ChaCha20` where it has not (a Raspberry Pi 4, for one).
fn provider() -> CryptoProvider {
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

/// A fingerprint as 64 hexadecimal digits.
#[must_use]
pub fn to_hex(fingerprint: &Fingerprint) -> String {
    fingerprint.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found: Fingerprint = Sha256::digest(certificate).into();
        let mut pin = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if pin.trusted.is_none_or(|trusted| trusted == found) {
            pin.refused = None;
            pin.shown = Some(found);
            Ok(ServerCertVerified::assertion())
        } else {
            pin.refused = Some(found);
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
