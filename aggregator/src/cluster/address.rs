//! Where a store is, and how it is reached.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::{Host, SslMode, TargetSessionAttrs};
use postgres::{Client, Config, NoTls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::warn;

use super::error::StoreError;

/// How long a connection may take to be made, and sent bytes to be acknowledged.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the database waits for the next statement of a transaction, before it ends it together with its connection.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);

/// The address of a store, with all that it takes to connect.
///
/// What does not belong on a command line comes from the environment, under the names that `PostgreSQL`'s own programs know: `PGPASSWORD`,
/// and `PGSSLROOTCERT`, the certificates of the authorities by which the database's certificate is checked. With these, connections are
/// encrypted and the database's name is checked, regardless of `sslmode`.
#[derive(Clone)]
pub struct StoreAddress {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl StoreAddress {
    /// The store at this address, with what the environment adds.
    ///
    /// # Errors
    /// It is no address, asks for encryption without a way to check the other side, or the certificates cannot be read.
    pub fn from_environment(address: &str) -> Result<Self, StoreError> {
        let found = Self::new(address, std::env::var_os("PGPASSWORD"), std::env::var_os("PGSSLROOTCERT"))?;
        if found.is_open_to_others() {
            warn!(
                "the connection to the store at {found} is not encrypted: name the authority of the database's certificate in \
                 PGSSLROOTCERT, unless the network is yours alone"
            );
        }
        Ok(found)
    }

    fn new(address: &str, password: Option<OsString>, roots: Option<OsString>) -> Result<Self, StoreError> {
        let refused = |reason: &str| StoreError::Address { reason: reason.to_owned() };
        let scheme = address.starts_with("postgres://") || address.starts_with("postgresql://");
        if !scheme {
            return Err(refused("this is no address of a PostgreSQL database"));
        }
        // With the authority's certificate all of these are checked alike: the certificate, and the name.
        let address = address.replace("sslmode=verify-full", "sslmode=require");
        let address = address.replace("sslmode=verify-ca", "sslmode=require");
        let mut config = Config::from_str(&address).map_err(|error| refused(&shared::cli::causes(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refused("the address names no host"));
        }
        let strange = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(strange) {
            return Err(refused(
                "the address has more than one @: write one that is part of the password as %40",
            ));
        }
        if let Some(password) = password.filter(|_| config.get_password().is_none()) {
            config.password(password.as_encoded_bytes());
        }
        let tls = match roots {
            Some(path) => Some(verifying(Path::new(&path))?),
            None if config.get_ssl_mode() == SslMode::Require => {
                return Err(refused(
                    "its sslmode asks for a check of the database's certificate, and PGSSLROOTCERT names no certificates to check it with",
                ));
            }
            None => None,
        };
        if tls.is_some() {
            config.ssl_mode(SslMode::Require);
        }
        config.application_name("aggregator").connect_timeout(PATIENCE).tcp_user_timeout(PATIENCE);
        // A host that failed is noticed in half a minute also where an answer is awaited.
        config.keepalives_idle(PATIENCE).keepalives_interval(PATIENCE / 2).keepalives_retries(3);
        // Of several hosts the one that can be written: after a failover it is another one.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self { config, tls })
    }

    /// Whether what is said to a database on another machine can be read on the way, the password's digest among it.
    fn is_open_to_others(&self) -> bool {
        let is_here = |host: &Host| match host {
            Host::Tcp(name) => {
                name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            #[cfg(unix)]
            Host::Unix(_) => true,
        };
        let hosts = self.config.get_hosts().iter().all(is_here);
        self.tls.is_none() && !(hosts && self.config.get_hostaddrs().iter().all(IpAddr::is_loopback))
    }

    /// Connects.
    pub(super) fn connect(&self) -> Result<Client, postgres::Error> {
        let mut client = match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        }?;
        // A process that is stopped in a transaction, or whose machine has failed, would keep others from what it has locked.
        client.batch_execute(&format!(
            "SET idle_in_transaction_session_timeout = {}",
            IDLE_IN_TRANSACTION.as_millis()
        ))?;
        Ok(client)
    }
}

/// Connections whose other side is checked with the certificates in this file.
fn verifying(path: &Path) -> Result<MakeRustlsConnect, StoreError> {
    let refused = |reason: String| StoreError::Certificates { path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| refused(error.to_string()))? {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refused("it has none".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Without the password.
impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                #[cfg(unix)]
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        f.write_str(&hosts.join(","))?;
        if let [port] = self.config.get_ports() {
            write!(f, ":{port}")?;
        }
        self.config.get_dbname().map_or(Ok(()), |name| write!(f, "/{name}"))
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<StoreAddress, StoreError> {
        StoreAddress::new(text, None, None)
    }

    #[test]
    fn a_password_is_never_shown() {
        let shown = address("postgres://lab:secret@db.lab:5433/federation").expect("an address");
        assert_eq!(shown.to_string(), "db.lab:5433/federation");
        assert!(!format!("{shown:?}").contains("secret"));
        let given =
            StoreAddress::new("postgres://lab@db/x", Some("secret".into()), None).expect("an address");
        assert_eq!(given.config.get_password(), Some(&b"secret"[..]));
        let own = StoreAddress::new("postgres://lab:own@db/x", Some("secret".into()), None).expect("one");
        assert_eq!(own.config.get_password(), Some(&b"own"[..]), "what was said is meant");
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for text in [
            "",
            "db.lab",
            "mysql://db",
            "postgres://",
            "postgres://a:secret@db/x?nonsense=1",
            "postgres://a:b@secret@db/x",
        ] {
            let refused = address(text).expect_err(text).to_string();
            assert!(refused.contains("postgres://USER@HOST") && !refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn what_others_could_read_is_known() {
        for (text, is_open) in [
            ("postgres://lab@db.example/x", true),
            ("postgres://lab@192.0.2.1/x", true),
            ("postgres://lab@localhost,db.example/x", true),
            ("postgres://lab@localhost/x", false),
            ("postgres://lab@127.0.0.1:5433/x", false),
            ("postgres:///x?host=/run/postgresql", false),
        ] {
            assert_eq!(address(text).expect(text).is_open_to_others(), is_open, "{text}");
        }
    }

    #[test]
    fn encryption_without_a_check_of_the_other_side_is_refused() {
        let refused = address("postgres://db/x?sslmode=require").expect_err("unchecked").to_string();
        assert!(refused.contains("PGSSLROOTCERT"), "{refused}");
        let full = address("postgres://db/x?sslmode=verify-full").expect_err("unchecked").to_string();
        assert_eq!(full, refused, "it is the same");
        let absent = StoreAddress::new("postgres://db/x", None, Some("/nowhere/ca.pem".into()));
        let absent = absent.expect_err("no file").to_string();
        assert!(absent.starts_with("cannot read certificates from /nowhere/ca.pem"), "{absent}");
    }
}
