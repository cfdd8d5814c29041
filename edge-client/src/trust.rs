//! Server authentication: a client trusts the server that proves the pinned key.
//!
//! Host names, certificate authorities and clocks play no part: a server is identified by its key, which is compared with the key
//! that a ticket or the user gave, or that the first connection saw.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use shared::identity::{PublicKey, tls};

/// Checks servers against a pinned key. Without one, the first complete handshake pins the server's key.
#[derive(Clone, Debug)]
pub struct Trust {
    pinned: Arc<Mutex<Pin>>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, Default)]
struct Pin {
    trusted: Option<PublicKey>,
    refused: Option<PublicKey>,
}

impl Trust {
    /// Trusts the server with this key. Without a key, trusts the first server that answers.
    #[must_use]
    pub fn new(pinned: Option<PublicKey>) -> Self {
        let pin = Pin { trusted: pinned, ..Pin::default() };
        Self { pinned: Arc::new(Mutex::new(pin)), provider: Arc::new(tls::provider()) }
    }

    /// The trusted key, once there is one.
    #[must_use]
    pub fn trusted(&self) -> Option<PublicKey> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).trusted
    }

    /// The key with which the last handshake was refused.
    #[must_use]
    pub fn refused(&self) -> Option<PublicKey> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).refused
    }

    /// Replaces the trusted key, as the server announced on a trusted connection.
    pub fn renew(&self, key: PublicKey) {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).trusted = Some(key);
    }

    /// A copy for one attempt, which records the refused key for itself alone.
    pub(crate) fn attempt(&self) -> Self {
        Self { pinned: Arc::new(Mutex::new(Pin { trusted: self.trusted(), refused: None })), ..self.clone() }
    }

    /// Records the key of a complete handshake. The first one is trusted from now on.
    pub(crate) fn confirm(&self, key: PublicKey) {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).trusted.get_or_insert(key);
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = tls::peer_key(key)?;
        let mut pin = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if pin.trusted.is_none_or(|trusted| trusted == found) {
            pin.refused = None;
            Ok(ServerCertVerified::assertion())
        } else {
            pin.refused = Some(found);
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        tls::no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        tls::verify_signature(&self.provider, message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        tls::signature_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
